"""From a TOML file to a checked `Config`, with errors in one line."""

from __future__ import annotations

import os
import tomllib
import types
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from higsfa.experiments.config import RENAMED, Config
from higsfa.experiments.reporting import ExperimentError
from higsfa.io import read_regular

__all__ = ["checked", "load_config", "located", "shipped_configs", "shipped_text", "with_paths", "with_values"]

MAX_BYTES = 1_000_000
"""Largest config file."""
MAX_DOTS = 4_000_000
"""Most dots of a config file, each line counted by its square."""
PATHS = ("folder", "csv", "test_csv", "eyes", "file")
"""Keys of the data tables that hold paths."""


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
    folder = resources.files("higsfa.experiments") / "configs"
    names = sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return {name: str(_parsed(shipped_text(name), name).get("description", "")) for name in names}


def shipped_text(name: str) -> str:
    """The TOML text of an experiment that comes with the library."""
    return (resources.files("higsfa.experiments") / "configs" / f"{name}.toml").read_text(encoding="utf-8")


def load_config(path: str | os.PathLike[str], *, of_run: bool = False) -> Config:
    """Read an experiment.

    Parameters
    ----------
    path : path of a TOML file, or the name of a shipped experiment
        Paths in the file are relative to its folder; those of a shipped experiment to the current folder.
    of_run : bool, default=False
        Whether the file is that of a run. Then an earlier version may have written it, and old keys are taken.

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
        Where the images are now, or the .npz file or its folder. Tables that lay inside the old folder, or that have a
        file of the same name in the new one, are taken from the new one; the others stay where they are.

    Returns
    -------
    Config
    """
    new = Path(folder).absolute()
    tables = config.plain()
    data = tables["data"]
    if not any(key in data for key in PATHS):
        raise ExperimentError(f"data of kind {data['kind']!r} are not read from a folder; leave the folder out")
    old = Path(data["folder"] if "folder" in data else data["file"])
    for key in PATHS:
        if key in data:
            data[key] = str(_moved(key, Path(data[key]), old, new))
    return checked(tables, "the experiment")


def _moved(key: str, path: Path, old: Path, new: Path) -> Path:
    if key == "folder":
        return new
    if key == "file":
        return new / path.name if new.is_dir() else new
    candidate = new / (path.relative_to(old) if path.is_relative_to(old) else path.name)
    return candidate if path.is_relative_to(old) or candidate.is_file() else path


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """The same experiment with some values changed.

    Parameters
    ----------
    config : Config
    values : dict
        From keys such as ``"data.n_train"`` to values; a value None takes the key out.

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


def checked(tables: Mapping[str, Any], name: str) -> Config:
    """A Config from parsed tables; the worst of what is wrong is an ExperimentError."""
    try:
        return Config.model_validate(tables)
    except ValidationError as error:
        # A misspelt key also makes the right one missing, and every member of a union complains: name the deepest.
        worst = min(error.errors(include_url=False), key=lambda e: (e["type"] != "extra_forbidden", -len(e["loc"])))
        raise ExperimentError(f"{name}: {_explained(worst)}") from None


# ---------------------------------------------------------------------------------------------- files


def _parsed(text: str, name: str) -> dict[str, Any]:
    # The parser takes time with the square of the parts of a key, a.b.c, and a key stands on one line.
    if sum(line.count(".") ** 2 for line in text.split("\n")) > MAX_DOTS:
        raise ExperimentError(f"{name}: not a config: its keys, or its lists of numbers, have far too many parts")
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise ExperimentError(f"{name}: not valid TOML: {error}; see docs/experiments.md for an example") from None
    except RecursionError:
        raise ExperimentError(f"{name}: not valid TOML: lists or tables are nested too deeply") from None


def _renamed(tables: dict[str, Any]) -> dict[str, Any]:
    """The same tables with today's names of keys."""
    for name, table in tables.items():
        if isinstance(table, dict) and name in Config.model_fields:
            known = {key for model in _tables(Config.model_fields[name].annotation) for key in model.model_fields}
            tables[name] = {RENAMED[key] if RENAMED.get(key) in known else key: table[key] for key in table}
    return tables


