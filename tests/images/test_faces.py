"""Pose normalisation and face sampling: dots land where they should, and pixels are read once."""

import pickle
from dataclasses import FrozenInstanceError
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from scipy import ndimage

from higsfa import sources
from higsfa.datasets import make_faces
from higsfa.images import Distortion, FaceSampler, normalize_contrast, normalize_pose, sample_face
from higsfa.images.geometry import Similarity, warp


def spots(shape, places, radius):
    """Round soft spots at (x, y), on black."""
    y, x = np.mgrid[: shape[0], : shape[1]]
    return sum(np.exp(-((x - px) ** 2 + (y - py) ** 2) / (2 * radius**2)) for px, py in places)


def centroids(picture):
    """The centres (x, y) of the two spots in a picture, from left to right."""
    parts, n = ndimage.label(picture > 0.2 * picture.max())
    assert n == 2
    found = [ndimage.center_of_mass(np.where(parts == k, picture, 0)) for k in (1, 2)]
    return np.array(sorted((x, y) for y, x in found))


def smooth(shape, seed=0, sigma=3.0):
    noise = np.random.default_rng(seed).random(shape)
    picture = ndimage.gaussian_filter(noise, sigma)
    return (picture - picture.min()) / np.ptp(picture)


# ---------------------------------------------------------------------- pose


@settings(max_examples=25, deadline=None)
@given(
    angle=st.floats(-80, 80),
    distance=st.floats(40, 240),
    x=st.floats(250, 350),
    y=st.floats(250, 350),
    swapped=st.booleans(),
)
def test_eyes_land_where_they_should(angle, distance, x, y, swapped):
    half = distance / 2 * np.array([np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))])
    eyes = np.array([(x, y), (x, y)]) + np.array([-half, half])
    photo = spots((600, 600), eyes, radius=distance / 25)
    pose = normalize_pose(photo, eyes[::-1] if swapped else eyes)
    assert pose.shape == (260, 256)
    assert_allclose(centroids(pose), [[127.5 - 30, 96], [127.5 + 30, 96]], atol=0.3)
    other = normalize_pose(photo, eyes, size=(90, 121), eye_distance=35.5, eye_height=30.25)
    assert_allclose(centroids(other), [[60 - 17.75, 30.25], [60 + 17.75, 30.25]], atol=0.3)
    face = FaceSampler(contrast=False).sample(photo, eyes)
    # The square begins at 127.5 - 91.2 and 129.5 - 3.6 - 91.2; 1.9 pixels become one, whose centre is half a pixel in.
    expected = (np.array([[97.5, 96], [157.5, 96]]) - [36.3, 34.7]) / 1.9 - 0.5
    assert_allclose(centroids(face), expected, atol=0.3)


def inverse(where):
    """The inverse of a similarity, by that of its matrix."""
    (a, _, x), (c, _, y), _ = np.linalg.inv([[where.a, -where.c, where.x], [where.c, where.a, where.y], [0, 0, 1]])
    return Similarity(a, c, x, y)


@settings(max_examples=50, deadline=None)
@given(st.tuples(st.floats(0.1, 5), st.floats(-5, 5), st.floats(-99, 99), st.floats(-99, 99)))
def test_the_inverse_of_a_similarity_undoes_it(numbers):
    where = Similarity(*numbers)
    assert_allclose(inverse(where)(*where(3.0, -4.0)), (3.0, -4.0), atol=1e-9)
    assert_allclose(where.after(inverse(where))(7.0, 2.0), (7.0, 2.0), atol=1e-9)


def test_turning_there_and_back_gives_the_picture():
    photo = smooth((201, 201), sigma=5.0)
    turn = Similarity(np.cos(0.4), np.sin(0.4), 0.0, 0.0)
    x, y = turn(100, 100)
    turn = turn._replace(x=100 - x, y=100 - y)
    back = warp(warp(photo, turn, (201, 201)), inverse(turn), (201, 201))
    assert_allclose(back[50:150, 50:150], photo[50:150, 50:150], atol=0.01)


