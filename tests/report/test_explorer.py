"""The explorer page: its data against the arrays they come from, and the page itself in a browser."""

import base64
import io
import json
import re
from html.parser import HTMLParser
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from sklearn.linear_model import LinearRegression, Ridge

from browser import horizontal_overflow, open_page
from higsfa import LabelHead
from higsfa.report import explorer
from higsfa.report.explorer import quantised, write_explorer
from real_run import RACES, SIDE

NASTY = "</script><script>alert(1)</script><!-- & \u2028 '\""
N_FACES = 8
LABELS = ("age", "gender", "race", "strength")


def linear_decoder(Y, images):
    fit = LinearRegression().fit(Y, images.reshape(len(images), -1))
    return SimpleNamespace(components_=fit.coef_.T, intercept_=fit.intercept_)


@pytest.fixture(scope="module")
def story(real, tmp_path_factory):
    """The page about the test pictures of a real run, and what it is made of."""
    run, p = real.run, real.run.predictions
    rows = p["sample"][p["fold"] == 1]
    images, labels = real.images[rows], {name: real.labels[name][rows] for name in LABELS}
    Y = run.network.transform(images)
    decoder = linear_decoder(Y, images)
    path = tmp_path_factory.mktemp("explorer") / "page.html"
    write_explorer(path, run.network, run.head, images, decoder=decoder, labels=labels, n_examples=N_FACES)
    chosen = np.linspace(0, len(rows) - 1, N_FACES).round().astype(int)
    return SimpleNamespace(
        path=path, network=run.network, head=run.head, images=images, labels=labels, decoder=decoder, Y=Y, rows=chosen
    )


class FlatNetwork:
    """Stands in for a network: features are sums of pixels under fixed weights."""

    def __init__(self, shape, n_features, n_slow=5):
        self.input_shape_ = shape
        self.weights = np.random.default_rng(0).standard_normal((int(np.prod(shape)), n_features))
        self.n_slow = n_slow

    def transform(self, X):
        return np.asarray(X, dtype=np.float64).reshape(len(X), -1) @ self.weights

    def get_feature_names_out(self):
        k = self.weights.shape[1]
        return np.array([*(f"slow{j}" for j in range(self.n_slow)), *(f"rec{j}" for j in range(k - self.n_slow))])


def flat_story(shape=(6, 6), n=60, k=8, **head):
    images = np.random.default_rng(1).random((n, *shape))
    network = FlatNetwork(shape, k)
    Y = network.transform(images)
    labels = {"age": np.linspace(10.0, 60.0, n), "kind": np.where(np.arange(n) % 3 == 0, "a", "b")}
    return network, LabelHead(**head).fit(Y, labels), images, linear_decoder(Y, images), labels


def data_of(path):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text("utf-8"), re.S)
    return json.loads(found[1])


def decoded(text, dtype):
    return np.frombuffer(base64.b64decode(text), dtype=dtype)


# ---------------------------------------------------------------------------------------------- the file


def test_quantised_components_err_by_less_than_a_grey_level():
    components = 255 * np.random.default_rng(0).uniform(-0.9, 0.9, (20, 500))
    components[3] = 0
    steps, levels = quantised(components)
    error = np.abs(steps[:, None] * levels - components)
    assert error.max() < 1
    assert np.all(error[3] == 0)


