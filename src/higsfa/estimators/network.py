"""What all hierarchical networks share: planning, training, using and showing them."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from math import prod
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from higsfa.core.graph.graph import TrainingGraph
from higsfa.core.sums.plan import BLOCK
from higsfa.estimators.choice import find_parts
from higsfa.estimators.display import Shown, progress, told
from higsfa.estimators.edges import OrientedEdges, make_front
from higsfa.estimators.layer import Layer, counted_samples, design_pyramid
from higsfa.estimators.validation import (
    BUILT,
    Extractor,
    assert_finite,
    batches,
    check_data,
    check_n_slow,
    check_out,
    dask_transform,
    explained,
    feature_names,
    fit_task,
    is_dask,
    like,
    product_dtype,
    read_features,
    unchanged_on_error,
    warn_if_channels_first,
    working_dtype,
)
from higsfa.graphs import check_weights
from higsfa.training.budget import Budget, Workload, are_short, make_budget, parse_memory, tile_size
from higsfa.training.choice import choose_options
from higsfa.training.layer import LayerPlan, TrainedLayer
from higsfa.training.network import train_network
from higsfa.training.runner import threads
from higsfa.training.sources import Array, Source
from higsfa.training.stores import feature_major, free_bytes, spill_folder


class FittedLayer:
    """One trained layer, for looking at.

    Attributes
    ----------
    shape : tuple of int
        Grid of nodes.
    delta_values : array of shape (n_nodes, n_features)
        Delta values of the slow features of every node, NaN where a node has fewer.
    n_slow : array of shape (n_nodes,)
        J, the size of the slow part.
    rank : array of shape (n_nodes,)
        Rank of the covariance of the expanded input.
    n_expanded : int
        Expanded size.
    nodes : tuple
        The trained nodes; one if weights are shared.
    """

    def __init__(self, trained: TrainedLayer) -> None:
        self.trained = trained
        self.nodes = trained.nodes
        self.shape = trained.plan.fields.shape
        self.n_expanded = self.nodes[0].frontend.n_expanded
        self.n_slow, self.rank, self.delta_values = trained.table()

    def __repr__(self) -> str:
        grid = "x".join(map(str, self.shape))
        slowest = np.nanmean(self.delta_values[:, 0]) if self.delta_values.shape[1] else np.nan
        sizes = f"expanded {self.n_expanded}, mean J {self.n_slow.mean():.2f}"
        return f"<layer of {grid} nodes: {sizes}, mean Delta_1 {slowest:.3f}>"


class Network(Shown, Extractor):
    """What all hierarchical networks share."""

    _preserve = True
    layers: Any

    _parameter_constraints: dict[str, Any] = {
        "layers": [list, tuple, None],
        "front": [StrOptions({"auto", "edges"}), OrientedEdges, None],
        "input_shape": [Interval(Integral, 1, None, closed="left"), tuple, list, None],
        "n_jobs": [Integral, None],
        "memory_limit": [Interval(Integral, 1, None, closed="left"), str, None],
        "spill": [str, os.PathLike, "boolean", None],
        "engine": [StrOptions({"threads", "dask"})],
        "clip_range": ["boolean"],
        "verbose": ["verbose"],
    }

    # ------------------------------------------------------------------ architecture

    def _planned(self, input_shape: tuple[int, ...], n_samples: int | None = None) -> list[LayerPlan]:
        """The layers on pictures of this shape; a network that designs itself asks for the number of samples."""
        front = self._front(input_shape)
        if front is not None:
            input_shape = front.plan(input_shape).out_shape
        layers = self._layers(input_shape, None if front is None else 2, n_samples)
        if not layers:
            raise ValueError("layers: a network needs at least one layer")
        n_dimensions = layers[0].n_dimensions
        if isinstance(layers[0].field, Integral) and len(input_shape) in (2, 3):
            n_dimensions = 2
        if len(input_shape) not in (n_dimensions, n_dimensions + 1) or n_dimensions > 3:
            raise ValueError(
                f"input_shape {input_shape} does not go with fields of {n_dimensions} dimensions: give one size per "
                "dimension of the field (at most 3), and the number of channels last if there are several"
            )
        grid = tuple(int(size) for size in input_shape[:n_dimensions])
        width = int(input_shape[n_dimensions]) if len(input_shape) > n_dimensions else 1
        plans = []
        for number, layer in enumerate(layers, 1):
            plan = layer.plan(number, grid, width, preserve=self._preserve, clip_range=bool(self.clip_range))
            plans.append(plan)
            grid, width = plan.fields.shape, plan.n_components
        return plans

    def _front(self, shape: tuple[int, ...]) -> OrientedEdges | None:
        """What comes before the layers, not fitted."""
        is_none = self.front is None or (self.front == "auto" and self.layers is not None)
        return None if is_none else make_front(self.front, shape)

    def _layers(self, input_shape: tuple[int, ...], n_dimensions: int | None, n_samples: int | None) -> list[Layer]:
        if self.layers is None:
            known = n_samples if self._needs_labels and self._preserve else None
            return design_pyramid(input_shape, n_dimensions=n_dimensions, n_samples=known)
        for number, layer in enumerate(self.layers, 1):
            if not isinstance(layer, Layer):
                raise TypeError(f"layers: entry {number} must be a Layer, got {type(layer).__name__}")
        return list(self.layers)

    def _shape(self) -> tuple[int, ...] | None:
        if self.input_shape is None:
            return getattr(self, "input_shape_", None)
        given = self.input_shape
        return (int(given),) if isinstance(given, int | np.integer) else tuple(given)

    def estimate_cost(
        self, n_samples: int, *, input_shape: Any = None, dtype: Any = np.uint8, n_cells: int = 3
    ) -> Budget:
        """Memory, passes over the data and work of a fit, before anything is read.

        Choosing the shrinkage ("auto") comes on top: the work of a fit on two thirds of the samples, 5,000 at most.

        Parameters
        ----------
        n_samples : int
        input_shape : tuple of int, optional
            The parameter of the network by default.
        dtype : dtype of the input, default=uint8
        n_cells : int, default=3
            Number of weightings; 3 at most.

        Returns
        -------
        Budget
            With `memory` in bytes, `passes`, `work` in multiply-adds, and the layers one by one; prints well.
        """
        shape = tuple(input_shape) if input_shape is not None else self._shape()
        if shape is None:
            raise ValueError("input_shape: pass it, the network does not know it before it is fitted")
        plans = self._planned(shape, n_samples)
        if self._front(shape) is not None:
            dtype, shape = np.float32, (*plans[0].fields.grid, plans[0].width)
        dtype = np.dtype(dtype)
        itemsize = product_dtype(dtype).itemsize
        work = Workload(
            tuple(plans),
            n_samples,
            int(np.prod(shape)),
            dtype.itemsize,
            itemsize,
            n_cells,
            64,
            -(-n_samples // BLOCK),
            self._n_jobs(),
            short=are_short(plans, n_samples, itemsize),
        )
        return make_budget(work, parse_memory(self.memory_limit), disk=free_bytes(spill_folder(self.spill)))

    # ------------------------------------------------------------------ fitting

    def _fit(self, X: Any, y: Any, given: Any, weights: Any, groups: Any, checkpoint: Any) -> Any:
        """Train on the graph that is given or that a recipe makes."""
        with unchanged_on_error(self), np.errstate(all="ignore"):
            source = check_data(self, X, reset=True, min_samples=2, allow_nd=True)
            n, shape, pixels = len(source), self._input_shape_of(source.shape), source
            n_samples = counted_samples(source.sample_index) if self.layers is None else None
            plans, front = self._planned(shape, n_samples), self._front(shape)
            if front is not None:
                source = front.fit_source(source, shape).seen(source)
            is_open = any(plan.options.is_open for plan in plans)
            is_built = isinstance(given, TrainingGraph)
            if is_built and (weights is not None or groups is not None):
                raise ValueError(BUILT)
            recipe = (
                given if is_built else given.settled(y, check_weights(weights, n), getattr(self, "label_kinds", None))
            )
            self.label_kinds_ = None if is_built else given.kinds_taken(recipe)
            graph = given if is_built else recipe.build(y, sample_weight=weights, groups=groups, n_samples=n)
            if graph.n_samples != n:
                raise ValueError(f"graph is for {graph.n_samples} samples but X has {n}")
            warn_if_channels_first(shape, len(plans[0].fields.shape))
            for number, plan in enumerate(plans if self._preserve else [], 1):
                check_n_slow(plan.options.n_slow, plan.n_components, f"layer {number}: ")
            dtype, precision = working_dtype(source, [plan.expansion for plan in plans])
            plans = [replace(plan, rounding=precision) for plan in plans]
            parts, held_out = None, [None] * len(plans)
            if is_open and not is_built:
                parts = find_parts(source, recipe, y, graph.sample_weight, groups)
            with fit_task(self, X, y, len(plans) * (1 if parts is None else 2)) as task:
                if is_open:
                    plans, held_out = self._chosen(plans, parts, pixels, dtype, task)
                saved = None if checkpoint is None else self._checkpoint(checkpoint, source, graph, plans, dtype)
                with explained(self, pixels), progress(self.verbose, plans) as show, told(self, task, show) as on_layer:
                    trained = train_network(
                        plans,
                        source.take,
                        graph,
                        source.dtype,
                        dtype,
                        n_jobs=self._n_jobs(),
                        limit=parse_memory(self.memory_limit),
                        on_layer=on_layer,
                        engine=self.engine,
                        spill=self.spill,
                        checkpoint=saved,
                    )
                self._adopt(trained, shape, front)
                self.held_out_ = held_out
        return self

    def _chosen(
        self, plans: list[LayerPlan], parts: Any, source: Source, dtype: np.dtype[Any], task: Any
    ) -> tuple[Any, Any]:
        """Plans with what was left open filled in, and how layers did on unseen samples."""
        if parts is None:
            return [replace(plan, options=plan.options.settled()) for plan in plans], [None] * len(plans)
        prefix = "shrinkage, "
        with (
            explained(self, source),
            progress(self.verbose, plans, prefix) as show,
            told(self, task, show, prefix) as on_layer,
        ):
            return choose_options(
                plans,
                parts,
                dtype,
                n_jobs=self._n_jobs(),
                limit=parse_memory(self.memory_limit),
                spill=self.spill,
                on_layer=on_layer,
            )

    def _adopt(self, trained: list[TrainedLayer], shape: tuple[int, ...], front: OrientedEdges | None) -> None:
        self._trained = trained
        self.front_ = front
        self._progress: Any = None  # of federated training
        self.layers_ = [FittedLayer(layer) for layer in trained]
        self.input_shape_ = shape
        self.shrinkage_ = [float(layer.plan.options.shrinkage) for layer in trained]
        self.held_out_ = [None] * len(trained)
        self.n_components_ = trained[-1].plan.fields.n_nodes * trained[-1].plan.n_components
        top = trained[-1].nodes
        self.n_slow_ = top[0].n_slow if trained[-1].plan.fields.n_nodes == 1 else None
        self.delta_values_ = top[0].delta_values if len(top) == 1 else None

    def _checkpoint(
        self, folder: Any, source: Source, graph: TrainingGraph, plans: list[LayerPlan], dtype: np.dtype[Any]
    ) -> Any:
        from higsfa import __version__
        from higsfa.training.checkpoints import Checkpoint, fit_key

        saved = Checkpoint(Path(folder), fit_key(source.fingerprint(), graph, plans, dtype, __version__))
        saved.open()
        return saved

    def _input_shape_of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a sample: the parameter, or that of the data."""
        given = None if self.input_shape is None else self._shape()
        if given is None:
            return shape
        if int(np.prod(given)) != int(np.prod(shape)) or (len(shape) > 1 and tuple(given) != shape):
            raise ValueError(
                f"input_shape={tuple(given)} has {int(np.prod(given))} values, but samples have shape {shape} "
                f"({int(np.prod(shape))} values)"
            )
        return tuple(given)

    def _n_jobs(self) -> int:
        n_jobs = 1 if self.n_jobs is None else int(self.n_jobs)
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 has no meaning: use 1 or more threads, or -1 for all cores")
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        # More threads than cores cost memory and gain nothing; eight are allowed everywhere, for trying out.
        return min(n_jobs, max(8, cores)) if n_jobs > 0 else max(1, cores + 1 + n_jobs)

    # ------------------------------------------------------------------ using

    def transform(self, X: Any, out: Any = None) -> Any:
        """Extract features.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...) or (n_samples, n_features), or a source, zarr or dask array
        out : array or memmap of shape (n_samples, n_components), optional
            Where to put the features, for more samples than fit in memory.

        Returns
        -------
        array of shape (n_samples, n_components)
            float32 for float32 and uint8 input, else float64; a dask array if X is one.
        """
        check_is_fitted(self, "_trained")
        if is_dask(X):
            return dask_transform(self, X)
        source = check_data(self, X, reset=False, min_samples=0, allow_nd=True)
        if len(source.shape) > 1 and tuple(source.shape) != tuple(self.input_shape_):
            raise ValueError(f"samples have shape {source.shape}, but the network was trained for {self.input_shape_}")
        given = product_dtype(source.dtype)
        if self.front_ is not None:
            self.front_.check_range(source)
            source = self.front_.seen(source)
        dtype = product_dtype(source.dtype)
        plans = [layer.plan for layer in self._trained]
        rows = min(1024, tile_size(plans, int(np.prod(source.shape)), dtype.itemsize))
        out = check_out(out, (len(source), self.n_components_), given, source)
        if not all(layer.fits_single for layer in self._trained):
            dtype = np.dtype(np.float64)
        with threads(self._n_jobs()) as run, np.errstate(all="ignore"):
            for where, part in batches(source, rows):
                if not isinstance(source, Array):  # arrays were looked at
                    assert_finite(self, part)
                block = feature_major(part, plans[0].width)
                for layer in self._trained:
                    block = layer.encode(block, dtype, run)
                out[where] = block.reshape(self.n_components_, -1).T
        return like(X, out)

    def inverse_transform(self, Y: Any) -> np.ndarray:
        """Reconstruct inputs top-down, node by node; where fields overlap, their reconstructions are averaged.

        Parameters
        ----------
        Y : array-like of shape (n_samples, n_components)

        Returns
        -------
        array of shape (n_samples, ...)
        """
        check_is_fitted(self, "_trained")
        given, Y = Y, read_features(Y)
        if Y.shape[1] != self.n_components_:
            raise ValueError(f"Y has {Y.shape[1]} features, but this network makes {self.n_components_}")
        top, bottom = self._trained[-1].plan, self._trained[0].plan
        out = np.empty((len(Y), prod(bottom.fields.grid) * bottom.width), dtype=Y.dtype)
        with threads(self._n_jobs()) as run:
            for lo in range(0, len(Y), 1024):
                part = Y[lo : lo + 1024]
                block = np.ascontiguousarray(part.T).reshape(top.fields.n_nodes, top.n_components, len(part))
                for layer in reversed(self._trained):
                    block = layer.decode(block, run)
                out[lo : lo + 1024] = block.reshape(-1, len(part)).T
        pictures = out.reshape(-1, *self.input_shape_) if self.front_ is None else self.front_.inverse_transform(out)
        return like(given, pictures)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names such as ``higsfa_slow0``, then ``higsfa_rec0``; with several top nodes ``higsfa_node0_slow0``."""
        check_is_fitted(self, "_trained")
        plan = self._trained[-1].plan
        n_nodes, names = plan.fields.n_nodes, []
        for p, n_slow in enumerate(np.broadcast_to(self.layers_[-1].n_slow, n_nodes).tolist()):
            prefix = type(self).__name__.lower() + (f"_node{p}" if n_nodes > 1 else "")
            names += feature_names(prefix, n_slow, plan.n_components)
        return np.asarray(names, dtype=object)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters; with deep also those of the layers, as ``layer1__n_components``."""
        params = super().get_params(deep=deep)
        if deep and isinstance(self.layers, list | tuple) and all(isinstance(layer, Layer) for layer in self.layers):
            for number, layer in enumerate(self.layers, 1):
                params[f"layer{number}"] = layer
                params.update({f"layer{number}__{key}": value for key, value in layer.get_params().items()})
        return params

    def set_params(self, **params: Any) -> Any:
        """Set parameters, also ``layer1=...`` and ``layer1__n_components=...``."""
        inner = {key: params.pop(key) for key in list(params) if re.fullmatch(r"layer\d+(__.+)?", key)}
        super().set_params(**params)
        for key, value in inner.items():
            head, _, rest = key.partition("__")
            number = int(head[5:])
            layers: list[Any] = list(self.layers or [])
            if not 1 <= number <= len(layers):
                raise ValueError(f"Invalid parameter {key!r}: the network has {len(layers)} layers")
            if rest:
                layers[number - 1].set_params(**{rest: value})
            else:
                layers[number - 1] = value
                self.layers = layers
        return self
