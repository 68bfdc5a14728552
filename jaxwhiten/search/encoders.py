"""What encodes texts for an index: two views, of an encoder in memory or of the model that the index records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from jaxwhiten.errors import MismatchError, ModelError
from jaxwhiten.io import PathLike
from jaxwhiten.space import Space

if TYPE_CHECKING:
    from jaxwhiten.views import View, Views


@runtime_checkable
class Encodes(Protocol):
    """What has a view of documents and one of queries: an `Encoder`, a `View` or `Views`."""

    @property
    def documents(self) -> View:
        """The view of documents, which may end with a code."""

    @property
    def queries(self) -> View:
        """The view of queries for them."""


class Location(NamedTuple):
    """Where an index was loaded from, and its encoder: the current `model`, if it has moved, and another engine."""

    path: PathLike
    model: str | None = None
    engine: str | None = None

    def views(self, space: Space | None, folder: str | None) -> Views:
        """The views of the model of the index's space, whose absolute path was `folder`, if it was local.

        MismatchError if the index records no space, ModelError if the model has moved.
        """
        from jaxwhiten.views import Views  # not needed for vectors alone
        from jaxwhiten.views.loading import reopened

        if space is None:
            raise MismatchError(
                f"{self.path}: does not record its encoder, so queries cannot be encoded."
                " Rebuild it with `jaxwhiten index`."
            )
        model = self.model
        if model is None and folder is not None:
            name = str(space.model)
            places = (Path(name), Path(self.path).resolve().parent / name, Path(folder))
            model = next((str(place) for place in places if place.is_dir()), None)
            if model is None:
                advice = "specify its location with `model`"
                raise ModelError(f"{folder}: the model of the index {self.path} was not found: {advice}.")
        return Views.of(reopened(space, model=model, engine=self.engine)[0])
