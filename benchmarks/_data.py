"""Data for the benchmarks: quick to draw, the same every time."""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from higsfa.datasets import make_faces
from higsfa.graphs import ClusteredGraph, SerialGraph

FASHION = Path(os.environ.get("HIGSFA_FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
FAIRFACE = Path(os.environ.get("HIGSFA_FAIRFACE", SHARED / "fairface64.npz"))

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


# ---------------------------------------------------------------------- images with one label


class Absent(Exception):
    """Data that are not on this machine; the message says where to get them."""


@dataclass(frozen=True)
class Images:
    """Images as they are stored, and one label of them: for training, and unseen."""

    X: np.ndarray
    y: np.ndarray
    X_new: np.ndarray
    y_new: np.ndarray

    @property
    def score_name(self) -> str:
        return "% right" if self.y.dtype.kind == "U" else "MAE"

    def score(self, found: np.ndarray) -> float:
        """Percent of classes that are right, mean absolute error of numbers; of the unseen images."""
        if self.y.dtype.kind == "U":
            return 100 * float(np.mean(found == self.y_new))
        return float(np.mean(np.abs(found - self.y_new)))


SIZES = {
    "faces-age": (500, 2000, 10000),
    "digits": (50, 100),
    "fashion": (50, 200, 2000),
    "fairface-age": (2000, 10000),
    "fairface-gender": (2000, 10000),
    "fairface-race": (2000, 10000),
}
"""Sizes of training sets; of digits and Fashion-MNIST, for each class."""


def draw(name: str, size: int, seed: int) -> Images:
    """A random training set of this size and its test set; classes are strings."""
    rng = np.random.default_rng(seed)
    if name == "faces-age":
        X, labels = make_faces(size + 1000, size=48, random_state=seed)
        age = np.asarray(labels["age"], dtype=float)
        return Images(X[:size], age[:size], X[size:], age[size:])
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        train = _of_each_class(y, size, rng)
        test = np.setdiff1d(np.arange(len(X)), train)
        X, y = X.reshape(-1, 8, 8), y.astype(str)
        return Images(X[train], y[train], X[test], y[test])
    if name == "fashion":
        X, y = _fashion("train")
        X_new, y_new = _fashion("t10k")
        train, test = _of_each_class(y, size, rng), rng.permutation(len(X_new))[:2000]
        return Images(X[train], y[train].astype(str), X_new[test], y_new[test].astype(str))
    data, label = name.split("-")
    if data != "fairface":
        raise ValueError(f"no data {name!r}")
    if not FAIRFACE.exists():
        raise Absent(f"{FAIRFACE} is not there; HIGSFA_FAIRFACE may name the file (see docs/faces.md)")
    with np.load(FAIRFACE, allow_pickle=False) as arrays:
        X, y, split = arrays["images"], arrays[label], arrays["split"]
    y = y.astype(float) if label == "age" else y.astype(str)
    train, test = rng.permutation(np.flatnonzero(split == "train"))[:size], split == "val"
    return Images(X[train], y[train], X[test], y[test])


def _of_each_class(y: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Positions of so many random samples of each class, in random order."""
    order = rng.permutation(len(y))
    return rng.permutation(np.concatenate([order[y[order] == c][:size] for c in np.unique(y)]))


def _fashion(part: str) -> tuple[np.ndarray, np.ndarray]:
    X, y = (_idx(FASHION / f"{part}-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1"))
    if X.ndim != 3 or y.shape != X.shape[:1]:
        raise ValueError(f"{FASHION}: {part} holds images of shape {X.shape} and labels of shape {y.shape}")
    return X, y


def _idx(path: Path) -> np.ndarray:
    """An array of bytes in the format of MNIST: 0, 0, 8, number of sizes, sizes, values; gzip."""
    if not path.exists():
        raise Absent(
            f"{path} is not there; `apt-get install dataset-fashion-mnist` brings it (Debian), "
            "or HIGSFA_FASHION_MNIST names a folder with it"
        )
    with gzip.open(path) as file:
        content = file.read(2**27)
    n_sizes = content[3] if content[:3] == b"\0\0\x08" and len(content) > 3 else 0
    start = 4 + 4 * n_sizes
    if not 1 <= n_sizes <= 3 or len(content) < start:
        raise ValueError(f"{path} is no idx file of bytes")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", n_sizes, 4))
    if len(content) != start + prod(shape):
        raise ValueError(f"{path}: {len(content) - start} values for shape {shape}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
