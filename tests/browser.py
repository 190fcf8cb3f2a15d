"""A headless browser for tests of pages: what it shows, complains about and asks for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


class Opened(NamedTuple):
    """A page of playwright, the errors it reported and the addresses it asked for (the page itself among them)."""

    page: Any
    errors: list[str]
    requests: list[str]


@contextmanager
def browsing() -> Iterator[Any]:
    """A browser; skips the test where there is no playwright or no chromium."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium is installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_page(
    browser: Any, path: Path, width: int = 1400, height: int = 900, *, dark: bool = False
) -> Iterator[Opened]:
    """Open a file in a window of the given size."""
    errors: list[str] = []
    requests: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light")
    try:
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(Path(path).resolve().as_uri())
        yield Opened(page, errors, requests)
    finally:
        page.close()


def horizontal_overflow(page: Any) -> int:
    """By how many pixels the page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
