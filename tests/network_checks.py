"""What the network oracle compares: layers with the paper and with single estimators, ways with each other."""

from __future__ import annotations

import warnings
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from unittest import mock

import numpy as np
import scipy.sparse as sp

from architectures import dense_graph, make_data, windows
from higsfa import GSFA, IGSFA, ISFA, SFA
from higsfa.core.native import tile as fused
from higsfa.core.node import node as nodes
from higsfa.core.sums import accumulate, tile
from higsfa.core.sums import plan as tiles
from higsfa.graphs import EdgeGraph
from higsfa.training import budget, checkpoints, stores
from higsfa.training import network as driver
from higsfa.training.runner import one_by_one
from higsfa.training.stores import feature_major
from literal import LiteralNode, NodeSpec, expand, is_linear

MARGIN = 10
"""Allowed error, in errors that rounding was seen to make."""
OPEN = {"float64": 1e-3, "float32": 0.2}
"""A column whose allowed error is this part of its size is left open by the data."""


class Report:
    """How much was compared, and how much was left open because rounding decides."""

    def __init__(self):
        self.counts = Counter()

    def add(self, what, n=1):
        self.counts[what] += int(n)

    def assert_most_was_compared(self):
        """An oracle that finds everything open finds nothing wrong.

        Architectures are made so that no two features are equally slow, and no two principal components equally large.
        What is left are expansions that are dependent to within rounding, so near the rank cut that one rounding of
        the samples moves the reference itself by 1e-5.
        """
        for what, most in (("nodes", 0.03), ("columns, float64", 0.01), ("columns, float32", 0.1)):
            still_open = sum(n for name, n in self.counts.items() if name.startswith(f"open {what}"))
            assert still_open <= max(3, most * self.counts[what]), self.counts


# --- how samples are cut -----------------------------------------------------------------------------------------


