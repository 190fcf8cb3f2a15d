"""Oriented edges against a loop over pixels, and on ramps whose direction is known."""

import pickle
from math import atan2, cos, hypot, pi, sqrt

import numpy as np
import pytest

from higsfa import sources
from higsfa.images import oriented_edges


def pictures(n=5, height=16, width=24, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, height, width), dtype=np.uint8)


def ramp(direction, size=64):
    """Brighter towards a direction: 0 is to the right, a quarter turn is down."""
    place = np.arange(size) - (size - 1) / 2
    return (0.5 + 0.01 * (np.cos(direction) * place + np.sin(direction) * place[:, None]))[None]


def by_loops(image, cell, directions):
    """The definition, pixel by pixel."""
    height, width = image.shape
    h, w = height // cell, width // cell
    x = image / 255
    edges, grey = np.zeros((h, w, directions)), np.zeros((h, w))
    for i, j in np.ndindex(h, w):
        total = 0.0
        for r, c in np.ndindex(height, width):
            away = [abs(at - (k * cell + (cell - 1) / 2)) / cell for at, k in ((r, i), (c, j))]
            weight = max(0, 1 - away[0]) * max(0, 1 - away[1])
            gy = (x[r + 1, c] - x[r - 1, c]) / 2 if 0 < r < height - 1 else 0
            gx = (x[r, c + 1] - x[r, c - 1]) / 2 if 0 < c < width - 1 else 0
            for k in range(directions):
                edges[i, j, k] += weight * hypot(gx, gy) * max(0, cos(atan2(gy, gx) - 2 * pi * k / directions)) ** 16
            grey[i, j] += weight * x[r, c]
            total += weight
        edges[i, j] /= total
        grey[i, j] /= total
    out = np.empty((h, w, directions + 1))
    for i, j in np.ndindex(h, w):
        around = [(min(max(i + a, 0), h - 1), min(max(j + b, 0), w - 1)) for a in (-1, 0, 1) for b in (-1, 0, 1)]
        local = sum(sqrt(sum(edges[place] ** 2)) for place in around) / 9
        out[i, j, :-1] = np.sqrt(edges[i, j] / (local + 0.01))
    out[..., -1] = 0.15 * (grey - grey.mean()) / (grey.std() + 0.05)
    return out


@pytest.mark.parametrize(("cell", "directions"), [(4, 6), (2, 5)])
def test_agrees_with_a_loop_over_pixels(cell, directions):
    image = pictures(1, 8, 12)
    expected = by_loops(image[0].astype(float), cell, directions)
    np.testing.assert_allclose(oriented_edges(image, cell, directions)[0], expected, atol=2e-4)


def test_cells_and_channels():
    edges = oriented_edges(pictures())
    assert edges.shape == (5, 4, 6, 13)
    assert edges.dtype == np.float32
    assert oriented_edges(pictures(), cell=8, directions=7).shape == (5, 2, 3, 8)
    assert oriented_edges(pictures()[:0]).shape == (0, 4, 6, 13)


@pytest.mark.parametrize("k", range(12))
def test_an_edge_lights_the_channel_of_its_direction(k):
    inner = oriented_edges(ramp(2 * np.pi * k / 12))[0, 2:-2, 2:-2, :12]
    assert np.all(inner.argmax(axis=-1) == k)
    for neighbour in (k - 1, k + 1):
        np.testing.assert_allclose(inner[..., neighbour % 12] / inner[..., k], cos(pi / 6) ** 8, rtol=1e-3)
    np.testing.assert_allclose(inner[..., (k + 6) % 12], 0, atol=1e-6)


def test_brightness_does_not_matter():
    dark = pictures().astype(np.float32) / 512
    edges, brighter = oriented_edges(dark), oriented_edges(dark + np.float32(0.25))
    np.testing.assert_array_equal(brighter[..., :-1], edges[..., :-1])  # these sums and differences are exact
    np.testing.assert_allclose(brighter[..., -1], edges[..., -1], atol=1e-5)


def test_contrast_matters_little_and_without_it_there_are_no_edges():
    strong = pictures().astype(np.float32) / 255
    edges, weak = (oriented_edges(images)[..., :-1] for images in (strong, strong / 2))
    assert np.abs(weak - edges).max() < 0.1 * edges.max()
    np.testing.assert_allclose(oriented_edges(np.full((1, 8, 8), 77, np.uint8)), 0, atol=1e-6)


def test_types_of_pixels_do_not_matter():
    images = pictures()
    wide = images.astype(np.uint16) * 257
    signed = (images.astype(np.int16) - 128).astype(np.int8)
    for same in (images / 255, (images / 255).astype(np.float32), (images / 255).tolist(), wide, signed):
        np.testing.assert_allclose(oriented_edges(same), oriented_edges(images), atol=1e-4)


def test_batches_do_not_matter():
    images = pictures(70)
    one_by_one = np.concatenate([oriented_edges(images[i : i + 1]) for i in range(len(images))])
    np.testing.assert_array_equal(oriented_edges(images), one_by_one)


def test_colours_have_the_edges_of_their_strongest_channel_and_their_means():
    grey = pictures(3)
    colour = np.stack([grey, grey // 2, grey // 4], axis=-1)  # red is strongest everywhere
    edges = oriented_edges(colour)
    assert edges.shape == (3, 4, 6, 15)
    np.testing.assert_allclose(edges[..., :12], oriented_edges(grey)[..., :12], atol=1e-6)
    mean = colour.mean(axis=3)
    brightness = oriented_edges((mean / 255).astype(np.float32))[..., 12]
    np.testing.assert_allclose(edges[..., 12], brightness, atol=1e-4)
    swapped = oriented_edges(colour[..., [1, 0, 2]])
    np.testing.assert_allclose(swapped[..., [14, 13]], edges[..., [13, 14]], atol=1e-5)  # red and green change places
    same = oriented_edges(np.stack([grey] * 3, axis=-1))
    np.testing.assert_allclose(same[..., :13], oriented_edges(grey), atol=1e-5)
    np.testing.assert_allclose(same[..., 13:], 0, atol=1e-5)


def test_pictures_of_any_size_are_continued_at_their_borders():
    images = pictures(2, 14, 17)
    wide = np.pad(images, ((0, 0), (1, 1), (1, 2)), mode="edge")
    np.testing.assert_array_equal(oriented_edges(images), oriented_edges(wide))


def test_a_mapped_source_survives_pickling():
    source = pickle.loads(pickle.dumps(sources.map(pictures(), oriented_edges)))
    np.testing.assert_array_equal(source.take([3, 1]), oriented_edges(pictures())[[3, 1]])


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        (np.zeros((8, 8)), {}, r"must have shape \(n, height, width\) or .*, got \(8, 8\)"),
        (np.zeros((2, 0, 8)), {}, r"got \(2, 0, 8\)"),
        (np.zeros((2, 8, 8)), {"cell": 0}, "cell=0 must be an integer of at least 1"),
        (np.zeros((2, 8, 8)), {"directions": 1.5}, "directions=1.5 must be"),
    ],
)
def test_says_what_is_wrong(images, options, message):
    with pytest.raises(ValueError, match=message):
        oriented_edges(images, **options)


def test_refuses_what_has_no_grey_values():
    for dtype in (bool, np.int32, np.int64):
        with pytest.raises(TypeError, match=np.dtype(dtype).name):
            oriented_edges(np.zeros((2, 8, 8), dtype))
    with pytest.raises(ValueError, match="from 0 to 1, got 0 to 255; divide"):
        oriented_edges(np.full((2, 8, 8), 255.0) * np.eye(8))
