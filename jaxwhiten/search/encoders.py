"""What encodes texts for an index: two views, of an encoder in memory or of the model that the index records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from jaxwhiten.errors import MismatchError, ModelError
from jaxwhiten.io import PathLike
from jaxwhiten.types import Fields, Json

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

    def views(self, encoding: Fields | None) -> Views:
        """The views of the model that the index records; MismatchError if it records none."""
        from jaxwhiten.views import Views  # not needed for vectors alone
        from jaxwhiten.views.loading import recorded_view

        if encoding is None:
            raise MismatchError(
                f"{self.path}: does not record its encoder, so queries cannot be encoded."
                " Rebuild it with `jaxwhiten index`."
            )
        located_encoding = located(encoding, self.path, self.model)
        view = recorded_view(located_encoding, engine=self.engine)
        if view.raw.space.head == encoding.get("head"):  # the index itself has the folder's whitening or code
            view = view.raw
        return Views.of(view)


def located(encoding: Fields, path: PathLike, model: str | None = None) -> Json:
    """The encoding that an index in a folder records, with the present place of its model, or the `model` given."""
    if model:
        return {**encoding, "model": model}
    folder = encoding.get("folder")
    if not folder:
        return dict(encoding)
    for place in (Path(encoding["model"]), Path(path).resolve().parent / encoding["model"], Path(folder)):
        if place.is_dir():
            return {**encoding, "model": str(place)}
    raise ModelError(f"{folder}: the model of the index {path} was not found: specify its location with `model`.")
