"""Other training-free methods with the interface of whitening: maps of vectors, which are compared by cosine."""

from jaxwhiten.methods.between import MAP_KINDS, CrossMoments, EncoderMap
from jaxwhiten.methods.columns import Centring, Identity, ZScore
from jaxwhiten.methods.flow import FLOW_CONFIGS, BertFlow
from jaxwhiten.methods.projection import AllButTheTop, RandomProjection
from jaxwhiten.methods.registry import METHODS, load_method, make_method
from jaxwhiten.whitening.estimator import Method
