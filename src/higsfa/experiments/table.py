"""Tables of a config file whose keys are read off the signature of an estimator, a graph or a distortion."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import reduce
from inspect import Parameter, signature
from numbers import Integral
from operator import or_
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from sklearn.utils._param_validation import Interval, StrOptions

Text = Annotated[str, Field(max_length=1000)]


class Table(BaseModel):
    """A table of the file; keys that are not listed are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def params(self, estimator: Callable[..., Any]) -> dict[str, Any]:
        """The keys that are parameters of an estimator, as its constructor takes them."""
        names = [name for name in signature(estimator).parameters if name in type(self).model_fields]
        values = ((name, getattr(self, name)) for name in names)
        return {name: tuple(value) if isinstance(value, list) else value for name, value in values}


T = TypeVar("T", bound=Table)


def follows(
    *estimators: Callable[..., Any], types: dict[str, Any], leave_out: Collection[str] = (), optional: bool = False
) -> Callable[[type[T]], type[T]]:
    """Give a table the parameters of estimators as keys, beside those that it declares itself.

    The type of a key follows from the constraints of the estimator, or from its annotations, unless `types` has it.
    Optional keys are None by default.
    """

    def extended(table: type[T]) -> type[T]:
        fields: dict[str, Any] = {}
        for estimator, name, given in [(e, *item) for e in estimators for item in signature(e).parameters.items()]:
            if name in leave_out or name in table.model_fields:
                continue
            kind = types[name] if name in types else _type_of(estimator, name)
            if kind is None:
                continue  # not a key; a test wants it in `types`, or left out by name
            default = ... if given.default is Parameter.empty else given.default
            fields[name] = (kind | None, None) if optional else (kind, default)
        origin: dict[str, Any] = {"__base__": table, "__doc__": table.__doc__, "__module__": table.__module__}
        return create_model(table.__name__, **origin, **fields)

    return extended


def _type_of(estimator: Any, name: str) -> Any:
    """The type of a key, with bounds, from scikit-learn's constraints; None if a file cannot hold it."""
    constraints = getattr(estimator, "_parameter_constraints", {}).get(name)
    if constraints is None:
        return get_type_hints(estimator.__init__ if hasattr(estimator, "get_params") else estimator)[name]
    options: list[Any] = []
    for constraint in constraints:
        if isinstance(constraint, StrOptions):
            options.append(Literal[tuple(sorted(constraint.options))])
        elif isinstance(constraint, Interval):
            options.append(_number(constraint))
        elif constraint is Integral:
            options.append(Annotated[int, Field(ge=-1024, le=1024)])
        elif constraint in (str, "boolean"):
            options.append(Text if constraint is str else bool)
    if options and None in constraints:
        options.append(None)
    return reduce(or_, options) if options else None


def _number(interval: Interval) -> Any:
    whole = interval.type is Integral
    low = "ge" if interval.closed in ("left", "both") else "gt"
    high = "le" if interval.closed in ("right", "both") else "lt"
    limits = {"ge": -1e6} if interval.left is None else {low: interval.left}
    limits |= {"le": 10_000 if whole else 1e6} if interval.right is None else {high: interval.right}
    return Annotated[int if whole else float, Field(**limits, allow_inf_nan=None if whole else False)]
