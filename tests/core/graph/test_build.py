"""Groups of equal weight along a label, against the definition: sort, and see where the borders fall."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from higsfa.core.graph.build import group_memberships


def by_sorting(values, w, n_groups):
    """Membership of each sample in each group: the part of its value's stretch of total weight that lies there."""
    code = np.unique(values, return_inverse=True)[1]
    upper = np.cumsum(np.bincount(code, w))
    lower = np.append(0.0, upper[:-1])
    borders = np.arange(n_groups + 1) * w.sum() / n_groups
    overlap = np.minimum(upper[:, None], borders[1:]) - np.maximum(lower[:, None], borders[:-1])
    share = np.maximum(overlap, 0.0)
    return (share / share.sum(axis=1, keepdims=True))[code]


def check(values, w, n_groups):
    atoms, P = group_memberships(values, w, n_groups)
    masses = np.bincount(atoms, w, minlength=len(P))
    np.testing.assert_allclose(P[atoms], by_sorting(values, w, n_groups), rtol=0, atol=1e-8)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(masses @ P, w.sum() / n_groups, rtol=1e-8)
    np.testing.assert_array_equal(P[:n_groups], np.eye(n_groups))
    assert len(np.unique(atoms[atoms >= n_groups])) == len(P) - n_groups


rng = np.random.default_rng(0)
LABELS = {
    "many values in each cell": rng.uniform(16, 77, 20_000),
    "skewed": np.exp(3 * rng.standard_normal(5_000)),
    "an outlier, so that all others share a cell": np.append(rng.standard_normal(500), 1e9),
    "whole numbers": rng.integers(16, 77, 5_000).astype(float),
    "whole numbers and an outlier": np.append(rng.integers(16, 77, 500), 1e9),
    "two values": rng.integers(0, 2, 100).astype(float),
    "ties and single values in one cell": np.append(np.repeat([1.0, 1.0000001, 1.0000003], [30, 1, 40]), [5e4, 6e4]),
    "a range that overflows": rng.choice([-1.7e308, -1e300, 0.0, 1.0, 1.7e308], 200),
    "a range that is almost 0": rng.integers(0, 50, 200) * 5e-324,
    "two zeros": rng.choice([0.0, -0.0, 1.0, 2.0], 100),
}


@pytest.mark.parametrize("n_groups", [2, 7, 32])
@pytest.mark.parametrize("weighting", ["ones", "equal", "whole", "real"])
@pytest.mark.parametrize("values", LABELS.values(), ids=LABELS)
def test_memberships_equal_those_of_the_sorted_label(values, weighting, n_groups):
    draw = np.random.default_rng(1)
    w = {
        "ones": np.ones(len(values)),
        "equal": np.full(len(values), 0.3),
        "whole": draw.integers(1, 4, len(values)).astype(float),
        "real": draw.uniform(0.5, 2.0, len(values)),
    }[weighting]
    check(values, w, n_groups)


@settings(deadline=None)
@given(
    st.lists(st.floats(-60000, 60000, width=16), min_size=2, max_size=60),
    st.integers(2, 12),
    st.floats(1e-3, 1e12),
)
def test_memberships_do_not_depend_on_how_values_lie_in_the_grid(values, n_groups, outlier):
    values = np.append(values, np.max(values) + outlier)
    check(values, np.ones(len(values)), n_groups)


def test_equal_weights_are_grouped_without_rounding():
    values = np.random.default_rng(2).permutation(3_200).astype(float)
    atoms, P = group_memberships(values, np.full(3_200, 0.1), 32)
    np.testing.assert_array_equal(atoms, values // 100)
    np.testing.assert_array_equal(P, np.eye(32))
