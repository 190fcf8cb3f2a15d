"""The report: tables and figures of a run folder on one page."""

from __future__ import annotations

import os
import webbrowser
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from higsfa.io import write_atomically
from higsfa.report import figures, html, tables
from higsfa.report.drawing import Figure
from higsfa.report.figures import Block
from higsfa.report.reading import RunFolder, read_run
from higsfa.report.tables import Table


class Section(NamedTuple):
    """A heading with its tables, figures and pictures; what a run does not have is left out."""

    anchor: str
    title: str
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]
    sheet: tuple[Block, ...]


def write_report(
    folder: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, *, open_browser: bool = False
) -> Path:
    """Make one HTML file of a run folder; it opens in any browser, without a server and without a network.

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
        If a file of the folder is not as it should be; the message names the file and the key.

    Examples
    --------
    >>> import json, tempfile
    >>> from pathlib import Path
    >>> from higsfa.report import write_report
    >>> data = {"name": "toy", "n_train": 90, "n_test": 10}
    >>> metrics = {
    ...     "format": 1,
    ...     "title": "Toy",
    ...     "data": data,
    ...     "labels": [],
    ...     "methods": [{"name": "SFA", "role": "main"}],
    ... }
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "metrics.json").write_text(json.dumps(metrics))
    ...     report = write_report(folder)
    ...     report.name, "<h1>Toy</h1>" in report.read_text(encoding="utf-8")
    ('report.html', True)
    """
    folder = Path(folder)
    target = folder / "report.html" if out is None else Path(out)
    # Names of folders, and of methods in examples.npz, may hold halves of characters.
    write_atomically(target, render(read_run(folder)).encode("utf-8", "replace"))
    if open_browser:
        webbrowser.open(target.resolve().as_uri())
    return target


def render(run: RunFolder) -> str:
    """The page as text."""
    try:
        import jinja2  # noqa: F401  (say what is missing before any work is done)
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ImportError("a report needs matplotlib and jinja2: pip install 'higsfa[plots]'") from error
    return html.render(
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


def sections(run: RunFolder) -> tuple[Section, ...]:
    """All sections that have anything to show."""
    metrics = run.metrics
    numeric = [label for label in metrics.labels if label.is_numeric]
    categorical = [label for label in metrics.labels if not label.is_numeric]
    accuracy: list[Figure | None] = []
    for label in numeric:
        accuracy += [figures.estimate_figure(run, label), figures.error_figure(metrics, label)]
    accuracy += [figures.confusion_figure(metrics, label) for label in categorical]
    everything = (
        _section("accuracy", "Accuracy", [tables.accuracy_table(metrics)], accuracy),
        _section(
            "cumulative",
            "Cumulative scores",
            [tables.cumulative_table(metrics, label) for label in numeric],
            [figures.cumulative_figure(metrics, label) for label in numeric],
        ),
        _section(
            "slowness",
            "Slowness",
            [tables.delta_table(metrics, "train"), tables.delta_table(metrics, "test")],
            [figures.delta_figure(metrics), figures.layer_figure(metrics)],
        ),
        _section("features", "Features", [], [figures.feature_figure(run, label) for label in metrics.labels]),
        _section(
            "reconstruction", "Reconstruction", [tables.reconstruction_table(metrics)], [], figures.contact_sheet(run)
        ),
        _section("network", "Network", [tables.layer_table(metrics)]),
        _section("sensitivity", "Sensitivity", [tables.sensitivity_table(metrics)]),
        _section("time", "Time", [tables.cost_table(metrics)]),
    )
    return tuple(section for section in everything if section.tables or section.figures or section.sheet)


def _section(
    anchor: str,
    title: str,
    tables: Sequence[Table | None],
    figures: Sequence[Figure | None] = (),
    sheet: tuple[Block, ...] = (),
) -> Section:
    """A section of the tables and figures that are there."""
    kept = tuple(table for table in tables if table)
    return Section(anchor, title, kept, tuple(figure for figure in figures if figure), sheet)


def _readable(created: str | None) -> str | None:
    """A time as people write it, if it is one."""
    try:
        return created and f"{datetime.fromisoformat(created):%Y-%m-%d %H:%M %Z}".strip()
    except ValueError:
        return created