@pytest.mark.parametrize("rotation", [20.0, -35.0])
def test_angles_and_places_are_those_of_distortion(rotation):
    """A picture that Distortion turned is turned back by the eyes, which moved by its own rule."""
    photo = smooth((161, 161), sigma=4.0).astype(np.float32)
    distortion = next(
        d
        for d in (Distortion(seed=s, shift=7, rotation=40, scale=0.1) for s in range(2000))
        if abs(d.draw([0], [0]).rotation[0] - rotation) < 2
    )
    draw = distortion.draw([0], [0])
    turned = distortion.apply(photo[None], [0], [0])[0]
    angle = np.deg2rad(draw.rotation[0])
    cos, sin = draw.scale[0] * np.cos(angle), draw.scale[0] * np.sin(angle)
    eyes = np.array([[60.0, 70.0], [100.0, 70.0]])
    right, down = (eyes - 80).T  # counter-clockwise as seen: what was to the right goes up
    moved = np.column_stack(
        [80 + cos * right + sin * down + draw.shift_x[0], 80 - sin * right + cos * down + draw.shift_y[0]]
    )
    back = normalize_pose(turned, moved, size=(161, 161), eye_distance=40.0, eye_height=70.0)
    assert_allclose(back[50:110, 50:110], photo[50:110, 50:110], atol=0.03)


@pytest.mark.parametrize("shape", [(300, 200), (200, 300), (260, 256), (97, 1000)])
def test_without_eyes_the_largest_centred_part_is_taken(shape):
    photo = smooth(shape, sigma=8.0)
    pose = normalize_pose(photo, size=(65, 64))
    height, width = min(shape[0], shape[1] * 65 / 64), min(shape[1], shape[0] * 64 / 65)
    box = ((shape[1] - width) / 2, (shape[0] - height) / 2, (shape[1] + width) / 2, (shape[0] + height) / 2)
    pillow = Image.fromarray(photo.astype(np.float32)).resize((64, 65), Image.Resampling.BOX, box=box)
    assert_allclose(pose[2:-2, 2:-2], np.asarray(pillow)[2:-2, 2:-2], atol=0.025)
    assert_array_equal(normalize_pose(photo, [[np.nan, 1], [2, 3]], size=(65, 64)), pose)


def test_what_has_the_right_size_already_is_not_touched():
    photo = np.random.default_rng(0).integers(0, 256, (260, 256), dtype=np.uint8)
    assert_array_equal(normalize_pose(photo), photo)
    assert_array_equal(sample_face(photo[:, :250], size=250, square=250, shift_up=0), photo[5:255, :250])


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (1, 40), (5, 5), (96, 96)])
def test_tiny_pictures_are_enlarged(shape):
    photo = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    face = FaceSampler(contrast=False)(photo)
    assert face.shape == (96, 96)
    assert photo.min() <= face.min() <= face.max() <= photo.max()
    assert FaceSampler()(photo).shape == (96, 96)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_huge_pictures_are_averaged_over_the_squares_of_the_pixels(dtype):
    rng = np.random.default_rng(0)
    photo = (rng.integers(0, 100, (2600, 2560)) + np.linspace(0, 100, 2560)).astype(dtype)
    photo = photo / np.float32(200) if dtype == np.float32 else photo
    face = sample_face(photo, size=10, square=2000, shift_up=0)
    squares = photo[300:2300, 280:2280].reshape(10, 200, 10, 200).mean(axis=(1, 3))
    assert_allclose(face, squares, atol=1.0 if dtype != np.float32 else 0.005)


def test_shrinking_is_antialiased():
    stripes = np.tile(np.array([0, 255], dtype=np.uint8), (200, 100))
    for scale in (2.0, 3.3, 7.7, 20.0):
        where = Similarity(scale * np.cos(0.3), scale * np.sin(0.3), 60.0, 60.0)
        small = warp(stripes, where, (5, 5))
        assert np.ptp(small) < 255 * 0.5 / scale, scale


def test_work_is_bounded_however_much_a_picture_shrinks(monkeypatch):
    """At most eight samples in either direction for each pixel of the result."""
    sizes = []
    transform = Image.Image.transform

    def note(self, size, *args):
        sizes.append(size)
        return transform(self, size, *args)

    monkeypatch.setattr(Image.Image, "transform", note)
    rng = np.random.default_rng(0)
    for shape in ((1, 1), (3, 5), (60, 40)):
        for scale in (1.0, 7.5, 8.0, 2.1 * max(shape), 8.0 * max(shape)):
            photo = rng.random(shape)
            small = warp(photo, Similarity(scale, 0.0, 1.0, 1.0), (2, 3))
            assert photo.min() - 1e-6 <= small.min() <= small.max() <= photo.max() + 1e-6
    assert np.max(sizes, axis=0).tolist() == [8 * 3, 8 * 2]


