"""Metrics of slowness, of label estimates and of reconstructions; see :mod:`higsfa.evaluation.metrics`.

>>> from higsfa.metrics import cumulative_score
>>> cumulative_score([20, 30, 40, 50], [20, 31, 38, 60], 5)
0.75
"""

from higsfa.evaluation.metrics import *  # noqa: F403
from higsfa.evaluation.metrics import __all__ as __all__
