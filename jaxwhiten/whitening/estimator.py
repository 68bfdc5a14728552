"""What every estimator shares: scikit-learn's protocol, without importing scikit-learn, provenance, and files.

A subclass has its parameters as dataclass fields and sets plain attributes that end in `_` when it is fitted. It
defines `name`, which files record, `_apply`, `tensors` and `restore`.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform, no_type_check

import numpy as np

from jaxwhiten import io
from jaxwhiten._version import __version__
from jaxwhiten.arrays import as_matrix
from jaxwhiten.errors import REASON, FormatError, check_name, not_fitted, turning
from jaxwhiten.options import check_bounds
from jaxwhiten.space import Space, check_space
from jaxwhiten.types import Fields, Float, Json, RowsLike
from jaxwhiten.vectors import space_of

# Not typing.Self: the run-time type checker of the tests does not take it in methods.
S = TypeVar("S", bound="Saved")
E = TypeVar("E", bound="Estimator")


@dataclass_transform(eq_default=False)
def parameters(cls: type[E]) -> type[E]:
    """Makes the annotated attributes of a class its constructor's arguments; instances compare and hash by identity."""
    estimator = dataclasses.dataclass(eq=False, repr=False)(cls)
    no_type_check(vars(estimator)["__init__"])  # scikit-learn stores any value here; fitting checks it
    return estimator


INVALID = (KeyError, TypeError, ValueError, OverflowError)  # what reading raises if numbers or facts are impossible


def stamp(fit_seconds: float = 0.0) -> Json:
    """Provenance of a fit made now by this version."""
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"date": date, "version": __version__, "fit_seconds": fit_seconds}


class Saved:
    """What is written to a file of tensors with provenance."""

    name: ClassVar[str]

    def tensors(self) -> dict[str, np.ndarray]:
        """What was learned, as named arrays."""
        raise NotImplementedError

    @classmethod
    def _restored(cls: type[S], tensors: Mapping[str, np.ndarray], provenance: Json) -> S:
        """The reverse of `tensors`; KeyError, TypeError or ValueError for a file that is not valid."""
        raise NotImplementedError

    @classmethod
    def load(cls: type[S], path: io.PathLike) -> S:
        """Reads a file written by `save` and checks its contents.

        Raises:
          FormatError: The file is missing, damaged or of another kind, or its numbers are impossible.
        """
        return cls.from_tensors(path, *io.load_tensors(path, kind=cls.name))

    @classmethod
    def from_tensors(cls: type[S], path: io.PathLike, tensors: Mapping[str, np.ndarray], header: Fields) -> S:
        """`load` from the tensors and the header of the file `path`."""
        message = f"{path}: not a valid {cls.name} file ({REASON}). Rewrite it."
        with turning(FormatError, message, *INVALID), np.errstate(all="ignore"):
            return cls._restored(tensors, dict(header["provenance"]))