def located(config: Config, base: Path) -> Config:
    """The same experiment with absolute paths, so that a run finds its data from anywhere."""
    tables = config.plain()
    for table in ("data", "test_data"):
        for key in PATHS:
            if key in tables.get(table, {}):
                tables[table][key] = os.path.abspath(base / Path(tables[table][key]).expanduser())
    return checked(tables, "the experiment")


# ---------------------------------------------------------------------------------------------- messages


def _explained(error: Any) -> str:
    """An error of pydantic as one line."""
    loc, kind, given = error["loc"], error["type"], error["input"]
    keys, model = _followed(loc)
    where = f"[{'.'.join(keys[:-1])}]" if keys[:-1] else "the top of the file"
    key = keys[-1] if keys else ""
    fields = model.model_fields if model is not None else {}
    if kind == "extra_forbidden" and RENAMED.get(key) in fields:
        return f"key {key!r} in {where} is called {RENAMED[key]!r} now; rename it"
    if kind == "extra_forbidden":
        known = f"known keys are {', '.join(fields)}" if fields else "leave it out"
        return f"unknown key {key!r} in {where}{_nearest(key, fields)}; {known}"
    if kind == "missing":
        return f"key {key!r} is missing in {where}; add it"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        table = f"[{'.'.join(keys)}]"
        tag = given.get("kind") if isinstance(given, dict) else None
        kinds = [text.strip().strip("'") for text in error.get("ctx", {}).get("expected_tags", "").split(",")]
        if tag is None:
            options = [tag for model in _tables(Config.model_fields["data"].annotation) for tag in _tags(model)]
            return f"{table} needs a key kind, one of {', '.join(options)}"
        return f"kind = {tag!r} is unknown in {table}{_nearest(str(tag), kinds)}; use one of {', '.join(kinds)}"
    if kind == "value_error":
        reason = str(error["msg"]).removeprefix("Value error, ")
        return f"[{'.'.join(keys)}]: {reason}" if keys else reason
    shown = _shown(given)
    message = str(error["msg"]).replace("Input should be", "it should be")
    hint = ""
    if kind == "literal_error" and isinstance(given, str):
        options = [text.strip(" '") for text in error["ctx"]["expected"].replace(" or ", ",").split(",")]
        hint = _nearest(given, options)
    return f"{key} = {shown} in {where} will not do: {message[0].lower()}{message[1:]}{hint}"


def _shown(given: Any) -> str:
    try:
        text = repr(given)
    except (ValueError, RecursionError):  # a number of thousands of digits, or tables within tables
        return "what stands there"
    return text if len(text) < 80 else text[:77] + "..."


def _followed(loc: tuple[Any, ...]) -> tuple[list[str], type[BaseModel] | None]:
    """Keys of the file from the path of an error, which also names members of unions; and the table they end in."""
    keys: list[str] = []
    model: type[BaseModel] | None = Config
    table: type[BaseModel] | None = Config
    members: list[type[BaseModel]] | None = None  # of a union, if the next part names one of them
    for part in loc:
        if isinstance(part, int):
            keys.append(str(part + 1))
        elif members is not None:
            model = next((m for m in members if part in _tags(m) or len(members) == 1), None)
            members = None
        elif model is not None:
            table = model
            keys.append(str(part))
            found = model.model_fields.get(str(part))
            options = _tables(found.annotation) if found is not None else []
            model = options[0] if len(options) == 1 else None
            if found is not None and _is_union(found.annotation):
                members = options
        elif not any(mark in part for mark in "[('") and part not in ("int", "float", "str", "constrained-int", "cv"):
            keys.append(part)
    return keys, table


def _is_union(annotation: Any) -> bool:
    """Whether several types are allowed; None is not counted."""
    return get_origin(annotation) in (Union, types.UnionType) and len(set(get_args(annotation)) - {type(None)}) > 1


def _tags(model: type[BaseModel]) -> tuple[str, ...]:
    """The values of `kind` that choose a table."""
    return get_args(model.model_fields["kind"].annotation) if "kind" in model.model_fields else ()


def _tables(annotation: Any) -> list[type[BaseModel]]:
    """All tables in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, types.UnionType, list, dict) or hasattr(annotation, "__metadata__"):
        return [table for part in get_args(annotation) for table in _tables(part)]
    return []


def _nearest(word: str, known: Any) -> str:
    close = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""
