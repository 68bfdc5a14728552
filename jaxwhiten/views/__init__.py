"""The one value that says which vectors a text gets: a view of a model."""

from jaxwhiten.views.core import Core, tokenizer_for
from jaxwhiten.views.stream import BLOCK, progress
from jaxwhiten.views.view import View, Views, at_once, together

__all__ = ["BLOCK", "Core", "View", "Views", "at_once", "progress", "together", "tokenizer_for"]
