"""The compiled routines against numpy and against loops: every combination of what they are given.

Raw numbers are small integers and centers are quarters, so that all types of numbers hold them exactly and one
reference, written out here in double precision from the formulas, serves all types and orders of memory.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations_with_replacement, count, pairwise, product
from types import SimpleNamespace

import numpy as np
import pytest

from higsfa.core.expansion.expansion import parse_expansion
from higsfa.core.native import encode
from higsfa.core.native import library as kernels
from higsfa.core.native import tile as fused
from higsfa.core.native.encode import Encoders
from higsfa.core.native.tile import Rows, Samples
from higsfa.core.node.frontend import Frontend, Projection
from higsfa.core.node.node import Node
from higsfa.core.sums.accumulate import NodeSums
from higsfa.core.sums.tile import LocalPairs, LocalRuns, PartMaker, Tile
from layouts import LAYOUTS, laid_out

pytestmark = pytest.mark.skipif(not kernels.compiled(), reason="higsfa was installed without a C compiler")

N, RAW, CHILDREN, CHUNK = 75, 18, 2, 32
PRODUCTS = [np.dtype(np.float32), np.dtype(np.float64)]
NUMBERS = [np.dtype(np.uint8), *PRODUCTS]
CONTAINERS = ["rows", "some rows", "samples"]
EXPANSIONS = [
    "identity",
    "identity[:2]",
    "power0.8 | signed_power0.6[1:3]",
    "max2 | max2[:3]",
    "quadratic[:2] | identity",
    "normalized_quadratic[:2] | max2",
]
WEIGHTINGS = ["constant", "groups", "samples", "cells", "pairs", "runs"]
SOMETIMES = 17  # numpy needs no full product of its own: one case in so many


@pytest.fixture(autouse=True)
def small_chunks_in_fresh_memory(monkeypatch):
    """Several chunks in a tile, so that parts and runs are cut; and scratch memory whose content would be noticed, with
    more behind it that nobody has asked for and nobody may write to."""
    monkeypatch.setattr(fused, "CHUNK_BYTES", 1)
    monkeypatch.setattr(fused, "MIN_CHUNK", CHUNK)
    behind = np.zeros(0)

    def check():
        assert np.all(np.isnan(behind)), "written behind the end of scratch memory"

    def scratch(n_rows, n, kind):
        nonlocal behind
        check()
        size = n_rows * (n + 16)
        memory = np.full(size + 10_000, np.nan, kind)
        behind = memory[size:]
        return memory[:size].reshape(n_rows, n + 16)[:, :n]

    monkeypatch.setattr(fused, "empty_rows", scratch)
    fused.chunk_columns.cache_clear()
    assert fused.chunk_columns(RAW, 4) == CHUNK
    yield
    fused.chunk_columns.cache_clear()
    check()


# ---- raw input: the same numbers in every order of memory, surrounded by others


def numbers():
    """(RAW, N) raw input."""
    return np.random.default_rng(0).integers(1, 200, (RAW, N)).astype(float)


def contained(x, container, layout, kind):
    """Raw input whose values are x, (variables, samples)."""
    rng = np.random.default_rng(1)
    if container == "rows":
        return Rows(laid_out(x, layout, kind))
    which = rng.permutation(2 * max(x.shape))
    if container == "some rows":
        which = which[: len(x)]
        source = rng.integers(0, 255, (2 * max(x.shape), x.shape[1]))
        source[which] = x
        return Rows(laid_out(source, layout, kind), which)
    which = which[: x.shape[1]]
    source = rng.integers(0, 255, (2 * max(x.shape), len(x)))
    source[which] = x.T
    return Samples(laid_out(source, layout, kind), which)


def is_for_compiled(container, raw, kind):
    """Whether compiled routines are to read this, whatever its layout; numpy reads everything."""
    return raw == kind or (raw == np.uint8 and container != "samples")


# ---- from raw input to variables, written out


def frontend_of(text, *, centered, projected, clipped):
    rng = np.random.default_rng(2)
    n_inputs = 8 if projected else RAW
    projection = Projection(rng.integers(-2, 3, (n_inputs, RAW)) / 4, rng.integers(90, 110, RAW) / 1.0)
    return Frontend(
        expansion=parse_expansion(text),
        children=CHILDREN,
        n_inputs=n_inputs,
        center=rng.integers(300, 500, n_inputs) / 4 if centered else np.zeros(n_inputs),
        low=-rng.integers(10, 70, n_inputs) / 1.0 if clipped else None,
        high=rng.integers(10, 70, n_inputs) / 1.0 if clipped else None,
        projection=projection if projected else None,
    )


def inputs_by_hand(x, frontend, *, clipped):
    if frontend.projection is not None:
        x = frontend.projection.matrix @ (x - frontend.projection.mean[:, None])
    x = x - frontend.center[:, None]
    return np.clip(x, frontend.low[:, None], frontend.high[:, None]) if clipped else x


def expanded_by_hand(x, text):
    """The rows of the table in expansions.py, one term after the other."""
    children = np.split(x, CHILDREN)
    of_first_two = [row for child in children for row in child[:2]]
    pairs = [a * b for a, b in combinations_with_replacement(of_first_two, 2)]
    norm = 1 + sum(row**2 for row in of_first_two)
    rows = {
        "identity": list(x),
        "identity[:2]": of_first_two,
        "power0.8": list(np.abs(x) ** 0.8),
        "signed_power0.6[1:3]": [np.sign(r) * np.abs(r) ** 0.6 for child in children for r in child[1:3]],
        "max2": [np.maximum(a, b) for a, b in pairwise(x)],
        "max2[:3]": [np.maximum(a, b) for child in children for a, b in pairwise(child[:3])],
        "quadratic[:2]": pairs,
        "normalized_quadratic[:2]": [row / norm for row in pairs],
    }
    return np.array([row for term in text.split(" | ") for row in rows[term]])


def variables_by_hand(x, text):
    """The expansion, and below it the inputs that it does not contain."""
    width = len(x) // CHILDREN
    missing = list(range(len(x)))
    if text in ("identity", "quadratic[:2] | identity"):
        missing = []
    if text == "identity[:2]":
        missing = [i for i in missing if i % width >= 2]
    return np.vstack([expanded_by_hand(x, text), x[missing]])


# ---- weights: (channels, samples), the group of each sample, and where a tile and its parts end


@cache
def weighting(name):
    rng = np.random.default_rng(3)
    groups = np.repeat([0, 1, 2, 0, 1, -1, 2], [3, 29, 1, 20, 7, 5, 10])
    if name == "constant":
        return np.full((1, N), 1.5), np.zeros(N, dtype=int), [(0, N)], [N]
    if name == "groups":
        return np.repeat([[0.5], [2.0], [0.0]], N, axis=1), groups, [(0, N)], [40, N]
    if name in EDGES:
        return np.repeat([[0.5], [2.0]], N, axis=1), groups, [(0, N)], [40, N]
    if name == "samples":
        return rng.integers(1, 9, (2, N)) / 4.0, groups, [(0, N)], [N]
    # Weights fall, stay for one channel, grow, and differ in the end; borders on those of chunks, and beside them.
    cells = [(0, 31), (31, 32), (32, 45), (45, 64), (64, N)]
    W = np.repeat([[4.0, 3.0, 3.0, 9.0], [4.0, 4.0, 2.0, 1.0]], [31, 1, 13, 19], axis=1)
    return np.hstack([W, rng.integers(1, 9, (2, N - 64)) / 4.0]), groups, cells, [50, N]


@cache
def functions_of(name):
    """Functions of the samples; weightings with several parts have three of them."""
    n = 3 if name in ("groups", "samples") else 0
    return np.random.default_rng(4).integers(-6, 7, (n, N)) / 4.0


# ---- edges along the order of the samples: from i to j, with a weight, written out; none over CUT

CUT = 62
EDGES = ("pairs", "runs")


@cache
def edges_of(name):
    """Sets of edges (i, j, weight): two lags, one beyond the end of a chunk; or windows with more edges further on."""
    rng = np.random.default_rng(5)
    if name not in EDGES:
        return ()
    if name == "pairs":
        lags = [(i, i + lag, 0.5) for lag in (1, 3) for i in range(N)]
        given = [(i, i + 37, float(rng.integers(1, 9)) / 4) for i in range(0, N, 2)]
        sets = [lags, given]
    else:
        windows = [(i, j, 0.25) for i in range(N) for j in range(i + 1, i + 6)]
        further = [(i, j, 0.25) for i in range(0, N, 4) for j in range(i + 7, i + 10)]
        sets = [windows + further, [(i, i + 2, 1.5) for i in range(N)]]
    return tuple([e for e in edges if e[1] < N and (e[0] < CUT) == (e[1] < CUT)] for edges in sets)


def local_edges(name, begin, end):
    """The edges from begin .. end as tiles have them, and how far they reach."""
    made, reach = [], end
    for number, edges in enumerate(edges_of(name)):
        own = [e for e in edges if begin <= e[0] < end]
        i, j, w = np.array(own).reshape(-1, 3).T
        i, j = i.astype(int), j.astype(int)
        reach = max(reach, int(j.max(initial=-1)) + 1)
        if name == "pairs" or number == 1:
            made.append(LocalPairs(i - begin, j - begin, w if (name, number) == ("pairs", 1) else edges[0][2]))
            continue
        first, last = np.zeros((2, end - begin), dtype=int), np.full((2, end - begin), -1)
        for a, b, _ in own:
            run = int(b > a + 5)
            first[run, a - begin] = b - begin if last[run, a - begin] < 0 else first[run, a - begin]
            last[run, a - begin] = b - begin
        made.append(LocalRuns(first, last, 0.25))
    return tuple(made), reach


def tiles_of(name):
    """Tiles with the weights of a weighting, cut as the weighting says; runs are samples with all things equal."""
    W, groups, cells, ends = weighting(name)
    make_part, K, n_atoms, begin = PartMaker(), len(W), int(groups.max()) + 1, 0
    for end in ends:
        parts = []
        for a, b in cells:
            a, b = max(a, begin), min(b, end)
            if a < b:
                equal = np.all(W[:, a:b] == W[:, a : a + 1])
                parts.append(make_part(a - begin, b - begin, W[:, a] if equal else W[:, a:b]))
        change = np.any(np.diff(W[:, begin:end]), axis=0) | (np.diff(groups[begin:end]) != 0)
        starts = np.flatnonzero(np.append(True, change))
        selector = np.zeros((K + n_atoms, len(starts)))
        selector[:K] = W[:, begin + starts]
        for run, group in enumerate(groups[begin + starts]):
            if group >= 0:
                selector[K + group, run] = 1.0
        lengths = np.diff(np.append(starts, end - begin)).astype(float)
        functions = functions_of(name)[:, begin:end]
        weights = np.concatenate([selector @ lengths, functions.sum(axis=1)])
        edges, reach = local_edges(name, begin, end)
        rows, made = np.arange(begin, reach), (tuple(parts), starts, weights, selector, edges)
        yield Tile(rows, end - begin, *made, functions=functions)
        begin = end


@cache
def cached_tiles(name):
    return tuple(tiles_of(name))


class Expected:
    """Weights, first and second moments of each channel, sums over groups and times functions; sample by sample."""

    def __init__(self, Z, x, name, *, ranges):
        W, groups, _, _ = weighting(name)
        members = np.array([groups == group for group in range(groups.max() + 1)], dtype=float)
        both = np.vstack([W, members, functions_of(name)])
        self.weights, self.first = both.sum(axis=1), np.einsum("kn,in->ki", both, Z)
        self.second = np.tril(np.einsum("kn,in,jn->kij", W, Z, Z))
        size = np.sqrt(np.einsum("kii->ki", self.second))
        self.size = size[:, :, None] * size[:, None]
        edges = [e for own in edges_of(name) for e in own]
        D = np.array([np.sqrt(2 * w) * (Z[:, j] - Z[:, i]) for i, j, w in edges]).reshape(-1, len(Z))
        ends = np.array([2 * w * (Z[:, i] ** 2 + Z[:, j] ** 2) for i, j, w in edges]).reshape(-1, len(Z)).sum(axis=0)
        self.edges, self.edge_size = np.tril(D.T @ D), np.sqrt(np.outer(ends, ends))
        pairs = [own for k, own in enumerate(edges_of(name)) if name == "pairs" or k == 1]
        self.edge_weight = 2 * sum(w for own in pairs for _, _, w in own)  # of runs, the graph knows it
        self.ranges = (x.min(axis=1), x.max(axis=1)) if ranges else (np.full(len(x), np.inf), np.full(len(x), -np.inf))
        self.largest = np.abs(x).max() if ranges else 0.0

    def check(self, sums, kind):
        tolerance = 60 * float(np.finfo(kind).eps)
        assert np.array_equal(sums.weights, self.weights)
        assert np.abs(sums.first - self.first).max() <= tolerance * (1 + np.abs(self.first).max())
        assert np.all(np.abs(np.tril(sums.second) - self.second) <= tolerance * self.size)
        if sums.edges is not None:
            assert np.all(np.abs(np.tril(sums.edges) - self.edges) <= tolerance * self.edge_size)
        assert sums.edge_weight == pytest.approx(self.edge_weight)
        for found, expected in zip((sums.low, sums.high), self.ranges, strict=True):
            margin = tolerance * self.largest
            assert np.all((expected - margin <= found) & (found <= expected + margin))


@cache
def sources(container, layout, raw_kind, name):
    """Raw input of the tiles of a weighting."""
    x = numbers()
    return [contained(x[:, tile.rows], container, layout, raw_kind) for tile in cached_tiles(name)]


def empty_sums(frontend, shift, front, name, kind):
    W, groups, _, _ = weighting(name)
    n_atoms = int(groups.max()) + 1 + len(functions_of(name))
    plan = SimpleNamespace(n_channels=len(W), n_atoms=n_atoms, has_edges=name in EDGES)
    sums = NodeSums(frontend, plan, kind, shift=shift)
    sums._front = front
    return sums


@pytest.fixture
def calls(monkeypatch):
    """The compiled routines that were called."""
    found = []

    class Recorded(dict):
        def __getitem__(self, key):
            found.append(key)
            return super().__getitem__(key)

    monkeypatch.setattr(kernels, "routines", Recorded(kernels.routines))
    return found


@pytest.mark.parametrize("name", WEIGHTINGS)
@pytest.mark.parametrize("text", EXPANSIONS)
def test_sums_in_every_combination_equal_those_of_loops(text, name, calls):
    x, case = numbers(), count()
    tiles = cached_tiles(name)
    for centered, projected, clipped, shifted in product([False, True], repeat=4):
        frontend = frontend_of(text, centered=centered, projected=projected, clipped=clipped)
        T = frontend.n_variables
        shift = np.where(np.arange(T) % 3 == 1, 2.25 + np.arange(T), 0.0) if shifted else np.zeros(T)
        inputs = inputs_by_hand(x, frontend, clipped=False)
        Z = variables_by_hand(inputs, text) - shift[:, None]
        expected = Expected(Z, inputs, name, ranges=not text.startswith("identity"))
        for kind in PRODUCTS:
            front = fused.Front.of(frontend, kind, shift)
            for way, container, layout, raw in product([front, None], CONTAINERS, LAYOUTS, NUMBERS):
                by_numpy = way is None or not is_for_compiled(container, raw, kind)
                if by_numpy and next(case) % SOMETIMES:
                    continue
                sums = empty_sums(frontend, shift, way, name, kind)
                calls.clear()
                for tile, source in zip(tiles, sources(container, layout, raw, name), strict=True):
                    sums.add(source, tile)
                assert calls == ([] if by_numpy else [("sum_tile", kind)] * len(tiles))
                sums.end_block(0)
                expected.check(sums.tree.total(), kind)


def test_rows_and_samples_that_follow_each_other_in_memory_are_read_where_they_are():
    x = numbers()
    frontend = frontend_of("quadratic[:2]", centered=False, projected=False, clipped=False)
    front = fused.Front.of(frontend, np.dtype(np.float64), np.zeros(frontend.n_variables))
    rows, samples = np.ascontiguousarray(x), np.ascontiguousarray(x.T)
    assert front.source(Rows(rows), N).kept[0] is rows
    assert front.source(Samples(samples, np.arange(N)), N).kept[0] is samples


# ---- features


def node_of(frontend, n_slow, n_rest):
    rng, I = np.random.default_rng(4), frontend.n_inputs
    F, f = rng.standard_normal((n_slow, frontend.n_expanded)), 50 * rng.standard_normal(n_slow)
    G, H, k = rng.standard_normal((n_rest, I)), rng.standard_normal((n_rest, n_slow)), 50 * rng.standard_normal(n_rest)
    nothing = np.zeros(0)
    return Node(frontend, F, f, G, H, k, np.zeros((I, n_slow + n_rest)), np.zeros(I), nothing, 0, nothing)


def features_by_hand(node, x, text):
    """y' = F z + f and h = G x' + H y' + k, and two rows of zeros."""
    slow = node.slow @ expanded_by_hand(x, text) + node.slow_offset[:, None]
    rest = node.rest_inputs @ x + node.rest_slow @ slow + node.rest_offset[:, None]
    return np.vstack([slow, rest, np.zeros((2, x.shape[1]))])


