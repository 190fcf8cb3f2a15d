"""Features in 16 bits: what is kept of a row, and how it is read again."""

import numpy as np
import pytest

from higsfa.core.native import library, short
from higsfa.core.native.short import Grid, rounded, shorten
from higsfa.core.native.tile import Rows

CASES = {
    "usual": (1.0, 0.0),
    "far from 0": (1e-3, 5.0),
    "so far that single precision is coarser": (1e-4, 1e6),
    "large": (1e6, -3e7),
    "largest": (3e37, 0.0),
    "small": (1e-30, 0.0),
    "hardly normal": (1e-38, 0.0),
    "constant": (0.0, 1.2345678),
    "zero": (0.0, 0.0),
    "negative zero": (-0.0, -0.0),
}


def rows(scale, offset, n=777, n_rows=13):
    x = np.random.default_rng(0).standard_normal((n_rows, n)) * scale + offset
    return x.astype(np.float32)


def kept(x, by=shorten):
    codes, grid = np.empty(x.shape, np.uint16), Grid(*np.empty((2, len(x)), np.float32))
    by(x, codes, grid)
    return codes, grid


@pytest.mark.parametrize("case", CASES)
def test_rows_are_rounded_by_no_more_than_their_step(case):
    x = rows(*CASES[case])
    codes, grid = kept(x)
    found = (codes.astype(np.float64) + grid.first[:, None]) * grid.step[:, None]
    assert np.array_equal(grid.numbers(codes), found)  # exact: nothing is rounded a second time
    mantissa, _ = np.frexp(grid.step)
    assert np.all(mantissa == 0.5)
    spacing = np.spacing(np.abs(x).max(axis=1))
    span = x.max(axis=1).astype(np.float64) - x.min(axis=1)
    assert np.all(grid.step <= np.maximum(span / 2**15, np.maximum(spacing, np.finfo(np.float32).tiny)))
    error = np.abs(found - x)
    # Half a step, and the rounding of numbers up to 65,536 before it; one more for the largest number of a row, whose
    # code may be too large for 16 bits.
    most = 0.5 + 2.0**-8 + (x == x.max(axis=1, keepdims=True))
    assert np.all(error <= most * grid.step[:, None])


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 300])
@pytest.mark.parametrize("case", CASES)
def test_the_compiled_routine_and_numpy_keep_the_same(case, n):
    if not library.compiled():
        pytest.skip("nothing is compiled")
    x = rows(*CASES[case], n=n)
    x[3, n // 2] = np.nan
    x[5, -1] = np.inf
    x[7, 0] = -np.inf
    for given in (x, np.asfortranarray(x), x[:, ::-1]):
        found, expected = kept(given), kept(given, short._shorten_with_numpy)
        assert np.array_equal(found[0], expected[0])
        for a, b in zip(found[1], expected[1], strict=True):
            assert np.array_equal(a, b, equal_nan=True)


def test_a_row_that_is_not_finite_is_nan_when_it_is_read_again():
    x = rows(1.0, 0.0)
    x[2, 5], x[4, 6] = np.inf, np.nan
    found = rounded(x)
    bad = [2, 4]
    assert np.all(np.isnan(found[bad]))
    assert np.all(np.isfinite(np.delete(found, bad, axis=0)))


def test_rounding_what_was_rounded_changes_nothing():
    x = rounded(rows(1.0, 0.3))
    assert np.array_equal(rounded(x), x)


def test_no_samples_have_no_codes():
    codes, grid = kept(np.empty((4, 0), np.float32))
    assert grid.numbers(codes).shape == (4, 0)


def test_what_does_not_fit_is_refused():
    x, grid = rows(1.0, 0.0), Grid(*np.empty((2, 13), np.float32))
    for codes, own in [
        (np.empty((12, 777), np.uint16), grid),
        (np.empty((13, 777), np.int16), grid),
        (np.empty((13, 777), np.uint16), Grid(*np.empty((2, 12), np.float32))),
        (np.empty((13, 777), np.uint16), Grid(*np.empty((2, 26), np.float32)[:, ::2])),
    ]:
        with pytest.raises(ValueError, match="does not fit codes"):
            shorten(x, codes, own)
    with pytest.raises(ValueError, match="does not fit codes"):
        shorten(x.astype(np.float64), np.empty((13, 777), np.uint16), grid)
    with pytest.raises(ValueError, match="a grid of 13 rows"):
        Rows(np.empty((12, 5), np.uint16), grid=grid)
    with pytest.raises(ValueError, match="a grid of 13 rows"):
        Rows(np.empty((13, 5), np.float32), grid=grid)


def test_rows_of_codes_read_like_the_numbers_that_they_stand_for():
    x = rows(1.0, 2.0)
    codes, grid = kept(x)
    which = np.array([4, 0, 12, 4])
    raw, expected = Rows(codes, which, grid), rounded(x)[which]
    assert raw.dtype == np.float32
    assert np.array_equal(raw.array(), expected)
    assert np.array_equal(raw.columns(10, 50).array(), expected[:, 10:50])
    assert np.array_equal(Rows(codes, grid=grid).array(), rounded(x))
