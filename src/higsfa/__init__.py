"""Slow feature analysis: supervised, hierarchical, information preserving."""

from higsfa.estimators import GSFA, HGSFA, HSFA, IGSFA, ISFA, SFA, HiGSFA, HiSFA, Layer

__version__ = "0.1.0"
__all__ = ["GSFA", "HGSFA", "HSFA", "IGSFA", "ISFA", "SFA", "HiGSFA", "HiSFA", "Layer", "__version__"]