def feature_arrays(shape, kind):
    """Where features may be written to, and whether compiled routines can."""
    yield np.full(shape, np.nan, kind), True
    yield np.full((shape[0] + 1, shape[1] + 3), np.nan, kind)[1:, 2:-1], True
    yield np.full(shape, np.nan, kind, order="F"), False
    yield np.full(shape, np.nan, kind)[::-1], False


@pytest.mark.parametrize("sizes", [(3, 2), (0, 4), (4, 0)])
@pytest.mark.parametrize("text", EXPANSIONS)
def test_features_in_every_combination_equal_the_formula(text, sizes, calls):
    x, case = numbers(), count()
    everything = [contained(x, *way) for way in product(CONTAINERS, LAYOUTS, NUMBERS)]
    for centered, projected, clipped in product([False, True], repeat=3):
        frontend = frontend_of(text, centered=centered, projected=projected, clipped=clipped)
        node = node_of(frontend, *sizes)
        expected = features_by_hand(node, inputs_by_hand(x, frontend, clipped=clipped), text)
        for kind in PRODUCTS:
            tolerance = 60 * float(np.finfo(kind).eps) * np.abs(expected).max()
            for (container, _, raw), source in zip(product(CONTAINERS, LAYOUTS, NUMBERS), everything, strict=True):
                for Y, writable in feature_arrays(expected.shape, kind):
                    by_numpy = not (writable and is_for_compiled(container, raw, kind))
                    if by_numpy and next(case) % SOMETIMES:
                        continue
                    calls.clear()
                    assert node.encode(source, Y) is Y
                    assert [key for key in calls if key[0] == "encode_nodes"] == [("encode_nodes", kind)] * (
                        not by_numpy
                    )
                    assert np.abs(Y - expected).max() <= tolerance


