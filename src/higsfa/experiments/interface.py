"""An experiment and its user: config files in; errors in one line, warnings, progress and a log out."""

from __future__ import annotations

import errno
import os
import threading
import time
import tomllib
import types
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any, Protocol, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from higsfa.experiments.config import RENAMED, Config
from higsfa.io import read_regular, without_waiting
from higsfa.training.sources import Derived, Rows, Samples

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The disk is full, or the user's quota, or a file has reached its size limit."""
CONFIGS = resources.files("higsfa.experiments") / "configs"
MAX_BYTES = 1_000_000  # largest config file
MAX_DOTS = 4_000_000  # most dots of a config file, each line counted by its square
PATHS = ("folder", "csv", "test_csv", "eyes", "file")  # keys of the data tables that hold paths


def shipped_configs() -> dict[str, str]:
    """The experiments that come with the library.

    Returns
    -------
    dict from name to a line that describes it

    Examples
    --------
    >>> sorted(shipped_configs())[:3]
    ['digits', 'faces', 'fairface']
    """
    names = sorted(entry.name.removesuffix(".toml") for entry in CONFIGS.iterdir() if entry.name.endswith(".toml"))
    return {name: str(_parsed(shipped_text(name), name).get("description", "")) for name in names}


def shipped_text(name: str) -> str:
    return (CONFIGS / f"{name}.toml").read_text(encoding="utf-8")


def load_config(path: str | os.PathLike[str], *, of_run: bool = False) -> Config:
    """Read an experiment.

    Parameters
    ----------
    path : path of a TOML file, or the name of a shipped experiment
        Paths in the file are relative to its folder; those of a shipped experiment to the current folder.
    of_run : bool, default=False
        Whether the file is that of a run. An earlier version may have written it, so old keys are accepted.

    Returns
    -------
    Config

    Raises
    ------
    ExperimentError
        If the file is missing or wrong: one line that says what to do.

    Examples
    --------
    >>> load_config("faces").data.size
    64
    """
    name, file = os.fspath(path), Path(path)
    if file.exists() and not file.is_dir():
        try:
            text = read_regular(file, MAX_BYTES).decode("utf-8")
        except (OSError, ValueError) as error:
            raise ExperimentError(f"{name} cannot be read as a config in UTF-8: {error}") from error
        tables = _parsed(text, name)
        return located(checked(_renamed(tables) if of_run else tables, name), file.absolute().parent)
    shipped = shipped_configs()
    if name in shipped:
        return located(checked(_parsed(shipped_text(name), name), name), Path.cwd())
    known = f"give a .toml file or one of {', '.join(sorted(shipped))}"
    raise ExperimentError(f"there is no file or shipped experiment {name!r}{_nearest(name, shipped)}; {known}")


def with_paths(config: Config, folder: str | os.PathLike[str]) -> Config:
    """The same experiment with its data in another folder.

    Parameters
    ----------
    config : Config
    folder : path
        Where the images are now, or the .npz file or its folder. A table is taken from there if it was inside the old
        folder, or if there is a file of its name; otherwise it stays where it is.

    Returns
    -------
    Config

    Examples
    --------
    >>> from higsfa.experiments import load_config, with_paths
    >>> with_paths(load_config("utkface"), "/pictures/utk").data.folder.as_posix()
    '/pictures/utk'
    """
    new, tables = Path(folder).absolute(), config.plain()
    data = tables["data"]
    if not any(key in data for key in PATHS):
        raise ExperimentError(f"data of kind {data['kind']!r} are not read from a folder; leave the folder out")
    old = Path(data["folder"] if "folder" in data else data["file"])
    for key, path in [(key, Path(data[key])) for key in PATHS if key in data]:
        candidate = new / (path.relative_to(old) if path.is_relative_to(old) else path.name)
        if key == "folder":
            data[key] = str(new)
        elif key == "file":
            data[key] = str(new / path.name if new.is_dir() else new)
        elif path.is_relative_to(old) or candidate.is_file():
            data[key] = str(candidate)
    return checked(tables, "the experiment")


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """The same experiment with some values changed.

    Parameters
    ----------
    config : Config
    values : dict
        From keys such as ``"data.n_train"`` to values; None removes the key.

    Returns
    -------
    Config

    Examples
    --------
    >>> with_values(load_config("faces"), {"data.n_train": 100}).data.n_train
    100
    """
    tables = config.plain()
    for key, value in values.items():
        *path, last = key.split(".")
        table = tables
        for part in path:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise ExperimentError(f"{key}: {part!r} is a value and holds no keys")
        table.pop(last, None) if value is None else table.update({last: value})
    return checked(tables, "the experiment")