@pytest.mark.parametrize("where", [(41, 0, 0, 0), (0, -41, 0, 0), (0, 0, 1, 1), (1, 0, 2e6, 0), (1, 0, 0, -2e6)])
def test_places_far_from_the_picture_are_mistakes(where):
    """Eyes far apart in a tiny picture asked for terabytes of repeated borders."""
    with pytest.raises(ValueError, match="not near the picture of 4 x 5 pixels"):
        warp(np.zeros((5, 4)), Similarity(*map(float, where)), (3, 3))
    with pytest.raises(ValueError, match="not near the picture of 1 x 1 pixels"):
        FaceSampler().sample(np.zeros((1, 1)), [[0, 0], [9e5, 0]])
    with pytest.raises(ValueError, match="not near the picture of 20000 x 1 pixels"):
        warp(np.zeros((1, 20_000)), Similarity(1.1e4, 0.0, 0.0, 0.0), (3, 3))


def test_borders_are_repeated():
    photo = np.full((50, 50), 77, dtype=np.uint8)
    assert_array_equal(normalize_pose(photo, [[-20, 3], [10, 60]]), np.full((260, 256), 77, dtype=np.uint8))


@pytest.mark.parametrize(
    ("eyes", "message"),
    [
        ([[1, 2], [1.5, 2]], "less than a pixel"),
        ([[1, 2]], "two positions"),
        ([[1, 2], [np.inf, 3]], "two positions"),
        ([[1, 2], [1e9, 3]], "two positions"),
        ([[-1e9, 2], [1, 3]], "two positions"),
    ],
)
def test_eyes_that_are_none_are_refused(eyes, message):
    with pytest.raises(ValueError, match=message):
        normalize_pose(np.zeros((9, 9)), eyes)


def test_small_results_and_odd_eyes_are_fine():
    """Limits are where something stops making sense, and not before."""
    photo = smooth((60, 50))
    assert_allclose(normalize_pose(photo, size=(1, 1)), photo[5:55].mean(), atol=0.01)
    assert normalize_pose(photo, size=(1, 3)).shape == (1, 3)
    assert_allclose(sample_face(photo, size=1, square=20, shift_up=5.0), photo[15:35, 15:35].mean(), atol=0.01)
    assert_allclose(sample_face(photo, size=1, square=0.5, shift_up=0.5)[0, 0], photo[29, 24:26].mean(), atol=0.01)
    largest = sample_face(photo, size=50, square=None, shift_up=0.0)
    assert_allclose(largest, photo[5:55], atol=1e-6)
    upright = normalize_pose(photo, [[25, 20], [25, 40]], size=(21, 21), eye_distance=20, eye_height=10)
    assert_allclose(upright, np.rot90(photo)[14:35, 20:41], atol=1e-6)
    close = normalize_pose(photo, [[24, 30], [25.5, 30]], size=(5, 5), eye_distance=1.5, eye_height=2)
    assert_allclose(close, photo[28:33, 22:28][:, :-1] / 4 + photo[28:33, 22:28][:, 1:] * 3 / 4, atol=1e-6)
    assert normalize_pose(photo, [[10, 30], [11, 30]], size=(5, 5), eye_distance=0.5, eye_height=2).shape == (5, 5)
    for size in ((3,), (4, 5, 6), (0, 5), (5, 0)):
        with pytest.raises(ValueError, match="size="):
            normalize_pose(photo, size=size)
    for options in ({"size": 0}, {"square": 0.0}, {"square": -3.0}):
        with pytest.raises(ValueError, match="must be positive"):
            sample_face(photo, **options)


