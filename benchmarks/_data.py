"""Data for the benchmarks: quick to draw, the same every time."""

from __future__ import annotations

import numpy as np

from higsfa.graphs import ClusteredGraph, SerialGraph

Labels = dict[str, np.ndarray]

THREE_LABELS = SerialGraph("age", n_groups=32) + ClusteredGraph("gender") + ClusteredGraph("race")
"""The paper's graph G3."""


def labelled(n: int, n_features: int, seed: int = 0) -> tuple[np.ndarray, Labels]:
    """Samples that carry a number, two classes, five classes and ten classes, mixed with noise; and these labels."""
    rng = np.random.default_rng(seed)
    labels = {
        "age": rng.uniform(16, 77, n),
        "gender": rng.integers(0, 2, n),
        "race": rng.integers(0, 5, n),
        "digit": rng.integers(0, 10, n),
    }
    sources = rng.standard_normal((n, n_features))
    position = (labels["age"] - 16) / 61
    signals = [np.cos(np.pi * k * position) for k in range(1, 5)]
    signals += [rng.standard_normal(int(labels[name].max()) + 1)[labels[name]] for name in ("gender", "race", "digit")]
    sources[:, : len(signals)] = 1.5 * np.column_stack(signals) + 0.5 * sources[:, : len(signals)]
    return sources @ _mixing(n_features, rng) + rng.uniform(-1, 1, n_features), labels


def series(n: int, n_features: int, seed: int = 0) -> np.ndarray:
    """Signals from slow to fast, mixed."""
    from scipy.signal import lfilter

    rng = np.random.default_rng(seed)
    keep = np.linspace(0.999, 0.0, n_features)
    signals = [lfilter([np.sqrt(1 - a * a)], [1, -a], rng.standard_normal(n)) for a in keep]
    return np.column_stack(signals) @ _mixing(n_features, rng)


def _mixing(n_features: int, rng: np.random.Generator) -> np.ndarray:
    rotation = np.linalg.qr(rng.standard_normal((n_features, n_features)))[0]
    return np.asarray(rotation * np.geomspace(3, 0.1, n_features))


def pictures(n: int, size: int = 96, seed: int = 0) -> tuple[np.ndarray, Labels]:
    """Smooth random uint8 images with an age that shows in fine structure, and labels as the paper's."""
    rng = np.random.default_rng(seed)
    labels = {"age": rng.uniform(16, 77, n), "gender": rng.integers(0, 2, n), "race": rng.integers(0, 2, n)}
    images = np.empty((n, size, size), np.uint8)
    for lo in range(0, n, 1000):
        part = slice(lo, min(n, lo + 1000))
        coarse = rng.normal(128, 40, (part.stop - lo, size // 8, size // 8))
        coarse += 15 * labels["gender"][part, None, None] * np.sin(np.arange(size // 8))
        texture = rng.standard_normal((part.stop - lo, size, size), dtype=np.float32)
        texture *= labels["age"][part, None, None] / 5
        images[part] = np.clip(np.kron(coarse, np.ones((1, 8, 8))) + texture, 0, 255)
    return images, labels
