"""What a command shows: results on stdout as tables or JSON, everything else on stderr."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from higsfa.cli.usage import WrongUsage, one_line

FACE_LABELS = frozenset(("age", "gender", "sex", "race", "ethnicity"))
NOTE = (
    "note: estimates are statistical guesses about pictures, not facts about people; for research only, "
    "no basis for decisions about a person"
)
_WIDE = 10_000
"""Most columns of a table that does not go to a terminal: nothing in it is cut off."""


def console(*, stderr: bool = False) -> Console:
    """A terminal, or a file that gets plain text."""
    found = Console(stderr=stderr, highlight=False, soft_wrap=False)
    return found if found.is_terminal else Console(stderr=stderr, highlight=False, width=_WIDE)


def say(text: str = "", *, style: str = "", stderr: bool = False) -> None:
    """Print a line; long paths are not broken, brackets are no markup."""
    console(stderr=stderr).print(Text(writable(text), style=style), soft_wrap=True)


def writable(text: str) -> str:
    """Text without lone surrogates, which names of files may hold and no stream can write."""
    return text.encode("utf-8", "replace").decode("utf-8")


def note_about_faces(labels: Iterable[Any]) -> None:
    """Say what estimates are, where labels are about people."""
    if FACE_LABELS & {str(label).lower() for label in labels}:
        say(NOTE, stderr=True)


# ---------------------------------------------------------------------- JSON


def print_json(value: Any) -> None:
    """The one thing on stdout of a command with --json."""
    print(json.dumps(_plain(value), indent=1, allow_nan=False))


def _plain(value: Any) -> Any:
    """Numbers, texts, lists and dictionaries only; NaN and infinity become null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


# ---------------------------------------------------------------------- tables


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    bold_first: bool = False,
    n_texts: int = 1,
) -> None:
    """Print a table: the first columns hold texts, the others numbers."""
    if title:
        say(title, style="bold")
    shown = Table(box=None, pad_edge=False)
    for place, column in enumerate(columns):
        is_text = place < n_texts
        shown.add_column(Text(column), justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
    for number, row in enumerate(rows):
        shown.add_row(*(Text(one_line(cell)) for cell in row), style="bold" if bold_first and number == 0 else "")
    console().print(shown)
    say()


def scores_table(
    labels: Sequence[Mapping[str, Any]], rows: Iterable[tuple[str, Mapping[str, Any]]], title: str
) -> None:
    """Errors and rates on unseen data, one row for each name with its scores by label."""
    columns, kinds = [""], []
    for label in labels:
        name, unit = str(label["name"]), label.get("unit")
        measures = ("mae", "rmse") if label["kind"] == "numeric" else ("rate",)
        for measure in measures:
            kinds.append((name, measure))
            ending = "rate" if measure == "rate" else measure.upper() + (f", {unit}" if unit else "")
            columns.append(f"{name} {ending}")
    table(
        columns,
        ([name, *(score((scores.get(label) or {}).get(kind), kind) for label, kind in kinds)] for name, scores in rows),
        title=title,
        bold_first=True,
    )


def score(value: Mapping[str, Any] | None, kind: str) -> str:
    """A mean with its standard error; rates in percent."""
    if value is None or value["mean"] is None:
        return "-"
    factor, ending = (100.0, " %") if kind == "rate" else (1.0, "")
    spread = f" ± {factor * value['se']:.2f}" if value.get("se") is not None else ""
    return f"{factor * value['mean']:.2f}{spread}{ending}"


def metrics_tables(metrics: Mapping[str, Any]) -> None:
    """The tables of a run: scores, then slowness and reconstruction."""
    data, methods = metrics["data"], metrics["methods"]
    folds = f", {metrics['n_folds']} folds" if (metrics.get("n_folds") or 1) > 1 else ""
    say(f"{metrics['title']}: {data['n_train']:,} training and {data['n_test']:,} unseen samples{folds}\n")
    rows = ((method["name"], method.get("labels") or {}) for method in methods)
    scores_table(metrics["labels"], rows, "Estimates for unseen samples")
    held = []
    for method in methods:
        delta, rebuilt = method.get("delta") or {}, method.get("reconstruction_error") or {}
        test = (delta.get("test") or [])[:3]
        if not test and not rebuilt:
            continue
        seconds = (method.get("seconds") or {}).get("fit")
        held.append(
            [
                method["name"],
                _number(method.get("n_features"), "d"),
                " ".join(_number(value, ".2f") for value in test) or "-",
                _number(rebuilt.get("global"), ".3f"),
                _number(rebuilt.get("top_down"), ".3f"),
                _number(seconds, ".1f"),
            ]
        )
    if held:
        columns = ["", "features", "Delta 1-3", "rebuilt (linear)", "rebuilt (top-down)", "training, s"]
        title = "What features hold (Delta: 0 follows the label, 2 is noise; rebuilt: 0 is perfect, 1 the mean image)"
        table(columns, held, title=title, bold_first=True)
    for warning in metrics.get("warnings") or []:
        say(f"warning: {one_line(str(warning))}", stderr=True)


def _number(value: Any, form: str) -> str:
    return "-" if value is None else format(value, form)


def show_run(run: Any, as_json: bool) -> None:
    """What is in a run folder."""
    path = run.folder
    sizes = {file.name: file.stat().st_size for file in sorted(path.iterdir()) if file.is_file()}
    if as_json:
        print_json({"kind": "run", "path": path, "files": sizes, "network": str(run.network), "metrics": run.metrics})
        return
    say(f"{path}: a run of {run.metrics.get('created')} with higsfa {run.metrics.get('higsfa')}")
    metrics_tables(run.metrics)
    say(f"{run.network}\n")
    table(["file", "bytes"], ([name, f"{size:,}"] for name, size in sizes.items()))


def show_model(path: Path, as_json: bool) -> None:
    """What is in a model file."""
    import higsfa as library

    try:
        model = library.load(path)
    except library.ModelFileError as error:
        raise WrongUsage(f"{path} is not a model: {error}") from error
    size, kind, labels = path.stat().st_size, type(model).__name__, list(getattr(model, "label_names_", []))
    if as_json:
        print_json({"kind": kind, "path": path, "bytes": size, "labels": labels, "text": str(model)})
        return
    say(f"{path}: {kind}, {size:,} bytes" + (f", labels {', '.join(map(str, labels))}" if labels else ""))
    say(str(model))


# ---------------------------------------------------------------------- progress


class Stages:
    """Shows the progress of an experiment on stderr: a bar on a terminal, a line for each stage elsewhere."""

    def __init__(self, bar: Progress | None) -> None:
        self._bar = bar
        self._task: Any = None

    def stage(self, text: str, total: int | None) -> None:
        """A new stage begins, of so many steps."""
        if self._bar is None:
            say(one_line(text), stderr=True)
            return
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(one_line(text), total=total)

    def advance(self, n: int) -> None:
        """Some steps are done."""
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, n)


class _ShareAndTimeLeft(TimeRemainingColumn):
    """How much is done and how long the rest will take; nothing for a stage of unknown length."""

    def render(self, task: Task) -> Text:
        return Text() if task.total is None else Text.assemble(f"{task.percentage:.0f}%, left ", super().render(task))


@contextmanager
def stages() -> Iterator[Stages]:
    """Progress for the time of a command."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield Stages(None)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        _ShareAndTimeLeft(),
    )
    with Progress(*columns, console=screen, transient=True, refresh_per_second=4) as bar:
        yield Stages(bar)
