"""The rat in its box: rays against brute force, views against a literal renderer, the walk, and what it is made for."""

import pickle

import numpy as np
import pytest

from higsfa.datasets import RatBox, make_rat_views
from higsfa.datasets.rat import _CEILING, _FLOOR, EYE, HEIGHT, PIXEL, WALL_HEIGHT, WIDTH

BOX = RatBox()
SMALL = RatBox(size=(1.3, 2.1), seed=3)


def some_poses(n, box, seed=0):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.uniform(0.15, side - 0.15, n) for side in box.size] + [rng.uniform(-4, 4, n)])


@pytest.mark.parametrize("box", [BOX, SMALL], ids=["default", "narrow"])
def test_a_ray_ends_where_a_search_along_it_leaves_the_box(box):
    a, b = box.size
    for x, y, angle in some_poses(200, box):
        step = np.array([np.cos(angle), np.sin(angle)])
        low, high = 0.0, 10.0
        for _ in range(60):  # bisection on "still inside"
            middle = (low + high) / 2
            inside = np.all((np.array([x, y]) + middle * step > 0) & (np.array([x, y]) + middle * step < (a, b)))
            low, high = (middle, high) if inside else (low, middle)
        px, py = np.array([x, y]) + low * step
        # Distance from the corner (0, 0), walked along the walls.
        sides = {
            "south": (py, px),
            "east": (a - px, a + py),
            "north": (b - py, a + b + a - px),
            "west": (px, 2 * (a + b) - py),
        }
        place = min(sides.values())[1]
        found, distance = box.hit(x, y, angle)
        assert distance == pytest.approx(low, abs=1e-9)
        assert found == pytest.approx(place, abs=1e-7)


def literal_view(box, x, y, direction, columns, sub=24):
    """Mean colour over sub x sub rays of each pixel of some columns, ray by ray, straight from the texture."""
    texture = box._textures
    n_places, n_high, _ = texture.shape
    out = np.zeros((HEIGHT, len(columns), 3))
    offsets = (np.arange(sub) + 0.5) / sub
    for c, column in enumerate(columns):
        angles = direction + (column + offsets - WIDTH / 2) * PIXEL
        place, distance = box.hit(x, y, angles)
        at = np.minimum((place / box.perimeter * n_places).astype(int), n_places - 1)
        for row in range(HEIGHT):
            height = EYE + distance[:, None] * np.tan((HEIGHT / 2 - row - offsets) * PIXEL)
            up = np.clip((height / WALL_HEIGHT * n_high).astype(int), 0, n_high - 1)
            seen = texture[at[:, None], up]
            seen = np.where((height < 0)[..., None], _FLOOR, seen)
            seen = np.where((height >= WALL_HEIGHT)[..., None], _CEILING, seen)
            out[row, c] = seen.mean(axis=(0, 1))
    return out


def test_views_are_the_mean_of_many_rays_through_each_pixel():
    """Distances are interpolated, and stretches of one wall averaged by length: a grey value or so."""
    columns = np.arange(0, WIDTH, 8)
    for pose in some_poses(3, BOX, seed=1):
        view = BOX(pose[None])[0][:, columns].astype(float)
        error = np.abs(view - literal_view(BOX, *pose, columns))
        assert error.mean() < 0.6
        assert np.quantile(error, 0.99) < 5


def test_a_small_turn_changes_every_pixel_a_little():
    """No texture flickers: the change is in proportion to the turn, down to the rounding to bytes."""
    poses = some_poses(50, BOX, seed=2)
    turned = [poses + np.array([0, 0, fraction * PIXEL]) for fraction in (0.0, 0.1, 0.2, 1.0)]
    first, tenth, fifth, whole = (BOX(some).astype(float) for some in turned)
    a_pixel = np.abs(whole - first)
    assert np.abs(tenth - first).max() < 0.2 * a_pixel.max()
    assert np.abs(tenth - first).mean() < 0.12 * a_pixel.mean()
    assert np.abs(fifth - 2 * tenth + first).mean() < 0.6  # second differences are rounding to bytes


