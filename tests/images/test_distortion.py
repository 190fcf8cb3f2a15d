"""Distortions against a loop over pixels; and that they are a pure function of seed, image and copy."""

import pickle
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import cos, floor, radians, sin

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import RectBivariateSpline

from higsfa.images import Distortion
from higsfa.images.distortion import copy_keys, mix, quantiles, sin_cos
from higsfa.images.geometry import BATCH_PIXELS

STILL = {"shift": 0.0, "rotation": 0.0, "scale": 0.0}
both = pytest.mark.parametrize("interpolation", ["linear", "cubic"])


def picture(n=3, height=9, width=12, channels=None, dtype=np.float32, seed=0):
    shape = (n, height, width) if channels is None else (n, height, width, channels)
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return rng.random(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


def bilinear(image):
    """A function of x and y, in doubles."""
    height, width = image.shape

    def at(row, column):
        return float(image[min(row, height - 1), min(column, width - 1)])

    def grey(x, y):
        x0, y0 = floor(x), floor(y)
        fx, fy = x - x0, y - y0
        top = (1 - fx) * at(y0, x0) + fx * at(y0, x0 + 1)
        bottom = (1 - fx) * at(y0 + 1, x0) + fx * at(y0 + 1, x0 + 1)
        return (1 - fy) * top + fy * bottom

    return grey


def spline(image, margin=40):
    """The same, by scipy's spline through all pixels; its condition at the end is too far away to matter."""
    padded = np.pad(image.astype(float), margin, mode="edge")
    rows, columns = (np.arange(length) - margin for length in padded.shape)
    surface = RectBivariateSpline(rows, columns, padded, kx=3, ky=3)
    return lambda x, y: float(surface.ev(y, x))


def naive(distortion, image, sample, copy):
    """One image, one pixel at a time: where it came from, read backwards through shift, rotation, scale and flip."""
    drawn = {name: value[0] for name, value in distortion.draw([sample], [copy])._asdict().items()}
    height, width = image.shape
    angle = radians(drawn["rotation"])
    low, high = (0.0, 1.0) if image.dtype.kind == "f" else (np.iinfo(image.dtype).min, np.iinfo(image.dtype).max)
    between = {"linear": bilinear, "cubic": spline}[distortion.interpolation](image)
    out = np.zeros(image.shape)
    for r in range(height):
        for c in range(width):
            x, y = c - (width - 1) / 2 - drawn["shift_x"], r - (height - 1) / 2 - drawn["shift_y"]
            # Rows count downwards, so a counter-clockwise turn takes (1, 0) to (cos, -sin).
            x, y = cos(angle) * x - sin(angle) * y, sin(angle) * x + cos(angle) * y
            x, y = x / drawn["scale"], y / drawn["scale"]
            if drawn["mirror"]:
                x = -x
            # Beyond the border there is the pixel at the border.
            x, y = min(max(x + (width - 1) / 2, 0), width - 1), min(max(y + (height - 1) / 2, 0), height - 1)
            grey = between(x, y)
            middle = (low + high) / 2
            out[r, c] = drawn["contrast"] * (grey - middle) + middle + drawn["brightness"] * (high - low)
    return out


@pytest.mark.parametrize(
    "amplitudes",
    [
        {},
        {"shift": 0.7, "rotation": 0.0, "scale": 0.0},
        {"shift": 0.0, "rotation": 30.0, "scale": 0.0},
        {"shift": 0.0, "rotation": 0.0, "scale": 0.3},
        {"shift": 20.0, "rotation": 180.0, "scale": 0.9},
        {"mirror": True, "brightness": 0.2, "contrast": 0.5},
    ],
)
@pytest.mark.parametrize("size", [(9, 12), (5, 4), (1, 7), (7, 1), (1, 1)])
@both
def test_floats_agree_with_a_loop_over_pixels(amplitudes, size, interpolation):
    images = picture(4, *size)
    distortion = Distortion(seed=3, interpolation=interpolation, **amplitudes)
    samples, copies = np.arange(4), np.array([0, 5, 1, 1])
    out = distortion.apply(images, samples, copies)
    for k in range(4):
        assert np.abs(out[k] - naive(distortion, images[k], samples[k], copies[k])).max() < 1e-4


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32])
@both
def test_integers_are_rounded_and_clipped(dtype, interpolation):
    images = picture(4, dtype=dtype)
    distortion = Distortion(seed=4, brightness=0.5, contrast=0.5, mirror=True, interpolation=interpolation)
    samples, copies = np.arange(4), np.arange(4)
    out = distortion.apply(images, samples, copies)
    assert out.dtype == dtype
    limits = np.iinfo(dtype)
    # Rounding of grey values, and of positions to 2^-20 pixels.
    precision = 0.51 + 4 * 2.0 ** (limits.bits - 20)
    for k in range(4):
        expected = np.clip(naive(distortion, images[k], k, k), limits.min, limits.max)
        assert np.abs(out[k].astype(float) - expected).max() <= precision
    assert np.any(out == limits.max)
    assert np.any(out == limits.min)