class Estimator(Saved):
    """The base of `Whitening` and of codes: parameters, `transform`, provenance and files."""

    n_features_in_: int
    n_samples_seen_: int
    _record: Fields

    def fit(self: E, X: RowsLike, y: object = None) -> E:
        """Learns from [n, d] rows, and forgets earlier ones."""
        return self._fit_rows(X, more=False)

    def partial_fit(self: E, X: RowsLike, y: object = None) -> E:
        """Adds rows to those seen by `fit` or `partial_fit`, also before `save`. Args and Raises as for `fit`.

        A decomposition is postponed to its first use, so that many small blocks are cheap. After the first rows, X may
        be empty. MismatchError for rows of another space than the first ones, if both are known.
        """
        return self._fit_rows(X, more=True)

    def _check_params(self, d: int) -> None:
        """Raises InputError if a parameter is invalid for rows of d columns."""
        check_bounds(self)

    def _apply(self, X: np.ndarray) -> np.ndarray:
        """Maps rows of the right number of columns; NonFiniteError for rows that are not finite."""
        raise NotImplementedError

    def restore(self, tensors: Mapping[str, np.ndarray], d: int) -> None:
        """The reverse of `tensors`; KeyError or ValueError if the arrays are not valid for d columns."""
        raise NotImplementedError

    def _fitted_on(self: E, n: int, d: int, record: Fields, space: Space | None = None) -> E:
        """Completes a fit on n rows of d columns, of a space; `record` is further provenance that is not computed."""
        self.n_samples_seen_ = n
        self.n_features_in_ = d
        self._record = {**(space.record() if space else {}), **record}
        return self

    @property
    def space(self) -> Space | None:
        """The space of the rows of the fit, if it is known."""
        space = dataclasses.replace(Space.of(self._record), dimension=self.n_features_in_)
        return None if space == Space(dimension=space.dimension) else space

    def in_space(self: E, space: Space) -> E:
        """A copy that records another space of the rows of the fit, such as that of an encoder whose head it ends."""
        record = {name: value for name, value in self._record.items() if name not in Space.__dataclass_fields__}
        return copy.copy(self)._fitted_on(self.n_samples_seen_, self.n_features_in_, record, space)

    def _fit_rows(self: E, X: RowsLike, more: bool) -> E:
        """Learns from rows, with `more` in addition to those of the fit, if there is one."""
        started = time.perf_counter()
        more = more and self.__sklearn_is_fitted__()
        if more:
            d = self.n_features_in_
            n = self.n_samples_seen_
            record = self._record
        else:
            d = None
            n = 0
            record = {}
        space = space_of(X)
        X = as_matrix(X, type(self).__name__, columns=d, min_rows=int(d is None))
        self._check_params(X.shape[1])
        if more:
            check_space(f"the {type(self).__name__}", self.space, space, "fit another one")
        if len(X):
            self._add_rows(X, more)
        seconds = record.get("fit_seconds", 0.0) + time.perf_counter() - started
        return self._fitted_on(n + len(X), X.shape[1], {**record, **stamp(seconds)}, None if more else space)

    def _add_rows(self, X: np.ndarray, more: bool) -> None:
        """`_fit_rows` of checked rows, at least one."""
        raise NotImplementedError

    def __sklearn_is_fitted__(self) -> bool:
        return "n_features_in_" in vars(self)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            learned = name.endswith("_") or name in ("_state", "_record") or hasattr(type(self), name)
            if learned and not name.startswith("__") and not self.__sklearn_is_fitted__():
                raise not_fitted(self)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _facts(self) -> Json:
        """The provenance that follows from the fit and the parameters, JSON-representable."""
        params = {name: getattr(value, "item", lambda v=value: v)() for name, value in self.get_params().items()}
        return {"method": self.name, "params": params, "n": self.n_samples_seen_, "dimension": self.n_features_in_}

    @property
    def provenance(self) -> Json:
        """A new dict: model, pooling, method, parameters, rows, dimension, date, version, and the caller's facts.

        If the rows knew their space, it is recorded.
        """
        return {"model": None, "pooling": None, **self._record, **self._facts()}

    def save(self, path: io.PathLike, provenance: Fields | None = None) -> None:
        """Writes a safetensors file with a JSON header, from which `load` makes an equal estimator.

        `provenance` adds JSON-representable facts, such as model and pooling.
        """
        header = {"provenance": self.provenance | dict(provenance or {}) | self._facts()}
        io.save_tensors(path, self.tensors(), kind=self.name, header=header)

    @classmethod
    def _restored(cls: type[E], tensors: Mapping[str, np.ndarray], provenance: Json) -> E:
        result = cls().set_params(**provenance["params"])
        n = int(provenance["n"])
        d = int(provenance["dimension"])
        provenance["fit_seconds"] = float(provenance["fit_seconds"])
        io.within("rows and columns", (n, d), 1)
        io.finite_numbers(tensors)
        result._check_params(d)
        result.restore(tensors, d)
        return result._fitted_on(n, d, provenance)

    def _defaults(self) -> dict[str, Any]:
        fields: dict[str, Any] = getattr(type(self), "__dataclass_fields__", {})
        return {name: field.default for name, field in fields.items()}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Constructor arguments by name."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self: E, **params: Any) -> E:
        """Changes constructor arguments; InputError for a name that is no argument of the constructor."""
        for name in params:
            check_name(f"parameter of {type(self).__name__}", name, self._defaults())
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = self._defaults()
        changed = (f"{name}={value!r}" for name, value in self.get_params().items() if value != defaults[name])
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=["float64", "float32"]),
        )

    def rows(self, X: RowsLike) -> np.ndarray:
        """Array-like rows [n, d] as a matrix; MismatchError if they know their space, and the fit was on another."""
        name = type(self).__name__
        space = space_of(X)
        matrix = as_matrix(X, name, columns=self.n_features_in_)
        if space is not None:
            check_space(f"the {name}", self.space, space, "fit another one", role="query", tolerated=("max_length",))
        return matrix

    def transform(self, X: RowsLike) -> Float[np.ndarray, "n k"]:
        """Maps [n, d] rows.

        Returns:
          float32 for rows in float32 or of at most 16 bits, else float64, unless the class documents otherwise.

        Raises:
          NonFiniteError: A row holds NaN or an infinity; the message names the row.
          MismatchError: The rows are of another space than those of the fit, and both are known.
        """
        return self._apply(self.rows(X))

    def fit_transform(self, X: RowsLike, y: object = None) -> Float[np.ndarray, "n k"]:
        """`fit`, then `transform` of the same rows."""
        return self.fit(X).transform(X)
