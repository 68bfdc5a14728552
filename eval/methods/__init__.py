"""Other training-free methods with the interface of whitening: maps of vectors, which are compared by cosine."""

from eval.methods.flow import BertFlow
from eval.methods.registry import METHODS, make_method