@both
def test_float64_keeps_its_precision(interpolation):
    images = picture(2, dtype=np.float64)
    distortion = Distortion(seed=1, interpolation=interpolation)
    out = distortion.apply(images, [0, 1], [0, 0])
    assert out.dtype == np.float64
    for k in range(2):
        # Positions are rounded to 2^-20 pixels.
        assert np.abs(out[k] - naive(distortion, images[k], k, 0)).max() < 4 * 2.0**-20


def test_float16_is_warped_in_single_precision_and_returned_as_it_came():
    images = picture(2, dtype=np.float16)
    out = Distortion(seed=1).apply(images, [0, 1], [0, 0])
    assert out.dtype == np.float16
    expected = Distortion(seed=1).apply(images.astype(np.float32), [0, 1], [0, 0])
    assert np.array_equal(out, expected.astype(np.float16))


def test_huge_images_do_not_overflow_positions():
    images = np.tile(np.linspace(0, 1, 5000, dtype=np.float32), (1, 2, 1))
    out = Distortion(shift=1000.0, rotation=0.0, scale=0.0).apply(images, [0], [0])
    drawn = Distortion(shift=1000.0, rotation=0.0, scale=0.0).draw([0], [0])
    expected = np.clip(np.arange(5000) - drawn.shift_x[0], 0, 4999) / 4999
    assert np.abs(out[0, 0] - expected).max() < 1e-4


@both
def test_shrunken_images_do_not_overflow_positions(interpolation):
    """Scaled to a tenth, the ends of a picture lie ten times as far out, beyond what 32 bits hold."""
    images = np.tile(np.linspace(0, 1, 900, dtype=np.float32), (1, 2, 1))
    distortion = next(
        d
        for d in (
            Distortion(seed=s, shift=0.0, rotation=0.0, scale=0.9, interpolation=interpolation) for s in range(99)
        )
        if d.draw([0], [0]).scale[0] < 0.15
    )
    scale = distortion.draw([0], [0]).scale[0]
    expected = np.clip((np.arange(900) - 449.5) / scale + 449.5, 0, 899) / 899
    assert np.abs(distortion.apply(images, [0], [0])[0, 0] - expected).max() < 1e-3


@pytest.mark.parametrize("value", [0, 7])
def test_a_single_pixel_is_an_image(value):
    image = np.full((1, 1, 1), value, dtype=np.uint8)
    for _ in range(5):  # memory that was not written to would differ
        assert Distortion().apply(image, [3], [4])[0, 0, 0] == value


@both
def test_channels_move_together(interpolation):
    images = picture(3, channels=3, dtype=np.uint8)
    numbers, distortion = np.arange(3), Distortion(interpolation=interpolation)
    out = distortion.apply(images, numbers, numbers)
    for channel in range(3):
        assert np.array_equal(out[..., channel], distortion.apply(images[..., channel], numbers, numbers))


