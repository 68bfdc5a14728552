"""The one value that says which vectors a text gets: a view of a model."""

from jaxwhiten.views.view import View, at_once, fit, together

__all__ = ["View", "at_once", "fit", "together"]
