"""Metrics of slowness, of label estimates and of reconstructions; see :mod:`higsfa.evaluation.metrics`.

Those of features in time are in :mod:`higsfa.evaluation.dynamics`.

>>> from higsfa.metrics import cumulative_score
>>> cumulative_score([20, 30, 40, 50], [20, 31, 38, 60], 5)
0.75
"""

from higsfa.evaluation import dynamics, metrics
from higsfa.evaluation.dynamics import *  # noqa: F403
from higsfa.evaluation.metrics import *  # noqa: F403

__all__ = sorted([*dynamics.__all__, *metrics.__all__])