# --- between pixels -----------------------------------------------------------------------------


def drawn_and_warped(grey, distortion, size, dtype):
    """Images of a function of x and y: distorted, and drawn where the pixels of the distorted ones come from."""
    numbers = np.arange(8)
    drawn = distortion.draw(numbers, numbers)
    middle = (size - 1) / 2
    c, r = np.meshgrid(np.arange(size), np.arange(size))
    x, y = c - middle - drawn.shift_x[:, None, None], r - middle - drawn.shift_y[:, None, None]
    turn = np.exp(1j * np.deg2rad(drawn.rotation)) / drawn.scale
    z = (x + 1j * y) * turn[:, None, None]
    plain = np.broadcast_to(grey(c - middle, r - middle), z.shape).astype(dtype)
    return distortion.apply(plain, numbers, numbers), grey(z.real, z.imag)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("interpolation", "degree"), [("linear", 1), ("cubic", 3)])
def test_polynomials_are_reproduced_in_the_interior(interpolation, degree, dtype):
    def error(power):
        def grey(x, y):
            return (x / 40) ** power - (y / 40) ** power + 0.3 * (x / 40) ** (power - 1) * y / 40

        out, expected = drawn_and_warped(grey, Distortion(interpolation=interpolation), 80, dtype)
        # Repeated edges are no polynomials. Inwards that is felt less and less, by 0.27 a pixel.
        return np.abs(out - expected)[:, 20:-20, 20:-20].max()

    assert max(error(power) for power in range(1, degree + 1)) < 2e-6


@pytest.mark.parametrize(("frequency", "at_least"), [(0.1, 20.0), (0.25, 4.0), (0.35, 1.8)])
def test_cubic_keeps_fine_structure_that_linear_loses(frequency, at_least):
    def grey(x, y):
        return np.cos(2 * np.pi * frequency * x + 0.5) + np.sin(2 * np.pi * frequency * (0.8 * y - 0.6 * x))

    def error(interpolation):
        out, expected = drawn_and_warped(grey, Distortion(interpolation=interpolation), 64, np.float32)
        return np.sqrt(np.mean((out - expected)[:, 12:-12, 12:-12] ** 2))

    assert error("linear") > at_least * error("cubic")


@both
@pytest.mark.parametrize("value", [0, 1, 128, 255])
def test_even_images_stay_even_up_to_the_border(interpolation, value):
    images = np.full((6, 11, 14), value, dtype=np.uint8)
    distortion = Distortion(shift=8.0, rotation=90.0, scale=0.5, interpolation=interpolation)
    assert np.array_equal(distortion.apply(images, np.arange(6), 0), images)


# --- each part alone ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64, np.int32])
def test_nothing_to_do_changes_nothing(dtype):
    images = picture(dtype=dtype)
    assert np.array_equal(Distortion(**STILL).apply(images, [0, 1, 2], [0, 0, 0]), images)


def tolerance(dtype, interpolation):
    """Of grey values up to 1 at whole pixels, where only the coefficients of floats are rounded."""
    return 16 * float(np.finfo(dtype).eps) if np.dtype(dtype).kind == "f" and interpolation == "cubic" else 0.0


@both
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.float32, np.float64])
def test_mirror_flips_half_of_the_copies_exactly(dtype, interpolation):
    images = picture(400, 3, 6, dtype=dtype)
    distortion = Distortion(mirror=True, interpolation=interpolation, **STILL)
    out = distortion.apply(images, np.arange(400), np.zeros(400, dtype=int)).astype(float)
    most = tolerance(dtype, interpolation)
    flipped = np.abs(out - images[:, :, ::-1]).max(axis=(1, 2)) <= most
    same = np.abs(out - images).max(axis=(1, 2)) <= most
    assert np.all(flipped ^ same)
    assert 160 < flipped.sum() < 240


