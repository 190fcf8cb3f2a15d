"""The anatomy of synthetic faces: parts lie where they belong, and traits move what they name."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.ndimage import map_coordinates

from higsfa.datasets import draw_faces, face_parameters
from higsfa.datasets.faces import parts
from higsfa.datasets.faces.traits import PERSON, RACES, SHOT, ageing

EVEN = np.zeros(1, dtype=np.float32)
"""A texture without structure."""


def person(**traits):
    """The average person with a calm face, as arrays that broadcast against pixels; some traits changed."""
    means = {name: row[0] for name, row in (PERSON | SHOT).items()}
    means |= {"smile": 0.0, "brow_raise": 0.0, "mouth_open": 0.0, "beard": 0.5, "freckles": 0.5, **traits}
    p = SimpleNamespace(**{name: np.full((1, 1, 1), value, dtype=np.float32) for name, value in means.items()})
    p.line = [getattr(p, f"line{k}") for k in range(12)]
    return p


def old(age, gender="M", **traits):
    values = {name: row[0] for name, row in (PERSON | SHOT).items()}
    values |= {"smile": 0.0, "brow_raise": 0.0, "beard": 0.5, "recession": 1.0, "frown": 1.0, **traits}
    return ageing(
        {**{k: np.array([v]) for k, v in values.items()}, "age": np.array([age]), "gender": np.array([gender])}
    )


def years(**marks):
    """The marks of age of a face that has these ones only."""
    names = vars(old(30.0))
    assert set(marks) <= set(names)
    return SimpleNamespace(**{name: np.full((1, 1, 1), marks.get(name, 0.0), dtype=np.float32) for name in names})


def blank(n=160):
    """An even, white face to draw on, of n x n pixels."""
    axis = ((np.arange(n) + 0.5) * 2 / n - 1).astype(np.float32)
    x, y = (plane[None] for plane in np.meshgrid(axis, axis))
    maps = {"height": np.zeros_like(x), "albedo": np.ones_like(x), "texel": np.zeros(x.shape, np.int32)}
    return parts.Canvas(x=x, y=y, side=np.abs(x), pixel=2 / n, **maps)


DRAW = {
    "nose": lambda c, p: parts.nose(c, p),
    "eyes": lambda c, p: parts.eyes(c, p, years()),
    "brows": lambda c, p: parts.brows(c, p, 0.05, EVEN),
    "mouth": lambda c, p: parts.mouth(c, p, years()),
    "forehead": lambda c, p: parts.forehead_lines(c, p, years(forehead=1)),
    "frown": lambda c, p: parts.forehead_lines(c, p, years(frown=1)),
    "crow": lambda c, p: parts.eye_lines(c, p, years(crow=1)),
    "bag": lambda c, p: parts.eye_lines(c, p, years(bag=1)),
    "fold": lambda c, p: parts.mouth_lines(c, p, years(fold=1)),
    "marionette": lambda c, p: parts.mouth_lines(c, p, years(marionette=1)),
    "sag": lambda c, p: parts.mouth_lines(c, p, years(sag=1)),
    "beard": lambda c, p: parts.beard(c, p, years(beard=0.8), 0.05, EVEN),
    "freckles": lambda c, p: parts.freckles(c, p, EVEN + 2),
}
MAPS = {"height": 0.0, "albedo": 1.0}


def drawn(part, n=160, **traits):
    c = blank(n)
    DRAW[part](c, person(**traits))
    return c


class Mark:
    """What a part did to a map: the range of values, the region that changed, its middle and its size."""

    def __init__(self, c, what):
        change = getattr(c, what)[0] - MAPS[what]
        size, side, y = np.abs(change), c.side[0], c.y[0]
        seen = size > 0.02 * size.max()
        self.low, self.high = change.min(), change.max()
        self.inner, self.outer = side[seen].min(), side[seen].max()
        self.top, self.bottom = y[seen].min(), y[seen].max()
        self.side, self.y = (size * side).sum() / size.sum(), (size * y).sum() / size.sum()
        self.area, self.mass = 4 * np.mean(size > 0.5 * size.max()), 4 * size.mean()


# Part and map: lowest and highest value; from and to, in distance from the middle line and in height; middle; area.
ANATOMY = """
nose       height   0.000 0.191   0.00 0.14  -0.17  0.32   0.05  0.16   0.0192
nose       albedo  -0.811 0.000   0.00 0.17   0.17  0.33   0.07  0.26   0.0028
eyes       height  -0.068 0.000   0.04 0.50  -0.29  0.02   0.25 -0.14   0.0873
eyes       albedo  -0.994 0.000   0.10 0.44  -0.22 -0.04   0.28 -0.13   0.0323
brows      albedo  -0.589 0.000   0.11 0.50  -0.32 -0.20   0.29 -0.28   0.0278
mouth      height  -0.012 0.030   0.00 0.21   0.34  0.57   0.07  0.51   0.0215
mouth      albedo  -0.750 0.000   0.00 0.23   0.46  0.62   0.08  0.52   0.0082
forehead   height  -0.011 0.000   0.00 0.37  -0.64 -0.34   0.11 -0.47   0.0209
forehead   albedo  -0.225 0.000   0.00 0.37  -0.64 -0.34   0.11 -0.47   0.0209
frown      height  -0.006 0.000   0.03 0.06  -0.36 -0.18   0.04 -0.28   0.0026
frown      albedo  -0.174 0.000   0.03 0.06  -0.36 -0.18   0.04 -0.28   0.0026
crow       height  -0.009 0.000   0.42 0.57  -0.24  0.00   0.50 -0.13   0.0095
crow       albedo  -0.308 0.000   0.42 0.57  -0.24  0.00   0.50 -0.13   0.0095
bag        height  -0.009 0.017   0.14 0.43  -0.09  0.01   0.29 -0.04   0.0120
bag        albedo  -0.203 0.000   0.14 0.43  -0.10  0.01   0.29 -0.03   0.0104
fold       height  -0.012 0.022   0.11 0.36   0.20  0.57   0.27  0.39   0.0293
fold       albedo  -0.267 0.000   0.11 0.28   0.21  0.56   0.22  0.39   0.0085
marionette height  -0.011 0.000   0.21 0.25   0.49  0.70   0.23  0.59   0.0040
marionette albedo  -0.249 0.000   0.21 0.25   0.49  0.70   0.23  0.59   0.0040
sag        height   0.000 0.020   0.28 0.53   0.59  0.81   0.40  0.70   0.0311
beard      albedo  -0.760 0.000   0.00 0.84   0.06  1.00   0.48  0.66   1.0623
freckles   albedo  -0.193 0.000   0.00 0.58  -0.11  0.39   0.23  0.14   0.2109
"""


@pytest.mark.parametrize("row", ANATOMY.split("\n")[1:-1], ids=lambda row: "-".join(row.split()[:2]))
def test_parts_of_the_average_face_lie_where_they_belong(row):
    part, what, *numbers = row.split()
    low, high, inner, outer, top, bottom, side, y, area = map(float, numbers)
    mark = Mark(drawn(part, 256), what)
    depth = high - low
    assert_allclose([mark.low, mark.high], [low, high], atol=0.1 * depth)
    assert_allclose([mark.inner, mark.outer, mark.top, mark.bottom], [inner, outer, top, bottom], atol=0.02)
    assert_allclose([mark.side, mark.y], [side, y], atol=0.012)
    assert_allclose(mark.area, area, rtol=0.15)


def test_every_change_of_the_white_face_ends_within_its_window(monkeypatch):
    """A part that reached the border of its window would be cut off there, and shift with the pose."""
    windows = []
    window = parts.Canvas.window

    def note(self, *box):
        windows.append(box)
        return window(self, *box)

    monkeypatch.setattr(parts.Canvas, "window", note)
    for part in DRAW:
        if part in ("beard", "freckles"):  # these fade out, or end at the border of the picture
            continue
        windows.clear()
        c = drawn(part)
        inside = np.zeros(c.x.shape, dtype=bool)
        for left, right, top, bottom in windows:
            inside |= (c.x > left) & (c.x < right) & (c.y > top) & (c.y < bottom)
        for what, before in MAPS.items():
            assert_allclose(getattr(c, what)[~inside], before, atol=0.02, err_msg=part)


@pytest.mark.parametrize("part", DRAW)
def test_a_face_without_accidents_is_symmetric(part):
    c = drawn(part)
    for what in MAPS:
        values = getattr(c, what)
        atol = 0.02 if part == "eyes" else 1e-6  # the glint is on one side
        assert_allclose(values, values[:, :, ::-1], atol=0.2 if (part, what) == ("eyes", "albedo") else atol)


# A trait, the part and map that show it, and what grows (+) or shrinks (-) with it.
MOVES = """
nose_y         nose   albedo  y+ top+ bottom+
nose_width     nose   albedo  outer+ side+
nose_height    nose   height  high+
nose_bridge    nose   height  area+
eye_distance   eyes   albedo  inner+ outer+ side+
eye_y          eyes   albedo  top+ bottom+ y+
eye_width      eyes   albedo  area+ low+
eye_depth      eyes   height  low-
brow_height    brows  albedo  top- bottom- y-
brow_raise     brows  albedo  top- y-
brow_arch      brows  albedo  top-
brow_thickness brows  albedo  area+
brow_dark      brows  albedo  low-
eye_distance   brows  albedo  side+
mouth_y        mouth  albedo  top+ bottom+ y+
mouth_width    mouth  albedo  outer+ side+
smile          mouth  albedo  outer+ y-
lip_upper      mouth  albedo  top- y-
lip_lower      mouth  albedo  bottom+ y+
lip_dark       mouth  albedo  area+
brow_raise     forehead albedo y-
eye_distance   crow   albedo  side+
eye_y          crow   albedo  y+
eye_width      crow   albedo  side+
eye_y          bag    albedo  y+
nose_width     fold   albedo  inner+
mouth_width    fold   albedo  outer+
mouth_y        fold   albedo  bottom+
smile          fold   albedo  outer+
mouth_width    marionette albedo side+
mouth_y        marionette albedo y+
"""


@pytest.mark.parametrize("row", MOVES.split("\n")[1:-1], ids=lambda row: "-".join(row.split()[:2]))
def test_traits_move_what_they_name(row):
    trait, part, what, *effects = row.split()
    mean, deviation = (PERSON | SHOT)[trait][:2]
    less, more = (Mark(drawn(part, 256, **{trait: mean + k * deviation}), what) for k in (-2, 2))
    for effect in effects:
        change = getattr(more, effect[:-1]) - getattr(less, effect[:-1])
        assert (change > 0) == (effect[-1] == "+"), effect
        assert change != 0
    if trait.endswith(("_y", "distance")) and "y+" in effects:
        assert more.y - less.y == pytest.approx(4 * deviation, rel=0.25)


LINES = {"forehead": {0, 1, 2, 3}, "frown": {4, 5}, "crow": {0, 1, 2, 3, 6, 7, 8, 9, 10}, "bag": {8, 9}, "fold": {10}}


@pytest.mark.parametrize("part", ["forehead", "frown", "crow", "bag", "fold", "marionette"])
def test_lines_run_a_little_differently_in_every_face(part):
    """Each line of a face has numbers of its own, which bend it but leave it in its place, about as deep."""
    plain = drawn(part)
    usual = Mark(plain, "albedo")
    for k in range(12):
        for sign in (-1.0, 1.0):
            c = drawn(part, **{f"line{k}": sign})
            change = np.abs(c.albedo - plain.albedo).max()
            if k not in LINES.get(part, {11}):
                assert change == 0, k
                continue
            bent = Mark(c, "albedo")
            assert change > 0.01, k
            assert bent.low == pytest.approx(usual.low, rel=0.25), k
            assert (bent.side, bent.y) == pytest.approx((usual.side, usual.y), abs=0.02), k
            assert bent.mass == pytest.approx(usual.mass, rel=0.25), k


# ------------------------------------------------------------------- what parts are drawn with


def test_soft_shapes_follow_their_formulas():
    t = np.linspace(-2, 2, 81)
    assert_allclose(parts.bell(t**2), np.where(np.abs(t) < 1, (1 - t**2) ** 2, 0), atol=1e-15)
    s = np.clip((t / 0.7 + 1) / 2, 0, 1)
    assert_allclose(parts.step(t, 0.7), 3 * s**2 - 2 * s**3, atol=1e-15)
    x, y = np.meshgrid(t, t)
    assert_allclose(parts.disc(x, y, 0.3, -0.2, 0.5, 2.0), ((x - 0.3) / 0.5) ** 2 + ((y + 0.2) / 2) ** 2, atol=1e-12)


@pytest.mark.parametrize("n", [16, 33, 96])
@pytest.mark.parametrize("box", [(-0.4, 0.3, -0.7, 0.1), (-0.1, 0.1, 0.2, 1.1), (-1.0, 1.0, -1.2, -0.6)])
def test_a_window_holds_what_lies_in_its_box_or_near_it_and_is_a_view(n, box):
    c = blank(n)
    w = c.window(*box)
    left, right, top, bottom = box
    rows, columns = c.y[0, :, 0], c.x[0, 0]
    for low, high, axis, seen in ((left, right, columns, w.x[0, 0]), (top, bottom, rows, w.y[0, :, 0])):
        needed = axis[(axis > low - 0.14) & (axis < high + 0.14)]
        assert set(needed) <= set(seen)
        assert len(seen) <= len(needed) + 2
    w.height += 1
    w.albedo *= 3
    assert c.height.sum() == w.height.size
    assert c.albedo.sum() == c.albedo.size + 2 * w.albedo.size
    assert w.pixel == c.pixel


def test_paint_covers_and_cover_lays_over():
    rng = np.random.default_rng(0)
    mask, below, above = rng.random((3, 2, 5, 5))
    expected = (1 - mask) * below + mask * above
    c = blank(5)
    c.albedo = below.copy()
    c.paint(mask, above)
    assert_allclose(c.albedo, expected)
    parts.cover(below, mask.copy(), above)
    assert_allclose(below, expected)


def test_a_crease_is_a_dark_groove_that_fades_along_and_across():
    c = blank(200)
    c.albedo *= 0.5
    c.crease(c.x / 0.4, c.y + 0.2, width=0.03, depth=0.8, shadow=0.25)
    seen = np.hypot(0.03, 0.8 * 0.01)  # a line cannot be sharper than pixels, but it is fainter then
    x, y = c.x.astype(float), c.y.astype(float)
    line = np.maximum(1 - (x / 0.4) ** 2, 0) ** 2 * np.maximum(1 - ((y + 0.2) / seen) ** 2, 0) ** 2 * 0.8 * 0.03 / seen
    assert_allclose(c.height, -0.55 * 0.03 * line, atol=1e-6)
    assert_allclose(c.albedo, 0.5 * (1 - 0.25 * line), atol=1e-6)


def power(field, n):
    """Mean power of a texture at each whole frequency in cycles per unit, and the share of vertical structure."""
    spectrum = np.abs(np.fft.fft2(field.reshape(n, n))) ** 2
    f = np.fft.fftfreq(n, 4.0 / n)
    radius = np.hypot(f[:, None], f).round().astype(int).ravel()
    mean = np.bincount(radius, spectrum.ravel()) / np.bincount(radius)
    return mean, spectrum.sum(axis=0), spectrum.sum(axis=1), np.abs(f)


def test_textures_have_their_grain():
    n, fields = parts.textures(256)
    assert n == 1024
    for name, peak in (("pores", 17), ("mottle", 7.5)):
        mean, by_x, by_y, f = power(fields[name], n)
        assert abs(mean.argmax() - peak) <= 2
        half = np.flatnonzero(mean > mean.max() / 2)
        assert_allclose([half[0], half[-1]], [peak * np.exp(-0.29), peak * np.exp(0.29)], atol=1.6)
        assert_allclose(np.sum(by_x * f) / by_x.sum(), np.sum(by_y * f) / by_y.sum(), rtol=0.02)
    _, by_x, by_y, f = power(fields["strands"], n)
    across, along = np.sum(by_x * f) / by_x.sum(), np.sum(by_y * f) / by_y.sum()
    assert 9 < across < 16
    assert 1 < along < 2
    assert fields["mottle"].std() == pytest.approx(1, abs=0.02)  # finer ones are blurred by the pixels
    assert abs(fields["mottle"].mean()) < 0.01


def test_sizes_show_the_same_textures_more_or_less_blurred():
    (n, small), (m, large) = parts.textures(48), parts.textures(96)
    assert (n, m) == (256, 512)
    aperture = []
    for name in small:
        few, many = small[name].reshape(n, n), large[name].reshape(m, m)
        assert np.corrcoef(few.ravel(), many[::2, ::2].ravel())[0, 1] > 0.9
        aperture.append(few.std() / many.std())
    assert aperture[0] < aperture[1] < 1  # pores are finer than mottle
    # A Gaussian aperture of 0.6 pixels on the frequencies of mottle, about 7.5 cycles per unit.
    blur = [np.exp(-0.5 * (2 * np.pi * 7.5 * 0.6 / size) ** 2) for size in (48, 96)]
    assert aperture[1] == pytest.approx(blur[0] / blur[1], abs=0.05)


def test_texels_wrap_around_after_two_image_widths_and_every_person_has_other_ones():
    p = SimpleNamespace(texture_x=8.25, texture_y=9.5)
    x, y = np.meshgrid(np.linspace(-1, 1, 21), np.linspace(-1, 1, 21))
    expected = [
        [int((yy + 9.5) * 64) % 256 * 256 + int((xx + 8.25) * 64) % 256 for xx, yy in zip(*rows, strict=True)]
        for rows in zip(x, y, strict=True)
    ]
    assert_array_equal(parts.texels(x, y, p, 256), expected)


# ------------------------------------------------------------------------------- head and skin


def test_the_head_is_half_an_ellipse_above_and_ends_at_the_chin():
    p, plain = person(), person(taper=0.0, jaw=0.0)
    width, chin = PERSON["face_width"][0], PERSON["chin"][0]

    def at(x, y, p=plain, **options):
        return float(np.squeeze(parts.outline(np.full((1, 1, 1), x), np.full((1, 1, 1), y), p, years(), **options)))

    for x, y in ((width, -0.05), (-width, -0.05), (0, chin), (0, -1.15), (width * 0.6, -0.05 - 1.1 * 0.8)):
        assert at(x, y) == pytest.approx(1, abs=1e-5)
    assert at(0.6 * width, 0.8 * (chin + 0.05) - 0.05) == pytest.approx(1, abs=1e-5)
    assert at(0, -0.05) == pytest.approx(0, abs=1e-12)
    assert at(0.5 * width, -0.05) == pytest.approx(0.25, abs=1e-6)
    assert at(width + 0.1, -0.05, grow=0.1) == pytest.approx(1, abs=1e-5)
    assert at(0, -1.25, grow=0.1) == pytest.approx(1, abs=1e-5)
    cheek = (0.5, 0.5)
    assert at(*cheek, person(taper=0.0, jaw=0.3)) < at(*cheek) < at(*cheek, person(taper=0.1, jaw=0.0))
    # Across the jaw, a quarter of the height of the chin above it.
    x2, d2 = (0.5 / width) ** 2, (0.55 / (chin + 0.05)) ** 2
    assert at(*cheek, person(taper=0.1, jaw=0.3)) == pytest.approx(
        x2 * (1 + 0.2 * d2) + d2 - 0.3 * x2 * (1 + 0.2 * d2) * d2, abs=1e-5
    )
    assert at(0.3, -0.5, p) == at(0.3, -0.5)
    old = np.squeeze(parts.outline(*(np.full((1, 1, 1), v) for v in cheek), p, years(sag=1)))
    assert old < at(*cheek, p)


def test_the_skull_is_a_dome_with_mounds():
    def relief(**traits):
        c = blank()
        p = person(**traits)
        parts.skull(c, parts.outline(c.x, c.y, p, years()), p)
        return c

    c = relief()
    inside = parts.outline(c.x, c.y, person(), years())
    assert -0.7 < c.height.min() < -0.55
    assert 0 < c.height.max() < 0.05
    assert np.corrcoef(c.height.ravel(), np.minimum(inside, 1.15).ravel())[0, 1] < -0.97
    assert_allclose(c.height[inside > 1.3], c.height.min(), atol=1e-6)
    assert_array_equal(c.albedo, 1)
    for trait, x, y, reach in (
        ("cheek", 0.36, 0.17, 0.3),
        ("chin_size", 0.0, PERSON["chin"][0] - 0.15, 0.24),
        ("brow_ridge", 0.22, PERSON["eye_y"][0] - 0.16, 0.34),
    ):
        more = relief(**{trait: PERSON[trait][0] + 0.01})
        mound = more.height - c.height
        assert mound.max() == pytest.approx(0.01, rel=0.1)
        row, column = np.unravel_index(mound[0].argmax(), mound[0].shape)
        assert (c.side[0, row, column], c.y[0, row, column]) == pytest.approx((x, y), abs=0.02)
        assert np.hypot(c.side - x, c.y - y)[mound > 1e-4].max() < reach + 0.02
    for y, sign in ((PERSON["mouth_y"][0] - 0.02, 1), (PERSON["mouth_y"][0] + 0.135, -1)):
        row, column = np.abs(c.y[0, :, 0] - y).argmin(), 80
        smooth = -(0.2 * inside + 0.32 * inside**2)
        mound = (c.height - smooth)[0, row, column]
        assert sign * (mound - 0.01) > 0


def test_skin_has_the_tone_of_the_person_and_a_grain_of_age():
    rng = np.random.default_rng(0)
    fine, coarse = rng.standard_normal((2, 25_600)).astype(np.float32)
    skins = {}
    for name, marks in {"young": {}, "rough": {"roughness": 1.0}, "spots": {"spots": 1.0}}.items():
        c = blank()
        c.texel[...] = np.arange(25_600).reshape(160, 160)
        parts.skin(c, person(), years(**marks), fine, coarse)
        skins[name] = c
    tone = PERSON["skin"][0] ** 2
    assert_allclose(skins["young"].albedo, tone, rtol=1e-6)
    assert_array_equal(skins["young"].height, 0)
    grain = (fine + 0.45 * coarse).reshape(160, 160)
    assert_allclose(skins["rough"].albedo[0], tone * (1 + 0.068 * grain), atol=1e-5)
    assert_allclose(skins["rough"].height[0], 0.0016 * grain, atol=1e-6)
    dark = np.clip(coarse + 0.3 * fine - 1.1, 0, 1.2).reshape(160, 160)
    assert_allclose(skins["spots"].albedo[0], tone * (1 - 0.15 * dark), atol=1e-5)
    c = blank()
    c.texel[...] = np.arange(25_600).reshape(160, 160)
    parts.skin(c, person(), years(roughness=1, coarseness=1), fine, coarse)
    assert_allclose(c.height[0], 0.0016 * (0.7 * fine + 0.8 * coarse).reshape(160, 160), atol=1e-6)


def test_hair_follows_the_grain_of_the_skin():
    """Brows and beard take up what the texture says, and are never more than opaque."""
    for draw in (
        lambda c, grain: parts.brows(c, person(), 0.0, grain),
        lambda c, grain: parts.beard(c, person(), years(beard=0.6), 0.0, grain),
    ):
        even, rough, extreme = blank(), blank(), blank()
        draw(even, EVEN)
        draw(rough, EVEN + 1)
        draw(extreme, EVEN + 100)
        assert 0.1 < np.max((even.albedo - rough.albedo) / (1 - even.albedo + 1e-9)) < 0.2
        assert 0 <= extreme.albedo.min() <= 0.11


# ------------------------------------------------------------------------------- eyes and mouth


def at(c, x, y):
    column, row = (int((v + 1) / 2 * c.x.shape[1]) for v in (x, y))
    return float(c.albedo[0, row, column])


def test_eyes_have_pupils_irises_and_whites_that_look_where_they_should():
    x, y = PERSON["eye_distance"][0], PERSON["eye_y"][0] - 0.006
    dark, bright = drawn("eyes", 400, iris=0.05), drawn("eyes", 400, iris=0.2)
    for side in (-1, 1):
        assert at(dark, side * x, y + 0.008) < 0.03
        ring = side * (x + 0.045)
        assert at(bright, ring, y) == pytest.approx(4 * at(dark, ring, y), rel=0.1)
        assert 0.1 < at(bright, ring, y) < 0.25
        for white in (x - 0.09, x + 0.09):
            assert 0.3 < at(dark, side * white, y + 0.012) < 0.6
        assert at(dark, side * x, y - 0.12) > 0.95
        assert at(dark, side * x, y + 0.09) > 0.95
    right = drawn("eyes", 400, gaze=0.03, iris=0.05)
    for side in (-1, 1):
        assert at(right, side * x + 0.03, y + 0.008) < 0.03
        assert at(right, side * x - 0.04, y + 0.012) > 0.2
    glint = drawn("eyes", 400, iris=0.0).albedo[0]
    near = np.hypot(dark.side[0] - x, dark.y[0] - y) < 0.034
    place = [np.average(v[0][near], weights=glint[near] ** 2) for v in (dark.side, dark.y)]
    assert place == pytest.approx([x - 0.016, y + 0.006 - 0.022], abs=0.012)


def opening(**traits):
    """How far the eyes are open at the pupil: the height of what is not skin, nor lash."""
    a, b = (drawn("eyes", 400, iris=iris, eye_depth=0.0, **traits) for iris in (0.05, 0.3))
    return 2 / 400 * np.count_nonzero((b.albedo - a.albedo)[0, :, int((0.295 + 0.045 + 1) * 200)] > 0.02)


def test_eyes_open_and_close():
    assert opening(eye_open=0.06) > opening(eye_open=0.05) > opening(eye_open=0.04)
    assert opening(lids=0.2) > opening(lids=0.0) > opening(lids=-0.2)
    assert opening(smile=1.0) < opening(smile=0.0)
    up, down = drawn("eyes", 400, eye_slant=0.2), drawn("eyes", 400, eye_slant=-0.2)
    tilt = [
        np.polyfit(c.side[0][m], c.y[0][m], 1)[0] for c in (up, down) for m in [(c.albedo[0] < 0.3) & (c.side[0] > 0.1)]
    ]
    assert tilt[0] < -0.1
    assert tilt[1] > 0.1


def test_mouths_open_smile_and_show_teeth():
    y = PERSON["mouth_y"][0]
    closed, open_ = drawn("mouth", 400), drawn("mouth", 400, mouth_open=1.0)
    laughing = drawn("mouth", 400, mouth_open=1.0, smile=0.8)
    assert at(closed, 0, y) < 0.5 < at(closed, 0, y + 0.04) < 0.85
    assert at(open_, 0, y + 0.02) < 0.1
    assert at(laughing, 0, y - 0.005) > 0.15
    assert 0.6 < at(closed, 0, y - 0.03) < at(closed, 0, y + 0.04)  # the upper lip is in the shade
    smile, sad = drawn("mouth", 400, smile=1.0), drawn("mouth", 400, smile=0.0)
    corners = [c.y[0, c.albedo[0, :, int((0.17 + 1) * 200)].argmin(), 0] for c in (smile, sad)]
    assert corners[0] < y < corners[1] + 0.01
    assert corners[1] - corners[0] > 0.02


# ------------------------------------------------------------------------------- light and scene


def test_light_comes_back_after_lambert_and_blinn():
    rng = np.random.default_rng(0)
    y, x = np.mgrid[-1:1:24j, -1:1:24j]
    pixel = 2 / 23
    height = (0.3 * np.sin(3 * x + 1) * np.cos(2 * y) - 0.5 * x * y)[None]
    albedo = rng.random((1, 24, 24))
    p = person(light_x=0.4, light_y=-0.7, ambient=0.3, gloss=0.2)
    found = parts.lit(height, albedo, p, pixel)
    zx, zy = np.gradient(height[0], pixel)[::-1]
    normal = np.stack([-zx, -zy, np.ones_like(zx)]) / np.sqrt(1 + zx**2 + zy**2)
    light = np.array([0.4, -0.7, 1.0])
    light /= np.linalg.norm(light)
    half = light + np.array([0.0, 0.0, 1.0])
    half /= np.linalg.norm(half)
    diffuse, gloss = np.maximum(np.tensordot(light, normal, 1), 0), np.tensordot(half, normal, 1) ** 16
    ambient = 0.3 * (0.55 + 0.45 * normal[2])
    expected = albedo[0] * (ambient + (1.35 - 0.3) * diffuse) + 0.5 * 0.2 * gloss
    assert_allclose(found[0, 1:-1, 1:-1], expected[1:-1, 1:-1], atol=1e-6)
    flat = parts.lit(np.zeros((1, 4, 4)), np.ones((1, 4, 4)), p, pixel)
    assert_allclose(flat, 0.3 + 1.05 * light[2] + 0.1 * half[2] ** 16, rtol=1e-6)


def test_the_border_is_lit_like_what_is_next_to_it():
    ramp = np.tile(np.linspace(0, 1, 6), (6, 1))
    p = person(light_x=0.4, light_y=-0.7)
    for height in (ramp, ramp.T, ramp + ramp.T):
        lit = parts.lit(height[None].copy(), np.ones((1, 6, 6)), p, 0.4)
        assert_allclose(lit, lit[0, 2, 2], rtol=1e-6)


def test_the_wall_has_a_gradient():
    y, x = np.mgrid[-1:1:5j, -1:1:5j]
    wall = parts.backdrop(x, y, person(background=0.6, background_x=0.1, background_y=-0.05))
    assert_allclose(wall[0], 0.36 + 0.1 * x - 0.05 * y, rtol=1e-5)


def hair(where="above", n=100, marks=None, **traits):
    c = blank(n)
    p = person(**traits)
    behind, above = parts.hair_masks(c.x, c.y, p, years(**(marks or {})), np.zeros_like(c.x))
    return {"behind": behind, "above": above}[where][0]


def place(mask, x, y):
    n = len(mask)
    return mask[int((y + 1) / 2 * n), int((x + 1) / 2 * n)]


def test_hair_lies_on_the_head_down_to_the_hairline():
    mask = hair()
    assert place(mask, 0, -0.95) == 1
    for x, y in ((0, -0.55), (0, 0), (0.3, -0.4), (0.9, -0.9), (0.75, 0.4)):
        assert place(mask, x, y) == 0
    line = -1 + 2 * np.flatnonzero(mask[:, 50] > 0.5)[-1] / 100
    assert line == pytest.approx(PERSON["hairline"][0], abs=0.03)
    assert_allclose(mask, mask[:, ::-1], atol=1e-5)
    assert hair(hairline=-0.6).sum() > mask.sum() > hair(marks={"recession": 1.0}).sum()
    assert hair(hair_volume=0.2).sum() > mask.sum() > hair(hair_volume=0.02).sum()
    assert hair(temple=0.3).sum() > mask.sum() > hair(temple=0.6).sum()
    assert hair(hairline_curve=1.0).sum() > mask.sum() > hair(hairline_curve=0.0).sum()
    parted = hair(parting=0.3)
    assert parted[:, 50:].sum() > 1.05 * parted[:, :50].sum()
    assert hair(n=100)[:, 5].max() == 0
    assert place(hair(), 0.6, -0.5) > 0.9  # beside the temples
    assert place(hair(), 0.6, 0.2) == 0


def test_long_hair_hangs_down_and_short_hair_does_not():
    bottom = {
        length: -1 + 2 * np.flatnonzero(hair("behind", hair_length=length).max(axis=1) > 0.5)[-1] / 100
        for length in (-0.3, 0.2, 0.7)
    }
    for length, end in bottom.items():
        assert end == pytest.approx(length, abs=0.03)
    wide = [np.count_nonzero(hair("behind", hair_length=length)[45] > 0.5) for length in (-0.04, 0.7)]
    assert wide[1] > wide[0] > 50
    assert hair("behind", hair_length=0.9).max() == 1
    assert_allclose(hair("behind")[:, :5], 0, atol=1e-6)


def test_strands_roughen_the_ends_of_hair():
    c = blank(100)
    for sign in (-1, 1):
        behind, above = parts.hair_masks(c.x, c.y, person(), years(), np.full_like(c.x, sign))
        assert np.sign(behind.sum() - hair("behind").sum()) == sign
        assert np.sign(above.sum() - hair("above").sum()) == sign
        assert abs(behind.sum() - hair("behind").sum()) < 0.05 * behind.sum()


def test_hair_is_brighter_towards_the_light_and_streaked():
    c = blank(60)

    def light(strands=0.0, marks=None, **traits):
        return parts.hair_light(c.x, c.y, person(**traits), years(**(marks or {})), 0.2, np.full_like(c.x, strands))[0]

    plain = light(light_x=0.0)
    assert_allclose(plain, plain[:, ::-1], atol=1e-6)
    assert 0.1 < plain[5:20, 25:35].mean() < 0.3
    assert plain[5:15].mean() > 1.2 * plain[30:40].mean()
    right = light(light_x=0.4)
    assert right[:30, 40:].mean() > right[:30, :20].mean()
    contrast = PERSON["hair_contrast"][0]
    assert_allclose((light(1.0) / light(0.0))[:20], 1 + contrast, rtol=1e-4)
    assert_allclose((light(1.0, {"grey": 1.0}) / light(0.0))[:20], 1 + 0.6 * contrast, rtol=1e-4)
    assert light(-9.0).min() == pytest.approx(0.006)
    spot = light(light_x=0.0, light_y=0.0)
    row, column = np.unravel_index(spot.argmax(), spot.shape)
    assert c.y[0, row, 0] == pytest.approx(-0.85, abs=0.04)
    assert abs(c.x[0, 0, column]) < 0.04
    assert spot.max() == pytest.approx(0.2 * (0.62 + 0.35), rel=0.02)
    assert spot[-1, 0] == pytest.approx(0.2 * 0.62, rel=1e-5)


def test_ears_neck_and_clothes_surround_the_face():
    def picture(**traits):
        c = blank(100)
        image = np.zeros_like(c.x)
        parts.body(image, c.x, c.y, person(background=0.5, **traits))
        return image[0]

    body = picture()
    tone, cloth, width = PERSON["skin"][0] ** 2, SHOT["clothes"][0] ** 2, PERSON["face_width"][0]
    assert place(body, 0, -0.5) == place(body, 0.9, 0.0) == place(body, 0.9, 0.6) == 0
    for x in (-0.9, 0.9):
        assert place(body, x, 0.99) == 0 or place(body, x, 0.99) == pytest.approx(cloth, abs=1e-5)
    assert place(body, 0.0, 0.98) == pytest.approx(cloth, rel=0.02)
    assert 0.25 * tone < place(body, 0, 0.7) < 0.5 * tone
    assert place(body, 0.55 * width, 0.7) > 0.2 * tone
    assert place(body, 0.85 * width, 0.7) == 0
    for x in (-1, 1):
        assert 0.5 * tone < place(body, x * width, 0.03) < 0.8 * tone
        assert place(body, x * width, -0.3) == place(body, x * width, 0.3) == 0
        assert place(body, x * (width + 0.12), 0.03) == 0
    assert picture(ear=0.1)[30:72].sum() > body[30:72].sum()
    assert np.count_nonzero(picture(collar=0.6) == place(body, 0, 0.98)) > np.count_nonzero(
        body == place(body, 0, 0.98)
    )
    lit = picture(light_x=0.5)
    assert place(lit, 0.3, 0.7) > place(lit, -0.3, 0.7)
    assert place(picture(chin=0.5), 0, 0.7) > place(body, 0, 0.7)


def test_the_camera_has_a_gain_a_display_curve_and_noise():
    light = np.linspace(-0.1, 1.2, 2000, dtype=np.float32).reshape(2, 25, 40)
    p = SimpleNamespace(gain=1.1, brightness=0.05, noise=np.zeros((2, 1, 1), np.float32))
    exact = 255 * (np.sqrt(1.1 * np.maximum(light, 0)) + 0.05)
    found = parts.photographed(light.copy(), p, np.array([1, 2]))
    assert found.dtype == np.uint8
    assert_allclose(found, np.clip(exact, 0, 255), atol=0.501)
    grey = np.full((2, 80, 80), 0.25, dtype=np.float32)
    p = SimpleNamespace(gain=1.0, brightness=0.0, noise=np.array([0.02, 0.05], np.float32).reshape(2, 1, 1))
    noisy = parts.photographed(grey.copy(), p, np.array([1, 2])).astype(float) - 127.5
    assert_allclose(noisy.std(axis=(1, 2)), [255 * 0.02, 255 * 0.05], rtol=0.04)
    assert abs(np.corrcoef(noisy[0].ravel(), noisy[1].ravel())[0, 1]) < 0.05
    again = parts.photographed(grey[:1].copy(), SimpleNamespace(gain=1.0, brightness=0.0, noise=p.noise[1:]), [2])
    assert_array_equal(again[0] - 127.5, noisy[1])


# ------------------------------------------------------------------------------- persons


@pytest.fixture(scope="module")
def people():
    return face_parameters(3000, 5)


GROUPS = {
    (-0.03, 1.0): "skin iris brow_dark hair_tone hair_contrast ambient background",
    (0.0, 0.32): "cheek chin_size eye_depth nose_height nose_bridge nose_width mouth_width eye_width taper gloss",
    (0.0, 0.11): "eye_open brow_thickness lip_upper lip_lower noise",
    (-0.21, 0.21): "asymmetry shift_x shift_y rotation yaw pitch brightness gaze background_x background_y eye_slant",
    (-0.1, 0.3): "brow_height brow_ridge hair_volume",
    (0.2, 0.8): "eye_distance face_width temple mouth_y nose_y",
    (0.75, 1.25): "zoom gain",
    (-1.0, 1.3): "jaw brow_arch hairline_curve smile brow_raise mouth_open lids parting beard freckles clothes collar",
    (-0.1, 0.6): "lip_dark ear",
    (-1.1, -0.5): "hairline",
    (-1.8, 2.3): "hair_length",
    (0.0, 2.6): "forehead crow fold bag frown marionette roughness spots sag",
    (0.0, 3.5): "recession",
    (-3.1, 3.1): "years_ahead",
    (15.0, 60.0): "grey_onset",
    (-2.6, 2.6): " ".join(f"line{k}" for k in range(12)),
    (-1.1, 1.1): "light_x light_y eye_y chin",
}


def test_everybody_has_a_face_that_can_be(people):
    named = {name for names in GROUPS.values() for name in names.split()}
    assert named == set(PERSON) | set(SHOT)
    for (low, high), names in GROUPS.items():
        for name in names.split():
            assert low <= people[name].min() <= people[name].max() <= high, name
    for above, below, gap in (
        ("hairline", "eye_y", 0.3),
        ("eye_y", "nose_y", 0.3),
        ("nose_y", "mouth_y", 0.12),
        ("mouth_y", "chin", 0.25),
        ("nose_width", "mouth_width", 0.0),
        ("eye_width", "eye_distance", 0.1),
        ("eye_distance", "face_width", 0.2),
    ):
        assert np.all(people[below] - people[above] > gap), (above, below)


def test_traits_have_the_means_and_spreads_of_the_tables(people):
    female, black = (people["gender"] == "F").astype(float), (people["race"] == "B").astype(float)
    design = np.column_stack([np.ones(3000), 2 * female - 1, black])
    for name, (mean, deviation, shift) in PERSON.items():
        if people[name].min() == 0:  # cut off at zero
            continue
        expected = mean + RACES["W"].get(name, 0.0), shift, RACES["B"].get(name, 0.0) - RACES["W"].get(name, 0.0)
        found, *_ = np.linalg.lstsq(design, people[name].astype(float), rcond=None)
        rest = people[name] - design @ found
        own = np.hypot(deviation, 0.35 * shift)
        assert_allclose(found, expected, atol=4.5 * own / np.sqrt(3000 / 2), err_msg=name)
        assert rest.std() == pytest.approx(own, rel=0.08), name
        assert np.abs(rest).max() < 2.5 * (deviation + 0.35 * abs(shift)) + 0.15 * own, name
    for name, (mean, deviation) in SHOT.items():
        if people[name].min() == 0:
            continue
        assert people[name].mean() == pytest.approx(mean, abs=4.5 * deviation / np.sqrt(3000)), name
        assert people[name].std() == pytest.approx(deviation, rel=0.08), name


def test_traits_have_nothing_to_do_with_each_other_but_for_gender_and_race(people):
    female, black = (people["gender"] == "F").astype(float), (people["race"] == "B").astype(float)
    design = np.column_stack([np.ones(3000), female, black])
    X = np.column_stack([people[name].astype(float) for name in [*PERSON, *SHOT, "texture_x", "texture_y", "age"]])
    X -= design @ np.linalg.lstsq(design, X, rcond=None)[0]
    correlations = np.corrcoef(X.T) - np.eye(X.shape[1])
    close = np.abs(correlations) > 5.5 / np.sqrt(3000)
    # Femininity differs from person to person, and shows in many traits at once.
    names = [*PERSON, *SHOT, "texture_x", "texture_y", "age"]
    sexed = {name for name, (_, deviation, shift) in PERSON.items() if abs(shift) > 0.1 * deviation}
    pairs = {(names[i], names[j]) for i, j in zip(*np.nonzero(close), strict=True)}
    assert all(a in sexed and b in sexed for a, b in pairs)
    for axis in ("texture_x", "texture_y"):
        assert 8 <= people[axis].min() < 8.1
        assert 11.9 < people[axis].max() <= 12
    assert np.unique(people["seed"]).size == 3000
    assert people["seed"].min() >= 0


def test_none_of_the_races_has_a_look_that_cannot_be():
    other = face_parameters(800, 1, races=("A", "H"))
    assert set(other["race"]) == {"A", "H"}
    for (low, high), names in GROUPS.items():
        for name in names.split():
            assert low - 0.02 <= other[name].min() <= other[name].max() <= high, name
    for name in {**RACES["A"], **RACES["H"]}:
        for race in "AH":
            mean, deviation, _ = PERSON[name]
            some = other[name][other["race"] == race]
            assert some.mean() == pytest.approx(mean + RACES[race].get(name, 0.0), abs=5 * deviation / np.sqrt(300))


def test_pictures_of_one_person_lie_within_ten_years():
    many = face_parameters(3000, 2, images_per_person=3)
    ages = many["age"].reshape(1000, 3)
    inside = (ages.min(axis=1) > 16) & (ages.max(axis=1) < 77)
    assert np.ptp(ages, axis=1).max() <= 10
    assert np.ptp(ages, axis=1).max() > 8
    assert np.var(ages[inside], axis=1, ddof=1).mean() == pytest.approx(100 / 12, rel=0.1)
    assert ages.min() >= 16
    assert ages.max() <= 77


# ------------------------------------------------------------------------------- age


# Where a mark of age begins, when it is fully there, and how much of it there is before and then.
MARKS = """
forehead    18 62  0.05 1.00
crow        20 62  0.00 0.95
fold        16 62  0.10 1.00
bag         18 64  0.06 1.00
frown       22 64  0.00 1.00
marionette  24 66  0.00 1.00
lips        30 75  0.00 1.00
coarseness  20 75  0.00 1.00
spots       25 72  0.00 1.00
sag         28 75  0.00 1.00
recession   22 70  0.00 1.00
beard       15 22  0.30 0.50
"""


@pytest.mark.parametrize("row", MARKS.split("\n")[1:-1], ids=lambda row: row.split()[0])
def test_marks_of_age_grow_evenly_between_two_ages(row):
    mark, start, end, before, after = row.split()
    start, end, before, after = map(float, (start, end, before, after))

    def amount(age, **traits):
        return float(getattr(old(age, **traits), mark)[0])

    assert amount(start - 5) == pytest.approx(before, abs=1e-12)
    assert amount(start) == pytest.approx(before, abs=1e-12)
    assert amount((start + end) / 2) == pytest.approx((before + after) / 2)
    assert amount(end) == pytest.approx(after)
    beyond = after if mark == "beard" else before + 1.3 * (after - before)
    assert amount(200.0) == pytest.approx(beyond)
    assert amount(40.0, years_ahead=3.0) == amount(43.0)


def test_marks_of_age_are_personal_and_follow_the_mood():
    for name in ("forehead", "crow", "fold", "bag", "frown", "marionette", "roughness", "spots", "sag", "recession"):
        assert getattr(old(50.0, **{name: 2.0}), name)[0] == pytest.approx(
            2 * getattr(old(50.0, **{name: 1.0}), name)[0]
        )
    calm, smiling = old(50.0), old(50.0, smile=1.0)
    assert smiling.crow - calm.crow == pytest.approx(0.16)
    assert smiling.fold / calm.fold == pytest.approx(1.45)
    assert smiling.marionette / calm.marionette == pytest.approx(0.6)
    raised = old(50.0, brow_raise=1.0)
    assert raised.forehead / calm.forehead == pytest.approx(1.6)
    assert raised.frown / calm.frown == pytest.approx(0.5)
    assert old(50.0, brow_raise=-1.0).forehead == calm.forehead
    woman = old(50.0, gender="F")
    assert woman.beard == 0
    assert woman.recession / calm.recession == pytest.approx(0.15)
    for onset, age, grey in (
        (38.0, 38.0, 0.0),
        (38.0, 54.0, 0.5),
        (38.0, 30.0, 0.0),
        (38.0, 99.0, 0.9),
        (30.0, 46.0, 0.5),
    ):
        assert old(age, grey_onset=onset).grey[0] == pytest.approx(grey)
    rough = [float(old(age).roughness[0]) for age in (14.0, 39.0, 64.0)]
    assert rough == pytest.approx([0.08, 0.08 + 0.575 - 0.0875, 0.08 + 0.8])
    assert np.all(np.diff([old(age).roughness[0] for age in np.arange(14.0, 77)]) > 0)


# ------------------------------------------------------------------------------- pictures


def face(n=64, **traits):
    """The average face without noise, grain or strands."""
    values = {name: row[0] for name, row in (PERSON | SHOT).items()}
    values |= {"smile": 0.0, "brow_raise": 0.0, "mouth_open": 0.0, "noise": 0.0, "roughness": 0.0, "freckles": 0.0}
    values |= {"hair_contrast": 0.0, "texture_x": 9.0, "texture_y": 9.0, "age": 30.0, **traits}
    columns = {name: np.array([value], dtype=np.float32) for name, value in values.items()}
    return draw_faces(columns | {"gender": np.array(["M"]), "seed": np.array([1])}, n)[0].astype(float)


def test_pose_moves_the_whole_picture():
    still = face()
    for trait, axis in (("shift_x", 1), ("shift_y", 0)):
        moved = face(**{trait: 3 * 2 / 64})
        assert np.mean(np.abs(np.roll(moved, -3, axis=axis) - still)[4:-4, 4:-4] > 1) < 0.03
    turned, larger = face(rotation=0.15), face(zoom=1.2)
    y, x = np.mgrid[:64, :64] - 31.5
    for image, places in (
        (turned, (y - 0.15 * x + 31.5, x + 0.15 * y + 31.5)),
        (larger, (y / 1.2 + 31.5, x / 1.2 + 31.5)),
    ):
        expected = map_coordinates(still, places, order=1, mode="nearest")
        inner = (np.abs(x) < 25) & (np.abs(y) < 25)
        assert np.corrcoef(image[inner], expected[inner])[0, 1] > 0.985
        assert np.corrcoef(image[inner], still[inner])[0, 1] < 0.95


def test_a_head_that_turns_moves_its_front_and_not_its_outline():
    still, turned, nods = face(96), face(96, yaw=0.1), face(96, pitch=0.1)

    def pupil(image):
        eyes = image[36:48, 50:70]
        row, column = np.unravel_index(eyes.argmin(), eyes.shape)
        return row, column

    assert pupil(turned)[1] - pupil(still)[1] in (2, 3, 4)
    assert pupil(nods)[0] - pupil(still)[0] in (2, 3, 4)
    for moved in (turned, nods):
        assert np.abs(moved - still)[40:60, :12].max() <= 2
        assert np.abs(moved - still)[40:60, -12:].max() <= 2


def test_the_average_face_is_symmetric_and_lit_from_above():
    image = face(96, light_x=0.0)
    assert np.mean(np.abs(image - image[:, ::-1])[20:] > 3) < 0.04  # but for the ends of the hair
    right = face(96, light_x=0.5)
    assert right[40:60, 60:78].mean() > right[40:60, 18:36].mean() + 10
    forehead, chin = image[20:28, 40:56].mean(), image[80:88, 40:56].mean()
    assert forehead > chin + 5
    uneven = face(96, asymmetry=0.1, light_x=0.0)
    assert np.mean(np.abs(uneven - uneven[:, ::-1])[20:] > 3) > 0.15


def test_grey_hair_and_beards_have_the_tone_of_age():
    dark, grey = face(age=30.0, grey_onset=90.0), face(age=80.0, grey_onset=20.0)
    assert grey[2:7, 28:36].mean() > dark[2:7, 28:36].mean() + 40
    shaved, bearded = face(beard=0.0), face(beard=0.9)
    assert shaved[52:56, 24:40].mean() > bearded[52:56, 24:40].mean() + 25
    assert np.abs(shaved - bearded)[:32].max() <= 1