@contextmanager
def cut(case):
    """Tiles, blocks and chunks so small that some hundred samples fill several."""
    with ExitStack() as stack:
        for module, name, value in (
            (budget, "NETWORK_TILE", case.tile),
            (driver, "NETWORK_BLOCK", case.block),
            (tile, "MAX_TILE", case.tile),
            (tile, "MIN_CELL", case.min_cell),
            (stores, "READ_ROWS", case.chunk),
            (checkpoints, "INTERVAL", 0.0),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        stack.enter_context(mock.patch.object(tiles.make_plan, "__defaults__", (case.block,)))
        for module in (nodes, accumulate, fused):
            stack.enter_context(mock.patch.object(module, "chunk_columns", return_value=case.chunk))
        yield


# --- one node ----------------------------------------------------------------------------------------------------


class Rounding:
    """Rounding errors of one seed, or the opposite ones.

    Near the rank cut errors are not small: an eigenvalue that is stopped by its neighbour in one direction may be free
    to move in the other.
    """

    def __init__(self, seed, sign):
        self.rng, self.sign = np.random.default_rng(seed), sign

    def standard_normal(self, shape):
        return self.sign * self.rng.standard_normal(shape)


class Reference:
    """A node computed literally, and again from samples with rounding errors."""

    def __init__(self, fields, graph, spec):
        self.node = LiteralNode(fields, graph, spec)
        self.spec, self.decided = spec, self.node.decided
        errors = [Rounding(seed, sign) for seed in range(2) for sign in (1, -1)]
        self.twins = [LiteralNode(fields, graph, spec, like=self.node, rng=rng) for rng in errors]

    def __call__(self, compute):
        """compute(node), and how much rounding may change each column, up to signs."""
        exact = compute(self.node)
        error = np.full(exact.shape[1], 100 * self.spec.eps * np.abs(exact).max(initial=0))
        for twin in self.twins:
            changed = compute(twin)
            change = np.abs(changed * agreeing_signs(changed, exact) - exact).max(axis=0)
            error = np.maximum(error, MARGIN * change)
        return exact, error


def agreeing_signs(one, other):
    return np.where(np.sum(one * other, axis=0) < 0, -1.0, 1.0)


def assert_columns(found, expected, error, report, what, *, eps, signs=False, alike=False):
    """Columns agree within the allowed error; those that rounding decides are counted instead.

    `signs`: up to signs of columns; `alike`: columns are measured by the largest of them.
    """
    precision = "float64" if eps < 1e-10 else "float32"
    assert found.shape == expected.shape, what
    assert np.isfinite(found).all(), what
    size = np.abs(expected).max(axis=0)
    known = (error <= OPEN[precision] * (size.max() if alike else size)) | (size == 0)
    report.add(f"columns, {precision}", len(known))
    report.add(f"open columns, {precision}", np.sum(~known))
    if signs:
        expected = expected * agreeing_signs(found, expected)
    errors = np.abs(found - expected).max(axis=0)
    wrong = known & ~(errors <= error)
    assert not wrong.any(), f"{what}: columns {np.flatnonzero(wrong)}: errors {errors[wrong]} > {error[wrong]}"


def check_decisions(reference, found, report, what):
    """Rank, J and D are those of the reference, unless rounding may have decided otherwise: then False."""
    expected = reference.decided.rank, reference.decided.n_slow, reference.decided.n_features
    report.add("nodes")
    if found == expected:
        return True
    assert reference.decided.doubts, f"{what}: rank, J and D are {found}, expected {expected}"
    report.add(f"open nodes: {', '.join(sorted(set(reference.decided.doubts)))}")
    return False


def check_deltas(reference, found, report, what):
    found = found[np.isfinite(found)]
    assert reference.decided.n_slow <= len(found) <= reference.decided.rank, what
    exact, error = reference(lambda node: node.deltas[None, : len(found)])
    error = np.maximum(error, 1e3 * reference.spec.eps)
    for tied in reference.node.ties:  # only features that are used are rotated
        error[tied] += np.ptp(reference.node.deltas[tied])
    # Delta values of 0 cannot be exact to a part of themselves.
    assert_columns(1 + found[None], 1 + exact, error, report, f"{what}: Delta values", eps=reference.spec.eps)


# --- one layer ---------------------------------------------------------------------------------------------------

SINGLE = {"HiGSFA": IGSFA, "HGSFA": GSFA, "HiSFA": ISFA, "HSFA": SFA}
PRESERVING = ("n_slow", "delta_threshold", "scaling", "min_scale", "weighted")


def spec_of(case, layer):
    return NodeSpec(
        n_components=layer.n_components,
        expansion=layer.terms(),
        children=int(np.prod(layer.field)),
        preserve=case.preserve,
        pca=layer.pca,
        clip_range=case.clip_range,
        eps=case.eps,
        shrinkage=layer.shrinkage,
        **{name: getattr(layer, name) for name in PRESERVING},
    )


def check_layer(case, layer, data, graph, below, found, fitted, report, name):
    """Compare the features of one layer, given those of the layer below.

    Returns what its nodes rebuild of the layer below, the mean where fields overlap, and how exact that is; None if
    rounding decides how many features there are.
    """
    n, (shape, places) = case.n_samples, windows(below.shape[1:-1], layer)
    assert fitted.shape == shape, name
    assert found.shape == (len(below), *shape, layer.n_components), name
    inputs = [below[(slice(None), *place)].reshape(len(below), -1) for place in places]
    outputs = list(found.reshape(len(found), len(places), -1).swapaxes(0, 1))
    rebuilt, slack, count = np.zeros(below.shape), np.zeros(below.shape[1:]), np.zeros(below.shape[1:])
    reference = None
    for p, place in enumerate(places):
        what = f"{name}, node {p}"
        if reference is None or not layer.shared:
            fields = [F[:n] for F in (inputs if layer.shared else [inputs[p]])]
            reference = Reference(fields, graph, spec_of(case, layer))
            number = 0 if layer.shared else p
            decided = int(fitted.rank[number]), int(fitted.n_slow[number]), fitted.nodes[number].n_components
            if not check_decisions(reference, decided, report, what):
                return None
            check_deltas(reference, fitted.delta_values[number], report, what)
        exact, error = reference(lambda node, p=p: node.extract(inputs[p]))
        assert_columns(outputs[p], exact, error, report, what, eps=case.eps, signs=case.eps > 1e-10)
        if p in (0, len(places) - 1):
            single = fit_single(case, layer, data, graph, reference.node, fields, found.dtype)
            if single is not None:
                check_single(single, reference, inputs[p], outputs[p], error, report, f"{what}, single estimator")
        down, error = reference(lambda node, p=p: node.reconstruct(node.extract(inputs[p])))
        rebuilt[(slice(None), *place)] += down.reshape(-1, *slack[place].shape)
        slack[place] += error.reshape(slack[place].shape)
        count[place] += 1
    return rebuilt / count, slack / count


def estimator_of(case, layer, children=1):
    """A single estimator with the parameters of a layer, without its graph."""
    names = ("n_components", "shrinkage", *(PRESERVING if case.preserve else ()))
    params = {name: getattr(layer, name) for name in names} | {"clip_range": case.clip_range}
    terms = layer.terms()
    params["expansion"] = list(terms)
    if children > 1 and any("[" in term for term in terms if isinstance(term, str)):
        # Slices count within each child, and a single estimator has only one.
        params["expansion"] = lambda X: expand(terms, X, children)
        params["clip_range"] &= not is_linear(terms)
    params |= {"graph": case.recipe()} if case.labelled else {"lag": case.lag}
    return SINGLE[case.kind](**params)


def fit(estimator, X, **options):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "n_components=.* asked for", UserWarning)
        return estimator.fit(X, **options)


