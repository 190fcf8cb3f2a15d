"""From the tables [graph] and [network] to networks of the library."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from higsfa import HGSFA, HiGSFA, Layer, presets
from higsfa.experiments.config import Config, GraphPart
from higsfa.experiments.errors import ExperimentError, in_one_line
from higsfa.experiments.labels import Label
from higsfa.experiments.reporting import Log, counted
from higsfa.experiments.sets import Samples
from higsfa.graphs import ClusteredGraph, GraphRecipe, GraphSum, MixedGraph, SequenceGraph, SerialGraph, WindowGraph

__all__ = ["fit_network", "layer_records", "make_graph", "make_network"]


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
    recipes = [_recipe(part) for part in parts]
    weights = [part.weight for part in parts]
    return recipes[0] if len(recipes) == 1 and weights == [1.0] else GraphSum(recipes, weights)


def _recipe(part: GraphPart) -> GraphRecipe:
    if part.kind == "sequence":
        return SequenceGraph()
    if part.kind == "clustered":
        return ClusteredGraph(part.label)
    if part.kind == "window":
        return WindowGraph(part.label) if part.half_width is None else WindowGraph(part.label, part.half_width)
    return (SerialGraph if part.kind == "serial" else MixedGraph)(part.label, n_groups=part.n_groups)


def make_network(
    config: Config,
    labels: list[Label],
    shape: tuple[int, ...],
    method: str = "main",
    *,
    delta_threshold: float | None = None,
    engine: str = "threads",
) -> Any:
    """The network of an experiment, or one to compare it with.

    Parameters
    ----------
    config : Config
    labels : list of Label
    shape : tuple of int
        Of a sample.
    method : {"main", "hgsfa", "higsfa_hgsfa_parameters"}
    delta_threshold : float, optional
        Instead of that of the config, for layers whose number of slow features is not fixed.
    engine : {"threads", "dask"}
    """
    table = config.network
    params = {
        "graph": make_graph(config, labels),
        "n_jobs": table.n_jobs,
        "memory": table.memory,
        "engine": engine,
    }
    with in_one_line("[network]"):
        if table.n_jobs == 0:
            raise ValueError("n_jobs = 0 has no meaning: use 1 or more threads, or -1 for all cores")
        network = _preset(config, shape, method, params)
        threshold = delta_threshold if delta_threshold is not None else table.delta_threshold
        if threshold is not None:
            for layer in network.layers:
                if layer.n_slow is None:
                    layer.delta_threshold = threshold
        network.estimate(2, input_shape=shape)
    return network


def _preset(config: Config, shape: tuple[int, ...], method: str, params: dict[str, Any]) -> Any:
    table = config.network
    kind = HGSFA if method == "hgsfa" or table.kind == "HGSFA" else HiGSFA
    if table.layers is not None:
        layers = [Layer(**_tuples(layer.model_dump())) for layer in table.layers]
        return kind(layers, input_shape=shape, **params)
    if table.preset == "single":
        whole = Layer(tuple(shape), n_components=table.n_components, expansion=table.expansion)
        return kind([whole], input_shape=shape, **params)
    if table.preset == "pyramid":
        return presets.pyramid(shape, table.n_components, network=kind, **params)
    preset = {"hgsfa": "hgsfa_g3", "higsfa_hgsfa_parameters": "higsfa_g3_hgsfa_parameters"}.get(method, table.preset)
    return getattr(presets, preset)(shape, **params)


def _tuples(layer: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in layer.items()}


def fit_network(network: Any, samples: Samples, checkpoint: Path, log: Log, what: str) -> float:
    """Train; returns the seconds it took."""
    start = time.perf_counter()
    with in_one_line(what):
        steps = network.estimate(len(samples), input_shape=samples.source.shape).passes * len(samples)
        log.stage(f"{what}: train on {len(samples):,} samples", steps)
        # A progress bar cannot travel to the workers of a cluster.
        source = samples.source if network.engine == "dask" else counted(samples.source, log.progress, steps)
        network.fit(source, samples.labels, checkpoint=checkpoint)
    return time.perf_counter() - start


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