@both
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.float32, np.float64])
@pytest.mark.parametrize(("dx", "dy"), [(0, 0), (1, 0), (0, -2), (-3, 2), (30, 0)])
def test_shift_by_whole_pixels_is_exact(monkeypatch, interpolation, dtype, dx, dy):
    images = picture(1, dtype=dtype)
    distortion = Distortion(shift=30.0, rotation=0.0, scale=0.0, interpolation=interpolation)
    drawn = distortion.draw([0], [0])._replace(shift_x=np.array([float(dx)]), shift_y=np.array([float(dy)]))
    monkeypatch.setattr(Distortion, "draw", lambda self, samples, copies: drawn)
    rows = np.clip(np.arange(9) - dy, 0, 8)
    columns = np.clip(np.arange(12) - dx, 0, 11)
    out = distortion.apply(images, [0], [0])[0].astype(float)
    assert np.abs(out - images[0][np.ix_(rows, columns)]).max() <= tolerance(dtype, interpolation)


def test_quarter_turn_is_counter_clockwise(monkeypatch):
    images = picture(1, 7, 7)
    distortion = Distortion(shift=0.0, rotation=90.0, scale=0.0)
    drawn = distortion.draw([0], [0])._replace(rotation=np.array([90.0]))
    monkeypatch.setattr(Distortion, "draw", lambda self, samples, copies: drawn)
    assert np.allclose(distortion.apply(images, [0], [0])[0], np.rot90(images[0]), atol=1e-5)


def test_scale_above_one_enlarges(monkeypatch):
    image = np.zeros((1, 33, 33), dtype=np.float32)
    image[0, 12:21, 12:21] = 1.0
    distortion = Distortion(shift=0.0, rotation=0.0, scale=0.5)
    drawn = distortion.draw([0], [0])._replace(scale=np.array([1.5]))
    monkeypatch.setattr(Distortion, "draw", lambda self, samples, copies: drawn)
    assert distortion.apply(image, [0], [0]).sum() == pytest.approx(1.5**2 * 81, rel=0.05)


def test_brightness_adds_and_contrast_stretches_about_the_middle():
    grey = np.full((50, 2, 2), 0.5, dtype=np.float64)
    numbers = np.arange(50)
    brighter = Distortion(brightness=0.1, **STILL)
    out = brighter.apply(grey, numbers, numbers)
    assert np.allclose(out[:, 0, 0] - 0.5, brighter.draw(numbers, numbers).brightness)
    stronger = Distortion(contrast=0.3, **STILL)
    assert np.allclose(stronger.apply(grey, numbers, numbers), 0.5)
    assert np.allclose(
        stronger.apply(grey + 0.1, numbers, numbers)[:, 0, 0] - 0.5, 0.1 * stronger.draw(numbers, numbers).contrast
    )


def test_noise_is_normal_independent_and_of_the_given_size():
    images = np.full((40, 32, 32, 2), 0.5, dtype=np.float64)
    out = Distortion(noise=0.02, **STILL).apply(images, np.arange(40), np.zeros(40, dtype=int))
    z = (out - 0.5) / 0.02
    assert abs(z.mean()) < 5 / np.sqrt(z.size)
    assert z.std() == pytest.approx(1.0, abs=0.02)
    assert (z**4).mean() == pytest.approx(3.0, abs=0.15)
    assert np.mean(np.abs(z) > 3) == pytest.approx(0.0027, abs=0.001)
    neighbours = [(z[:, 1:], z[:, :-1]), (z[:, :, 1:], z[:, :, :-1]), (z[..., 0], z[..., 1]), (z[1:], z[:-1])]
    for a, b in neighbours:
        assert abs(np.mean(a * b)) < 5 / np.sqrt(a.size)
    for lag in (2, 3, 4, 5):
        assert abs(np.mean(z[:, :, lag:] * z[:, :, :-lag])) < 5 / np.sqrt(z.size)


