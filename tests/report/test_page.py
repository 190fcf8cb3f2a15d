"""The page: complete, escaped, alone in the world, and readable by those who do not see it."""

import os
import re
import webbrowser
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise

import numpy as np
import pytest

from higsfa.report import figures, write_report
from higsfa.report.figures import draw
from higsfa.report.page import sections
from higsfa.report.reading import read_run
from real_run import NASTY, RACES, TITLE, UNIT


class Outline(HTMLParser):
    """Tags with their attributes, and the text between them."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text.append(data)

    def all(self, *names):
        return [attributes for tag, attributes in self.tags if tag in names]


@pytest.fixture(scope="module")
def page(full_report):
    return Outline(full_report.read_text(encoding="utf-8"))


@pytest.fixture
def undrawn(monkeypatch):
    """Figures without their drawings, for tests of what is there and what is not."""
    monkeypatch.setattr(figures, "draw", lambda *_, **__: "<svg></svg>")


def anchors(folder):
    return [section.anchor for section in sections(read_run(folder))]


def test_all_sections_are_there(undrawn, real, page):
    expected = ["accuracy", "cumulative", "groups", "calibration", "slowness", "features", "reconstruction"]
    expected += ["network", "sensitivity", "time"]
    assert anchors(real.folder) == expected
    assert [a["id"] for a in page.all("section")] == [*expected, "origin"]


def test_text_from_the_run_is_escaped_everywhere(full_report, page):
    assert page.all("script") == []
    assert NASTY not in full_report.read_text(encoding="utf-8")
    text = "".join(page.text)
    assert text.count(TITLE) >= 2
    assert f'title = "{TITLE}"' in text
    for name in RACES:
        assert name[:12] in text
    assert f"strength MAE{UNIT}" in text


def test_nasty_text_stays_text_wherever_it_stands(changed, tmp_path):
    text = '"><img src=x onerror=alert(1)>'
    metrics = changed.metrics
    metrics |= {"title": text, "created": text, "higsfa": text, "warnings": [text], "labels": metrics["labels"][:2]}
    metrics["methods"][0]["name"] = text
    metrics["labels"][0]["unit"] = text
    metrics["labels"][1]["classes"][0] = text
    changed.environment = {text: {text: text}}
    changed.config = "</pre>" + text
    changed.examples["reconstruction_names"] = np.array([text, "HGSFA", "PCA"])
    outline = Outline(write_report(changed.write(tmp_path)).read_text(encoding="utf-8"))
    assert len(outline.all("img")) == 2 * 4
    assert all(image["src"].startswith("data:image/png;base64,") for image in outline.all("img"))
    assert not [name for _, attributes in outline.tags for name in attributes if name.startswith("on")]
    assert sum(text in part for part in outline.text) > 10


def test_halves_of_characters_in_names_make_no_broken_page(undrawn, changed, tmp_path):
    changed.examples["reconstruction_names"] = np.array(["a\ud800", "HGSFA", "PCA"])
    changed.environment = {"\udfff": "\ud800"}
    text = write_report(changed.write(tmp_path)).read_text(encoding="utf-8")
    assert "rebuilt from the features of a?" in text


def test_nothing_is_loaded_from_elsewhere(full_report, page):
    for _, attributes in page.tags:
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    assert not re.search(r"@import|url\((?!#)", full_report.read_text(encoding="utf-8"))
    policy = next(a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_figures_and_pictures_have_texts(page):
    plots = [a for a in page.all("div") if a.get("role") == "img"]
    assert len(plots) == len(page.all("svg")) == 20
    assert all(len(plot["aria-label"]) > 20 for plot in plots)
    assert len(page.all("img")) == 2 * 4
    assert all(len(image["alt"]) > 10 for image in page.all("img"))


def test_the_structure_serves_screen_readers(page):
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below <= above + 1 for above, below in pairwise(levels))
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("caption")) == len(page.all("table")) == 11
    assert all("scope" in heading for heading in page.all("th"))


def test_identifiers_are_unique(page):
    names = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(names) == len(set(names))


def test_every_table_and_figure_says_how_to_read_it(page):
    leads = [a for a in page.all("p") if a.get("class") == "lead"]
    assert len(leads) >= len(page.all("table")) + len(page.all("figure"))
    assert any("Delta: 0 is constant, 2 is noise; lower is slower." in text for text in page.text)


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        (lambda run: run.metrics.update(layers=None), "network"),
        (lambda run: run.metrics.update(sensitivity=None), "sensitivity"),
        (lambda run: [m.update(seconds=None) for m in run.metrics["methods"]], "time"),
        (lambda run: [run.examples.pop(key) for key in ("features", "feature_rows")], "features"),
        (lambda run: run.metrics.update(labels=[]), "accuracy cumulative groups calibration features"),
    ],
    ids=["layers", "sensitivity", "seconds", "features", "labels"],
)
def test_sections_without_data_are_left_out(undrawn, changed, tmp_path, real, change, gone):
    change(changed)
    assert anchors(changed.write(tmp_path)) == [name for name in anchors(real.folder) if name not in gone.split()]


def test_a_run_with_nothing_but_a_method_still_makes_a_page(changed, tmp_path):
    changed.metrics |= {"methods": [{"name": "SFA", "role": "main"}], "layers": None, "sensitivity": None}
    changed.metrics["data"]["image_shape"] = None
    changed.examples = changed.predictions = None
    outline = Outline(write_report(changed.write(tmp_path)).read_text(encoding="utf-8"))
    assert [a["id"] for a in outline.all("section")] == ["origin"]
    assert not any("statistical guesses" in text for text in outline.text)


def test_data_of_pictures_carry_the_note_on_people(page):
    assert any("statistical guesses about pictures, not facts about people" in text for text in page.text)


def test_warnings_and_times_are_shown_where_there_are_any(changed, undrawn, page, tmp_path):
    assert not any("Warnings of this run" in text for text in page.text)
    changed.metrics |= {"warnings": ["x" * 5000, "second"], "created": "2026-11-16T01:02:03+00:00", "higsfa": "9.9"}
    text = "".join(Outline(write_report(changed.write(tmp_path)).read_text(encoding="utf-8")).text)
    assert "Warnings of this run" in text
    assert "x" * 1000 + "…" in text
    assert "x" * 1001 not in text
    assert "Made from the run folder" in text
    assert "2026-11-16 01:02 UTC, with higsfa 9.9" in text


@pytest.mark.parametrize("n_classes", [1, 10, 11, 100])
def test_confusions_of_any_size_are_drawn(changed, tmp_path, n_classes):
    changed.metrics["labels"][1]["classes"] = list(range(n_classes))
    confusion = [[7 * (i == j) for i in range(n_classes)] for j in range(n_classes)]
    changed.metrics["methods"][0]["labels"]["gender"]["confusion"] = confusion
    metrics = read_run(changed.write(tmp_path)).metrics
    figure = figures.confusion_figure(metrics, metrics.labels[1])
    assert f"{n_classes} classes" in figure.alt
    assert "100.0\N{NO-BREAK SPACE}% of the samples" in figure.alt
    assert len(figure.svg) < 100_000


def test_the_same_run_makes_the_same_page(real, undrawn, tmp_path):
    pages = [write_report(real.folder, tmp_path / name) for name in ("a.html", "b.html")]
    assert pages == [tmp_path / "a.html", tmp_path / "b.html"]
    assert pages[0].read_bytes() == pages[1].read_bytes()
    svgs = [draw("test", lambda canvas: canvas.subplots().plot([1, 2], [3, 4])) for _ in range(2)]
    assert svgs[0] == svgs[1]


def test_the_page_stays_small(full_report):
    assert full_report.name == "report.html"
    assert full_report.stat().st_size < 1_500_000


def test_a_page_is_there_whole_or_not_at_all(real, undrawn, tmp_path, monkeypatch):
    target = tmp_path / "report.html"
    target.write_text("old")

    def fail(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_report(real.folder, target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_the_browser_opens_only_on_request(changed, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    changed.metrics |= {"methods": [{"name": "SFA", "role": "main"}], "layers": None}
    changed.examples = changed.predictions = None
    folder = changed.write(tmp_path)
    write_report(folder)
    assert opened == []
    write_report(folder, open_browser=True)
    assert opened == [(tmp_path / "report.html").as_uri()]


def test_figures_follow_the_colours_of_the_page_and_leave_no_state():
    import matplotlib

    before = dict(matplotlib.rcParams)
    svg = draw("test", lambda canvas: canvas.subplots().set_title("$a_1$ <b> 年 \N{GRINNING FACE}"))
    assert dict(matplotlib.rcParams) == before
    assert "currentColor" in svg
    assert "#010203" not in svg
    root = ET.fromstring(svg)
    assert "$a_1$ <b> 年 \N{GRINNING FACE}" in "".join(root.itertext())
    assert "width" not in root.attrib


def test_template_and_style_are_part_of_the_package():
    names = {path.name for path in files("higsfa.report").iterdir()}
    assert {f"{page}.{end}" for page in ("base", "report", "explorer") for end in ("html.jinja", "css")} <= names