@pytest.mark.parametrize("contrast", [False, True])
def test_faces_do_not_depend_on_the_type_of_the_photograph(contrast):
    photo = np.random.default_rng(0).integers(0, 256, (60, 50), dtype=np.uint8)
    sampler = FaceSampler(12, contrast=contrast, std=0.6, square=None)
    expected = sampler(photo) / 255.0
    assert not contrast or expected.max() - expected.min() == 1
    for dtype in (np.int8, np.int16, np.uint16):
        limits = np.iinfo(dtype)
        white = int(limits.max) - int(limits.min)
        other = (photo.astype(np.int64) * white // 255 + limits.min).astype(dtype)
        found = (sampler(other).astype(float) - limits.min) / white
        assert_allclose(found, expected, atol=1.01 / 255)
    assert_allclose(sampler(photo / 255.0), expected, atol=0.51 / 255)


@pytest.mark.parametrize("image", [np.zeros((2, 3, 4, 5)), np.zeros((0, 3)), np.zeros(3)])
def test_arrays_that_are_no_pictures_are_refused(image):
    with pytest.raises(ValueError, match="shape"):
        normalize_pose(image)
    with pytest.raises(TypeError, match="uint8"):
        normalize_pose(np.zeros((3, 3), dtype=bool))


@pytest.mark.parametrize("function", [normalize_pose, sample_face, FaceSampler(), FaceSampler(contrast=False)])
def test_grey_values_on_another_scale_are_refused_and_not_cut_off(function):
    """Floats from 0 to 255 would come out white, and integers of many bits that go to 255 grey."""
    photo = np.random.default_rng(0).integers(0, 256, (40, 40))
    with pytest.raises(TypeError, match="int64"):
        function(photo)
    for dtype in (np.float64, np.float32):
        with pytest.raises(ValueError, match="from 0 to 1, got 0 to 255; divide"):
            function(photo.astype(dtype))
        with pytest.raises(ValueError, match="got -254 to 1"):
            function(1 - photo.astype(dtype))
        assert_allclose(function(photo.astype(dtype) / 255), function(photo.astype(np.uint8)) / 255, atol=0.51 / 255)
    overshoot = function(np.where(photo > 128, 1.3, -0.3))
    assert 0 <= overshoot.min() < overshoot.max() <= 1


def test_pictures_whose_numbers_are_no_grey_values_are_refused():
    picture = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16))
    for mode in ("P", "RGBA", "LA", "CMYK", "1"):
        with pytest.raises(ValueError, match=rf"mode '{mode}' .*image.convert\('L'\)"):
            normalize_pose(picture.convert(mode))
    assert_array_equal(normalize_pose(picture, size=(16, 16)), np.asarray(picture))
    assert normalize_pose(picture.convert("RGB"), size=(16, 16)).shape == (16, 16, 3)


# ---------------------------------------------------------------------- one step


def test_one_warp_equals_two_steps_and_keeps_more_detail():
    photo = smooth((480, 400), sigma=2.0)
    eyes = [[150.0, 220.0], [240.0, 190.0]]
    once = FaceSampler(contrast=False).sample(photo, eyes)
    twice = sample_face(normalize_pose(photo, eyes))
    assert_allclose(once, twice, atol=0.04)
    assert 1.0 < once.std() / twice.std() < 1.05
    dense = FaceSampler(contrast=False, size=960).sample(photo, eyes).reshape(96, 10, 96, 10).mean(axis=(1, 3))
    assert np.abs(once - dense).mean() < 0.2 * np.abs(twice - dense).mean()


def test_colours_are_sampled_alike_and_stretched_together():
    photo = np.stack([smooth((300, 280), seed) for seed in range(3)], axis=2)
    eyes = [[100, 120], [170, 130]]
    plain = FaceSampler(contrast=False, size=48)
    assert_array_equal(plain.sample(photo, eyes)[..., 1], plain.sample(photo[..., 1], eyes))
    face = FaceSampler(size=48).sample(photo, eyes)
    assert face.shape == (48, 48, 3)
    assert_allclose(face[7:-7, 7:-7].mean(), 0.5, atol=0.01)


def test_rounding_happens_once():
    photo = (200 + 20 * smooth((300, 280))).astype(np.uint8)
    face = FaceSampler().sample(photo)
    exact = FaceSampler().sample(photo / 255.0)
    assert face.dtype == np.uint8
    assert_allclose(face / 255, exact, atol=0.51 / 255)


# ---------------------------------------------------------------------- as a sampler of files


@pytest.fixture
def photos(tmp_path):
    rng = np.random.default_rng(0)
    paths, eyes = [], []
    for i in range(4):
        centre, half = rng.uniform(140, 160, 2), rng.uniform(20, 50) * np.array([1.0, rng.uniform(-0.4, 0.4)])
        eyes.append([centre - half, centre + half])
        paths.append(tmp_path / f"{i}.png")
        Image.fromarray((255 * spots((300, 300), eyes[-1], 4)).clip(0, 255).astype(np.uint8)).save(paths[-1])
    return SimpleNamespace(paths=tuple(paths), eyes=np.array(eyes))