def test_noise_of_integers_is_in_units_of_their_range():
    images = np.full((4, 64, 64), 128, dtype=np.uint8)
    out = Distortion(noise=0.02, **STILL).apply(images, np.arange(4), np.zeros(4, dtype=int))
    assert out.std() == pytest.approx(0.02 * 255, rel=0.05)
    signed = Distortion(noise=0.02, **STILL).apply(np.zeros_like(images, dtype=np.int16), np.arange(4), 0)
    assert signed.std() == pytest.approx(0.02 * 65535, rel=0.05)
    with pytest.raises(ValueError, match="read-only"):
        quantiles()[0] = 1


# --- purity -------------------------------------------------------------------------------------

EVERYTHING = Distortion(seed=7, brightness=0.1, contrast=0.2, mirror=True, noise=0.05)


@both
@given(rows=st.lists(st.integers(0, 19), min_size=1, max_size=30), batch=st.integers(1, 9))
@settings(max_examples=30)
def test_any_order_duplicates_and_batches_give_the_same_bits(interpolation, rows, batch):
    everything = replace(EVERYTHING, interpolation=interpolation)
    rng = np.random.default_rng(0)
    samples, copies = rng.integers(0, 10**6, 20), rng.integers(0, 30, 20)
    for images in (picture(20, dtype=np.uint8), picture(20, channels=2, dtype=np.float32)):
        whole = everything.apply(images, samples, copies)
        parts = [rows[lo : lo + batch] for lo in range(0, len(rows), batch)]
        again = np.concatenate([everything.apply(images[part], samples[part], copies[part]) for part in parts])
        assert np.array_equal(again, whole[rows])


@both
@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_images_warped_in_several_goes_are_those_warped_alone(interpolation, dtype):
    images = picture(9, 96, 96, dtype=dtype)
    assert 2 * images[0].size < BATCH_PIXELS < 4 * images[0].size
    everything = replace(EVERYTHING, interpolation=interpolation)
    together = everything.apply(images, np.arange(9), 0)
    for k in range(9):
        assert np.array_equal(together[k], everything.apply(images[k : k + 1], [k], 0)[0])


@both
def test_neighbours_in_a_batch_do_not_leak_even_if_not_finite(interpolation):
    images, distortion = picture(5), Distortion(interpolation=interpolation)
    alone = distortion.apply(images[1:2], [1], [0])
    images[[0, 2]] = np.nan
    images[3] = np.inf
    with np.errstate(invalid="ignore"):
        together = distortion.apply(images, np.arange(5), np.zeros(5, dtype=int))
    assert np.array_equal(together[1], alone[0])


def test_threads_give_the_same_bits():
    images = picture(64, 48, 48, dtype=np.uint8)
    numbers = np.arange(64)
    whole = EVERYTHING.apply(images, numbers, numbers)
    parts = [numbers[k::8] for k in range(8)] * 4
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda part: EVERYTHING.apply(images[part], part, part), parts))
    for part, result in zip(parts, results, strict=True):
        assert np.array_equal(result, whole[part])


def test_a_pickled_distortion_gives_the_same_bits():
    images = picture(dtype=np.uint8)
    again = pickle.loads(pickle.dumps(EVERYTHING))
    assert again == EVERYTHING
    assert np.array_equal(again.apply(images, [0, 1, 2], [0, 0, 0]), EVERYTHING.apply(images, [0, 1, 2], [0, 0, 0]))


@pytest.mark.parametrize("layout", ["strided", "fortran", "read-only"])
def test_layout_of_the_input_does_not_matter_and_it_is_not_changed(layout):
    images = picture(3, dtype=np.uint8)
    before = images.copy()
    given_ = {"strided": np.repeat(images, 2, axis=2)[:, :, ::2], "fortran": np.asfortranarray(images)}.get(
        layout, images
    )
    given_.setflags(write=False)
    expected = EVERYTHING.apply(before, [0, 1, 2], [0, 0, 0])
    assert np.array_equal(EVERYTHING.apply(given_, [0, 1, 2], [0, 0, 0]), expected)
    assert np.array_equal(given_, before)


