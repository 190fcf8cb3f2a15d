"""Slow feature analysis: supervised, hierarchical, information preserving.

Names are imported when they are first used, so that ``higsfa --help`` does not wait for scikit-learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from higsfa.estimators import (
        GSFA,
        HGSFA,
        HSFA,
        IGSFA,
        ISFA,
        SFA,
        DelayEmbedding,
        HiGSFA,
        HiSFA,
        LabelClassifier,
        LabelHead,
        LabelRegressor,
        Layer,
        OrientedEdges,
    )
    from higsfa.models import ModelFileError, load, save

__version__ = "1.0.0rc1"
__all__ = [
    "GSFA",
    "HGSFA",
    "HSFA",
    "IGSFA",
    "ISFA",
    "SFA",
    "DelayEmbedding",
    "HiGSFA",
    "HiSFA",
    "LabelClassifier",
    "LabelHead",
    "LabelRegressor",
    "Layer",
    "ModelFileError",
    "OrientedEdges",
    "__version__",
    "load",
    "save",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "models" if name in ("ModelFileError", "load", "save") else "estimators"
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