def fit_single(case, layer, data, graph, node, fields, dtype):
    """Fit a single estimator on the fields of a node; None where its interface does not offer the same."""
    estimator = estimator_of(case, layer, 1 if layer.pca else int(np.prod(layer.field)))
    X = np.concatenate([project(node, F, dtype) for F in fields])
    if not layer.shared:
        return fit(estimator, X, **data.fit_params(case))
    if np.any(graph.w != 1) or graph.gamma.min() < -1e-9:
        return None
    gamma = sp.csr_array(sp.block_diag([np.maximum(graph.gamma, 0)] * len(fields)))
    params = {
        name: value
        for name, value in estimator.get_params(deep=False).items()
        if name not in ("lag", "delays", "node_weights")
    }
    params["graph"] = EdgeGraph(gamma, np.tile(graph.v, len(fields)))
    return fit((IGSFA if case.preserve else GSFA)(**params), X)


def check_single(estimator, reference, samples, features, error, report, what):
    """A network's node, the literal one and a single estimator agree."""
    eps, n = reference.spec.eps, estimator.n_components_
    assert not features[:, n:].any(), f"{what}: features beyond the rank"
    if n == 0:  # nothing varies
        return
    Y = estimator.transform(project(reference.node, samples, features.dtype))
    assert_columns(Y, features[:, :n], 2 * error[:n], report, what, eps=eps, signs=eps > 1e-10)
    check_deltas(reference, estimator.delta_values_, report, what)
    if reference.spec.weighted and not reference.spec.preserve:
        return  # only layers weigh the inverse of GSFA
    exact, error = reference(lambda node: node.rebuild_inputs(node.extract(samples)))
    assert_columns(estimator.inverse_transform(Y), exact, error, report, f"{what}, inverse", eps=eps, alike=True)


def project(node, samples, dtype):
    """What a single estimator sees: the input of the node behind its PCA."""
    return samples if node.axes is None else ((samples - node.center) @ node.axes.T).astype(dtype)


def examine_single(case, report):
    """Check a single estimator."""
    data, (layer,) = make_data(case), case.layers
    X, X_new = (samples.reshape(len(samples), -1) for samples in (data.X, data.X_new))
    center = tuple(X.mean(axis=0) + np.random.default_rng(case.seed).normal(size=X.shape[1])) if case.center else None
    samples = np.concatenate([X, X_new])
    with cut(case):
        estimator = estimator_of(case, layer).set_params(center=center)
        fit(estimator, X, **data.fit_params(case))
        reference = Reference([X], dense_graph(case, data), replace(spec_of(case, layer), center=center))
        n_slow = estimator.n_slow_ if case.preserve else estimator.n_components_
        if check_decisions(reference, (estimator.rank_, n_slow, estimator.n_components_), report, "single estimator"):
            exact, error = reference(lambda node: node.extract(samples))
            check_single(estimator, reference, samples, exact, error, report, "single estimator")


# --- a network ---------------------------------------------------------------------------------------------------


def examine(case, folder, report):
    """Check one architecture: layer by layer, and computed in other ways."""
    data = make_data(case)
    with cut(case):
        whole = check_network(case, data, report)
        for number, way in enumerate(case.ways):
            again = fit_in_another_way(case, data, way, folder / str(number))
            assert_same_bits(again, whole, len(case.layers), f"{way!r}")
            for X in (data.X, data.X_new):
                assert np.array_equal(again.transform(X), whole.transform(X)), f"{way!r}: features"


def check_network(case, data, report):
    """Fit a network up to each of its layers and compare that layer; returns the whole network."""
    graph = dense_graph(case, data)
    both = np.concatenate([data.X, data.X_new])
    below = both.reshape(len(both), *case.shape[: case.n_dimensions], -1)
    under, known = None, True
    for depth, layer in enumerate(case.layers, 1):
        network = case.network(depth).fit(data.X, **data.fit_params(case))
        if under is not None:
            assert_same_bits(network, under, depth - 1, f"the layers below layer {depth}")
        Y = network.transform(both)
        found = Y.reshape(len(both), *network.layers_[-1].shape, -1)
        if known:
            rebuilt = check_layer(
                case, layer, data, graph, below, found, network.layers_[-1], report, f"layer {depth} of {depth}"
            )
            if rebuilt is not None:
                check_inverse(network, under, Y, *rebuilt, case, report, f"inverse of layer {depth}")
        known = known and evaluates_exactly(network, both, Y)
        below, under = found, network
    return network