def test_seed_image_and_copy_all_matter():
    images = np.broadcast_to(picture(1, 16, 16, dtype=np.uint8), (4, 16, 16))
    base = Distortion(seed=0).apply(images, [5, 6, 5, 6], [0, 0, 1, 1])
    other = Distortion(seed=1).apply(images, [5, 6, 5, 6], [0, 0, 1, 1])
    different = np.concatenate([base, other])
    assert len({image.tobytes() for image in different}) == 8


def test_first_copy_is_the_image_itself_if_wished():
    images = picture(4, dtype=np.float32)
    out = Distortion(identity_first=True, noise=0.1).apply(images, [0, 0, 1, 1], [0, 1, 0, 1])
    plain = Distortion(noise=0.1).apply(images, [0, 0, 1, 1], [0, 1, 0, 1])
    assert np.array_equal(out[[0, 2]], images[[0, 2]])
    assert np.array_equal(out[[1, 3]], plain[[1, 3]])


@pytest.mark.parametrize(("interpolation", "checksum"), [("linear", 262004872), ("cubic", 1825769969)])
def test_pixels_are_the_same_on_every_machine_and_in_every_version(interpolation, checksum):
    # Caches, checkpoints and trained networks rest on them. These numbers are not to be brought up to date.
    images = (np.arange(6 * 20 * 24, dtype=np.uint64) * 2654435761 >> 13).astype(np.uint8).reshape(6, 20, 24)
    distortion = Distortion(seed=11, brightness=0.1, contrast=0.1, mirror=True, interpolation=interpolation)
    out = distortion.apply(images, np.arange(6) // 3, np.arange(6) % 3)
    assert zlib.crc32(out.tobytes()) == checksum


# --- random numbers -----------------------------------------------------------------------------


def test_random_numbers_are_those_of_splitmix64():
    # First outputs for state 0: java.util.SplittableRandom, and Vigna's splitmix64.c.
    golden = 0x9E3779B97F4A7C15
    states = np.array([0, golden, (2 * golden) % 2**64], dtype=np.uint64)
    assert [hex(int(x)) for x in mix(states)] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]


def test_amounts_are_uniform_within_their_amplitudes_and_uncorrelated():
    distortion = Distortion(shift=2.0, rotation=10.0, scale=0.2, brightness=0.3, contrast=0.4, mirror=True)
    samples, copies = np.divmod(np.arange(20_000), 20)
    drawn = distortion.draw(samples, copies)
    u = np.stack(
        [
            drawn.shift_x / 2,
            drawn.shift_y / 2,
            drawn.rotation / 10,
            (drawn.scale - 1) / 0.2,
            drawn.brightness / 0.3,
            (drawn.contrast - 1) / 0.4,
            np.where(drawn.mirror, 1, -1) / np.sqrt(3),
        ]
    )
    assert np.all(np.abs(u) <= 1)
    for amounts in u[:6]:
        # Kolmogorov-Smirnov: 1.95 / sqrt(n) is exceeded with probability 0.001.
        distance = np.abs((np.sort(amounts) + 1) / 2 - (np.arange(20_000) + 0.5) / 20_000).max()
        assert distance < 1.95 / np.sqrt(20_000)
    correlations = np.corrcoef(u) - np.eye(7)
    assert np.abs(correlations).max() < 4.5 / np.sqrt(20_000)
    by_copy = u.reshape(7, 1000, 20)
    # Neither the copies of an image nor the images of a copy number have anything in common.
    assert np.abs(np.mean(by_copy[:, :, 1:] * by_copy[:, :, :-1], axis=(1, 2))).max() < 4.5 / 3 / np.sqrt(19_000)
    assert np.abs(np.mean(by_copy[:, 1:] * by_copy[:, :-1], axis=(1, 2))).max() < 4.5 / 3 / np.sqrt(19_000)
    assert by_copy.mean(axis=1).std() < 2 * np.sqrt(1 / 3 / 1000)
    assert by_copy.mean(axis=2).std() < 1.2 * np.sqrt(1 / 3 / 20)


