"""The contract of every method: it learns from rows, maps rows, and is saved and loaded.

A subclass defines how rows become a state and how the state is applied, packed and unpacked. The base class does the
rest, including scikit-learn's estimator protocol, without importing scikit-learn.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import inspect
import math
import numbers
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform, no_type_check

import numpy as np
from jaxtyping import Float, Shaped

from jaxwhiten import io
from jaxwhiten._version import __version__
from jaxwhiten.arrays import as_matrix
from jaxwhiten.errors import FormatError, InputError, MissingDependencyError, check_name, not_fitted

_OUTPUTS = ("default", "pandas", "polars")
# Not typing.Self: the run-time type checker of the tests does not take it in methods.
M = TypeVar("M", bound="Method")


def is_number(value: Any, kind: Any = numbers.Real) -> bool:
    """Whether a parameter is a finite number of the given kind; a boolean is no number here."""
    return isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)


def check_share(name: str, value: Any) -> None:
    """Raises InputError unless a parameter is a number from 0 to 1."""
    if not (is_number(value) and 0 <= value <= 1):
        raise InputError(f"{name}={value!r}: expected a number from 0 to 1.")


def check_integer(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Raises InputError unless a parameter is an integer of at least `least`, and at most `most`."""
    if not (is_number(value, numbers.Integral) and value >= least and (most is None or value <= most)):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise InputError(f"{name}={value!r}: expected an integer {limits}.")


def stamp(fit_seconds: float = 0.0) -> dict[str, Any]:
    """Provenance of a fit made now by this version."""
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"date": date, "version": __version__, "fit_seconds": fit_seconds}


@dataclass_transform(eq_default=False)
def parameters(cls: type[M]) -> type[M]:
    """Makes the annotated attributes of a class its constructor's arguments; instances compare and hash by identity."""
    made = dataclasses.dataclass(eq=False, repr=False)(cls)
    no_type_check(vars(made)["__init__"])  # scikit-learn stores any value here; fitting checks it
    return made


class Learned(NamedTuple):
    """The result of a fit. The next fit replaces it as a whole; it is never changed."""

    state: Any
    n: int
    d: int
    provenance: Mapping[str, Any]


