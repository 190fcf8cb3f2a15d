"""Tiles that are added up, and features that are computed, in one compiled call: against numpy and plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from higsfa.core import kernels, room
from higsfa.core.expansions import parse_expansion
from higsfa.core.nodes import Frontend, Node, Projection
from higsfa.core.raw import Rows, Samples
from higsfa.core.statistics import Accumulator, zero, zero_for
from higsfa.core.tiles import MIN_CELL, Tile, _Parts, make_plan
from higsfa.graphs import ClusteredGraph, SerialGraph
from higsfa.training.passes import add_tile

pytestmark = pytest.mark.skipif(not kernels.compiled(), reason="higsfa was installed without a C compiler")

N = 3000
RAW = 8
CHUNK = 128
EXPANSIONS = [
    "identity",
    "identity[:2]",
    "quadratic[:3] | max2",
    "identity | power0.8[1:] | signed_power0.6[:2] | max2[:3] | quadratic",
    "normalized_quadratic[:2] | identity",
]
TYPES = [np.float32, np.float64]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Several chunks in a tile, so that parts and runs are cut."""
    monkeypatch.setattr(room, "CHUNK_BYTES", 1)
    room.chunk_columns.cache_clear()
    assert room.chunk_columns(RAW, 4) == CHUNK
    yield
    room.chunk_columns.cache_clear()


def labelled(seed=0):
    """Samples whose three labels, one of them with rare classes, make cells of very different sizes."""
    rng = np.random.default_rng(seed)
    rare = np.where(rng.random(N) < 0.01, rng.integers(2, 5, N), rng.integers(0, 2, N))
    labels = {"age": np.round(rng.uniform(0, 60, N)), "sex": rng.integers(0, 2, N), "rare": rare}
    X = 60 + 25 * rng.standard_normal((N, RAW)) + 0.3 * labels["age"][:, None]
    graph = SerialGraph("age", n_groups=7) + ClusteredGraph("sex") + 0.5 * ClusteredGraph("rare")
    return X.clip(0, 255), make_plan(graph.build(labels), block=1024)


def frontend_of(text, *, projected, guarded=False):
    rng = np.random.default_rng(1)
    n_inputs = 6 if projected else RAW
    projection = None
    if projected:
        axes = np.linalg.qr(rng.standard_normal((RAW, RAW)))[0][:, :n_inputs]
        projection = Projection(axes.T, rng.uniform(50, 70, RAW))
    limit = np.full(n_inputs, 30.0) if guarded else None
    return Frontend(
        expansion=parse_expansion(text),
        children=2,
        n_inputs=n_inputs,
        center=np.zeros(n_inputs) if text == "identity" else rng.uniform(-5, 5, n_inputs) + (0 if projected else 60),
        low=None if limit is None else -limit,
        high=limit,
        projection=projection,
    )


def raw_input(X, tile, source, dtype):
    """The samples of a tile, as the routines may meet them."""
    if source == "samples":
        return Samples(np.ascontiguousarray(X.astype(dtype)), tile.rows)
    wide = np.zeros((2 * RAW, tile.n_rows + 3), np.uint8 if source == "bytes" else dtype)
    which = np.random.default_rng(2).permutation(2 * RAW)[:RAW]
    wide[which, 1:-2] = X[tile.rows].T
    return Rows(wide[:, 1:-2], which)


def gathered(plan, frontend, X, source, dtype, shift, *, fused):
    front = frontend.front(np.dtype(dtype), shift=shift) if fused else None
    assert (front is not None) == fused
    blocks = []
    for block in range(plan.n_blocks):
        sums = Accumulator(zero_for(plan, frontend.n_inputs, frontend.n_variables), np.dtype(dtype))
        for tile in plan.tiles(block, 700):
            add_tile(sums, raw_input(X, tile, source, dtype), tile, frontend, shift, front)
        blocks.append(sums.close())
    return blocks


def by_loops(plan, block, frontend, X, source, shift):
    """Weighted sums sample by sample, in double precision, from the weights that the parts of a block state."""
    T, K = frontend.n_variables, plan.n_channels
    second, first = np.zeros((K, T, T)), np.zeros((K + plan.n_atoms, T))
    for tile in plan.tiles(block, 700):
        x = X[tile.rows].T
        raw = np.floor(x) if source == "bytes" else x
        Z = frontend.variables(frontend.inputs(np.ascontiguousarray(raw), clip=False)) - shift[:, None]
        for part in tile.parts:
            some = Z[:, part.begin : part.end]
            weights = np.broadcast_to(part.weights.reshape(K, -1), (K, some.shape[1]))
            for k in range(K):
                second[k] += (some * weights[k]) @ some.T
        for run, (a, b) in enumerate(zip(tile.starts, [*tile.starts[1:], tile.n_core], strict=True)):
            first += np.outer(tile.selector[:, run], Z[:, a:b].sum(axis=1))
    return second, first


def test_the_samples_have_all_kinds_of_parts():
    _, plan = labelled()
    parts = [part for tile in plan.tiles(0, 700) for part in tile.parts]
    assert any(part.weights.ndim == 2 for part in parts)
    assert any(part.factors is not None and not part.anew for part in parts)
    assert any(part.end - part.begin >= MIN_CELL for part in parts)
    assert any(part.end - part.begin > CHUNK for part in parts)