@pytest.mark.parametrize("sizes", [(1, 13), (9, 4), (0, 21), (6, 0)])
@pytest.mark.parametrize("text", [*EXPANSIONS, "identity | power0.8 | max2 | quadratic[:2] | signed_power0.6[1:3]"])
def test_features_of_single_samples_equal_the_formula(text, sizes, calls):
    x = numbers()[:, :9]
    for projected, clipped in product([False, True], repeat=2):
        frontend = frontend_of(text, centered=True, projected=projected, clipped=clipped)
        node = node_of(frontend, *sizes)
        expected = features_by_hand(node, inputs_by_hand(x, frontend, clipped=clipped), text)
        for kind, container in product(PRODUCTS, [Rows, lambda one: Samples(one.T.copy())]):
            calls.clear()
            single = [node.encode(container(x[:, k : k + 1].astype(kind))) for k in range(x.shape[1])]
            assert len(calls) == x.shape[1]
            tolerance = 60 * float(np.finfo(kind).eps) * np.abs(expected).max()
            assert np.abs(np.hstack(single) - expected[:-2]).max() <= tolerance


# ---- the rows of an expansion, one number after the other


def expanded_by_compiled(x, text, kind, children=CHILDREN):
    """z of every sample: the sums over runs of one sample each."""
    frontend = Frontend(parse_expansion(text), children, len(x), np.zeros(len(x)))
    n = x.shape[1]
    W = np.ones((1, n))
    tile = Tile(np.arange(n), n, (PartMaker()(0, n, W[:, 0]),), np.arange(n), W @ np.ones(n), W)
    front, T = fused.Front.of(frontend, kind, np.zeros(frontend.n_variables)), frontend.n_variables
    product, limits = np.zeros((T, T), kind), (np.full(len(x), np.inf, kind), np.full(len(x), -np.inf, kind))
    runs, _ = fused.sum_tile(
        front, Rows(x.astype(kind)), tile, product, np.zeros((1, T, T), kind), limits, np.zeros((0, T, T), kind)
    )
    return runs[: frontend.n_expanded], limits