def test_a_turn_by_whole_pixels_moves_the_view_sideways():
    x, y, direction = 1.1, 0.7, 0.4
    views = BOX(np.array([[x, y, direction], [x, y, direction + 3 * PIXEL]])).astype(float)
    np.testing.assert_allclose(views[1][:, :-3], views[0][:, 3:], atol=1)


def test_a_full_turn_and_the_number_of_views_at_once_change_nothing():
    poses = some_poses(130, BOX, seed=4)
    views = BOX(poses)
    assert np.abs(BOX(poses + np.array([0, 0, 2 * np.pi])).astype(int) - views.astype(int)).max() <= 1
    assert all(np.array_equal(BOX(poses[i : i + 1])[0], views[i]) for i in (0, 63, 64, 129))


def test_the_walk_stays_in_the_box_and_reaches_all_of_it():
    views, walk = make_rat_views(20_000, lazy=True)
    assert len(views) == 20_000
    for name, side in zip("xy", BOX.size, strict=True):
        assert walk[name].min() >= 0.15
        assert walk[name].max() <= side - 0.15
        counts = np.histogram(walk[name], 5, (0.15, side - 0.15))[0] / 20_000
        assert np.all(counts > 0.14)
        assert np.all(counts < 0.26)
    counts = np.histogram(walk["direction"], 8, (-np.pi, np.pi))[0] / 20_000
    assert np.all(counts > 0.08)


@pytest.mark.parametrize(("speed", "turn"), [(0.06, 0.5), (0.02, 0.05)])
def test_speeds_are_those_that_were_asked_for(speed, turn):
    _, walk = make_rat_views(50_000, 5, lazy=True, speed=speed, turn=turn, box=RatBox(size=(100.0, 100.0)))
    for name in "xy":
        assert np.sqrt(np.mean(np.diff(walk[name]) ** 2)) == pytest.approx(speed, rel=0.1)
    change = (np.diff(walk["direction"]) + np.pi) % (2 * np.pi) - np.pi
    assert np.sqrt(np.mean(change**2)) == pytest.approx(turn, rel=0.05)


def test_the_same_seed_gives_the_same_walk_and_another_one_the_same_world():
    first, again, other = (make_rat_views(70, seed, n_jobs=jobs) for seed, jobs in ((0, None), (0, 2), (1, None)))
    assert np.array_equal(first[0], again[0])
    assert np.array_equal(first[1]["x"], again[1]["x"])
    assert not np.array_equal(first[1]["x"], other[1]["x"])
    assert np.array_equal(RatBox()([[1, 1, 0]]), RatBox()([[1, 1, 0]]))
    assert not np.array_equal(RatBox()([[1, 1, 0]]), RatBox(seed=1)([[1, 1, 0]]))


def test_a_lazy_source_holds_the_same_views_in_any_order_and_travels():
    views, _ = make_rat_views(40)
    source, _ = make_rat_views(40, lazy=True)
    assert np.array_equal(np.asarray(source), views)
    copy = pickle.loads(pickle.dumps(source))  # as it goes to a worker
    assert np.array_equal(copy.take([31, 7, 31]), views[[31, 7, 31]])
    assert copy.fingerprint() == source.fingerprint()
    assert len(pickle.dumps(source)) < 10_000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_samples": 0}, "n_samples=0"),
        ({"speed": -1.0}, "speed=-1.0"),
        ({"turn": np.nan}, "turn=nan"),
        ({"margin": 1.0}, "margin=1.0"),
    ],
)
def test_walks_that_cannot_be_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        make_rat_views(**{"n_samples": 10, **given})


@pytest.mark.parametrize(
    ("poses", "message"), [([[1.0, 2.0]], "shape"), ([[1.0, 5.0, 0.0]], "row 0"), ([[1.0, 1.0, np.inf]], "row 0")]
)
def test_poses_outside_are_refused(poses, message):
    with pytest.raises(ValueError, match=message):
        BOX(poses)
