"""The site: pages in Markdown, the gallery of examples/gallery, and a reference of every public name."""

import warnings
from importlib import import_module

import higsfa

project = "higsfa"
author = "The higsfa developers"
copyright = "the higsfa developers"
release = version = higsfa.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx-mathjax-offline",  # formulas without a server or a network
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "auto_examples/**/*.md5"]
templates_path = ["_templates"]
suppress_warnings = ["config.cache"]
nitpicky = False

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3

autosummary_generate = True
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
autodoc_typehints = "none"

html_theme = "pydata_sphinx_theme"
html_title = "higsfa"
html_static_path = ["_static"]
html_show_sourcelink = False
html_copy_source = False
html_show_search_summary = False  # it would be fetched, which browsers refuse for files
html_context = {"default_mode": "auto"}
html_sidebars = {"index": [], "guide": [], "coming-from": []}  # they have no pages below them
html_theme_options = {
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "logo": {"text": "higsfa"},
}

copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_signature": False,
    "min_reported_time": 10_000,
    "abort_on_example_error": True,
    "matplotlib_animations": False,
    "plot_gallery": "True",
}
warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")

PUBLIC = {
    "higsfa": "Estimators and model files",
    "higsfa.graphs": "Graphs",
    "higsfa.sources": "Where samples come from",
    "higsfa.images": "Pictures",
    "higsfa.presets": "Networks to start from",
    "higsfa.reconstruction": "From features back to inputs",
    "higsfa.metrics": "Metrics",
    "higsfa.plots": "Figures",
    "higsfa.datasets": "Data sets",
    "higsfa.experiments": "Experiments",
    "higsfa.report": "Pages of a run",
    "higsfa.export": "Export",
}


DESCRIBED = {"Config": "the tables of a TOML file, checked; see :doc:`experiments`"}
"""Names that have a page of their own."""


def write_reference(app, config):
    """The page of public names, from `__all__` of the public modules, so that none is forgotten."""
    lines = ["Reference", "=========", "", "Every public name. Modules are imported when they are first used.", ""]
    for module, title in PUBLIC.items():
        heading, home = f"{title}: ``{module}``", import_module(module)
        names = [name for name in home.__all__ if not name.startswith("_")]
        documented = [name for name in names if callable(getattr(home, name)) and name not in DESCRIBED]
        lines += [heading, "-" * len(heading), "", f".. currentmodule:: {module}", "", ".. autosummary::"]
        lines += ["   :toctree: generated", "   :nosignatures:", "", *(f"   {name}" for name in documented), ""]
        for name in names:
            if name not in documented:
                lines += [f"- ``{module}.{name}``: {DESCRIBED.get(name, f'``{getattr(home, name)}``')}"]
        lines += [""]
    page, path = "\n".join(lines), app.srcdir / "reference.rst"
    if not path.exists() or path.read_text() != page:
        path.write_text(page)


def is_foreign(app, what, name, member, skip, options):
    """Leave out what scikit-learn adds to its estimators, and documents itself."""
    home = getattr(member, "__module__", None) or ""
    return True if home.startswith("sklearn") or name.endswith("_request") else None


def setup(app):
    app.connect("autodoc-skip-member", is_foreign)
    app.connect("config-inited", write_reference)  # before pages are looked for
