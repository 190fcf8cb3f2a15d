"""What a run folder may hold at most: `higsfa train` stays below, and readers of strangers' folders refuse more."""

MAX_METRICS = 32 * 2**20
"""Bytes of metrics.json."""
MAX_CONFUSED = 100
"""Classes of a confusion matrix; that of a label with more is left out."""
MAX_CLASSES = 1_000_000
MAX_NPZ = 32 * 2**20
"""Bytes of examples.npz, and of the pictures in it."""
MAX_PREDICTIONS = 128 * 2**20
"""Bytes of predictions.csv that a report reads; from larger tables it draws nothing."""
MAX_ROWS = 1_000_000
"""Rows of predictions.csv that a report reads."""