def evaluates_exactly(network, X, Y):
    """Whether the features of a network are more than rounding errors: in double precision they are the same.

    A direction just above the rank cut of single precision is scaled up with its rounding errors. Then features while
    training differ from those of `transform`, which are all that a comparison of the layer above can know.
    """
    block = feature_major(X, network._trained[0].plan.width)
    for layer in network._trained:
        block = layer.encode(block, np.dtype(np.float64), one_by_one)
    exact = block.reshape(-1, len(X)).T
    return bool(np.all(np.abs(Y - exact).max(axis=0) <= 1e-3 * np.abs(exact).max(axis=0)))


def check_inverse(network, under, Y, rebuilt, slack, case, report, what):
    """Down one layer as the paper has it, and further down through the network below."""

    def down(H):
        return (H if under is None else under.inverse_transform(H.reshape(len(H), -1))).reshape(len(H), -1)

    expected = down(rebuilt)
    noise = np.random.default_rng(0).choice([-1, 1], rebuilt.shape)
    error = np.maximum(
        3 * np.abs(down(rebuilt + slack * noise) - expected).max(axis=0), 1e3 * case.eps * np.abs(expected).max()
    )
    found = network.inverse_transform(np.tile(Y, (6, 1)))  # more samples than are rebuilt at once
    for part in np.split(found.reshape(len(found), -1), 6):
        assert_columns(part, expected, error, report, what, eps=case.eps, alike=True)


def arrays_of(thing):
    """All arrays of numbers in an object of the library."""
    if isinstance(thing, np.ndarray):
        return [thing]
    if isinstance(thing, list | tuple):
        return [array for part in thing for array in arrays_of(part)]
    if isinstance(thing, dict):
        return [array for key in sorted(thing) for array in arrays_of(thing[key])]
    if type(thing).__module__.startswith("higsfa.") and isinstance(state := thing.__getstate__(), dict):
        return arrays_of({name: value for name, value in state.items() if name != "expansion"})
    return []


def assert_same_bits(one, other, depth, what):
    for k in range(depth):
        a, b = (arrays_of(list(network.layers_[k].nodes)) for network in (one, other))
        assert len(a) == len(b) > 0, what
        same = all(x.dtype == y.dtype and np.array_equal(x, y, equal_nan=True) for x, y in zip(a, b, strict=True))
        assert same, f"{what}: layer {k + 1} differs"


# --- ways to compute the same ------------------------------------------------------------------------------------

PLACES = {"m": "memory", "d": "disk", "n": "nowhere"}


class Interrupted(Exception):
    """The fit is over before its time."""


@contextmanager
def waiting(places, at_once):
    """Let input and features wait where `places` says, as some budget of memory would have it."""
    make = driver.make_budget

    def forced(work, limit, disk):
        budget = make(work, 2**40, disk=disk)
        layers = [
            replace(layer, place=PLACES[place], nodes_at_once=n if plan.shared else min(n, at_once))
            for layer, plan, place in zip(budget.layers, work.plans, [*places[1:], "n"], strict=True)
            for n in [plan.fields.n_nodes]
        ]
        return replace(budget, input_place=PLACES[places[0]], layers=tuple(layers))

    with mock.patch.object(driver, "make_budget", forced if places else make):
        yield


@contextmanager
def interrupted(at_write):
    """Fail at the n-th write to the checkpoint."""
    write, count = checkpoints.write_atomically, 0

    def count_and_fail(path, content):
        nonlocal count
        count += 1
        if count == at_write:
            raise Interrupted
        write(path, content)

    with mock.patch.object(checkpoints, "write_atomically", count_and_fail):
        yield


def fit_in_another_way(case, data, way, folder):
    folder.mkdir(parents=True)
    network = case.network(n_jobs=way.n_jobs, spill=str(folder), engine="dask" if way.dask else "threads")
    options = data.fit_params(case) | ({"checkpoint": folder / "checkpoint"} if way.interruptions else {})
    for number, at_write in enumerate((*way.interruptions, 0)):
        places = "" if way.moving and number % 2 else way.places
        network.set_params(memory_limit=1000 if way.tight and (places or way.dask) else "1 GiB")
        with waiting(places, way.at_once), interrupted(at_write), suppress(Interrupted):
            return network.fit(data.X, **options)
