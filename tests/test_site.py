"""The built site as a browser shows it from disk, on a desk and on a telephone; `make docs` builds it."""

import pathlib
import re

import pytest

from browser import browsing, horizontal_overflow, open_page

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
SITE = DOCS / "_build" / "html"
PAGES = [
    "index",
    "guide",
    "paper",
    "reference",
    "generated/higsfa.HiGSFA",
    "auto_examples/index",
    "auto_examples/plot_01_time_series",
]
WIDTHS = pytest.mark.parametrize("width", [375, 1400])


def is_built():
    """Whether there is a site, made with the present settings."""
    index = SITE / "index.html"
    return index.exists() and index.stat().st_mtime >= (DOCS / "conf.py").stat().st_mtime


pytestmark = pytest.mark.skipif(not is_built(), reason="no site in docs/_build/html, or an old one: make docs")


@pytest.fixture(scope="module")
def browser():
    with browsing() as opened:
        yield opened


@WIDTHS
@pytest.mark.parametrize("name", PAGES)
def test_pages_open_quietly_need_no_network_and_fit_the_window(browser, name, width):
    with open_page(browser, SITE / f"{name}.html", width) as (page, errors, requests):
        page.wait_for_load_state("load")
        assert errors == []
        assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
        assert horizontal_overflow(page) == 0
        assert page.query_selector("h1").is_visible()
        for picture in page.query_selector_all("article img"):
            picture.scroll_into_view_if_needed()
            page.wait_for_function("picture => picture.complete", arg=picture)
            assert picture.evaluate("picture => picture.naturalWidth") > 0


@pytest.mark.parametrize("words", ["GridSearchCV groups", "LabelGraph", "rat"])
def test_search_works_from_disk(browser, words):
    with open_page(browser, SITE / "index.html") as (page, errors, _):
        page.goto((SITE / "search.html").as_uri() + "?q=" + words.replace(" ", "+"))
        page.wait_for_selector("#search-results ul.search li a", timeout=20_000)
        links = [link.get_attribute("href") for link in page.query_selector_all("#search-results ul.search li a")]
        assert links
        for link in links[:5]:
            assert (SITE / re.split("[?#]", link)[0]).exists(), link
        assert errors == []


def test_the_search_field_leads_to_results(browser):
    with open_page(browser, SITE / "index.html") as (page, errors, _):
        page.keyboard.press("Control+k")
        page.keyboard.type("slowness")
        page.keyboard.press("Enter")
        page.wait_for_url("**/search.html?q=slowness*")
        page.wait_for_selector("#search-results ul.search li a", timeout=20_000)
        assert errors == []


@pytest.mark.parametrize("dark", [False, True])
def test_pages_follow_the_colours_of_the_system(browser, dark):
    with open_page(browser, SITE / "guide.html", dark=dark) as (page, _, _):
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness = sum(map(int, re.findall(r"\d+", colour)[:3])) / 3
        assert brightness < 80 if dark else brightness > 200
