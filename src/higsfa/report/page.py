"""The report of a run folder, and how pages are made: templates filled in, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import webbrowser
from collections.abc import Callable
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from higsfa.io import write_atomically
from higsfa.report import figures, tables
from higsfa.report.figures import Figure
from higsfa.report.reading import RunFolder, read_run


class Section(NamedTuple):
    title: str
    tables: list[tables.Table]
    figures: list[Figure]
    sheet: tuple[figures.Block, ...]

    @property
    def anchor(self) -> str:
        return self.title.split()[0].lower()


def write_report(
    folder: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, *, open_browser: bool = False
) -> Path:
    """Make one HTML file of a run folder, which opens in any browser without a server or a network.

    Parameters
    ----------
    folder : path
        A run folder, as written by ``higsfa train``.
    out : path, optional
        The file to write; ``report.html`` in the folder by default.
    open_browser : bool, default=False
        Whether to show the page.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    ReportError
        If a file of the folder is damaged or not a run's; the message names the file and the key.

    Examples
    --------
    >>> import json, tempfile
    >>> metrics = {"format": 1, "title": "Toy", "labels": [], "methods": [{"name": "SFA", "role": "main"}]}
    >>> metrics["data"] = {"name": "toy", "n_train": 90, "n_test": 10}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "metrics.json").write_text(json.dumps(metrics))
    ...     report = write_report(folder)
    ...     report.name, "<h1>Toy</h1>" in report.read_text(encoding="utf-8")
    ('report.html', True)
    """
    try:
        import jinja2  # noqa: F401  (fail before any work is done)
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ImportError("a report needs matplotlib and jinja2: pip install 'higsfa[plots]'") from error
    target = Path(folder, "report.html") if out is None else Path(out)
    run = read_run(Path(folder))
    page = fill(
        "report.html.jinja",
        "report.css",
        run=run,
        metrics=run.metrics,
        headlines=tables.headlines(run.metrics),
        setup=tables.setup(run.metrics),
        outcomes=tables.outcomes(run.metrics),
        created=_readable(run.metrics.created),
        sections=sections(run),
    )
    # Names of folders, and of methods in examples.npz, may contain lone surrogates.
    write_atomically(target, page.encode("utf-8", "replace"))
    if open_browser:
        webbrowser.open(target.resolve().as_uri())
    return target


def sections(run: RunFolder) -> list[Section]:
    """All sections that have anything to show."""
    metrics = run.metrics
    numeric = [label for label in metrics.labels if label.is_numeric]
    accuracy: list[Figure | None] = []
    for label in numeric:
        accuracy += [figures.estimate_figure(run, label), figures.error_figure(metrics, label)]
    accuracy += [figures.confusion_figure(metrics, label) for label in metrics.labels if not label.is_numeric]
    cumulative = [figures.cumulative_figure(metrics, label) for label in numeric]
    reliability = [figures.calibration_figure(metrics, label) for label in metrics.labels]
    deltas = [tables.delta_table(metrics, part) for part in ("train", "test")]
    slowness = [figures.delta_figure(metrics), figures.layer_figure(metrics)]
    everything: list[tuple[str, list[tables.Table | None], list[Figure | None]]] = [
        ("Accuracy", [tables.accuracy_table(metrics)], accuracy),
        ("Cumulative scores", [tables.cumulative_table(metrics, label) for label in numeric], cumulative),
        ("Groups", [tables.group_table(metrics)], [figures.group_figure(metrics, label) for label in metrics.labels]),
        ("Calibration", [tables.calibration_table(metrics)], reliability),
        ("Slowness", deltas, slowness),
        ("Features", [], [figures.feature_figure(run, label) for label in metrics.labels]),
        ("Reconstruction", [tables.reconstruction_table(metrics)], []),
        ("Network", [tables.layer_table(metrics)], []),
        ("Sensitivity", [tables.sensitivity_table(metrics)], []),
        ("Time", [tables.cost_table(metrics)], []),
    ]
    found = []
    for title, own_tables, own_figures in everything:
        sheet = figures.contact_sheet(run) if title == "Reconstruction" else ()
        section = Section(title, [table for table in own_tables if table], [f for f in own_figures if f], sheet)
        found += [section] if any(section[1:]) else []
    return found


def _readable(created: str | None) -> str | None:
    """A timestamp in readable form; any other text stays as it is."""
    try:
        return created and f"{datetime.fromisoformat(created):%Y-%m-%d %H:%M %Z}".strip()
    except ValueError:
        return created


def fill(template: str, style: str, **values: Any) -> str:
    """The page that a template makes of `values`, all escaped, with the common style sheet and this one.

    In templates, ``source`` is a file of this package, ``markup`` marks text not to be escaped, and ``fingerprint``
    names a text for a Content-Security-Policy.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise ImportError("pages need jinja2: pip install 'higsfa[plots]'") from error

    def source(name: str) -> Any:
        return Markup((files("higsfa.report") / name).read_text(encoding="utf-8"))

    def fingerprint(text: str) -> str:
        return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")

    options: dict[str, Any] = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=PackageLoader("higsfa.report", ""), autoescape=True, **options)
    environment.globals |= {"markup": Markup, "source": source, "fingerprint": fingerprint}
    return environment.get_template(template).render(style=source("base.css") + source(style), **values)


def json_in_html(data: Any, default: Callable[[Any], Any] | None = None) -> str:
    """JSON that cannot end the script element it is embedded in, or start a comment there."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), default=default)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
