"""How much of the input features retain: errors of reconstructions, and examples of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.experiments.methods import Features
from higsfa.experiments.pictures import unit_range
from higsfa.experiments.sets import Sets, spread
from higsfa.metrics import ReconstructionSums
from higsfa.reconstruction import LinearReconstruction
from higsfa.sources import Source

__all__ = ["example_images", "rebuild"]

MOST_TRAIN, MOST_TEST = 20_000, 5_000
"""Samples that reconstructions are learned from, and that their errors are measured on."""
BLOCK = 512


def rebuild(
    network: Any, features: Features, sets: Sets, n_examples: int
) -> tuple[dict[str, float | None], NDArray[np.float32] | None]:
    """Normalised errors on test samples, and the first reconstructions by the global linear map (None if no images)."""
    rows = spread(len(sets.supervised), MOST_TRAIN)
    linear = LinearReconstruction().fit(features.supervised[rows], sets.supervised.source[rows])
    tested = spread(len(sets.test), MOST_TEST)
    source, Y = sets.test.source[tested], features.test[tested]
    errors = {
        "global": _error(linear.predict, source, Y),
        "top_down": None if network is None else _error(network.inverse_transform, source, Y),
    }
    if not n_examples or sets.pixel_range is None:
        return errors, None
    chosen = spread(len(sets.test), n_examples)
    shown = linear.predict(features.test[chosen]).reshape(len(chosen), *source.shape)
    return errors, unit_range(shown, sets.pixel_range)


def _error(inverse: Any, source: Source, Y: NDArray[Any]) -> float | None:
    total = None
    for lo in range(0, len(Y), BLOCK):
        rows = np.arange(lo, min(lo + BLOCK, len(Y)))
        part = ReconstructionSums.of(source.take(rows), inverse(Y[rows]))
        total = part if total is None else total + part
    if total is None or total.scatter == 0:
        return None
    error = total.error()
    return float(error) if np.isfinite(error) else None


def example_images(sets: Sets, n_examples: int) -> NDArray[np.float32] | None:
    """Test images as the network sees them; None if samples are no images."""
    if not n_examples or sets.pixel_range is None:
        return None
    rows = spread(len(sets.test), n_examples)
    return unit_range(sets.test.source.take(rows), sets.pixel_range)
