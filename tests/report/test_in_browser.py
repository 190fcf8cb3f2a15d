"""The page as a browser shows it, on a telephone and on a desk."""

import pytest

from browser import horizontal_overflow, open_page

WIDTHS = pytest.mark.parametrize("width", [375, 1400])


@WIDTHS
def test_the_report_opens_quietly_and_alone(browser, full_report, width):
    with open_page(browser, full_report, width) as (page, errors, requests):
        page.wait_for_timeout(200)
        assert page.title().endswith("higsfa report")
        assert errors == []
        assert [url for url in requests if not url.startswith("data:")] == [full_report.as_uri()]


@WIDTHS
@pytest.mark.parametrize("dark", [False, True])
def test_the_report_fits_the_window(browser, full_report, width, dark):
    with open_page(browser, full_report, width, dark=dark) as (page, _, _):
        assert horizontal_overflow(page) == 0
        for element in page.query_selector_all("details"):
            element.evaluate("node => node.open = true")
        assert horizontal_overflow(page) == 0


@WIDTHS
def test_figures_are_visible_and_fit(browser, full_report, width):
    with open_page(browser, full_report, width) as (page, _, _):
        drawings = page.query_selector_all(".plot svg")
        assert len(drawings) == 20
        for drawing in drawings:
            box = drawing.bounding_box()
            assert drawing.is_visible()
            assert box["width"] > 250
            assert box["height"] > 150
            assert 0 <= box["x"] <= box["x"] + box["width"] <= width
        for picture in page.query_selector_all("img"):
            assert picture.is_visible()
            assert picture.evaluate("node => node.complete && node.naturalWidth > 0")
            assert picture.bounding_box()["height"] > 40


@WIDTHS
def test_text_of_figures_is_large_enough_to_read(browser, full_report, width):
    with open_page(browser, full_report, width) as (page, _, _):
        heights = page.evaluate(
            """() => [...document.querySelectorAll('.plot text')].map(node =>
                parseFloat(getComputedStyle(node).fontSize) * node.getScreenCTM().a).filter(size => size > 0)"""
        )
        assert len(heights) > 100
        assert min(heights) > 8


def test_tables_scroll_in_their_own_container(browser, full_report):
    with open_page(browser, full_report, 375) as (page, _, _):
        inner, outer = page.evaluate(
            """() => { const box = document.querySelector('table.dense').parentElement;
                       return [box.scrollWidth, box.clientWidth]; }"""
        )
        assert inner > outer
        assert outer <= 375


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_the_page(browser, full_report, dark):
    """Contrast of at least 4.5 to 1 (WCAG AA), computed from the colours that the browser uses."""
    with open_page(browser, full_report, dark=dark) as (page, _, _):
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        for selector in ("body", ".lead", "small", ".main th", ".chance td", "nav a", "footer p", ".plot text"):
            name = "fill" if selector == ".plot text" else "color"
            color = page.evaluate(f"getComputedStyle(document.querySelector({selector!r})).{name}")
            assert contrast(color, background) >= 4.5, selector


def contrast(first, second):
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color):
    channels = [int(part) / 255 for part in color[color.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
