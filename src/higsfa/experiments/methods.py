"""The methods of an experiment and their features on one fold: the network, and others to compare with."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from higsfa import GSFA, HGSFA, HiGSFA, Layer, presets
from higsfa.core.graph.labels import encode_classes, missing
from higsfa.estimators.layer import counted_samples
from higsfa.experiments.config import RECIPES, Config, GraphPart
from higsfa.experiments.data import BLOCK_VALUES, Samples
from higsfa.experiments.interface import Counted, ExperimentError, Log, in_one_line
from higsfa.experiments.split import Label, Sets, features_of, joined, shares, views_of
from higsfa.graphs import GraphRecipe, GraphSum
from higsfa.graphs.label import number_graph
from higsfa.sources import Source
from higsfa.training.sources import blocks, evenly_spread

PCA_VALUES = 2**27  # pixels, in all, of the images that principal components are computed from: 512 MiB
NAMES = {
    "hgsfa": "HGSFA",
    "higsfa_hgsfa_parameters": "HiGSFA, HGSFA parameters",
    "pca": "PCA",
    "lda": "PCA + LDA",
    "gsfa": "PCA + GSFA",
    "chance": "chance",
}


@dataclass(frozen=True)
class Method:
    """A method of an experiment; its key is used in file names."""

    key: str
    name: str
    role: Literal["main", "comparison", "chance", "sensitivity"]
    delta_threshold: float | None = None

    @property
    def network(self) -> str | None:
        """The network that it trains, as `make_network` knows it; None if it trains none."""
        if self.key in ("pca", "lda", "gsfa", "chance"):
            return None
        return self.key if self.role == "comparison" else "main"

    @property
    def is_rebuilt(self) -> bool:
        """Whether samples are reconstructed from its features."""
        return self.role in ("main", "comparison") and self.key != "lda"


def methods_of(config: Config) -> list[Method]:
    """The methods of an experiment, the main one first."""
    methods = [Method("main", "HGSFA" if config.is_hgsfa else "HiGSFA", "main")]
    for key in dict.fromkeys(config.comparison.methods):
        methods.append(Method(key, NAMES[key], "chance" if key == "chance" else "comparison"))
    for value in dict.fromkeys(config.comparison.sensitivity):
        name = f"{methods[0].name}, delta_threshold {value:g}"
        methods.append(Method(f"threshold-{value:g}", name, "sensitivity", value))
    return methods


def auto_parts(labels: list[Label]) -> list[GraphPart]:
    """The graph of each label as :class:`higsfa.graphs.AutoGraph` takes it, with all its parameters."""

    def part(label: Label) -> GraphPart:
        if not label.is_numeric:
            return GraphPart(kind="clustered", label=label.name)
        params = number_graph(label.name).get_params()
        return GraphPart(kind="label", **{name: value for name, value in params.items() if value is not None})

    return [part(label) for label in labels]


def make_graph(config: Config, labels: list[Label]) -> GraphRecipe:
    """The recipe; "auto" is what :class:`higsfa.graphs.AutoGraph` takes, told what labels are."""
    parts = auto_parts(labels) if isinstance(config.graph.parts, str) else config.graph.parts
    is_numeric = {label.name: label.is_numeric for label in labels}
    for part in parts:
        if part.label is not None and part.label not in is_numeric:
            raise ExperimentError(f"[graph] parts: no label {part.label!r}; data.labels are {', '.join(is_numeric)}")
        if part.kind in ("serial", "mixed", "window", "label") and part.label and not is_numeric[part.label]:
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
    n_samples: int | None = None,
    delta_threshold: float | None = None,
    engine: str = "threads",
) -> Any:
    """The network for so many samples of this shape: "main", or "hgsfa" or "higsfa_hgsfa_parameters" to compare with.

    `delta_threshold` replaces that of the config, for layers whose number of slow features is not fixed.
    """
    table = config.network
    kinds = {label.name: label.kind for label in labels}
    params = {**table.params(HiGSFA), "graph": make_graph(config, labels), "label_kinds": kinds, "engine": engine}
    del params["layers"]
    params["front"] = None if table.front == "none" else table.front
    with in_one_line("[network]"):
        if table.n_jobs == 0:
            raise ValueError("n_jobs = 0: use 1 or more threads, or -1 for all cores")
        network = _preset(config, shape, method, params, n_samples)
        threshold = delta_threshold if delta_threshold is not None else table.delta_threshold
        for layer in network.layers:
            layer.set_params(**table.layer_params.model_dump(exclude_none=True))
            if threshold is not None and layer.n_slow is None:
                layer.delta_threshold = threshold
        for layer in network.layers[:-1]:
            slow = layer.n_slow if isinstance(layer.n_slow, int) else 1
            layer.n_components = max(1, slow, round(table.width * layer.n_components))
        network.estimate_cost(2, input_shape=shape)
    return network


def _preset(config: Config, shape: tuple[int, ...], method: str, params: dict[str, Any], n_samples: int | None) -> Any:
    table = config.network
    kind = HGSFA if method == "hgsfa" or table.kind == "HGSFA" else HiGSFA
    if table.layers is None and table.preset in ("pyramid", "photographs"):
        params["front"] = "edges" if table.preset == "photographs" else params["front"]
        return presets.pyramid(shape, table.n_components, network=kind, n_samples=n_samples, **params)
    if table.layers is None and table.preset != "single":
        other = {"hgsfa": "hgsfa_g3", "higsfa_hgsfa_parameters": "higsfa_g3_hgsfa_parameters"}
        return getattr(presets, other.get(method, table.preset))(shape, **params)
    if table.layers is not None:
        layers = [Layer(**layer.params(Layer)) for layer in table.layers]
    else:
        layers = [Layer(tuple(shape), n_components=table.n_components, expansion=table.expansion)]
    return kind(layers, input_shape=shape, **params)


def layer_records(network: Any) -> list[dict[str, Any]]:
    """The field `layers` of metrics.json."""

    def record(number: int, layer: Any) -> dict[str, Any]:
        slowest = layer.delta_values[:, :1]
        slowest = slowest[~np.isnan(slowest)]
        return {
            "layer": number,
            "nodes": int(np.prod(layer.shape)),
            "expanded": int(layer.n_expanded),
            "n_components": int(layer.trained.plan.n_components),
            "mean_n_slow": float(layer.n_slow.mean()),
            "mean_delta_1": float(slowest.mean()) if len(slowest) else None,
            "min_delta_1": float(slowest.min()) if len(slowest) else None,
        }

    return [record(number, layer) for number, layer in enumerate(network.layers_, 1)]


class Features(NamedTuple):
    """Features of the supervised and the test set, for some labels: for all, except with LDA."""

    labels: list[Label]
    supervised: NDArray[Any]
    test: NDArray[Any]
    means: tuple[NDArray[Any], NDArray[Any]] | None = None  # of both sets, over views

    @property
    def of_head(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """What labels are learned and estimated from."""
        return (self.supervised, self.test) if self.means is None else self.means


class Extracted(NamedTuple):
    members: list[list[Features]]  # of each network whose estimates are averaged; of one where there is none
    networks: list[Any]
    seconds: dict[str, float]

    @property
    def features(self) -> list[Features]:
        """Those that are shown: of the first network."""
        return self.members[0]

    @property
    def network(self) -> Any:
        return self.networks[0] if self.networks else None


def extract(
    method: Method, config: Config, labels: list[Label], sets: Sets, checkpoint: Path, log: Log, engine: str, what: str
) -> Extracted:
    """Train a method (any but chance) on a fold, and compute features with it; `what` names both in messages."""
    if method.network is None:
        return _linear(method, config, labels, sets, log, what)
    start, views, networks = time.perf_counter(), views_of(config), []
    parts = shares(sets.network, config.n_members(len(np.unique(sets.network.rows))))
    n_samples = counted_samples(sets.network.source.sample_index)  # shares are designed as one network for all copies
    for number, part in enumerate(parts, 1):
        network = make_network(
            config,
            labels,
            part.source.shape,
            method.network,
            n_samples=n_samples,
            delta_threshold=method.delta_threshold,
            engine=engine,
        )
        name = what if len(parts) == 1 else f"{what}, network {number} of {len(parts)}"
        networks.append(_trained(network, part, checkpoint / str(number), log, name))
    fitted, transform = time.perf_counter(), joined(networks)
    with in_one_line(what):
        log.stage(f"{what}: features of {len(sets.supervised):,} training samples")
        supervised = features_of(transform, sets.supervised.source, views.of_copies)
        log.stage(f"{what}: features of {len(sets.test):,} test samples")
        testing = time.perf_counter()
        test = features_of(transform, sets.test.source, views)
    seconds = {"fit": fitted - start, "transform": time.perf_counter() - testing}
    arrays = (np.split(Y, len(networks), axis=1) for Y in (supervised[0], test[0], supervised[1], test[1]))
    members = [
        [Features(labels, own, other, (own_mean, other_mean))]
        for own, other, own_mean, other_mean in zip(*arrays, strict=True)
    ]
    return Extracted(members, networks, seconds)


def _trained(network: Any, part: Samples, checkpoint: Path, log: Log, what: str) -> Any:
    source, n = part.source, len(part)
    with in_one_line(what):
        steps = network.estimate_cost(n, input_shape=source.shape).passes * n
        log.stage(f"{what}: train on {n:,} samples", steps)
        # A progress bar cannot travel to the workers of a cluster.
        counted = source if network.engine == "dask" else Counted(source, log.progress, steps)
        return network.fit(counted, part.labels, checkpoint=checkpoint).set_params(engine="threads")


def _linear(method: Method, config: Config, labels: list[Label], sets: Sets, log: Log, what: str) -> Extracted:
    start, source = time.perf_counter(), sets.network.source
    n_pixels = int(np.prod(source.shape))
    rows = evenly_spread(len(source), max(2, PCA_VALUES // n_pixels))
    log.stage(f"{what}: principal components of {len(rows):,} samples")
    with in_one_line(what):
        most = make_network(config, labels, source.shape).layers[-1].n_components
        pca = PCA(min(most, n_pixels, len(rows) - 1), svd_solver="auto", random_state=0)
        pca.fit(source.take(rows).reshape(len(rows), -1).astype(np.float32))
        projected, views = partial(_projected, pca), views_of(config)
        supervised = features_of(projected, sets.supervised.source, views.of_copies)
        maps: list[tuple[list[Label], Callable[[NDArray[Any]], NDArray[Any]]]] = [(labels, lambda Y: Y)]
        if method.key == "lda":
            known = sets.supervised.labels
            maps = [([label], _discriminants(supervised[1], known[label.name], label)) for label in labels]
        if method.key == "gsfa":
            node = GSFA(most, graph=make_graph(config, labels), expansion="identity | quadratic")
            seen = supervised[0] if sets.network is sets.supervised else projected(source)
            maps = [(labels, node.fit(seen, sets.network.labels).transform)]
        fitted = time.perf_counter()
        log.stage(f"{what}: features of {len(sets.test):,} test samples")
        test = features_of(projected, sets.test.source, views)
        features = []
        for some, mapped in maps:
            (own, own_mean), (other, other_mean) = (tuple(map(mapped, pair)) for pair in (supervised, test))
            features.append(Features(some, own, other, (own_mean, other_mean)))
    return Extracted([features], [], {"fit": fitted - start, "transform": time.perf_counter() - fitted})


def _projected(pca: PCA, source: Source) -> NDArray[Any]:
    out = np.empty((len(source), pca.n_components_), dtype=np.float32)
    for where, rows in blocks(source, BLOCK_VALUES):
        out[where] = pca.transform(rows.reshape(len(rows), -1).astype(np.float32))
    return out


def n_classes(values: NDArray[Any]) -> int:
    """The number of classes that a numeric label is cut into."""
    return int(np.clip((~missing(values)).sum() // 20, 2, 39))


def _discriminants(Y: NDArray[Any], values: NDArray[Any], label: Label) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """The map to linear discriminants of a label; a numeric one is cut into classes of equal size."""
    known = ~missing(values)
    if label.is_numeric:
        edges = np.quantile(values[known], np.linspace(0, 1, n_classes(values) + 1)[1:-1])
        codes = np.searchsorted(np.unique(edges), values[known], side="right")
    else:
        codes, _ = encode_classes(values[known])
    deviation = Y[known].std(axis=0)
    varies = deviation > 1e-6 * deviation.max()
    lda = LinearDiscriminantAnalysis().fit(Y[known][:, varies], codes)
    return lambda Y: np.asarray(lda.transform(Y[:, varies]))