def located(config: Config, base: Path) -> Config:
    """The same experiment with absolute paths, so that a run finds its data from anywhere."""
    tables = config.plain()
    for table in ("data", "test_data"):
        for key in PATHS:
            if key in tables.get(table, {}):
                tables[table][key] = os.path.abspath(base / Path(tables[table][key]).expanduser())
    return checked(tables, "the experiment")


def checked(tables: Mapping[str, Any], name: str) -> Config:
    """A Config from parsed tables; the most telling of its errors becomes an ExperimentError."""
    try:
        return Config.model_validate(tables)
    except ValidationError as error:
        # A misspelt key also makes the right one missing, and every member of a union complains: name the deepest.
        worst = min(error.errors(include_url=False), key=lambda e: (e["type"] != "extra_forbidden", -len(e["loc"])))
        raise ExperimentError(f"{name}: {_explained(worst, tables)}") from None


def _parsed(text: str, name: str) -> dict[str, Any]:
    # The parser takes time with the square of the parts of a key, a.b.c, and a key is on one line.
    if sum(line.count(".") ** 2 for line in text.split("\n")) > MAX_DOTS:
        raise ExperimentError(f"{name}: not a config: its keys, or its lists of numbers, have far too many parts")
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise ExperimentError(f"{name}: not valid TOML: {error}; see docs/experiments.md for an example") from None
    except RecursionError:
        raise ExperimentError(f"{name}: not valid TOML: lists or tables are nested too deeply") from None


def _renamed(tables: dict[str, Any]) -> dict[str, Any]:
    """The tables of a run with today's names of keys."""
    for name, table in tables.items():
        if isinstance(table, dict) and name in Config.model_fields:
            known = {key for model in _tables(Config.model_fields[name].annotation) for key in model.model_fields}
            tables[name] = {RENAMED[key] if RENAMED.get(key) in known else key: table[key] for key in table}
    # Runs whose file does not say so have one network, and a head that knows no mirror images and other views.
    head = tables.setdefault("head", {})
    if isinstance(head, dict):
        head.setdefault("mirror", False)
        head.setdefault("views", 1)
    network = tables.setdefault("network", {})
    if isinstance(network, dict):
        network.setdefault("members", 1)
    return tables


def _explained(error: Any, tables: Any) -> str:
    """An error of pydantic as one line."""
    kind, given, message = error["type"], error["input"], str(error["msg"])
    keys, fields = _followed(error, tables)
    table, key = f"[{'.'.join(keys)}]", keys[-1] if keys else ""
    where = f"[{'.'.join(keys[:-1])}]" if keys[:-1] else "the top of the file"
    if kind == "extra_forbidden" and RENAMED.get(key) in fields:
        return f"key {key!r} in {where} is called {RENAMED[key]!r} now; rename it"
    if kind == "extra_forbidden":
        known = f"known keys are {', '.join(fields)}" if fields else "leave it out"
        return f"unknown key {key!r} in {where}{_nearest(key, fields)}; {known}"
    if kind == "missing":
        return f"key {key!r} is missing in {where}; add it"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        tag = given.get("kind") if isinstance(given, dict) else None
        if tag is None:
            return f"{table} needs a key kind, one of {', '.join(DATA)}"
        return f"kind = {tag!r} is unknown in {table}{_nearest(str(tag), DATA)}; use one of {', '.join(DATA)}"
    if kind == "value_error":
        return f"{table}: ".removeprefix("[]: ") + message.removeprefix("Value error, ")
    hint = ""
    if kind == "literal_error" and isinstance(given, str):
        hint = _nearest(given, [text.strip(" '") for text in error["ctx"]["expected"].replace(" or ", ",").split(",")])
    message = message.replace("Input should be", "it should be")
    return f"{key} = {_shown(given)} in {where} is not valid: {message[0].lower()}{message[1:]}{hint}"


def _shown(given: Any) -> str:
    try:
        text = repr(given)
    except (ValueError, RecursionError):  # a number of thousands of digits, or tables within tables
        return "the value"
    return text if len(text) < 80 else text[:77] + "..."


def _followed(error: Any, tables: Any) -> tuple[list[str], Mapping[str, Any]]:
    """Keys of the file from the path of an error, which also names members of unions; and the fields of their table."""
    keys: list[str] = []
    table: type[BaseModel] = Config
    inner: type[BaseModel] | None = Config
    for place, part in enumerate(error["loc"]):
        if place == 1 and keys[0] in ("data", "test_data"):
            inner = DATA.get(part)
        elif isinstance(tables, list) and isinstance(part, int):
            keys.append(str(part + 1))
            tables = tables[part]
        elif isinstance(tables, Mapping) and (part in tables or error["type"] == "missing"):
            keys.append(str(part))
            tables = tables.get(part)
            if inner is not None:
                table = inner
                options = _tables(table.model_fields[part].annotation) if part in table.model_fields else []
                inner = options[0] if len(options) == 1 else None
    return keys, table.model_fields


