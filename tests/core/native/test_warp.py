"""Images read between their pixels by the compiled routine: the bits of numpy, and nothing beyond its arrays."""

import numpy as np
import pytest

from higsfa.core.native import library
from higsfa.core.native.warp import Positions, can_warp, warp
from higsfa.images import Distortion

SIZES = [(1, 1), (1, 7), (5, 1), (3, 4), (16, 16), (33, 47), (96, 96)]
KINDS = {
    "small": Distortion(seed=1),
    "large": Distortion(seed=2, shift=30, rotation=180, scale=0.9, mirror=True),
    "shift": Distortion(seed=3, shift=0.5, rotation=0, scale=0),
}

compiled = pytest.mark.skipif(("warp", np.dtype(np.float32)) not in library.routines, reason="nothing was compiled")


@compiled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float16, np.float32])
@pytest.mark.parametrize("channels", [None, 3])
def test_pixels_have_the_bits_of_numpy(kind, size, dtype, channels, monkeypatch):
    rng, shape = np.random.default_rng(0), (11, *size, *([] if channels is None else [channels]))
    images = (rng.uniform(0, 200, shape) if np.dtype(dtype).kind != "f" else rng.uniform(0, 1, shape)).astype(dtype)
    numbers = np.arange(11)
    found = KINDS[kind].apply(images, numbers, numbers)
    monkeypatch.setattr(library, "routines", {})
    assert np.array_equal(found, KINDS[kind].apply(images, numbers, numbers))


@compiled
def test_numbers_that_are_not_finite_have_the_bits_of_numpy(monkeypatch):
    images = np.random.default_rng(0).uniform(0, 1, (3, 9, 9)).astype(np.float32)
    images[0, 4, 4], images[1, 0, 8] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        found = KINDS["small"].apply(images, [0, 1, 2], [0, 0, 0])
        monkeypatch.setattr(library, "routines", {})
        assert np.array_equal(found, KINDS["small"].apply(images, [0, 1, 2], [0, 0, 0]), equal_nan=True)


def given(n=2, height=4, width=5, margin=1):
    shape = height + 3 + 2 * margin, width + 3
    where = Positions(*(np.zeros((n, size), np.int32) for size in (width, height, width, height)))
    return (
        np.ones(n * shape[0] * shape[1], np.float32),
        shape,
        margin,
        where,
        20,
        np.zeros((n, height, width), np.float32),
    )


@compiled
def test_of_equal_coefficients_all_grey_values_are_equal():
    arguments = given()
    warp(*arguments)
    assert np.all(arguments[-1] == 36.0)  # six in either direction


@pytest.mark.parametrize(
    ("which", "value"),
    [
        (0, np.ones(10, np.float32)),
        (0, np.ones(1000)),
        (1, (8, 8)),
        (1, (9, 7)),
        (2, -1),
        (3, Positions(*[np.zeros((2, 4), np.int32)] * 4)),
        (3, Positions(*(np.zeros((2, size), np.int64) for size in (5, 4, 5, 4)))),
        (4, 28),
        (5, np.zeros((2, 4, 5))),
        (5, np.zeros((2, 4, 10), np.float32)[:, :, ::2]),
    ],
)
def test_arrays_that_do_not_fit_are_refused(which, value):
    arguments = list(given())
    arguments[which] = value
    with pytest.raises(ValueError, match=r"needed|too few|too many"):
        warp(*arguments)


def test_the_routine_knows_single_precision_and_positions_of_32_bits():
    assert not can_warp(100, np.float64, np.int32)
    assert not can_warp(100, np.float32, np.int64)
    assert not can_warp(2**31, np.float32, np.int32)