def test_files_are_sampled_by_their_own_eyes(photos):
    source = sources.images(photos.paths, FaceSampler.of(photos, contrast=False))
    faces = source.take([2, 0, 1, 3])
    assert faces.dtype == np.uint8
    for face in faces:
        assert_allclose(centroids(face.astype(float)), [[31.71, 31.76], [63.29, 31.76]], atol=0.3)


def test_unknown_eyes_are_an_error_or_a_centre_crop(photos):
    photos.eyes[1] = np.nan
    with pytest.raises(ValueError, match=r"1\.png.*without_eyes='center'"):
        sources.images(photos.paths, FaceSampler.of(photos)).take([0, 1])
    centred = sources.images(photos.paths, FaceSampler.of(photos, without_eyes="center"))
    plain = sources.images(photos.paths, FaceSampler())
    assert_array_equal(centred.take([1]), plain.take([1]))
    assert not np.array_equal(centred.take([0]), plain.take([0]))
    with pytest.raises(ValueError, match="without a file name"):
        FaceSampler.of(photos)(np.zeros((9, 9)))
    assert FaceSampler.of(SimpleNamespace(paths=photos.paths, eyes=None)) == FaceSampler()


def test_samplers_are_frozen_picklable_and_tell_their_eyes_apart(photos, monkeypatch):
    sampler = FaceSampler.of(photos)
    again = pickle.loads(pickle.dumps(sampler))
    assert again == sampler
    assert hash(again) == hash(sampler)
    assert repr(again) == repr(sampler)
    assert len(repr(sampler)) < 500
    image = Image.open(photos.paths[0])
    assert_array_equal(again(image), sampler(image))
    with pytest.raises(FrozenInstanceError):
        sampler.size = 3
    photos.eyes[0, 0, 0] += 1e-6
    moved = FaceSampler.of(photos)
    assert moved != sampler
    assert sources.images(photos.paths, moved).fingerprint() != sources.images(photos.paths, sampler).fingerprint()
    monkeypatch.chdir(photos.paths[0].parent)
    relative = FaceSampler(eyes={path.name: eyes for path, eyes in zip(photos.paths, photos.eyes, strict=True)})
    assert relative == moved
    lists = {path.name: eyes.tolist() for path, eyes in zip(photos.paths[::-1], photos.eyes[::-1], strict=True)}
    backwards = FaceSampler(eyes=lists)
    assert backwards == moved
    photos.eyes[:] = 0  # samplers have eyes of their own
    assert_array_equal(moved(image), backwards(image))
    with pytest.raises(TypeError, match="eyes_digest"):
        FaceSampler(eyes_digest="x")
    for wrong in ([[1, 2, 3], [4, 5, 6]], [[1, 2]], [1, 2, 3, 4]):
        with pytest.raises(ValueError, match=r"eyes: .*a\.png must have two positions"):
            FaceSampler(eyes={"a.png": wrong})
    with pytest.raises(ValueError, match="shorter"):
        FaceSampler.of(SimpleNamespace(paths=photos.paths, eyes=photos.eyes[:2]))


@pytest.mark.parametrize(
    "options", [{"size": 0}, {"square": -1.0}, {"pose_size": (0, 3)}, {"eye_distance": 0.0}, {"window": 0.0}]
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options)).removeprefix("pose_")):
        FaceSampler(**options).sample(np.zeros((30, 30)), [[3, 3], [20, 3]])
    with pytest.raises(ValueError, match="without_eyes"):
        FaceSampler(without_eyes="skip")


def test_a_turned_and_shrunken_face_is_found_again():
    """A synthetic face, drawn on a canvas, comes back upright, but for the detail that shrinking took."""
    face = make_faces(1, size=256)[0][0] / 255.0
    eyes = np.array([[90.0, 110.0], [166.0, 110.0]])
    place = Similarity(np.cos(0.5) / 0.8, -np.sin(0.5) / 0.8, -40.0, 90.0)
    canvas = warp(face, place, (420, 420))
    moved = np.array([inverse(place)(*eye) for eye in eyes])
    found = normalize_pose(canvas, moved, size=(256, 256), eye_distance=76.0, eye_height=110.0)
    expected = normalize_pose(face, eyes, size=(256, 256), eye_distance=76.0, eye_height=110.0)
    assert np.corrcoef(found[40:220, 40:220].ravel(), expected[40:220, 40:220].ravel())[0, 1] > 0.99


# ---------------------------------------------------------------------- contrast