def test_changing_one_amplitude_leaves_the_others_alone():
    few = Distortion(seed=2).draw([3, 4], [1, 2])
    many = Distortion(seed=2, rotation=5.0, noise=0.1, mirror=True, contrast=0.3).draw([3, 4], [1, 2])
    assert np.array_equal(few.shift_x, many.shift_x)
    assert np.array_equal(few.scale, many.scale)
    assert np.allclose(few.rotation * 2.5, many.rotation)


def test_copies_and_images_are_not_interchangeable():
    samples, copies = np.meshgrid(np.arange(200), np.arange(200))
    keys = np.concatenate([copy_keys(seed, samples.ravel(), copies.ravel()) for seed in range(3)])
    assert len(np.unique(keys)) == len(keys)


def test_sine_and_cosine_are_those_of_the_library():
    angle = np.linspace(-np.pi, np.pi, 10_001)
    sine, cosine = sin_cos(angle)
    assert np.abs(sine - np.sin(angle)).max() < 1e-13
    assert np.abs(cosine - np.cos(angle)).max() < 1e-13


# --- mistakes -----------------------------------------------------------------------------------


def test_empty_batches_are_fine():
    assert Distortion().apply(np.zeros((0, 5, 5), np.uint8), [], []).shape == (0, 5, 5)


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"shift": -1}, "shift"),
        ({"scale": 1.0}, "scale"),
        ({"rotation": np.nan}, "rotation"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"shift": 10_000.5}, "shift"),
        ({"rotation": 180.5}, "rotation"),
        ({"scale": 0.995}, "scale"),
        ({"brightness": 10.5}, "brightness"),
        ({"contrast": 1.5}, "contrast"),
        ({"noise": 10.5}, "noise"),
        ({"interpolation": "quintic"}, "interpolation"),
    ],
)
def test_impossible_parameters_are_named(parameters, name):
    with pytest.raises(ValueError, match=f"{name}="):
        Distortion(**parameters)


def test_the_largest_parameters_are_possible():
    limits = {"shift": 1e4, "rotation": 180.0, "scale": 0.99, "brightness": 10.0, "contrast": 1.0, "noise": 10.0}
    images = picture(2)
    assert np.all(np.isfinite(Distortion(seed=2**64 - 1, **limits).apply(images.tolist(), [0, 1], [0, 0])))


def test_images_of_the_wrong_kind_are_refused():
    with pytest.raises(ValueError, match="height, width"):
        Distortion().apply(np.zeros((5, 5)), [0] * 5, [0] * 5)
    with pytest.raises(TypeError, match="int64"):
        Distortion().apply(np.zeros((1, 5, 5), dtype=np.int64), [0], [0])
    with pytest.raises(ValueError, match="broadcast"):
        Distortion().apply(np.zeros((3, 5, 5)), [0, 1], [0, 0])


@pytest.mark.parametrize("tone", ["brightness", "contrast", "noise"])
def test_tones_of_floats_on_another_scale_are_refused(tone):
    """Mid-grey of floats is 0.5: stretched about that, grey values up to 255 would all become darker or brighter."""
    images = np.full((1, 5, 5), 255.0) * np.eye(5)
    assert Distortion().apply(images, [0], [0]).max() > 100
    with pytest.raises(ValueError, match="from 0 to 1, got 0 to 255; divide"):
        Distortion(**{tone: 0.1}).apply(images, [0], [0])
    with pytest.raises(ValueError, match="from 0 to 1"):
        Distortion(**{tone: 0.1}).apply(images.astype(np.float32), [0], [0])
