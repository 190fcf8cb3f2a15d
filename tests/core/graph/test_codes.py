"""Codes of samples, some at a time, against numpy at once."""

import numpy as np
import pytest

from higsfa.core.graph import codes
from higsfa.core.graph.codes import code_type, count_codes, look_up


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(codes, "AT_ONCE", 7)


@pytest.mark.parametrize("n", [0, 1, 6, 7, 8, 50])
@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64])
def test_counts_and_looked_up_entries_are_those_of_all_at_once(n, dtype):
    rng = np.random.default_rng(n)
    own, weights, table = rng.integers(-1, 5, n).astype(dtype), rng.uniform(0, 2, n), rng.standard_normal(6)
    present = own[own >= 0]
    assert np.array_equal(count_codes(own, 5), np.bincount(present, minlength=5))
    np.testing.assert_allclose(
        count_codes(own, 5, weights), np.bincount(present, weights[own >= 0], minlength=5), atol=1e-14
    )
    assert np.array_equal(look_up(table, own), table[own])  # -1 is the last entry
    assert np.array_equal(count_codes(own, 5, np.broadcast_to(1.0, n)), np.bincount(present, minlength=5))


def test_codes_have_a_type_that_holds_them_and_one_more():
    for largest in (0, 9, 2**15 - 1, 2**15, 2**31 - 1, 2**31):
        assert np.iinfo(code_type(largest)).max >= largest