@pytest.mark.parametrize("kind", PRODUCTS, ids=str)
@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 33, 200])
@pytest.mark.parametrize(
    "text",
    [
        "identity",
        "identity[1:3] | max2 | max2[:3]",
        "quadratic[:2] | quadratic",
        "power0.8 | signed_power0.3[1:]",
        "normalized_quadratic[:3] | normalized_quadratic | identity",
    ],
)
def test_expansions_are_the_same_as_by_numpy(text, n, kind):
    x = np.random.default_rng(n).standard_normal((8, n)).astype(kind)
    x[0, 0] = 0.0
    found, (low, high) = expanded_by_compiled(x, text, kind)
    exact = "power" not in text and "normalized" not in text
    tolerance = 0 if exact else 8 * np.finfo(kind).eps
    np.testing.assert_allclose(found, parse_expansion(text)(x, CHILDREN), rtol=tolerance, atol=0)
    np.testing.assert_array_equal(low, x.min(axis=1))
    np.testing.assert_array_equal(high, x.max(axis=1))


@pytest.mark.parametrize("kind", PRODUCTS, ids=str)
@pytest.mark.parametrize("p", [0.05, 0.3, 0.8, 0.99])
def test_powers_are_right_over_the_whole_range_of_numbers(p, kind):
    """Against numpy in the widest type, from the smallest normal number to the largest."""
    limits = np.finfo(kind)
    x = np.exp2(np.linspace(limits.minexp, limits.maxexp - 0.001, 4001)).astype(kind)
    x = np.append(x, [limits.tiny, limits.max, 1.0, np.nextafter(kind.type(1), kind.type(0)), np.sqrt(0.5)])[None]
    x = np.vstack([x, -x]).astype(kind)
    found, _ = expanded_by_compiled(x, f"power{p} | signed_power{p}", kind, children=1)
    exact = np.abs(x.astype(np.longdouble)) ** np.longdouble(kind.type(p))
    tolerance = 2 * float(limits.eps) * (4 + p * limits.maxexp)  # p log2 x is rounded to the type, too
    np.testing.assert_allclose(found[:2], exact.astype(float), rtol=tolerance)
    np.testing.assert_allclose(found[2:], (np.sign(x) * exact).astype(float), rtol=tolerance)
    assert np.all(expanded_by_compiled(np.zeros((2, 3)), f"power{p} | signed_power{p}", kind, children=1)[0] == 0)


