"""scikit-learn estimators."""

from higsfa.estimators.delays import DelayEmbedding
from higsfa.estimators.edges import OrientedEdges
from higsfa.estimators.gsfa import GSFA, IGSFA
from higsfa.estimators.label_head import LabelClassifier, LabelHead, LabelRegressor
from higsfa.estimators.layer import Layer
from higsfa.estimators.networks import HGSFA, HSFA, HiGSFA, HiSFA
from higsfa.estimators.sfa import ISFA, SFA

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
    "OrientedEdges",
]