class Method(ABC):
    """A training-free method that maps vectors, which are then compared by cosine, as a scikit-learn estimator.

    A subclass defines `name`, which `METHODS` and files use, and `_learn`, `_apply`, `_pack` and `_unpack`. The
    decorator `parameters` turns its annotated attributes into arguments of the constructor.
    """

    name: ClassVar[str]
    _learned: Learned  # set by the first fit
    _sklearn_output_config: Mapping[str, str] = {}  # scikit-learn's `clone` copies an attribute of this name

    @abstractmethod
    def _learn(self, X: np.ndarray, state: Any) -> Any:
        """The state after at least one row; `state` holds earlier rows or is None, and is not changed.

        Raises NonFiniteError for rows that are not finite.
        """

    def _complete(self, state: Any) -> Any:
        """Completes the state for `fit`; `partial_fit` postpones this work to the first use."""
        return state

    def _pack(self, state: Any) -> dict[str, np.ndarray]:
        """The state as named arrays; by default the state is a named tuple."""
        return {name: np.asarray(value) for name, value in state._asdict().items()}

    @abstractmethod
    def _unpack(self, tensors: Mapping[str, np.ndarray], d: int) -> Any:
        """The reverse of `_pack`; KeyError or ValueError if the arrays are no valid state for d columns."""

    def _check_params(self, d: int) -> None:  # noqa: B027 (most methods have no parameters)
        """Raises InputError if a parameter is invalid for rows of d columns."""

    def fit(self: M, X: Any, y: Any = None) -> M:
        """Learns from rows and forgets earlier ones.

        Args:
          X: [n, d] rows; a memory map is read block by block.
          y: Ignored.

        Raises:
          NonFiniteError: A row holds NaN or an infinity. The message names the row; nothing is changed.
        """
        return self._take(X, None, self._complete)

    def partial_fit(self: M, X: Any, y: Any = None) -> M:
        """Adds rows to those seen by `fit` or `partial_fit`, also before `save`.

        Costly work that the next block does not need is postponed to the first use, so that many small blocks are
        cheap. Args and Raises as for `fit`; after the first rows, X may be empty.
        """
        return self._take(X, getattr(self, "_learned", None), lambda state: state)

    def _take(self: M, X: Any, before: Learned | None, complete: Any) -> M:
        started = time.perf_counter()
        state, n, d, provenance = before or (None, 0, None, {})
        X = as_matrix(X, type(self).__name__, columns=d, min_rows=int(before is None))
        self._check_params(X.shape[1])
        if len(X):
            state = complete(self._learn(X, state))
        seconds = provenance.get("fit_seconds", 0.0) + time.perf_counter() - started
        self._learned = Learned(state, n + len(X), X.shape[1], {**provenance, **stamp(seconds)})
        return self

    def _fitted(self) -> Learned:
        """The fitted state; NotFittedError before the first fit."""
        if not self.__sklearn_is_fitted__():
            raise not_fitted(self)
        return self._learned

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_learned")

    @property
    def n_features_in_(self) -> int:
        """d, the columns of the input."""
        return self._fitted().d

    @property
    def n_samples_seen_(self) -> int:
        """The number of rows fitted on."""
        return self._fitted().n

    def _facts(self) -> dict[str, Any]:
        """The provenance that the method itself defines, JSON-representable."""
        learned = self._fitted()
        params = {name: getattr(value, "item", lambda v=value: v)() for name, value in self.get_params().items()}
        return {"method": self.name, "params": params, "n": learned.n, "dimension": learned.d}

    @property
    def provenance(self) -> dict[str, Any]:
        """A new dict: model, pooling, method, parameters, rows, dimension, date, version, and the caller's facts."""
        return {"model": None, "pooling": None, **self._fitted().provenance, **self._facts()}

    def save(self, path: io.PathLike, provenance: Mapping[str, Any] | None = None) -> None:
        """Writes a safetensors file with a JSON header; a loaded object continues with `transform` or `partial_fit`.

        `provenance` adds JSON-representable facts, such as model and pooling.
        """
        tensors = self._pack(self._fitted().state)
        header = {"provenance": self.provenance | dict(provenance or {}) | self._facts()}
        io.save_tensors(path, tensors, kind=self.name, header=header)

    @classmethod
    def load(cls: type[M], path: io.PathLike) -> M:
        """Reads a file written by `save` and checks its contents.

        Raises:
          FormatError: The file is missing, damaged or of another method, or its numbers are no valid state.
        """
        return cls.from_tensors(path, *io.load_tensors(path, kind=cls.name))

    @classmethod
    def from_tensors(
        cls: type[M], path: io.PathLike, tensors: Mapping[str, np.ndarray], header: Mapping[str, Any]
    ) -> M:
        """`load` from the tensors and the header of the file `path`."""
        try:
            provenance = dict(header["provenance"])
            result = cls().set_params(**provenance["params"])
            n, d = int(provenance["n"]), int(provenance["dimension"])
            provenance["fit_seconds"] = float(provenance["fit_seconds"])
            if n < 1 or d < 1:
                raise ValueError(f"{n} rows of {d} columns")
            if any(array.dtype.kind == "f" and not np.isfinite(array).all() for array in tensors.values()):
                raise ValueError("a number is NaN or infinite")
            result._check_params(d)
            with np.errstate(all="ignore"):
                result._learned = Learned(result._unpack(tensors, d), n, d, provenance)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FormatError(f"{path}: not complete as a {cls.name} file ({error}). Write it again.") from error
        return result

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return {name: argument.default for name, argument in inspect.signature(cls).parameters.items()}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Constructor arguments by name."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self: M, **params: Any) -> M:
        """Changes constructor arguments; InputError for a name that is no argument of the constructor."""
        names = self._defaults()
        for name in params:
            check_name(f"parameter of {type(self).__name__}", name, names)
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

    @abstractmethod
    def _apply(self, state: Any, X: np.ndarray) -> np.ndarray:
        """Maps rows of the right number of columns; NonFiniteError for rows that are not finite."""

    def _mapped(self, X: Any) -> Float[np.ndarray, "n k"]:
        """`transform` as an array, independent of `set_output`."""
        learned = self._fitted()
        return self._apply(learned.state, as_matrix(X, type(self).__name__, columns=learned.d))

    def transform(self, X: Any) -> Any:
        """Maps [n, d] rows.

        Returns:
          float32 for rows in float32 or of at most 16 bits, else float64, unless the class documents otherwise. It is a
          data frame if `set_output` or scikit-learn's `set_config(transform_output=...)` asks for one.

        Raises:
          NonFiniteError: A row holds NaN or an infinity; the message names the row.
        """
        mapped, sklearn = self._mapped(X), sys.modules.get("sklearn")
        usual = sklearn.get_config()["transform_output"] if sklearn else "default"
        kind = self._sklearn_output_config.get("transform", usual)
        if kind == "default":
            return mapped
        try:
            frames, names = importlib.import_module(kind), self._names(mapped.shape[1])
        except ImportError as error:
            raise MissingDependencyError(f"Data frames of {kind} need that package: pip install {kind}.") from error
        if kind == "polars":
            return frames.DataFrame(mapped, schema=names, orient="row")
        return frames.DataFrame(mapped, X.index if isinstance(X, frames.DataFrame) else None, names)

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """`fit`, then `transform` of the same rows."""
        return self.fit(X).transform(X)

    def set_output(self: M, *, transform: str | None = None) -> M:
        """Makes `transform` return `"pandas"` or `"polars"` frames, or arrays for `"default"`; None changes nothing."""
        if transform is not None:
            check_name("output of transform", transform, _OUTPUTS)
            self._sklearn_output_config = {"transform": transform}
        return self

    def get_feature_names_out(self, input_features: Any = None) -> Shaped[np.ndarray, " k"]:
        """Names of the columns of `transform`, such as `whitening0`. Only the length of `input_features` is checked."""
        learned = self._fitted()
        if input_features is not None and len(input_features) != learned.d:
            raise InputError(f"input_features should have length equal to the {learned.d} columns of the input.")
        columns = self._apply(learned.state, np.zeros((1, learned.d), np.float32)).shape[1]
        return np.array(self._names(columns), object)

    def _names(self, columns: int) -> list[str]:
        return [f"{type(self).__name__.lower()}{i}" for i in range(columns)]