@pytest.mark.parametrize("kind", PRODUCTS, ids=str)
def test_what_is_not_a_number_is_the_same_as_by_numpy(kind):
    special = np.array([np.nan, np.inf, -np.inf, 0.0, 1.0, -2.5, 1e15])
    x = np.array(np.meshgrid(special, special)).reshape(2, -1).astype(kind)
    text = "identity | power0.8 | signed_power0.8 | max2 | quadratic | normalized_quadratic"
    with np.errstate(all="ignore"):
        found, (low, high) = expanded_by_compiled(x, text, kind, children=1)
        expected = parse_expansion(text)(x)
    np.testing.assert_allclose(found, expected, rtol=3e-6)
    assert np.all(low == -np.inf)  # what is not a number has no place in a range
    assert np.all(high == np.inf)


@pytest.mark.parametrize("kind", PRODUCTS, ids=str)
@pytest.mark.parametrize("clipped", [False, True])
def test_what_is_not_a_number_stays_visible_in_features(clipped, kind):
    frontend = frontend_of("identity", centered=True, projected=False, clipped=clipped)
    node, x = node_of(frontend, 1, 1), numbers()
    x[3, 7], x[5, 9] = np.nan, np.inf
    for source in (Rows(x.astype(kind)), Samples(x.T.astype(kind).copy(), np.arange(N))):
        Y = node.encode(source)
        assert np.all(np.isnan(Y[:, 7]))
        assert np.all(np.isfinite(Y[:, 9])) == clipped  # infinity is beyond the range
        assert np.all(np.isfinite(np.delete(Y, [7, 9], axis=1)))


