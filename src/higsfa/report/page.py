"""A run folder as one page: reading, tables and figures put together."""

from __future__ import annotations

import os
import webbrowser
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from higsfa.io import write_atomically
from higsfa.report import feature_figures, figures, tables
from higsfa.report.drawing import Figure
from higsfa.report.pictures import Block, contact_sheet
from higsfa.report.reading import read_run
from higsfa.report.records import RunFolder
from higsfa.report.summary import headline_numbers, outcomes, setup
from higsfa.report.tables import Table

T = TypeVar("T")


@dataclass(frozen=True)
class Section:
    """A heading with its tables, figures and pictures; what a run does not have is left out."""

    anchor: str
    title: str
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    sheet: tuple[Block, ...] = ()


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
    write_atomically(target, render(read_run(folder)).encode("utf-8"))
    if open_browser:
        webbrowser.open(target.resolve().as_uri())
    return target


def render(run: RunFolder) -> str:
    """The page as text."""
    try:
        import jinja2
        import matplotlib.figure  # noqa: F401  (drawing.py needs it; say so before any work is done)
        from markupsafe import Markup
    except ImportError as error:
        raise ImportError("a report needs matplotlib and jinja2: pip install 'higsfa[plots]'") from error
    here = files(__package__)
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string((here / "template.html.jinja").read_text(encoding="utf-8"))
    return template.render(
        run=run,
        metrics=run.metrics,
        numbers=headline_numbers(run.metrics),
        setup=setup(run.metrics),
        outcomes=outcomes(run.metrics),
        created=_readable(run.metrics.created),
        sections=sections(run),
        style=Markup((here / "style.css").read_text(encoding="utf-8")),
        drawn=Markup,
    )


def sections(run: RunFolder) -> tuple[Section, ...]:
    """All sections that have anything to show."""
    metrics = run.metrics
    numeric = [label for label in metrics.labels if label.is_numeric]
    categorical = [label for label in metrics.labels if not label.is_numeric]
    everything = (
        Section(
            "accuracy",
            "Accuracy",
            tables=_kept(tables.accuracy_table(metrics)),
            figures=_kept(
                *(
                    draw
                    for x in numeric
                    for draw in (figures.estimate_figure(run, x), figures.error_figure(metrics, x))
                ),
                *(figures.confusion_figure(metrics, label) for label in categorical),
            ),
        ),
        Section(
            "cumulative",
            "Cumulative scores",
            tables=_kept(*(tables.cumulative_table(metrics, label) for label in numeric)),
            figures=_kept(*(figures.cumulative_figure(metrics, label) for label in numeric)),
        ),
        Section(
            "slowness",
            "Slowness",
            tables=_kept(tables.delta_table(metrics, "train"), tables.delta_table(metrics, "test")),
            figures=_kept(feature_figures.delta_figure(metrics), feature_figures.layer_figure(metrics)),
        ),
        Section(
            "features",
            "Features",
            figures=_kept(*(feature_figures.feature_figure(run, label) for label in metrics.labels)),
        ),
        Section(
            "reconstruction",
            "Reconstruction",
            tables=_kept(tables.reconstruction_table(metrics)),
            sheet=contact_sheet(run),
        ),
        Section("network", "Network", tables=_kept(tables.layer_table(metrics))),
        Section("sensitivity", "Sensitivity", tables=_kept(tables.sensitivity_table(metrics))),
        Section("time", "Time", tables=_kept(tables.cost_table(metrics))),
    )
    return tuple(section for section in everything if section.tables or section.figures or section.sheet)


def _readable(created: str | None) -> str | None:
    """A time as people write it, if it is one."""
    try:
        return created and f"{datetime.fromisoformat(created):%Y-%m-%d %H:%M %Z}".strip()
    except ValueError:
        return created


def _kept(*found: T | None) -> tuple[T, ...]:
    return tuple(item for item in found if item is not None)