def test_pictures_features_and_annotations_in_the_page_are_those_of_the_faces_in_order(story):
    data = data_of(story.path)
    assert len(data["faces"]) == N_FACES
    assert (data["height"], data["width"], data["channels"]) == (SIDE, SIDE, 1)
    for face, row in zip(data["faces"], story.rows, strict=True):
        np.testing.assert_array_equal(decoded(face["photograph"], np.uint8), story.images[row].ravel())
        built = story.Y[row].astype(float) @ story.decoder.components_ + story.decoder.intercept_
        assert np.abs(decoded(face["reconstruction"], np.uint8) - np.clip(built, 0, 255)).max() <= 0.51
        # Both are float32; they may round differently on their way.
        np.testing.assert_allclose(face["features"], story.Y[row], rtol=1e-5, atol=1e-5)
        values = {name: story.labels[name][row] for name in LABELS}
        known = {name: value for name, value in values.items() if value is not None and value == value}
        assert face["annotated"] == {name: f"{v:.4g}" if isinstance(v, float) else v for name, v in known.items()}
    np.testing.assert_allclose(data["mean"], story.Y.mean(axis=0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(data["deviation"], story.Y.std(axis=0), rtol=1e-4)
    steps, levels = np.array(data["steps"]), np.array([decoded(row, np.int8) for row in data["components"]])
    assert levels.shape == (12, SIDE**2)
    per_feature = story.decoder.components_ * story.Y.std(axis=0)[:, None]
    assert np.abs(steps[:, None] * levels - per_feature).max() < 1


def test_thumbnails_show_the_faces_and_say_what_annotators_said(story):
    text = story.path.read_text("utf-8")
    pictures = re.findall(r'<img[^>]*src="data:image/png;base64,([^"]*)"[^>]*alt="([^"]*)"', text)
    assert len(pictures) == N_FACES
    for number, ((picture, said), row) in enumerate(zip(pictures, story.rows, strict=True), 1):
        shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(picture))))
        np.testing.assert_array_equal(shown, story.images[row])
        assert said.startswith(f"Face {number}, annotated age {story.labels['age'][row]:.4g}, gender ")


def test_numbers_of_labels_are_those_of_the_head(story):
    age, gender, race, strength = data_of(story.path)["labels"]
    assert [label["name"] for label in (age, gender, race, strength)] == list(story.labels)
    assert [len(label["center"]) for label in (age, race)] == [9, 10]
    assert (gender["classes"], race["classes"]) == (["F", "M"], sorted(RACES))
    np.testing.assert_allclose(age["classes"], story.head.classes_["age"])
    assert age["integer"]
    assert age["decimals"] == 0
    assert not strength["integer"]
    assert strength["decimals"] == 1
    assert age["low"] <= min(age["classes"]) < max(age["classes"]) <= age["high"]
    assert min(age["classes"]) - age["low"] < age["step"] == 1
    model = story.head.models_["race"]
    y = story.Y[3, :10].astype(float)
    projected = (y - race["center"]) @ race["projection"]
    np.testing.assert_allclose(projected, ((y - model.center) / model.scale) @ model.projection, rtol=1e-3, atol=1e-3)
    lifted = np.array(race["lift"]) @ race["projection"]
    np.testing.assert_allclose(lifted, np.eye(len(race["lift"])), atol=1e-3)


def test_telling_directions_are_those_in_which_class_means_differ_more_than_samples():
    means = np.zeros((20, 3))
    means[:, 0], means[:, 1] = np.linspace(-4, 4, 20), np.tile([0.9, -0.9], 10)
    means[:, 2] = 7.0
    np.testing.assert_allclose(np.abs(explorer._telling(means)), [[1, 0, 0]], atol=0.1)


@pytest.mark.parametrize(
    ("extent", "step"), [(40, 1), (79, 1), (80, 2), (199, 2), (200, 5), (399, 5), (400, 10), (0.04, 0.001), (0, 1)]
)
def test_sliders_have_forty_to_a_hundred_round_steps(extent, step):
    assert explorer._nice_step(extent) == pytest.approx(step)


def test_sliders_of_labels_stand_for_values_or_for_the_way_to_a_class():
    numeric = {"name": "age", "numeric": True, "classes": [1.0, 2.0], "low": 0, "high": 3, "step": 0.5}
    two = {"name": "sex", "numeric": False, "classes": ["F", "M"]}
    three = {"name": "race", "numeric": False, "classes": ["A", "B", "C"]}
    one = {"name": "one", "numeric": False, "classes": ["A"]}
    sliders = explorer.label_sliders([one, numeric, two, three])
    assert [(s["id"], s["label"], s["target"], s["text"]) for s in sliders] == [
        ("label-1", 1, None, "age"),
        ("label-2-1", 2, 1, "sex: F to M"),
        *((f"label-3-{c}", 3, c, f"race: {name}") for c, name in enumerate("ABC")),
    ]
    assert [(s["low"], s["high"], s["step"]) for s in sliders] == [(0, 3, 0.5)] + 4 * [(-50, 150, 5)]


