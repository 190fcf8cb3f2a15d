"""A command and its user: shared arguments, checks, tables, JSON and progress; errors as one line and an exit code.

Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import signal
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A folder that higsfa train wrote.")]
Pictures = Annotated[list[Path], typer.Argument(metavar="IMAGES...", help="Picture files, or folders of them.")]
Page = Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="A file in RUN by default.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
Eyes = Annotated[
    Path | None, typer.Option("--eyes", metavar="TABLE", help="Eyes in the pictures: a .csv of name, x, y, x, y.")
]
Cropped = Annotated[
    bool, typer.Option("--cropped", help="The pictures are already cut by the eyes, as those of training were.")
]
DataFolder = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Where the data of the config are on this machine.")
]

Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a value of the config; repeatable.")
]

WRONG_USAGE, FAILURE = 2, 1
MAX_RANKED = 10  # candidates of a search that are shown
MAX_VALUES = 64  # most label values of one morph
FACE_LABELS = frozenset(("age", "gender", "sex", "race", "ethnicity"))
NOTE = "note: estimates are statistical guesses about pictures, not facts about people; for research only, "
NOTE += "no basis for decisions about a person"


class WrongUsage(Exception):
    """The command cannot start as it was given; the message is one sentence that says what to do."""


class Stopped(BaseException):
    """A signal, whose number is the argument, asked the command to end."""


@contextmanager
def signals_as_exceptions() -> Iterator[None]:
    """Ctrl-C and SIGTERM unwind the stack, so that files are closed and workers end; the second one ends at once."""

    def stop(number: int, frame: Any) -> NoReturn:
        signal.signal(number, signal.SIG_DFL)
        raise Stopped(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def explain(error: BaseException, arguments: Sequence[str]) -> tuple[str, int]:
    """The line to show and the exit code."""
    if isinstance(error, Stopped):
        how = "interrupted" if error.args[0] == signal.SIGINT else "ended by a signal"
        again = shlex.join([argument for argument in arguments if argument not in ("--resume", "--force")])
        kept = f"what is finished was kept. Continue with: higsfa {again} --resume"
        goes_on = arguments[:1] in (["train"], ["tune"])
        return f"{how}; {kept if goes_on else 'nothing was left half written'}", 128 + error.args[0]
    if hasattr(error, "format_message"):  # an error of the parser
        context = getattr(error, "ctx", None)
        command = "higsfa" if context is None else context.command_path
        return one_line(f"{error.format_message().rstrip('.')} (see {command} --help)"), WRONG_USAGE
    line, code = (str(error), WRONG_USAGE) if isinstance(error, WrongUsage) else _failure(error)
    return one_line(line), code


def _failure(error: BaseException) -> tuple[str, int]:
    """A wrong path, name or setting is wrong usage; a damaged file and a lack of memory or disk are failures."""
    from higsfa import ModelFileError
    from higsfa.experiments import ExperimentError
    from higsfa.experiments.interface import FULL
    from higsfa.sources import ImageFileError

    behind: BaseException | None = error
    while behind is not None:
        if isinstance(behind, OSError) and behind.errno in FULL:
            return (
                "the disk is full: free some space, then run the same command again (train and tune: with --resume)",
                FAILURE,
            )
        behind = behind.__cause__
    if isinstance(error, ExperimentError):
        damaged = isinstance(error.__cause__, ImageFileError | ModelFileError | MemoryError)
        return str(error), FAILURE if damaged else WRONG_USAGE
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}", FAILURE
    if isinstance(error, MemoryError):
        return f"not enough memory ({error}): use fewer or smaller pictures, or close other programs", FAILURE
    if isinstance(error, ValueError | OSError | ImportError):
        return str(error) or type(error).__name__, FAILURE
    return f"internal error, {type(error).__name__}: {error}; --debug shows where it happened", FAILURE


def one_line(text: str) -> str:
    """Text that may come from a file, without line breaks and control characters."""
    return "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))


def existing(path: Path, what: str) -> Path:
    if not os.path.lexists(path):
        raise WrongUsage(f"there is no {what} {path}: check the path")
    return path


def free_file(path: Path, force: bool, *endings: str) -> Path:
    """A file that may be written: with one of the endings, new or to be replaced, in a folder that exists."""
    if endings and path.suffix.lower() not in endings:
        raise WrongUsage(f"{path}: the name must end in {' or '.join(endings)}")
    if path.is_dir():
        raise WrongUsage(f"{path} is a folder: name a file")
    if path.exists() and not force:
        raise WrongUsage(f"{path} exists already: name another file, or replace it with --force")
    if not path.absolute().parent.is_dir():
        raise WrongUsage(f"the folder {path.absolute().parent} does not exist: make it first")
    return path


def free_folder(path: Path, force: bool, hint: str = "") -> None:
    """Check that a folder may be filled: it is new, empty, or to be replaced."""
    if os.path.lexists(path) and not path.is_dir():
        raise WrongUsage(f"{path} is a file: name a folder")
    if path.is_dir() and any(path.iterdir()) and not force:
        raise WrongUsage(f"the folder {path} is not empty: name another one, {hint}or replace it with --force")


def opened_run(path: Path, data: Path | None = None, progress: Any = None) -> Any:
    existing(path, "run folder")
    from higsfa.experiments import Run

    return Run(path, data_folder=data, progress=progress)


def change(text: str, option: str = "--set", example: str = "network.n_components=80") -> tuple[str, Any]:
    """A key and a value from KEY=VALUE; the value as TOML has it, else as text."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise WrongUsage(f"{option} {text}: write it as KEY=VALUE, such as {example}")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def label_and_values(age: str | None, label: str | None) -> tuple[str, list[str]]:
    """The label to change and its values, from --age or --label."""
    if (age is None) == (label is None):
        raise WrongUsage("choose one option: --age 20,40,60, or --label NAME=VALUE,VALUE")
    name, _, listed = (f"age={age}" if label is None else label).partition("=")
    values = [value.strip() for value in listed.split(",") if value.strip()]
    if not name or not values:
        raise WrongUsage("--label: write it as NAME=VALUE,VALUE, such as gender=M,F")
    if len(values) > MAX_VALUES:
        raise WrongUsage(f"{len(values)} values are too many for one strip: give at most {MAX_VALUES}")
    if age is not None:
        from higsfa.experiments.use import number

        for value in values:
            number("age", value)
    return name.strip(), values