# ---- products


@pytest.mark.parametrize("kind", PRODUCTS, ids=str)
@pytest.mark.parametrize(
    "T", [1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 23, 24, 25, 31, 33, 47, 48, 49, 120, 256, 257, 300]
)
def test_products_of_any_number_of_variables_equal_those_of_numpy(T, kind):
    """Blocks of rows and of columns that do not come out even; samples and edges, where they lie and copied."""
    rng, n = np.random.default_rng(T), 71
    X = rng.standard_normal((n + 4, T)).astype(kind)
    frontend = Frontend(parse_expansion("identity"), 1, T, np.zeros(T))
    p = np.arange(n)
    edges = LocalPairs(p, p + 1, 1.0), LocalRuns((p + 1)[None], (p + 4)[None], 1.0)
    for rows, shift in product([np.arange(n + 4), rng.permutation(n + 4)], [np.zeros(T), np.ones(T)]):
        W = np.ones((1, 1))
        tile = Tile(rows, n, (PartMaker()(0, n, W[:, 0]),), np.zeros(1, dtype=np.intp), W[0], W, edges)
        P, E = np.zeros((T, T), kind), np.zeros((2, T, T), kind)
        front = fused.Front.of(frontend, kind, shift)
        assert fused.sum_tile(front, Samples(X, rows), tile, P, np.zeros((1, T, T), kind), None, E) is not None
        Z = X[rows].astype(float) - shift
        D = np.vstack([Z[1 : n + 1] - Z[:n], *(Z[k : n + k] - Z[:n] for k in range(1, 5))])
        expected = Z[:n].T @ Z[:n], D[:n].T @ D[:n], D[n:].T @ D[n:]
        for found, wanted in zip((P, *E), expected, strict=True):
            size = np.sqrt(np.outer(np.diag(wanted), np.diag(wanted))) + n * (1 + shift.max())
            assert np.abs(np.tril(found) - np.tril(wanted)).max() <= 30 * np.finfo(kind).eps * size.max()