def test_features_that_do_not_vary_and_pictures_of_floats(tmp_path):
    network, head, images, decoder, _ = flat_story()
    network.weights[:, 2] = 0
    few = {"n_examples": 100, "n_slow": 3, "n_reconstructive": 1}
    path = write_explorer(tmp_path / "p.html", network, head, images, decoder=decoder, **few)
    data = data_of(path)
    assert len(data["faces"]) == 60
    assert data["deviation"][2] == 1
    assert [label["name"] for label in data["labels"]] == ["age", "kind"]
    np.testing.assert_array_equal(decoded(data["faces"][5]["photograph"], np.uint8), np.rint(255 * images[5]).ravel())
    assert [face["annotated"] for face in data["faces"]] == [{}] * 60
    other = 3 + 2 * images
    shifted = SimpleNamespace(components_=2 * decoder.components_, intercept_=3 + 2 * decoder.intercept_)
    network.transform = lambda X, of=network.transform: of((np.asarray(X) - 3) / 2)
    again = write_explorer(tmp_path / "q.html", network, head, other, decoder=shifted, value_range=(3, 5), **few)
    for old, new in zip(data["faces"], data_of(again)["faces"], strict=True):
        assert old["photograph"] == new["photograph"]
        before, after = (decoded(face["reconstruction"], np.uint8).astype(int) for face in (old, new))
        assert np.abs(before - after).max() <= 1
    with pytest.raises(ValueError, match="n_examples=0"):
        write_explorer(tmp_path / "r.html", network, head, other, decoder=shifted, n_examples=0, value_range=(3, 5))


def test_labels_in_columns_of_an_array_have_numbers():
    assert explorer.shown(0) == "label 0"
    said = explorer._annotations(np.array([[1.5, 2], [np.nan, 3]]), np.array([1, 0]), 2)
    assert said == [{"label 1": "3"}, {"label 0": "1.5", "label 1": "2"}]


def test_a_page_of_75_features_at_96_pixels_is_below_6_mb(tmp_path):
    network, head, images, decoder, _ = flat_story((96, 96), 200, 75, n_classes={"age": 39})
    path = write_explorer(tmp_path / "page.html", network, head, images, decoder=decoder)
    assert path.stat().st_size < 6e6


def test_names_from_users_do_not_leave_their_place(browser, tmp_path):
    network, _, images, decoder, _ = flat_story()
    labels = {NASTY: np.where(np.arange(60) % 2 == 0, NASTY, "b"), "<b>": np.linspace(0, 1, 60)}
    head = LabelHead().fit(network.transform(images), labels)
    path = write_explorer(tmp_path / "p.html", network, head, images, decoder=decoder, labels=labels, title=NASTY)
    elements = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: elements.append(tag)
    parser.feed(path.read_text("utf-8"))
    assert elements.count("script") == 2
    assert "b" not in elements
    assert data_of(path)["labels"][0]["name"] == NASTY
    with open_page(browser, path) as (page, errors, _):
        assert errors == []
        assert page.title() == NASTY
        assert page.locator("tbody th").all_text_contents() == [NASTY, "<b>"]


def test_the_page_forbids_all_but_its_own_script_and_style(story):
    text = story.path.read_text("utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?://", text)
    assert not re.search(r"\son\w+=", text)


def test_labels_without_gaussians_are_left_out(tmp_path):
    network, head, images, decoder, _ = flat_story(regressor={"age": Ridge()})
    path = write_explorer(tmp_path / "p.html", network, head, images, decoder=decoder)
    assert [label["name"] for label in data_of(path)["labels"]] == ["kind"]


def test_wrong_arguments_are_named(tmp_path):
    network, head, images, decoder, labels = flat_story()
    out = tmp_path / "p.html"
    with pytest.raises(ValueError, match="value_range"):
        write_explorer(out, network, head, images * 255, decoder=decoder)
    with pytest.raises(ValueError, match=r"components_ has shape .*fit the decoder"):
        write_explorer(out, FlatNetwork((6, 6), 9), head, images, decoder=decoder)
    with pytest.raises(ValueError, match="'age' has 3 values for 60 images"):
        write_explorer(out, network, head, images, decoder=decoder, labels={"age": labels["age"][:3]})
    with pytest.raises(ValueError, match="grey or RGB"):
        write_explorer(out, FlatNetwork((36,), 8), head, images.reshape(60, 36), decoder=decoder)
    small = FlatNetwork((6, 6), 7)
    decoder = linear_decoder(small.transform(images), images)
    with pytest.raises(ValueError, match="head was fitted to 8 features"):
        write_explorer(out, small, head, images, decoder=decoder)
    assert not out.exists()


# ---------------------------------------------------------------------------------------------- in a browser


