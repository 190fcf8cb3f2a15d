"""Synthetic faces and moving patches: the same bits however they are drawn, and age where it should be."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from scipy.stats import spearmanr

from higsfa.datasets import draw_faces, face_parameters, make_faces, make_moving_patches, with_age
from higsfa.datasets.patches import _seen, _world


def middle(images: np.ndarray) -> np.ndarray:
    """The part of the images that shows skin rather than hair and background."""
    n = images.shape[1]
    return images[:, int(0.25 * n) : int(0.85 * n), int(0.25 * n) : int(0.75 * n)].astype(float)


def fine_contrast(images: np.ndarray) -> np.ndarray:
    """Typical size of fine structure on forehead and cheeks, relative to the brightness of the image."""
    images = images.astype(float)
    fine = np.abs(images - gaussian_filter(images, (0, 1.5, 1.5))) / images.mean(axis=(1, 2), keepdims=True)
    windows = ((0.20, 0.32, 0.35, 0.65), (0.51, 0.70, 0.62, 0.72), (0.51, 0.70, 0.28, 0.38))
    cuts = [[int(edge * images.shape[1]) for edge in window] for window in windows]
    return np.mean([fine[:, top:bottom, left:right].mean(axis=(1, 2)) for top, bottom, left, right in cuts], axis=0)


def delta(signal: np.ndarray, recording: np.ndarray) -> np.ndarray:
    """Mean squared difference of successive values of the standardised signal, within recordings."""
    signal = (signal - signal.mean(axis=0)) / signal.std(axis=0)
    return np.mean(np.diff(signal, axis=0)[np.diff(recording) == 0] ** 2, axis=0)


# Faces: bits


def test_threads_and_batches_do_not_change_the_images():
    parameters = face_parameters(23, random_state=4)
    alone = draw_faces(parameters, 48, batch_size=1)
    for batch_size, n_jobs in ((None, 1), (5, 2), (64, 2), (7, 3)):
        np.testing.assert_array_equal(draw_faces(parameters, 48, batch_size=batch_size, n_jobs=n_jobs), alone)


@pytest.mark.parametrize("images_per_person", [1, 3])
def test_a_small_set_is_the_beginning_of_a_large_one(images_per_person):
    large, labels = make_faces(20, 40, random_state=1, images_per_person=images_per_person)
    small, few = make_faces(7, 40, random_state=1, images_per_person=images_per_person)
    np.testing.assert_array_equal(small, large[:7])
    for name, values in few.items():
        np.testing.assert_array_equal(values, labels[name][:7])


def test_any_rows_can_be_drawn_alone():
    images, _, parameters = make_faces(12, 40, return_parameters=True)
    rows = np.array([9, 2, 2, 11])
    np.testing.assert_array_equal(draw_faces({k: v[rows] for k, v in parameters.items()}, 40), images[rows])


def test_random_state_is_an_integer_a_generator_or_none():
    first, _ = make_faces(3, 32, random_state=0)
    assert np.any(first != make_faces(3, 32, random_state=1)[0])
    by_generator = [make_faces(3, 32, random_state=np.random.RandomState(7))[0] for _ in range(2)]
    np.testing.assert_array_equal(*by_generator)
    assert make_faces(3, 32, random_state=None)[0].shape == (3, 32, 32)


@pytest.mark.parametrize("size", [32, 61, 96, 256])
def test_images_are_grey_levels_of_any_size(size):
    images, _ = make_faces(6, size)
    assert images.shape == (6, size, size)
    assert images.dtype == np.uint8
    assert images.std(axis=(1, 2)).min() > 15
    assert 60 < images.mean() < 180
    assert np.mean((images == 0) | (images == 255)) < 0.05


def test_sizes_show_the_same_faces():
    parameters = face_parameters(8)
    large, small = draw_faces(parameters, 96).astype(float), draw_faces(parameters, 48).astype(float)
    shrunk = large.reshape(8, 48, 2, 48, 2).mean(axis=(2, 4))
    for a, b in zip(shrunk, small, strict=True):
        assert np.corrcoef(a.ravel(), b.ravel())[0, 1] > 0.97


# Faces: labels


def test_labels_have_the_promised_distributions():
    labels = face_parameters(4000)
    age = labels["age"]
    assert age.min() >= 16
    assert age.max() <= 77
    np.testing.assert_allclose(
        [np.mean(age < t) for t in (20, 30, 40, 50, 60)], [0.135, 0.43, 0.71, 0.92, 0.985], atol=0.03
    )
    for name, classes in (("gender", {"F", "M"}), ("race", {"B", "W"})):
        values, counts = np.unique(labels[name], return_counts=True)
        assert set(values) == classes
        np.testing.assert_allclose(counts / 4000, 0.5, atol=0.03)
        assert abs(np.corrcoef(age, labels[name] == values[0])[0, 1]) < 0.05
    np.testing.assert_array_equal(labels["identity"], np.arange(4000))


def test_a_person_keeps_traits_and_changes_pose():
    parameters = face_parameters(40, images_per_person=4)
    np.testing.assert_array_equal(parameters["identity"], np.repeat(np.arange(10), 4))
    for name in ("gender", "race", "eye_distance", "jaw", "line3", "texture_x"):
        assert np.all(parameters[name].reshape(10, 4) == parameters[name].reshape(10, 4)[:, :1])
    for name in ("shift_x", "light_x", "smile", "age", "seed"):
        assert len(np.unique(parameters[name])) > 20
    assert np.ptp(parameters["age"].reshape(10, 4), axis=1).max() <= 10


def test_other_classes_of_ethnicity_can_be_drawn():
    _, labels = make_faces(60, 32, races=("H", "A", "W"))
    assert set(labels["race"]) == {"H", "A", "W"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_faces(2, 8), "size=8"),
        (lambda: make_faces(-1), "n_samples=-1"),
        (lambda: make_faces(2, images_per_person=0), "images_per_person=0"),
        (lambda: make_faces(2, races=("B", "X")), "races="),
        (lambda: make_faces(2, races=()), "races="),
        (lambda: draw_faces(face_parameters(2), 32, batch_size=0), "batch_size=0"),
        (lambda: make_moving_patches(3, n_recordings=4), "n_recordings=4"),
        (lambda: make_moving_patches(3, slowness=0), "slowness=0"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# Faces: age


def test_with_age_changes_nothing_but_age():
    images, labels, parameters = make_faces(10, 48, return_parameters=True)
    older = with_age(parameters, 70)
    assert [name for name in older if np.any(older[name] != parameters[name])] == ["age"]
    np.testing.assert_array_equal(parameters["age"], labels["age"])
    np.testing.assert_array_equal(draw_faces(with_age(older, labels["age"]), 48), images)


def test_years_change_fine_structure_and_hardly_brightness():
    parameters = face_parameters(60, random_state=2)
    young, old = (draw_faces(with_age(parameters, age), 96) for age in (20, 60))
    brightness = middle(old).mean(axis=(1, 2)) - middle(young).mean(axis=(1, 2))
    between_persons = middle(young).mean(axis=(1, 2)).std()
    assert np.abs(brightness).max() < 0.03 * 255
    assert np.abs(brightness).mean() < 0.1 * between_persons
    assert np.median(fine_contrast(old) / fine_contrast(young)) > 1.8


def test_skin_hardly_changes_in_coarse_structure():
    parameters = face_parameters(60, random_state=3)
    young, old = (middle(draw_faces(with_age(parameters, age), 96)) for age in (20, 60))
    change = gaussian_filter(old - young, (0, 6, 6))
    assert change.var() < 0.05 * gaussian_filter(young, (0, 6, 6)).var(axis=0).mean()


def test_age_is_readable_from_fine_structure_but_not_from_brightness():
    images, labels = make_faces(300, 96, random_state=5)
    assert spearmanr(fine_contrast(images), labels["age"]).statistic > 0.7
    assert abs(spearmanr(middle(images).mean(axis=(1, 2)), labels["age"]).statistic) < 0.2


# Moving patches


def test_patches_are_grey_levels_with_parameters_and_recordings():
    frames, parameters, recording = make_moving_patches(1000, size=12, n_recordings=3)
    assert frames.shape == (1000, 12, 12)
    assert frames.dtype == np.float32
    assert frames.min() >= 0
    assert frames.max() <= 1
    assert frames.std() > 0.05
    assert {name: values.shape for name, values in parameters.items()} == dict.fromkeys(
        ("x", "y", "angle", "zoom"), (1000,)
    )
    assert np.all(np.diff(recording) >= 0)
    assert np.ptp(np.bincount(recording, minlength=3)) <= 1


def test_patches_repeat_with_the_seed():
    for one, other in zip(make_moving_patches(50)[::2], make_moving_patches(50)[::2], strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.any(make_moving_patches(50)[0] != make_moving_patches(50, random_state=1)[0])


def test_parameters_are_slower_than_every_pixel():
    frames, parameters, recording = make_moving_patches(20_000, size=8, n_recordings=4, slowness=20.0)
    pixels = delta(frames.reshape(len(frames), -1).astype(float), recording)
    slow = {name: float(delta(values, recording)) for name, values in parameters.items()}
    assert max(slow.values()) < 0.2 * pixels.min()
    for name in ("x", "y", "angle"):
        assert slow[name] == pytest.approx(0.5 / 20.0**2, rel=0.25)


def test_recordings_begin_somewhere_else():
    _, parameters, recording = make_moving_patches(4000, n_recordings=8)
    jump = np.abs(np.diff(parameters["x"]))
    cut = np.diff(recording) > 0
    assert np.median(jump[cut]) > 10 * np.median(jump[~cut])


def test_slow_parameters_are_stationary_noise_with_a_gaussian_autocorrelation():
    _, parameters, _ = make_moving_patches(40_000, size=2, slowness=3.0)
    for name, spread in (("x", 40.0), ("y", 40.0), ("angle", 0.5), ("zoom", 0.2)):
        walk = np.log(parameters[name]) if name == "zoom" else parameters[name]
        assert walk.std() == pytest.approx(spread, rel=0.05)
        assert abs(walk.mean()) < 0.1 * spread
        for lag in (1, 3, 6, 12):
            found = np.mean(walk[lag:] * walk[:-lag]) / np.mean(walk**2)
            assert found == pytest.approx(np.exp(-((lag / 6.0) ** 2)), abs=0.05)
        ends = [np.mean(walk[:20] ** 2), np.mean(walk[-20:] ** 2)]
        assert max(ends) < 9 * spread**2


def test_frames_are_what_their_parameters_show_of_one_world():
    frames, parameters, _ = make_moving_patches(4300, size=6, n_recordings=3, random_state=5)
    world = _world(np.random.default_rng(np.random.RandomState(5).randint(2**31 - 1)))
    rows = [0, 1, 4095, 4096, 4299]
    seen = _seen(world, 6, **{name: values[rows, None, None] for name, values in parameters.items()})
    np.testing.assert_allclose(frames[rows], seen, atol=1e-6)


def test_the_world_is_like_a_photograph():
    """Power falls as 1/f², but for the objects, and it goes on round the edges."""
    world = _world(np.random.default_rng(0))
    assert world.shape == (256, 256)
    assert 0 <= world.min() < 0.1
    assert 0.9 < world.max() <= 1
    assert world.mean() == pytest.approx(0.5, abs=0.1)
    power = np.abs(np.fft.fft2(world)) ** 2
    f = np.fft.fftfreq(256)
    radius = np.hypot(f[:, None], f)
    mean = [power[(radius > low) & (radius < 1.2 * low)].mean() for low in (0.02, 0.04, 0.08, 0.16)]
    slopes = np.diff(np.log2(mean))
    assert np.all((slopes > -3.3) & (slopes < -1.5))
    inner = np.abs(np.diff(world, axis=0)).mean(), np.abs(np.diff(world, axis=1)).mean()
    across = np.abs(world[0] - world[-1]).mean(), np.abs(world[:, 0] - world[:, -1]).mean()
    np.testing.assert_allclose(across, inner, rtol=0.35)
    edges = np.sort(np.abs(np.diff(world, axis=0)).ravel())
    assert edges[-300] > 4.5 * np.median(edges)  # objects have edges that the texture lacks


def test_a_zoomed_window_magnifies():
    ramp = np.tile(np.arange(256.0), (256, 1))
    x, y, none = (np.full((1, 1, 1), value) for value in (100.25, 60.5, 0.0))
    for zoom in (1.0, 2.0, 0.5):
        seen = _seen(ramp, 5, x, y, none, np.full((1, 1, 1), zoom))[0]
        np.testing.assert_allclose(seen, np.tile(100.25 + np.arange(-2, 3) / zoom, (5, 1)))
        turned = _seen(ramp, 5, x, y, none + np.pi / 6, np.full((1, 1, 1), zoom))[0]
        u, v = np.arange(-2, 3) / zoom, np.arange(-2, 3)[:, None] / zoom
        np.testing.assert_allclose(turned, 100.25 + np.cos(np.pi / 6) * u - 0.5 * v)
    np.testing.assert_allclose(_seen(ramp.T, 4, x, y, none, none + 1)[0, :, 0], 60.5 + np.arange(-1.5, 2))


def test_a_window_without_turn_and_zoom_is_a_piece_of_the_world():
    world = _world(np.random.default_rng(0))
    x, y, none, one = (np.full((1, 1, 1), value) for value in (60.0, 250.0, 0.0, 1.0))
    piece = np.roll(world, -250 + 2, axis=0)[:5, 58:63]
    np.testing.assert_allclose(_seen(world, 5, x, y, none, one)[0], piece, atol=1e-12)
    np.testing.assert_allclose(_seen(world, 5, x, y, none + np.pi / 2, one)[0], np.rot90(piece), atol=1e-9)
