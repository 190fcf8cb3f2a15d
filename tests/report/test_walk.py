"""The page of a walk: what it refuses, what it holds, and that it plays in a browser."""

import json
import re

import numpy as np
import pytest

from browser import horizontal_overflow, open_page
from higsfa.datasets import make_rat_views
from higsfa.report import write_walk


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    views, walk = make_rat_views(30)
    features = np.column_stack([walk["x"], walk["y"], np.full(30, 2.0)])
    return write_walk(tmp_path_factory.mktemp("walk") / "walk.html", views, walk, features, title="A <b> & c"), walk


def test_the_page_holds_the_walk_and_its_features_in_deviations(page):
    path, walk = page
    text = path.read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', text).group(1))
    np.testing.assert_allclose(data["x"], walk["x"], atol=1e-3)
    expected = (walk["x"] - walk["x"].mean()) / walk["x"].std()
    np.testing.assert_allclose(data["features"][0], expected, atol=1e-2)
    assert data["features"][2] == [0.0] * 30
    assert data["views"].startswith("data:image/jpeg;base64,")
    assert "A &lt;b&gt; &amp; c" in text


@pytest.mark.parametrize("width", [375, 1400])
def test_the_page_plays_quietly_and_alone(browser, page, width):
    path, _ = page
    with open_page(browser, path, width) as (opened, errors, requests):
        opened.wait_for_timeout(200)
        assert errors == []
        assert [url for url in requests if not url.startswith("data:")] == [path.as_uri()]
        assert horizontal_overflow(opened) == 0
        opened.fill("#frame", "7")
        assert opened.inner_text("#number") == "8"
        view = opened.evaluate("[...document.getElementById('view').getContext('2d').getImageData(0, 0, 320, 40).data]")
        assert np.std(np.reshape(view, (40, 320, 4))[..., :3]) > 10
        opened.click("#play")
        assert opened.inner_text("#play") == "Stop"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"views": np.zeros((401, 4, 6, 3), np.uint8)}, "1 to 400 frames"),
        ({"views": np.zeros((5, 4, 6))}, "RGB"),
        ({"features": np.zeros((4, 2))}, "5 rows"),
        ({"features": np.full((5, 2), np.nan)}, "finite"),
    ],
)
def test_what_does_not_fit_is_refused(change, message, tmp_path):
    walk = {name: np.zeros(5) for name in ("x", "y", "direction")}
    given = {"views": np.zeros((5, 4, 6, 3), np.uint8), "walk": walk, "features": np.zeros((5, 2))} | change
    with pytest.raises(ValueError, match=message):
        write_walk(tmp_path / "walk.html", **given)
