"""The one value that says which vectors a text gets: a view of a model."""

from jaxwhiten.views.view import View, Views, fit

__all__ = ["View", "Views", "fit"]