# ---- chunks of the usual size


@pytest.mark.parametrize("kind", PRODUCTS, ids=str)
@pytest.mark.parametrize("n", [255, 256, 257, 600, 2048, 4200])
def test_large_chunks(n, kind, monkeypatch):
    monkeypatch.setattr(fused, "MIN_CHUNK", fused.MAX_CHUNK)
    fused.chunk_columns.cache_clear()
    x = np.random.default_rng(n).integers(-9, 10, (4, n)).astype(float)
    x[:, -1] += 0.5
    for text in ("normalized_quadratic[:2] | max2", "identity"):
        found, (low, high) = expanded_by_compiled(x, text, kind)
        np.testing.assert_allclose(found, expanded_by_hand(x, text), rtol=8 * np.finfo(kind).eps)
        if text != "identity":
            np.testing.assert_array_equal([low, high], [x.min(axis=1), x.max(axis=1)])


@pytest.mark.parametrize("fused_", [False, True])
def test_weights_that_grow_do_not_cost_digits(fused_):
    """Large numbers of tiny weight first, then small ones of weight 1: their difference must never be taken."""
    rng, dtype = np.random.default_rng(0), np.dtype(np.float32)
    X = rng.standard_normal((1500, 3))
    X[:1000] *= 1e4
    make_part = PartMaker()
    parts = make_part(0, 1000, np.array([1e-9, 1.0])), make_part(1000, 1500, np.array([1.0, 1.0]))
    runs = np.zeros(1, dtype=np.intp), np.zeros(2), np.zeros((2, 1))
    tile = Tile(np.arange(1500), 1500, parts, *runs)
    frontend = Frontend(parse_expansion("identity"), 1, 3, np.zeros(3))
    plan = SimpleNamespace(n_channels=2, n_atoms=0, has_edges=False)
    sums = NodeSums(frontend, plan, dtype, shift=np.zeros(3))
    sums._front = sums._front if fused_ else None
    sums.add(Samples(X.astype(dtype), tile.rows), tile)
    sums.end_block(0)
    weights = np.repeat([1e-9, 1.0], [1000, 500])
    expected = (X * weights[:, None]).T @ X
    np.testing.assert_allclose(np.tril(sums.tree.total().second[0]), np.tril(expected), atol=3e-6 * expected.max())