def console(*, stderr: bool = False) -> Console:
    """A terminal, or a file that gets plain text of any width."""
    found = Console(stderr=stderr, highlight=False, soft_wrap=False)
    return found if found.is_terminal else Console(stderr=stderr, highlight=False, width=10_000)


def say(text: str = "", *, style: str = "", stderr: bool = False) -> None:
    """Print a line; long paths are not broken, brackets are not markup."""
    # Names of files may hold lone surrogates, which no stream can write.
    writable = text.encode("utf-8", "replace").decode("utf-8")
    console(stderr=stderr).print(Text(writable, style=style), soft_wrap=True)


def answer(as_json: bool, value: Any, shown: str | Callable[[], None]) -> None:
    """The result of a command: JSON, the only thing on stdout, or what is shown to people instead."""
    if as_json:
        print(json.dumps(_plain(value), indent=1, allow_nan=False))
    elif isinstance(shown, str):
        say(shown)
    else:
        shown()


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


def note_about_faces(labels: Iterable[Any]) -> None:
    """Say what estimates are, if labels are about people."""
    if FACE_LABELS & {str(label).lower() for label in labels}:
        say(NOTE, stderr=True)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "", bold_first: bool = False, n_texts: int = 1
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
        unit = f", {label['unit']}" if label.get("unit") else ""
        for kind in ("mae", "rmse") if label["kind"] == "numeric" else ("rate",):
            kinds.append((str(label["name"]), kind))
            columns.append(f"{label['name']} {'rate' if kind == 'rate' else kind.upper() + unit}")
    cells = (
        [name, *(score((found.get(label) or {}).get(kind), kind) for label, kind in kinds)] for name, found in rows
    )
    table(columns, cells, title, bold_first=True)


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
        test = " ".join(_number(value, ".2f") for value in (delta.get("test") or [])[:3])
        if test or rebuilt:
            errors = [_number(rebuilt.get(key), ".3f") for key in ("global", "top_down")]
            seconds = _number((method.get("seconds") or {}).get("fit"), ".1f")
            held.append([method["name"], _number(method.get("n_features"), "d"), test or "-", *errors, seconds])
    if held:
        columns = ["", "features", "Delta 1-3", "rebuilt (linear)", "rebuilt (top-down)", "training, s"]
        title = "What features hold (Delta: 0 follows the label, 2 is noise; rebuilt: 0 is perfect, 1 the mean image)"
        table(columns, held, title, bold_first=True)
    for warning in metrics.get("warnings") or []:
        say(f"warning: {one_line(str(warning))}", stderr=True)


