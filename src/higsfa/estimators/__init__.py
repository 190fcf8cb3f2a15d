"""scikit-learn estimators."""

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
