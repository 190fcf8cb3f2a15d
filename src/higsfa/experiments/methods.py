"""The methods of an experiment and their features of one fold: the network, others to compare with, PCA, LDA."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from higsfa import HGSFA, HiGSFA, Layer, presets
from higsfa.core.graph.labels import encode_classes, missing
from higsfa.experiments.config import RECIPES, Config, GraphPart
from higsfa.experiments.data import Samples, blocks
from higsfa.experiments.reporting import Counted, ExperimentError, Log, in_one_line
from higsfa.experiments.split import Label, Sets
from higsfa.graphs import GraphRecipe, GraphSum
from higsfa.sources import Source
from higsfa.training.sources import evenly_spread

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
    """A method of an experiment; its key is for names of files."""

    key: str
    name: str
    role: Literal["main", "comparison", "chance", "sensitivity"]
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


# ---------------------------------------------------------------------------------------------- networks


def make_graph(config: Config, labels: list[Label]) -> GraphRecipe:
    """The recipe; "auto" is serial for numeric labels, clustered for categorical ones, and their sum for several."""
    parts = config.graph.parts
    if isinstance(parts, str):
        parts = [GraphPart(kind="serial" if label.is_numeric else "clustered", label=label.name) for label in labels]
    by_name = {label.name: label for label in labels}
    for part in parts:
        if part.label is not None and part.label not in by_name:
            raise ExperimentError(f"[graph] parts: no label {part.label!r}; data.labels are {', '.join(by_name)}")
        if part.kind in ("serial", "mixed", "window") and part.label and not by_name[part.label].is_numeric:
            raise ExperimentError(
                f"[graph] parts: a {part.kind} graph needs a numeric label and {part.label!r} is categorical; "
                'use kind = "clustered"'
            )
    if not parts:
        raise ExperimentError('[graph] parts is empty; name a part, or set parts = "auto"')
    recipes = [RECIPES[part.kind](**part.given()) for part in parts]
    weights = [part.weight for part in parts]
    return recipes[0] if len(recipes) == 1 and weights == [1.0] else GraphSum(recipes, weights)


def make_network(
    config: Config,
    labels: list[Label],
    shape: tuple[int, ...],
    method: str = "main",
    *,
    delta_threshold: float | None = None,
    engine: str = "threads",
) -> Any:
    """The network of an experiment for samples of this shape, or one to compare it with.

    `method` is "main", "hgsfa" or "higsfa_hgsfa_parameters". `delta_threshold` replaces that of the config, for layers
    whose number of slow features is not fixed.
    """
    table = config.network
    params = {**table.params(HiGSFA), "graph": make_graph(config, labels), "engine": engine}
    del params["layers"]
    with in_one_line("[network]"):
        if table.n_jobs == 0:
            raise ValueError("n_jobs = 0 has no meaning: use 1 or more threads, or -1 for all cores")
        network = _preset(config, shape, method, params)
        threshold = delta_threshold if delta_threshold is not None else table.delta_threshold
        for layer in network.layers:
            layer.set_params(**table.layer_params.model_dump(exclude_none=True))
            if threshold is not None and layer.n_slow is None:
                layer.delta_threshold = threshold
        network.estimate_cost(2, input_shape=shape)
    return network


def _preset(config: Config, shape: tuple[int, ...], method: str, params: dict[str, Any]) -> Any:
    table = config.network
    kind = HGSFA if method == "hgsfa" or table.kind == "HGSFA" else HiGSFA
    if table.layers is not None:
        layers = [Layer(**layer.params(Layer)) for layer in table.layers]
        return kind(layers, input_shape=shape, **params)
    if table.preset == "single":
        whole = Layer(tuple(shape), n_components=table.n_components, expansion=table.expansion)
        return kind([whole], input_shape=shape, **params)
    if table.preset == "pyramid":
        return presets.pyramid(shape, table.n_components, network=kind, **params)
    if table.preset == "photographs":
        return kind(presets.photographs(shape).layers, input_shape=shape, **params)
    preset = {"hgsfa": "hgsfa_g3", "higsfa_hgsfa_parameters": "higsfa_g3_hgsfa_parameters"}.get(method, table.preset)
    return getattr(presets, preset)(shape, **params)


def layer_records(network: Any) -> list[dict[str, Any]]:
    """The rows `layers` of metrics.json."""
    records = []
    for number, layer in enumerate(network.layers_, 1):
        slowest = layer.delta_values[:, :1]
        slowest = slowest[~np.isnan(slowest)]
        records.append(
            {
                "layer": number,
                "nodes": int(np.prod(layer.shape)),
                "expanded": int(layer.n_expanded),
                "n_components": int(layer.trained.plan.n_components),
                "mean_n_slow": float(layer.n_slow.mean()),
                "mean_delta_1": float(slowest.mean()) if len(slowest) else None,
                "min_delta_1": float(slowest.min()) if len(slowest) else None,
            }
        )
    return records


# ---------------------------------------------------------------------------------------------- features


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


def extract(
    method: Method, config: Config, labels: list[Label], sets: Sets, checkpoint: Path, log: Log, engine: str, what: str
) -> Extracted:
    """Train a method (any but chance) on a fold, and compute features with it; `what` names both in messages."""
    if method.network is None:
        return _linear(method, config, labels, sets, log, what)
    shape, threshold = sets.network.source.shape, method.delta_threshold
    network = make_network(config, labels, shape, method.network, delta_threshold=threshold, engine=engine)
    fitting = _fit(network, sets.network, checkpoint, log, what)
    network.set_params(engine="threads")
    with in_one_line(what):
        log.stage(f"{what}: features of {len(sets.supervised):,} training samples")
        supervised = network.transform(sets.supervised.source)
        log.stage(f"{what}: features of {len(sets.test):,} test samples")
        start = time.perf_counter()
        test = network.transform(sets.test.source)
    seconds = {"fit": fitting, "transform": time.perf_counter() - start}
    return Extracted([Features(labels, supervised, test)], network, seconds)


def _fit(network: Any, samples: Samples, checkpoint: Path, log: Log, what: str) -> float:
    """Train; returns the seconds it took."""
    start = time.perf_counter()
    with in_one_line(what):
        steps = network.estimate_cost(len(samples), input_shape=samples.source.shape).passes * len(samples)
        log.stage(f"{what}: train on {len(samples):,} samples", steps)
        # A progress bar cannot travel to the workers of a cluster.
        source = samples.source if network.engine == "dask" else Counted(samples.source, log.progress, steps)
        network.fit(source, samples.labels, checkpoint=checkpoint)
    return time.perf_counter() - start


def _linear(method: Method, config: Config, labels: list[Label], sets: Sets, log: Log, what: str) -> Extracted:
    start = time.perf_counter()
    source = sets.network.source
    n_pixels = int(np.prod(source.shape))
    rows = evenly_spread(len(source), max(2, PCA_VALUES // n_pixels))
    log.stage(f"{what}: principal components of {len(rows):,} samples")
    with in_one_line(what):
        most = make_network(config, labels, source.shape).layers[-1].n_components
        pca = PCA(min(most, n_pixels, len(rows) - 1), svd_solver="auto", random_state=0)
        pca.fit(source.take(rows).reshape(len(rows), -1).astype(np.float32))
        supervised = _projected(pca, sets.supervised.source)
        maps: list[tuple[list[Label], Callable[[NDArray[Any]], NDArray[Any]]]] = [(labels, lambda Y: Y)]
        if method.key == "lda":
            known = sets.supervised.labels
            maps = [([label], _discriminants(supervised, known[label.name], label)) for label in labels]
        fitted = time.perf_counter()
        log.stage(f"{what}: features of {len(sets.test):,} test samples")
        test = _projected(pca, sets.test.source)
        features = [Features(some, mapped(supervised), mapped(test)) for some, mapped in maps]
    return Extracted(features, None, {"fit": fitted - start, "transform": time.perf_counter() - fitted})


def _projected(pca: PCA, source: Source) -> NDArray[Any]:
    out = np.empty((len(source), pca.n_components_), dtype=np.float32)
    for where, rows in blocks(source):
        out[where] = pca.transform(rows.reshape(len(rows), -1).astype(np.float32))
    return out


def _discriminants(Y: NDArray[Any], values: NDArray[Any], label: Label) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """The map to linear discriminants of a label; a numeric one is cut into up to 39 classes of equal size."""
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
    lda = LinearDiscriminantAnalysis().fit(Y[known][:, varies], codes)
    return lambda Y: np.asarray(lda.transform(Y[:, varies]))