def test_features_need_enough_rows_of_the_right_type():
    frontend = Frontend(parse_expansion("identity"), 1, 3, np.zeros(3))
    node = node_of(frontend, 2, 2)
    encoder, raw = node.encoder(np.dtype(np.float64)), Rows(np.ones((3, 5)))
    assert encode.encode_tile(encoder, raw, np.empty((4, 5)))
    for Y in (np.empty((3, 5)), np.empty((4, 5), np.float32), np.empty((3, 5), np.float32)):
        with pytest.raises(ValueError, match="features need 4 rows of float64"):
            encode.encode_tile(encoder, raw, Y)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("raw_kind", [np.uint8, None])
@pytest.mark.parametrize("n", [1, 2, 17, 2049])
def test_nodes_in_one_call_equal_nodes_one_by_one_to_the_bit(kind, raw_kind, n, calls):
    """Nodes of several sizes, whose fields overlap in one array; rows beyond their features are 0."""
    rng = np.random.default_rng(n)
    source = rng.integers(0, 200, (9, n)).astype(raw_kind or kind)
    which = np.array([[0, 1, 2], [2, 5, 8], [8, 7, 6], [1, 1, 4]])
    frontend = Frontend(parse_expansion("identity | quadratic"), 1, 3, np.ones(3))
    nodes = [node_of(frontend, *sizes) for sizes in ((3, 2), (0, 4), (4, 0), (1, 1))]
    encoders = Encoders([node.encoder(np.dtype(kind)) for node in nodes], which)
    out = np.full((4, 6, n), np.nan, kind)
    calls.clear()
    assert encoders.encode(source, out, 0, 1)
    assert encoders.encode(source, out, 1, 4)
    assert calls == [("encode_nodes", np.dtype(kind))] * 2
    for node, rows, found in zip(nodes, which, out, strict=True):
        assert np.array_equal(found, node.encode(Rows(source, rows), np.full((6, n), np.nan, kind)))


def test_nodes_must_fit_their_input_and_their_features():
    frontend = Frontend(parse_expansion("identity"), 1, 3, np.zeros(3))
    encoder = node_of(frontend, 2, 2).encoder(np.dtype(np.float64))
    encoders = Encoders([encoder] * 2, np.array([[0, 1, 2], [2, 3, 4]]))
    X, out = np.ones((5, 7)), np.empty((2, 4, 7))
    assert encoders.encode(X, out, 0, 2)
    for source, target, begin, end in (
        (X[:4], out, 0, 2),
        (X, out[:1], 0, 2),
        (X, np.empty((2, 3, 7)), 0, 2),
        (X, np.empty((2, 4, 6)), 0, 2),
        (X, out, 0, 3),
        (X, out, -1, 1),
        (X, out, 1, 1),
    ):
        with pytest.raises(IndexError, match="do not fit"):
            encoders.encode(source, target, begin, end)
    unaligned = np.empty(X.nbytes + 1, np.uint8)[1:].view(X.dtype).reshape(X.shape)
    for source, target in (
        (unaligned, out),  # a copy of the rows of one node would not have those of the other
        (X[:, ::2], out[..., :4].copy()),
        (X.astype(np.float32), out),
        (X, out.astype(np.float32)),
    ):
        assert not encoders.encode(source, target, 0, 2)  # left to numpy
    for which in (np.array([[0, 1], [2, 3]]), np.array([[0, 1, 2]]), np.array([[0, 1, 2], [2, 3, -1]])):
        with pytest.raises(ValueError, match="do not fit numbers of rows"):
            Encoders([encoder] * 2, which)


@pytest.mark.parametrize(("weights", "fits"), [([1.0, 1e-20], True), ([1e-20, 1e-20], False), ([1e20, 1.0], False)])
def test_single_precision_holds_a_variable_by_its_largest_weight(weights, fits):
    frontend = Frontend(parse_expansion("identity"), 1, 1, np.zeros(1))
    F = np.array(weights)[:, None]
    nothing = np.zeros(0)
    rest = np.zeros((0, 1)), np.zeros((0, 2)), nothing
    node = Node(frontend, F, np.zeros(2), *rest, F.T, nothing, nothing, 1, nothing)
    assert node.fits_single == fits