def _tables(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, types.UnionType, list, dict) or hasattr(annotation, "__metadata__"):
        return [table for part in get_args(annotation) for table in _tables(part)]
    return []


DATA = {
    tag: model
    for model in _tables(Config.model_fields["data"].annotation)
    for tag in get_args(model.model_fields["kind"].annotation)
}
"""The tables of the kinds of data."""


def _nearest(word: str, known: Iterable[str]) -> str:
    close = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


class ExperimentError(Exception):
    """An error that the user can fix; the message is one line and says how.

    Examples
    --------
    >>> from higsfa.experiments import ExperimentError, load_config, with_values
    >>> try:
    ...     with_values(load_config("digits"), {"network.n_job": 2})
    ... except ExperimentError as error:
    ...     print(error)  # doctest: +ELLIPSIS
    the experiment: unknown key 'n_job' in [network] (did you mean 'n_jobs'?); ...
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


@contextmanager
def in_one_line(what: str) -> Iterator[None]:
    """Turn errors about the user's data or settings into an ExperimentError that begins with `what`."""
    try:
        yield
    except (OSError, ValueError, TypeError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno in FULL:
            raise
        raise ExperimentError(f"{what}: {error}") from error


@contextmanager
def of_the_disk(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors of the file system into an ExperimentError; what was written so far stays."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise ExperimentError(f"the run in {os.fspath(folder)} stopped: {error}") from error
        raise ExperimentError(
            f"the disk that holds {os.fspath(folder)} is full: free some space and continue with resume (--resume); "
            "what is finished was kept"
        ) from error


def named(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def noted(caught: Sequence[warnings.WarningMessage], most: int = 20) -> tuple[str, ...]:
    """Warnings as lines for metrics.json, without repetitions, `most` of them."""
    texts = list(dict.fromkeys(" ".join(str(item.message).split()) for item in caught))
    more = [f"... and {len(texts) - most} more warnings"] if len(texts) > most else []
    return (*texts[:most], *more)


class Progress(Protocol):
    """What shows the progress of a run.

    Examples
    --------
    >>> import tempfile
    >>> from higsfa.experiments import Progress, load_config, train, with_values
    >>> class Stages(Progress):
    ...     def stage(self, text, total):
    ...         seen.append(text)
    >>> seen = []
    >>> config = with_values(load_config("toy"), {"data.n_train": 500, "data.n_test": 100})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = train(config, f"{folder}/toy", n_jobs=1, progress=Stages())
    >>> len(seen) > 2
    True
    """

    def stage(self, text: str, total: int | None) -> None:
        """A new stage begins, of `total` steps (None: unknown)."""
        return

    def advance(self, n: int) -> None:
        """`n` steps of the stage are done."""
        return

    def remark(self, text: str) -> None:
        """A line to be read; not every progress shows it."""
        return


class Silent(Progress):
    """Shows nothing."""


@dataclass
class Log:
    """Stages of a run, shown by `progress` and appended to the file `path` with times."""

    path: Path
    progress: Progress
    started: float = field(default_factory=time.monotonic)

    def stage(self, text: str, total: int | None = None) -> None:
        self.progress.stage(text, total)
        self.note(text)

    def remark(self, text: str) -> None:
        if hasattr(self.progress, "remark"):
            self.progress.remark(text)
        self.note(text)

    def note(self, text: str) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with open(self.path, "a", encoding="utf-8", errors="replace", opener=without_waiting) as file:
            file.write(f"{now} {time.monotonic() - self.started:8.1f} s  {' '.join(text.split())}\n")


@dataclass(frozen=True, eq=False, repr=False)
class Counted(Derived):
    """The samples of a source; reading them advances the progress by at most `most` steps in all."""

    progress: Progress
    most: int
    _lock: Any = field(default_factory=threading.Lock)
    _done: list[int] = field(default_factory=lambda: [0])

    def _take(self, rows: Rows) -> Samples:
        taken = self.parent.take(rows)
        with self._lock:
            step = min(len(rows), self.most - self._done[0])
            self._done[0] += step
        if step:
            self.progress.advance(step)
        return taken

    def fingerprint(self) -> str:
        return self.parent.fingerprint()

    def _identity(self) -> Any:
        return (self.parent.fingerprint(),)
