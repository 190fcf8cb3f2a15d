"""scikit-learn estimators."""

from higsfa.estimators.gsfa import GSFA
from higsfa.estimators.igsfa import IGSFA
from higsfa.estimators.isfa import ISFA
from higsfa.estimators.sfa import SFA

__all__ = ["GSFA", "IGSFA", "ISFA", "SFA"]