def tuning_table(found: Any) -> None:
    """Candidates by their errors, each on the most samples that it was trained on; also the config as given."""
    most: dict[int, Mapping[str, Any]] = {}
    for done in found.results:
        if done["error"] is not None and done["rung"] >= most.get(done["candidate"], done)["rung"]:
            most[done["candidate"]] = done
    most[found.best["candidate"]] = found.best  # as it was compared with others
    ranked = sorted(
        most.values(), key=lambda done: (done["candidate"] != found.best["candidate"], -done["rung"], done["error"])
    )
    shown = [done for place, done in enumerate(ranked) if place < MAX_RANKED or done["candidate"] == 0]
    scores = [(name, key) for name, by_key in ranked[0]["scores"].items() for key in by_key if key != "rmse"]
    columns = [
        "candidate",
        "samples",
        "error",
        *(f"{name} {key.upper() if key == 'mae' else key}" for name, key in scores),
    ]
    rows = []
    for done in shown:
        text = ", ".join(f"{name} {value}" for name, value in done["settings"].items()) or "as given"
        values = [(done["scores"][name][key], key) for name, key in scores]
        cells = [f"{100 * value:.2f} %" if key == "rate" else f"{value:.2f}" for value, key in values]
        error = f"{done['error']:.3f} ± {done['se'] or 0:.3f}"
        rows.append([text, f"{done['n_train']:,}", error, *cells, f"{done['seconds']:.1f}"])
    failed = sum(done["error"] is None for done in found.results)
    tried = f"{len({done['candidate'] for done in found.results})} candidates in {found.seconds / 60:.1f} minutes"
    title = f"{tried}{f', {failed} of them failed' if failed else ''}; errors on held-out training samples, 1 is chance"
    table([*columns, "s"], rows, title, bold_first=True)


def _number(value: Any, form: str) -> str:
    return "-" if value is None else format(value, form)


class Stages:
    """Shows the progress of an experiment on stderr: a bar on a terminal, a line for each stage elsewhere."""

    def __init__(self, bar: Progress | None) -> None:
        self._bar = bar
        self._task: Any = None

    def stage(self, text: str, total: int | None) -> None:
        if self._bar is None:
            say(one_line(text), stderr=True)
            return
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(one_line(text), total=total)

    def remark(self, text: str) -> None:
        """A line that stays, above the bar."""
        if self._bar is None:
            say(one_line(text), stderr=True)
        else:
            self._bar.console.print(Text(one_line(text)), soft_wrap=True)

    def advance(self, n: int) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, n)


class _ShareAndTimeLeft(TimeRemainingColumn):
    """How much is done and how long the rest will take; nothing for a stage of unknown length."""

    def render(self, task: Task) -> Text:
        return Text() if task.total is None else Text.assemble(f"{task.percentage:.0f}%, left ", super().render(task))


@contextmanager
def stages() -> Iterator[Stages]:
    """Progress while a command runs."""
    shown = console(stderr=True)
    if not shown.is_terminal:
        yield Stages(None)
        return
    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), _ShareAndTimeLeft()
    with Progress(*columns, console=shown, transient=True, refresh_per_second=4) as bar:
        yield Stages(bar)