@pytest.mark.parametrize("shape", [(7, 96, 96), (3, 5, 9), (2, 1, 1), (4, 30, 20, 3), (33, 48)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_middle_has_the_statistics_asked_for_before_clipping(shape, dtype):
    images = np.random.default_rng(0).gamma(0.5, size=shape).astype(dtype) * 0.2
    out = normalize_contrast(images, clip=False)
    assert (out.shape, out.dtype) == (images.shape, images.dtype)
    batch = out if out.ndim > 2 else out[None]
    rows, columns = (min(3 * n // 20, (n - 1) // 2) for n in batch.shape[1:3])
    for image in batch:
        middle = image[rows : image.shape[0] - rows, columns : image.shape[1] - columns].astype(np.float64)
        assert_allclose(middle.mean(), 0.5, atol=1e-5)
        assert_allclose(middle.std(), 0.16 if middle.size > 1 else 0.0, atol=1e-5)
    clipped = normalize_contrast(images)
    assert_allclose(clipped, np.clip(out, 0, 1), atol=1e-6)


def test_bytes_are_treated_like_floats():
    images = np.random.default_rng(0).integers(30, 120, (3, 20, 20), dtype=np.uint8)
    out = normalize_contrast(images, 0.4, 0.1)
    assert out.dtype == np.uint8
    assert_allclose(out / 255, normalize_contrast(images / 255.0, 0.4, 0.1), atol=0.5001 / 255)
    assert_allclose(normalize_contrast(images.astype(np.uint16) * 257) / 65535, out_exact(images), atol=1e-4)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.uint16])
def test_the_middle_of_the_range_is_that_of_the_type(dtype):
    images = np.random.default_rng(0).integers(30, 120, (3, 20, 20), dtype=np.uint8)
    limits = np.iinfo(dtype)
    unit = images / 255.0
    for std in (0.1, 0.6):  # the second cuts off at both ends
        other = np.rint(limits.min + unit * (limits.max - limits.min)).astype(dtype)
        out = (normalize_contrast(other, 0.4, std).astype(float) - limits.min) / (limits.max - limits.min)
        assert_allclose(out, normalize_contrast(unit, 0.4, std), atol=2.5 * std / 0.1 / (limits.max - limits.min))
    assert out.min() == 0
    assert out.max() == 1


@pytest.mark.parametrize("size", [1, 2, 4, 5, 7])
def test_the_smallest_window_is_the_pixel_in_the_middle(size):
    image = np.random.default_rng(0).random((size, size))
    out = normalize_contrast(image, mean=0.3, window=1e-12, clip=False)
    middle = out[(size - 1) // 2 : size // 2 + 1, (size - 1) // 2 : size // 2 + 1]
    assert_allclose(middle.mean(), 0.3)


def out_exact(images):
    return normalize_contrast(images / 255.0)


@pytest.mark.parametrize("value", [0, 3, 255])
def test_constant_pictures_become_grey(value):
    out = normalize_contrast(np.full((2, 10, 10), value, dtype=np.uint8))
    assert set(out.ravel().tolist()) == {128}
    assert_allclose(normalize_contrast(np.full((10, 10), value / 255 + 1e-9)), 0.5)


def test_targets_may_differ_from_picture_to_picture():
    images = np.random.default_rng(0).random((3, 40, 40))
    means, stds = np.array([0.4, 0.5, 0.6]), np.array([0.05, 0.1, 0.0])
    out = normalize_contrast(images, means, stds, window=1.0)
    assert_allclose(out.mean(axis=(1, 2)), means)
    assert_allclose(out.std(axis=(1, 2)), stds, atol=1e-12)
    with pytest.raises(ValueError, match="one for each of 3"):
        normalize_contrast(images, [0.1, 0.2])
    with pytest.raises(ValueError, match="std"):
        normalize_contrast(images, std=-0.1)
    with pytest.raises(ValueError, match="window"):
        normalize_contrast(images, window=1.1)


def test_distortion_varies_the_targets_as_its_docstring_says():
    images = normalize_contrast(np.random.default_rng(0).random((50, 30, 30)), window=1.0, clip=False)
    distortion = Distortion(shift=0, rotation=0, scale=0, contrast=0.1, brightness=0.03)
    draw = distortion.draw(np.arange(50), 0)
    copies = distortion.apply(images, np.arange(50), np.zeros(50, dtype=int))
    assert_allclose(copies.mean(axis=(1, 2)), 0.5 + draw.brightness, atol=1e-9)
    assert_allclose(copies.std(axis=(1, 2)), 0.16 * draw.contrast, atol=1e-9)
