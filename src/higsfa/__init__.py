"""Slow feature analysis: supervised, hierarchical, information preserving."""

from higsfa.estimators import GSFA, HGSFA, HSFA, IGSFA, ISFA, SFA, HiGSFA, HiSFA, LabelHead, Layer
from higsfa.persistence import ModelFileError, load, save

__version__ = "0.1.0"
__all__ = [
    "GSFA",
    "HGSFA",
    "HSFA",
    "IGSFA",
    "ISFA",
    "SFA",
    "HiGSFA",
    "HiSFA",
    "LabelHead",
    "Layer",
    "ModelFileError",
    "__version__",
    "load",
    "save",
]
