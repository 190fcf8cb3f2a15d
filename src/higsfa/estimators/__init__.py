"""scikit-learn estimators; each is imported when it is first asked for, so that a single node waits for no network."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from higsfa.estimators.delays import DelayEmbedding as DelayEmbedding
    from higsfa.estimators.edges import OrientedEdges as OrientedEdges
    from higsfa.estimators.gsfa import GSFA as GSFA
    from higsfa.estimators.gsfa import IGSFA as IGSFA
    from higsfa.estimators.label_head import LabelClassifier as LabelClassifier
    from higsfa.estimators.label_head import LabelHead as LabelHead
    from higsfa.estimators.label_head import LabelRegressor as LabelRegressor
    from higsfa.estimators.layer import Layer as Layer
    from higsfa.estimators.networks import HGSFA as HGSFA
    from higsfa.estimators.networks import HSFA as HSFA
    from higsfa.estimators.networks import HiGSFA as HiGSFA
    from higsfa.estimators.networks import HiSFA as HiSFA
    from higsfa.estimators.sfa import ISFA as ISFA
    from higsfa.estimators.sfa import SFA as SFA

_NAMES = {
    "delays": ("DelayEmbedding",),
    "edges": ("OrientedEdges",),
    "gsfa": ("GSFA", "IGSFA"),
    "label_head": ("LabelClassifier", "LabelHead", "LabelRegressor"),
    "layer": ("Layer",),
    "networks": ("HGSFA", "HSFA", "HiGSFA", "HiSFA"),
    "sfa": ("ISFA", "SFA"),
}


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(name for names in _NAMES.values() for name in names)})
