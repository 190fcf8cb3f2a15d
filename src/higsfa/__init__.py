"""Slow feature analysis: supervised, hierarchical, information preserving."""

from higsfa.estimators import GSFA, IGSFA, ISFA, SFA

__version__ = "0.1.0"
__all__ = ["GSFA", "IGSFA", "ISFA", "SFA", "__version__"]
