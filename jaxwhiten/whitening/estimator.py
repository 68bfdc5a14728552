"""What makes a class a scikit-learn estimator without importing scikit-learn."""

from __future__ import annotations

import inspect
import math
import numbers
from typing import Any, TypeVar

from jaxwhiten.errors import unknown_name

# Not typing.Self: the run-time type checker of the tests does not take it in methods.
E = TypeVar("E", bound="Estimator")


class Estimator:
    """Parameters by the names of the constructor's arguments, a short repr, and scikit-learn's tags.

    The constructor of a subclass stores each argument under its own name and does nothing else.
    """

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        arguments = list(inspect.signature(cls.__init__).parameters.values())[1:]
        return {argument.name: argument.default for argument in arguments}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Constructor arguments by name."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self: E, **params: Any) -> E:
        """Changes constructor arguments.

        Args:
          **params: New values by name.

        Returns:
          This object.

        Raises:
          InputError: A name the constructor does not have.
        """
        names = self._defaults()
        for name in params:
            if name not in names:
                raise unknown_name(f"parameter of {type(self).__name__}", name, names)
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


def is_number(value: Any, kind: Any = numbers.Real) -> bool:
    """Whether a parameter is a finite number of the kind; booleans are not."""
    return isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)
