"""Pages: links lead somewhere, every page can be reached from the front page, code in the guide runs."""

import ast
import doctest
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
GALLERY = ROOT / "examples" / "gallery"
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def without_code(text):
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def anchors(page):
    """Anchors of headings, as they are made on the site and on common hosts of repositories."""
    heads = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_inside_the_repository_lead_to_files_and_headings(page):
    for link in LINK.findall(without_code(page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = page if not name else page.parent / name
        if "auto_examples" in name:  # made from the gallery
            target = GALLERY / "GALLERY_HEADER.rst" if name.endswith("index.rst") else GALLERY / f"{target.stem}.py"
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_can_be_reached_from_the_front_page():
    reached, new = set(), ["index"]
    while new:
        page = DOCS / f"{new.pop()}.md"
        if page in reached or not page.exists():
            continue
        reached.add(page)
        for block in re.findall(r"```\{toctree\}(.*?)```", page.read_text(), re.DOTALL):
            entries = [line.strip() for line in block.splitlines() if line.strip() and not line.startswith(":")]
            new += [re.sub(r".*<(.+)>", r"\1", entry) for entry in entries]
    assert reached == set(PAGES)


def test_examples_of_the_gallery_say_what_they_show_and_draw_a_picture():
    examples = sorted(GALLERY.glob("plot_*.py"))
    assert len(examples) >= 15
    for path in examples:
        text = path.read_text()
        title, line, *rest = (ast.get_docstring(ast.parse(text)) or "").splitlines()
        assert set(line) == {"="}, path.name
        assert len(line) == len(title), path.name
        assert len(" ".join(rest)) > 80, path.name
        assert "plt.show()" in text, path.name


@pytest.mark.parametrize("name", ["guide", "held-out"])
def test_code_of_pages_runs(name):
    found = doctest.testfile(str(DOCS / f"{name}.md"), module_relative=False)
    assert found.attempted > 0
    assert found.failed == 0
