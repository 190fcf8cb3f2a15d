"""The model card of a run: data, figures, limits and use, as one Markdown file beside the model."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from higsfa.evaluation.schema import Metrics, read_metrics
from higsfa.io import write_atomically
from higsfa.report import tables

PEOPLE = frozenset(("age", "gender", "sex", "race", "ethnicity", "identity"))
ABOUT_PEOPLE = (
    "Labels such as age, gender and race are what somebody wrote down about pictures. Estimates of them are "
    "statistical guesses about pictures, not facts about people. The model is for research and no basis for decisions "
    "about a person. It works better for some groups than for others: see the table of groups."
)
LIMITS = (
    "The figures hold for pictures like those of the test samples: from the same source, cut and lit alike. Nothing is "
    "known about others. Inputs outside the range of the training data are clipped to it. Probabilities may be too "
    "sure, because label estimates were fitted on features of samples that the network has seen."
)


def write_card(folder: str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> Path:
    """Write the model card of a run folder.

    Parameters
    ----------
    folder : path
        A run folder, as written by ``higsfa train``.
    out : path, optional
        The file to write; ``README.md`` in the folder by default.

    Returns
    -------
    Path
        The file written.

    Examples
    --------
    >>> import json, tempfile
    >>> metrics = {"format": 1, "title": "Toy", "labels": [], "methods": [{"name": "SFA", "role": "main"}]}
    >>> metrics["data"] = {"name": "toy", "n_train": 90, "n_test": 10}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "metrics.json").write_text(json.dumps(metrics))
    ...     write_card(folder).read_text(encoding="utf-8").splitlines()[0]
    '# Toy'
    """
    target = Path(folder, "README.md") if out is None else Path(out)
    text = card(read_metrics(Path(folder, "metrics.json"), max_text=200))
    write_atomically(target, text.encode("utf-8", "replace"))
    return target


def card(metrics: Metrics) -> str:
    """The text."""
    data, version = metrics.data, f" {metrics.higsfa}" if metrics.higsfa else ""
    date = f", on {metrics.created[:10]}" if metrics.created else ""
    lines = [
        f"# {escaped(metrics.title)}",
        "",
        f"{escaped(tables.setup(metrics))} Made with higsfa{version}{date}.",
        "",
    ]
    lines += [f"- {escaped(text)}" for text in tables.outcomes(metrics)]
    lines += ["", "## Data", "", f"`{escaped(data.name).replace('`', '')}`: {data.n_train:,} samples for training,"]
    lines += [f"{data.n_test:,} for testing. Labels: {_labels(metrics)}. Say here where the data come from, and what"]
    lines += ["their terms are: the run does not know.", ""]
    for title, table in (
        ("Results", tables.accuracy_table(metrics)),
        ("Groups", tables.group_table(metrics)),
        ("Calibration", tables.calibration_table(metrics)),
        ("Network", tables.layer_table(metrics)),
    ):
        if table is not None:
            lines += [f"## {title}", "", escaped(table.lead), "", *_markdown(table), ""]
    lines += ["## Limits", "", LIMITS, ""]
    if any(label.name.lower() in PEOPLE for label in metrics.labels):
        lines += [ABOUT_PEOPLE, ""]
    lines += ["## Use", "", "```", "higsfa predict THIS_FOLDER pictures/", "higsfa report THIS_FOLDER", "```", ""]
    lines += ["```python", "from higsfa.experiments import Run", "", 'Run("THIS_FOLDER").predict("pictures/")', "```"]
    return "\n".join(lines) + "\n"


def _labels(metrics: Metrics) -> str:
    kinds = [f"{escaped(label.name)} ({'a number' if label.is_numeric else 'classes'})" for label in metrics.labels]
    return ", ".join(kinds) or "none"


def _markdown(table: tables.Table) -> list[str]:
    """A table; the best of a column in bold."""
    head = [
        table.corner,
        *(f"{column.title} ({column.note})" if column.note else column.title for column in table.columns),
    ]
    rows = [
        [escaped(row.name), *(f"**{cell.text}**" if cell.is_best else cell.text for cell in row.cells)]
        for row in table.rows
    ]
    return [_line(map(escaped, head)), _line(["---", *["---:"] * len(table.columns)]), *map(_line, rows)]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: names come from files of others."""
    return re.sub(r"([\\`*_{}\[\]<>#|!])", r"\\\1", " ".join(text.split()))
