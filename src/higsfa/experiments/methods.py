"""Features of one fold by each method: the network, networks to compare with, PCA, LDA."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from higsfa.core.graph.labels import encode_classes, missing
from higsfa.experiments.config import Config
from higsfa.experiments.errors import in_one_line
from higsfa.experiments.labels import Label
from higsfa.experiments.networks import fit_network, make_network
from higsfa.experiments.reporting import Log
from higsfa.experiments.sets import Sets, blocks, spread
from higsfa.sources import Source

__all__ = ["Features", "Method", "extract", "methods_of"]

PCA_VALUES = 2**27
"""Principal components are computed from as many images as have so many pixels together: 512 MiB."""
NAMES = {
    "hgsfa": "HGSFA",
    "higsfa_hgsfa_parameters": "HiGSFA, HGSFA parameters",
    "pca": "PCA",
    "lda": "PCA + LDA",
    "chance": "chance",
}


@dataclass(frozen=True)
class Method:
    """A method of an experiment.

    Attributes
    ----------
    key : str
        For names of files.
    name : str
    role : {"main", "comparison", "chance", "sensitivity"}
    delta_threshold : float or None
    """

    key: str
    name: str
    role: str
    delta_threshold: float | None = None

    @property
    def network(self) -> str | None:
        """The network that it trains, as `make_network` knows it; None if it trains none."""
        if self.key in ("pca", "lda", "chance"):
            return None
        return self.key if self.role == "comparison" else "main"

    @property
    def is_rebuilt(self) -> bool:
        """Whether samples are rebuilt from its features."""
        return self.role in ("main", "comparison") and self.key != "lda"


@dataclass(frozen=True, eq=False)
class Features:
    """Features of the supervised and the test set for some labels: all of them, except for LDA."""

    labels: list[Label]
    supervised: NDArray[Any]
    test: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Extracted:
    """What a method made of a fold."""

    features: list[Features]
    network: Any
    seconds: dict[str, float]


def methods_of(config: Config) -> list[Method]:
    """The methods of an experiment, the main one first."""
    main = "HGSFA" if config.network.kind == "HGSFA" or config.network.preset == "hgsfa_g3" else "HiGSFA"
    compared = [
        Method(key, NAMES[key], "chance" if key == "chance" else "comparison")
        for key in dict.fromkeys(config.comparison.methods)
    ]
    varied = [
        Method(f"threshold-{value:g}", f"{main}, delta_threshold {value:g}", "sensitivity", value)
        for value in dict.fromkeys(config.comparison.sensitivity)
    ]
    return [Method("main", main, "main"), *compared, *varied]


def extract(
    method: Method, config: Config, labels: list[Label], sets: Sets, checkpoint: Path, log: Log, engine: str, what: str
) -> Extracted:
    """Train a method on a fold, and compute features with it.

    Parameters
    ----------
    method : Method
        Any but chance.
    checkpoint : folder
        For what is finished.
    what : str
        Names the method and the fold in messages.
    """
    if method.network is None:
        return _linear(method, config, labels, sets, log, what)
    shape, threshold = sets.network.source.shape, method.delta_threshold
    network = make_network(config, labels, shape, method.network, delta_threshold=threshold, engine=engine)
    fitting = fit_network(network, sets.network, checkpoint, log, what)
    network.set_params(engine="threads")
    with in_one_line(what):
        log.stage(f"{what}: features of {len(sets.supervised):,} training samples")
        supervised = network.transform(sets.supervised.source)
        log.stage(f"{what}: features of {len(sets.test):,} test samples")
        start = time.perf_counter()
        test = network.transform(sets.test.source)
    seconds = {"fit": fitting, "transform": time.perf_counter() - start}
    return Extracted([Features(labels, supervised, test)], network, seconds)


def _linear(method: Method, config: Config, labels: list[Label], sets: Sets, log: Log, what: str) -> Extracted:
    start = time.perf_counter()
    source = sets.network.source
    n_pixels = int(np.prod(source.shape))
    rows = spread(len(source), max(2, PCA_VALUES // n_pixels))
    log.stage(f"{what}: principal components of {len(rows):,} samples")
    with in_one_line(what):
        most = make_network(config, labels, source.shape).layers[-1].n_components
        pca = PCA(min(most, n_pixels, len(rows) - 1), svd_solver="auto", random_state=0)
        pca.fit(source.take(rows).reshape(len(rows), -1).astype(np.float32))
        supervised = _projected(pca, sets.supervised.source)
        features = [Features(labels, supervised, np.empty(0))]
        models: list[Any] = [None]
        if method.key == "lda":
            features, models = [], []
            for label in labels:
                model, Y = _discriminants(supervised, sets.supervised.labels[label.name], label)
                features.append(Features([label], Y, np.empty(0)))
                models.append(model)
        fitted = time.perf_counter()
        log.stage(f"{what}: features of {len(sets.test):,} test samples")
        test = _projected(pca, sets.test.source)
        done = [
            Features(part.labels, part.supervised, test if model is None else model.transform(test))
            for part, model in zip(features, models, strict=True)
        ]
    return Extracted(done, None, {"fit": fitted - start, "transform": time.perf_counter() - fitted})


def _projected(pca: PCA, source: Source) -> NDArray[Any]:
    out = np.empty((len(source), pca.n_components_), dtype=np.float32)
    for where, rows in blocks(source):
        out[where] = pca.transform(rows.astype(np.float32))
    return out


def _discriminants(Y: NDArray[Any], values: NDArray[Any], label: Label) -> tuple[Any, NDArray[Any]]:
    """Linear discriminants of a label; a numeric one is cut into up to 39 classes of equal size."""
    known = ~missing(values)
    present = values[known]
    if label.is_numeric:
        n_classes = int(np.clip(len(present) // 20, 2, 39))
        edges = np.unique(np.quantile(present, np.linspace(0, 1, n_classes + 1)[1:-1]))
        codes = np.searchsorted(edges, present, side="right")
    else:
        codes, _ = encode_classes(present)
    deviation = Y[known].std(axis=0)
    varies = deviation > 1e-6 * deviation.max()
    model = _Selected(LinearDiscriminantAnalysis().fit(Y[known][:, varies], codes), varies)
    return model, model.transform(Y)


@dataclass(frozen=True, eq=False)
class _Selected:
    """Discriminants of some features."""

    model: LinearDiscriminantAnalysis
    columns: NDArray[np.bool_]

    def transform(self, Y: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(self.model.transform(Y[:, self.columns]))
