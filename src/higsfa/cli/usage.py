"""How a command is called and how it ends: shared arguments, checks of paths, errors as one line and an exit code."""

from __future__ import annotations

import errno
import os
import shlex
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

WRONG_USAGE, FAILURE = 2, 1
_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A folder that higsfa train wrote.")]
Pictures = Annotated[list[Path], typer.Argument(metavar="IMAGES...", help="Picture files, or folders of them.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
Eyes = Annotated[
    Path | None,
    typer.Option("--eyes", metavar="TABLE", help="Eyes in the pictures, a .csv file with name, x, y, x, y."),
]
Cropped = Annotated[
    bool, typer.Option("--cropped", help="The pictures are cut by the eyes already, as those of training were.")
]
DataFolder = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Where the data of the config lie on this machine.")
]

MAX_VALUES = 64
"""Most label values of one morph."""


class WrongUsage(Exception):
    """The command cannot start as it was given; the message is one sentence that says what to do."""


class Stopped(BaseException):
    """A signal asked the command to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


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
        return _stopped(error, arguments), 128 + error.number
    parser_message = getattr(error, "format_message", None)
    if parser_message is not None:
        return _usage_line(error, parser_message()), WRONG_USAGE
    if isinstance(error, WrongUsage) or _asked_wrongly(error):
        return one_line(str(error)), WRONG_USAGE
    return one_line(_sentence(error)), FAILURE


def _stopped(error: Stopped, arguments: Sequence[str]) -> str:
    how = "interrupted" if error.number == signal.SIGINT else "ended by a signal"
    if arguments[:1] != ["train"]:
        return f"{how}; nothing was left half written"
    again = [argument for argument in arguments if argument not in ("--resume", "--force")]
    return f"{how}; what is finished was kept. Go on with: higsfa {shlex.join([*again, '--resume'])}"


def _usage_line(error: Any, message: str) -> str:
    context = getattr(error, "ctx", None)
    command = "higsfa" if context is None else context.command_path
    return one_line(f"{message.rstrip('.')} (see {command} --help)")


def _asked_wrongly(error: BaseException) -> bool:
    """Whether a path, a name or a setting is wrong. Damaged files and a lack of memory or disk are failures."""
    from higsfa import ModelFileError
    from higsfa.experiments import ExperimentError
    from higsfa.sources import ImageFileError

    damaged = isinstance(error.__cause__, ImageFileError | ModelFileError | MemoryError)
    return isinstance(error, ExperimentError) and not damaged and not _is_full(error)


def _sentence(error: BaseException) -> str:
    from higsfa.experiments import ExperimentError

    if _is_full(error):
        return "the disk is full: free some space, then run the same command again (train: with --resume)"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    if isinstance(error, MemoryError):
        return f"not enough memory ({error}): use fewer or smaller pictures, or close other programs"
    if isinstance(error, ExperimentError | ValueError | OSError | ImportError):
        return str(error) or type(error).__name__
    return f"internal error, {type(error).__name__}: {error}; --debug shows where it happened"


def _is_full(error: BaseException | None) -> bool:
    """Whether a full disk, or a quota, is behind an error."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        error = error.__cause__
    return False


def one_line(text: str) -> str:
    """Text that may come from a file, without line breaks and control characters."""
    joined = " ".join(text.split())
    return "".join(character if character.isprintable() else "?" for character in joined)


# ---------------------------------------------------------------------- paths


def existing(path: Path, what: str) -> Path:
    """A path that must be there."""
    if not os.path.lexists(path):
        raise WrongUsage(f"there is no {what} {path}: check the path")
    return path


def free_file(path: Path, force: bool, *endings: str) -> Path:
    """A file that may be written: with one of the endings, not there or to be replaced, in a folder that exists."""
    if endings and path.suffix.lower() not in endings:
        raise WrongUsage(f"{path}: the name must end in {' or '.join(endings)}")
    if path.is_dir():
        raise WrongUsage(f"{path} is a folder: name a file")
    if path.exists() and not force:
        raise WrongUsage(f"{path} is there already: name another file, or replace it with --force")
    if not path.absolute().parent.is_dir():
        raise WrongUsage(f"the folder {path.absolute().parent} does not exist: make it first")
    return path


def free_folder(path: Path, force: bool, hint: str = "") -> Path:
    """A folder that may be filled: not there, empty, or to be replaced."""
    if os.path.lexists(path) and not path.is_dir():
        raise WrongUsage(f"{path} is a file: name a folder")
    if path.is_dir() and any(path.iterdir()) and not force:
        raise WrongUsage(f"the folder {path} is not empty: name another one, {hint}or replace it with --force")
    return path


def opened_run(path: Path, data: Path | None = None, progress: Any = None) -> Any:
    """A run that a command was given."""
    existing(path, "run folder")
    from higsfa.experiments import Run

    return Run(path, data_folder=data, progress=progress)


# ---------------------------------------------------------------------- values


def change(text: str) -> tuple[str, Any]:
    """A key and a value from KEY=VALUE; the value as TOML has it, else as text."""
    import tomllib

    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise WrongUsage(f"--set {text}: write it as KEY=VALUE, such as network.n_components=80")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def label_and_values(age: str | None, label: str | None) -> tuple[str, list[str]]:
    """The label to change and its values, from --age or --label."""
    if (age is None) == (label is None):
        raise WrongUsage("say with one option what to change: --age 20,40,60, or --label NAME=VALUE,VALUE")
    name, _, listed = ("age", "=", age) if age is not None else str(label).partition("=")
    values = [value.strip() for value in str(listed).split(",") if value.strip()]
    if not name or not values:
        raise WrongUsage("--label: write it as NAME=VALUE,VALUE, such as gender=M,F")
    if len(values) > MAX_VALUES:
        raise WrongUsage(f"{len(values)} values are too many for one strip: give at most {MAX_VALUES}")
    if age is not None:
        from higsfa.experiments.use import number

        _ = [number("age", value) for value in values]
    return name.strip(), values