@pytest.fixture
def opened(browser, story):
    with open_page(browser, story.path) as opened:
        yield opened
        assert opened.errors == []
        assert opened.requests == [story.path.as_uri(), *(r for r in opened.requests[1:] if r.startswith("data:"))]


def pixels(page):
    """What the canvas holds, as grey values."""
    address = page.evaluate("document.getElementById('picture').toDataURL()")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("L"), dtype=float)


def assert_same(picture, other):
    """Up to the rounding of smooth scaling, which the browser does on either processor."""
    assert np.abs(picture - other).max() <= 1


def seen_at_centres(picture, side):
    """Enlarged pixels at their centres, where smooth scaling mixes in least of their neighbours."""
    step = len(picture) // side
    return picture[step // 2 :: step, step // 2 :: step]


def estimates(page):
    return page.locator(".now").all_text_contents()


def age(page):
    return float(estimates(page)[0])


def choose(page, face):
    page.locator(f"input[name=face][value='{face}']").check()


def assert_estimates(story, y, shown):
    """`shown` are the head's estimates from features y, up to the digits that are shown."""
    expected = story.head.predict(y[None])
    assert float(shown[0]) == expected["age"][0]
    assert float(shown[3]) == pytest.approx(expected["strength"][0], abs=0.051)
    for name, text in zip(("gender", "race"), shown[1:], strict=False):
        found = re.fullmatch(r"(.*) \((\d+) %\)", text)
        assert found[1] == expected[name][0]
        assert float(found[2]) == pytest.approx(100 * story.head.predict_proba(y[None], name).max(), abs=0.51)


def test_estimates_equal_those_of_the_head_and_annotations_are_those_of_the_face(story, opened):
    page = opened.page
    for face, row in enumerate(story.rows):
        choose(page, face)
        assert_estimates(story, story.Y[row].astype(float), estimates(page))
        assert page.locator("[data-annotated='1']").text_content() == story.labels["gender"][row]
        assert page.locator("[data-annotated='0']").text_content() == f"{story.labels['age'][row]:.4g}"


def test_a_feature_slider_changes_picture_and_estimates_as_decoder_and_head_say(story, opened):
    page, row = opened.page, story.rows[2]
    choose(page, 2)
    photograph = pixels(page)
    mean, deviation = story.Y.mean(axis=0, dtype=float), story.Y.std(axis=0, dtype=float)
    y = story.Y[row].astype(float)
    for feature, value in ((1, 1.5), (3, -2.0)):
        page.locator(f"#feature-{feature}").fill(str(value))
        y[feature] = mean[feature] + value * deviation[feature]
    assert_estimates(story, y, estimates(page))
    change = ((y - story.Y[row]) @ story.decoder.components_).reshape(SIDE, SIDE)
    expected = np.clip(story.images[row] + change, 0, 255)
    seen = seen_at_centres(pixels(page) - photograph, SIDE)
    wanted = expected - story.images[row]
    assert np.corrcoef(seen.ravel(), wanted.ravel())[0, 1] > 0.95


def test_every_slider_changes_the_picture_and_reset_restores_it(story, opened):
    page = opened.page
    first, start = pixels(page), estimates(page)
    sliders = page.locator("input[type=range]")
    n_slow = sum("slow" in name for name in story.network.get_feature_names_out())
    # Age, gender, three classes of race, strength; slow and reconstructive features.
    assert sliders.count() == 1 + 1 + 3 + 1 + min(6, n_slow) + (12 - n_slow)
    for i in range(sliders.count()):
        sliders.nth(i).fill(sliders.nth(i).get_attribute("max"))
        assert np.abs(pixels(page) - first).max() > 2
        page.locator("#reset").click()
        assert_same(pixels(page), first)
        assert estimates(page) == start


def test_estimated_age_follows_the_age_slider(opened):
    page = opened.page
    slider = page.locator("#label-0")
    values = np.linspace(float(slider.get_attribute("min")), float(slider.get_attribute("max")), 8).round()
    for face in range(4):
        choose(page, face)
        ages, features = [], set()
        for value in values:
            slider.fill(str(value))
            ages.append(age(page))
            features.add(tuple(page.locator(f"#feature-{j}").input_value() for j in range(6)))
        assert np.all(np.diff(ages) > -1.5)
        assert np.abs(np.array(ages) - values)[1:-1].max() <= 0.1 * np.ptp(values)
        assert len(features) == len(values)


def test_sliders_of_classes_lead_to_the_class_and_follow_the_features(opened):
    page = opened.page
    gender = page.locator("#label-1-1")
    for face in range(4):
        choose(page, face)
        for value, expected in ((0, "F"), (100, "M")):
            gender.fill(str(value))
            assert estimates(page)[1].startswith(expected)
        for c, name in enumerate(sorted(RACES)):
            page.locator("#reset").click()
            page.locator(f"#label-2-{c}").fill("100")
            assert estimates(page)[2].startswith(name)
    slow = page.locator("#feature-2")
    places = set()
    for value in (-2, 0, 2):
        slow.fill(str(value))
        places.add((page.locator("#label-0").input_value(), gender.input_value()))
    assert len(places) == 3


def test_views_show_photograph_reconstruction_and_change(story, opened):
    page = opened.page
    photograph = pixels(page)
    page.locator("#feature-0").fill("3")
    pictures = {}
    for view in ("edited", "reconstruction", "photograph", "change"):
        page.locator(f"input[name=view][value={view}]").check()
        pictures[view] = pixels(page)
    assert_same(pictures["photograph"], photograph)
    for a, b in combinations(pictures.values(), 2):
        assert np.abs(a - b).max() > 10
    page.locator("#reset").click()
    page.locator("input[name=view][value=change]").check()
    assert np.all(pixels(page) == 128)


def test_the_keyboard_reaches_and_moves_everything(opened):
    page = opened.page
    first = pixels(page)
    page.locator("#label-0").focus()
    place = float(page.locator("#label-0").input_value())
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert float(page.locator("#label-0").input_value()) > place
    assert np.abs(pixels(page) - first).max() > 2
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    page.wait_for_function(
        "now => document.getElementById('announcement').textContent.includes(now)", arg=estimates(page)[0]
    )
    page.locator("input[name=face]:checked").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("input[name=face]:checked").input_value() == "1"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "view"


@pytest.mark.parametrize(("width", "height"), [(375, 720), (1400, 900)])
def test_nothing_is_wider_than_the_window_and_the_picture_stays_in_sight(browser, story, width, height):
    with open_page(browser, story.path, width, height) as (page, errors, _):
        assert errors == []
        assert horizontal_overflow(page) == 0
        page.locator("input[type=range]").last.focus()
        page.keyboard.press("ArrowRight")
        picture, slider = page.locator("#picture").bounding_box(), page.locator(":focus").bounding_box()
        assert picture["y"] >= 0
        assert picture["y"] + picture["height"] <= height
        assert slider["y"] + slider["height"] <= height
        assert slider["y"] >= picture["y"] + picture["height"] or slider["x"] >= picture["x"] + picture["width"]


def test_colour_pictures_and_whole_ages(browser, tmp_path):
    network, head, images, decoder, _ = flat_story((6, 6, 3), integer={"age": True})
    path = write_explorer(tmp_path / "p.html", network, head, images, decoder=decoder)
    with open_page(browser, path) as (page, errors, _):
        assert errors == []
        assert estimates(page)[0] == str(head.predict(network.transform(images[:1]))["age"][0])
        address = page.evaluate("document.getElementById('picture').toDataURL()")
        shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))), dtype=float)
    seen = seen_at_centres(shown, 6)[..., :3]
    assert np.corrcoef(seen.ravel(), images[0].ravel())[0, 1] > 0.98
    assert np.abs(seen.mean(axis=(0, 1)) - 255 * images[0].mean(axis=(0, 1))).max() < 8


def test_whole_labels_below_zero_are_rounded_down(browser, tmp_path):
    network, _, images, decoder, labels = flat_story()
    Y = network.transform(images)
    head = LabelHead(integer=True, n_classes=5).fit(Y, {"cold": labels["age"] - 70.3})
    path = write_explorer(tmp_path / "p.html", network, head, images, decoder=decoder, n_examples=6)
    rows = np.linspace(0, 59, 6).round().astype(int)
    exact = head.predict_proba(Y, "cold") @ head.classes_["cold"]
    assert np.any(np.floor(exact[rows]) != np.trunc(exact[rows]))
    with open_page(browser, path) as (page, _, _):
        for face, row in enumerate(rows):
            choose(page, face)
            assert float(estimates(page)[0]) == np.floor(exact[row])
