"""Windows over labels with ties do not depend on the order of rows."""

from itertools import permutations

import numpy as np
import pytest

from higsfa.graphs import WindowGraph


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("half_width", [1, 2, 3, 5])
def test_tied_window_is_the_mean_over_all_orders_of_tied_samples(half_width, mirrored):
    y = np.array([2.0, 1.0, 1.0, 3.0, 2.0, 2.0, 0.0])
    total, count = 0.0, 0
    for order in permutations(range(len(y))):
        order = np.array(order)
        if np.all(np.diff(y[order]) >= 0):
            rank = np.empty(len(y))
            rank[order] = np.arange(len(y))
            total, count = (
                total + WindowGraph(half_width=half_width, mirrored=mirrored).build(rank).to_sparse(),
                count + 1,
            )
    built = WindowGraph(half_width=half_width, mirrored=mirrored).build(y)
    np.testing.assert_allclose(built.to_sparse().toarray(), total.toarray() / count, atol=1e-12)
    np.testing.assert_allclose(built.vertex_weights, built.degrees, atol=1e-12)


def test_permuting_rows_permutes_the_graph():
    rng = np.random.default_rng(0)
    y = np.round(rng.standard_normal(60))
    order = rng.permutation(60)
    a = WindowGraph(half_width=2).build(y).to_sparse().toarray()
    b = WindowGraph(half_width=2).build(y[order]).to_sparse().toarray()
    np.testing.assert_allclose(a[np.ix_(order, order)], b, atol=1e-12)


def test_too_many_tied_values_are_refused_with_a_way_out():
    y = np.repeat(np.arange(3000.0), 2)
    with pytest.raises(ValueError, match="use SerialGraph"):
        WindowGraph().build(y)
