"""Pages: links lead somewhere, every page can be reached from the front page, code in the guide runs."""

import ast
import doctest
import inspect
import json
import pathlib
import re
import tomllib
from importlib import import_module

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


@pytest.mark.parametrize("name", ["guide", "held-out", "scikit-learn"])
def test_code_of_pages_runs(name):
    found = doctest.testfile(str(DOCS / f"{name}.md"), module_relative=False)
    assert found.attempted > 0
    assert found.failed == 0


PUBLIC = [
    "higsfa",
    "higsfa.datasets",
    "higsfa.experiments",
    "higsfa.export",
    "higsfa.graphs",
    "higsfa.images",
    "higsfa.metrics",
    "higsfa.plots",
    "higsfa.presets",
    "higsfa.reconstruction",
    "higsfa.report",
    "higsfa.sources",
]


def public_objects():
    """Public classes and functions by their full names."""
    for module in PUBLIC:
        home = import_module(module)
        for name in home.__all__:
            value = getattr(home, name)
            if callable(value):
                yield f"{module}.{name}", value


def lack_of_example(name, value):
    """Why a public object has no example that the test suite runs; empty if it has one.

    Its own docstring counts, not one that it inherits; lines that are skipped do not count, and the object must be
    named, if only in a remark about what another function returns.
    """
    own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    examples = doctest.DocTestParser().get_examples(own or "", name)
    run = [example.source + example.want for example in examples if doctest.SKIP not in example.options]
    if not run:
        return "no example that is run"
    if not re.search(rf"\b{value.__name__}\b", "".join(run)):
        return "its example does not mention it"
    if not any(example.want for example in examples):
        return "its example shows no result"
    file = pathlib.Path(inspect.getsourcefile(value))
    return "" if file.is_relative_to(ROOT / "src") or "site-packages" in file.parts else f"{file} is not collected"


def test_every_public_class_and_function_has_an_example_that_runs():
    objects = dict(public_objects())
    assert len(objects) > 100
    lacking = {name: lack_of_example(name, value) for name, value in objects.items()}
    assert {name: reason for name, reason in lacking.items() if reason} == {}


def test_the_search_for_examples_finds_what_is_wrong():
    class Shown:
        """>>> Shown
        1"""

    class Inherits(Shown):
        pass

    def skipped():
        """>>> skipped()  # doctest: +SKIP
        1"""

    def other():
        """>>> 1 + 1
        2"""

    def silent():
        """>>> x = silent()"""

    found = {one.__name__: lack_of_example(one.__name__, one) for one in (Inherits, skipped, other, silent)}
    assert found == {
        "Inherits": "no example that is run",
        "skipped": "no example that is run",
        "other": "its example does not mention it",
        "silent": "its example shows no result",
    }
    assert "is not collected" in lack_of_example("Shown", Shown)


def test_doctests_of_the_source_are_part_of_the_suite():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert "src" in options["testpaths"]
    assert "--doctest-modules" in options["addopts"]


def test_the_reference_shows_all_public_modules():
    conf = ast.parse((DOCS / "conf.py").read_text())
    values = {node.targets[0].id: node.value for node in conf.body if isinstance(node, ast.Assign)}
    assert sorted(ast.literal_eval(values["PUBLIC"])) == PUBLIC


def test_public_names_are_those_that_are_listed():
    """A name that goes needs a deprecation first, see docs/versions.md; one that comes stays."""
    found = sorted(f"{module}.{name}" for module in PUBLIC for name in import_module(module).__all__)
    assert found == (ROOT / "tests" / "public_names.txt").read_text().split()


def test_all_places_say_the_same_version():
    import higsfa

    assert f"version: {higsfa.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f'"higsfa": "{higsfa.__version__}"' in (DOCS / "run-folder.md").read_text()
    assert f"\n## {higsfa.__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("record", ["claims", "paper_scale"])
def test_numbers_beside_the_paper_are_those_of_the_records(record):
    """Each method's errors and rates, as they stand in the row of that method or below it."""
    found = json.loads((ROOT / "benchmarks" / "results" / f"{record}.json").read_text())
    found = found.get("scores", found)
    column = {"paper_scale": 3, "claims": 4}[record]
    rows = [
        [cell.strip(" *") for cell in line.split("|")[1:-1]] for line in (DOCS / "paper.md").read_text().splitlines()
    ]
    table, method = {}, ""
    for row in rows[next(i for i, row in enumerate(rows) if row[:2] == ["method", ""]) + 2 :]:
        if not row:
            break
        method = row[0] or method
        table[method, row[1]] = row[column]
    names = {"PCA": "PCA", "HGSFA (G3)": "HGSFA", "HiGSFA (G3)": "HiGSFA", "chance": "chance"}
    for shown, name in names.items():
        assert table[shown, "age, MAE"] == f"{found[name]['mae']:.2f}"
        assert table[shown, "age, RMSE"] == f"{found[name]['rmse']:.2f}"
        for label in ("race", "gender"):
            assert abs(float(table[shown, label].rstrip(" %")) - 100 * found[name][label]) <= 0.051