@pytest.mark.parametrize("text", EXPANSIONS)
@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("source", ["rows", "bytes", "samples"])
@pytest.mark.parametrize("dtype", TYPES)
def test_sums_in_one_call_equal_those_of_loops_and_of_separate_steps(text, projected, source, dtype):
    X, plan = labelled()
    frontend = frontend_of(text, projected=projected)
    shift = np.where(np.arange(frontend.n_variables) % 3 == 1, 1.5, 0.0)
    fused = gathered(plan, frontend, X, source, dtype, shift, fused=True)
    steps = gathered(plan, frontend, X, source, dtype, shift, fused=False)
    rtol = 3e-5 if dtype == np.float32 else 1e-12
    for block, (one, other) in enumerate(zip(fused, steps, strict=True)):
        second, first = by_loops(plan, block, frontend, X, source, shift)
        spread = np.sqrt(np.einsum("kii->ki", second))
        size = np.maximum(spread[:, :, None] * spread[:, None], 1e-300)
        for sums in (one, other):
            assert np.max(np.abs(np.tril(sums.second - second)) / size) < rtol
            np.testing.assert_allclose(sums.first, first, atol=rtol * np.abs(first).max(), rtol=0)
        np.testing.assert_array_equal(one.weights, other.weights)
        np.testing.assert_allclose(one.low, other.low, rtol=1e-5)
        np.testing.assert_allclose(one.high, other.high, rtol=1e-5)
        assert np.all(np.isfinite(one.low)) == (not frontend.expansion.is_linear)


@pytest.mark.parametrize("text", EXPANSIONS)
@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("source", ["rows", "bytes", "samples"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("n_slow", "n_rest"), [(3, 2), (0, 4), (5, 0)])
def test_features_in_one_call_equal_the_formula(text, projected, source, dtype, n_slow, n_rest, monkeypatch):
    X, plan = labelled()
    tile = next(plan.tiles(0, 700))
    frontend = frontend_of(text, projected=projected, guarded=text != "identity")
    rng, I = np.random.default_rng(3), frontend.n_inputs
    F, f = rng.standard_normal((n_slow, frontend.n_expanded)), rng.standard_normal(n_slow)
    G, H, k = rng.standard_normal((n_rest, I)), rng.standard_normal((n_rest, n_slow)), rng.standard_normal(n_rest)
    nothing = np.zeros(0)
    node = Node(frontend, F, f, G, H, k, np.zeros((I, n_slow + n_rest)), np.zeros(I), nothing, 0, nothing)
    raw = raw_input(X, tile, source, dtype)
    out = np.full((n_slow + n_rest + 2, tile.n_rows), np.nan, dtype)
    node.encode(raw, out)

    samples = X[tile.rows].T
    samples = np.floor(samples) if source == "bytes" else samples.astype(dtype).astype(float)
    if projected:
        samples = frontend.projection.matrix @ (samples - frontend.projection.mean[:, None])
    x = samples - frontend.center[:, None]
    x = x if frontend.low is None else x.clip(frontend.low[:, None], frontend.high[:, None])
    slow = F @ frontend.expansion(x, 2) + f[:, None]
    expected = np.vstack([slow, G @ x + H @ slow + k[:, None], np.zeros((2, tile.n_rows))])
    tolerance = (3e-6 if dtype == np.float32 else 1e-13) * np.abs(expected).max()
    np.testing.assert_allclose(out, expected, rtol=0, atol=tolerance)

    monkeypatch.setattr(kernels, "_routines", {})
    again = np.full_like(out, np.nan)
    Node(frontend, F, f, G, H, k, np.zeros((I, n_slow + n_rest)), np.zeros(I), nothing, 0, nothing).encode(raw, again)
    np.testing.assert_allclose(again, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("fused", [False, True])
def test_weights_that_grow_do_not_cost_digits(fused):
    """Large numbers of tiny weight first, then small ones of weight 1: their difference must never be taken."""
    rng, dtype = np.random.default_rng(0), np.dtype(np.float32)
    X = rng.standard_normal((1500, 3))
    X[:1000] *= 1e4
    make_part = _Parts()
    parts = make_part(0, 1000, np.array([1e-9, 1.0])), make_part(1000, 1500, np.array([1.0, 1.0]))
    runs = np.zeros(1, dtype=np.intp), np.array([1500.0]), np.zeros((2, 1))
    tile = Tile(np.arange(1500), 1500, parts, *runs)
    frontend, sums = Frontend(parse_expansion("identity"), 1, 3, np.zeros(3)), zero(3, 3, 2, 0, has_edges=False)
    adding = Accumulator(sums, dtype)
    front = frontend.front(dtype, shift=np.zeros(3)) if fused else None
    add_tile(adding, Samples(X.astype(dtype), tile.rows), tile, frontend, np.zeros(3), front)
    weights = np.repeat([1e-9, 1.0], [1000, 500])
    expected = (X * weights[:, None]).T @ X
    np.testing.assert_allclose(np.tril(adding.close().second[0]), np.tril(expected), atol=3e-6 * expected.max())
