"""Values of a JSON file that is not trusted: each knows where it stands, and is read as one type or refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from types import NoneType
from typing import Any, NoReturn, TypeVar

from higsfa.io import read_regular

T = TypeVar("T")

LARGEST = 1e100
"""No score, count or time in a report is larger; figures could not show it."""


class ReportError(ValueError):
    """A run folder cannot be made into a report."""


@dataclass(frozen=True)
class Value:
    """A JSON value and its place, such as ``metrics.json: methods[0].delta``."""

    value: Any
    file: str
    key: str = ""

    def refuse(self, expected: str) -> NoReturn:
        kinds: dict[type, str] = {dict: "an object", list: "a list", NoneType: "nothing"}
        found = kinds.get(type(self.value), repr(self.value)[:80])
        raise ReportError(f"{self.file}: {self.key or 'the file'} must be {expected}, found {found}")

    def get(self, key: str) -> Value:
        """A member of an object; one that is absent counts as null."""
        if not isinstance(self.value, dict):
            self.refuse("an object")
        return Value(self.value.get(key), self.file, f"{self.key}.{key}" if self.key else key)

    def members(self, most: int) -> dict[str, Value]:
        if not isinstance(self.value, dict) or len(self.value) > most:
            self.refuse(f"an object of at most {most:,} members")
        return {key: self.get(key) for key in self.value}

    def items(self, most: int) -> list[Value]:
        if not isinstance(self.value, list) or len(self.value) > most:
            self.refuse(f"a list of at most {most:,} entries")
        return [Value(item, self.file, f"{self.key}[{i}]") for i, item in enumerate(self.value)]

    def text(self, longest: int = 1000) -> str:
        """A text; of a longer one the beginning."""
        if not isinstance(self.value, str) or not _is_unicode(self.value):
            self.refuse("a text")
        return self.value if len(self.value) <= longest else self.value[:longest] + "…"

    def number(self) -> float:
        is_number = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        if not is_number or not abs(self.value) <= LARGEST:
            self.refuse("a number")
        return float(self.value)

    def fraction(self) -> float:
        number = self.number()
        if not 0 <= number <= 1:
            self.refuse("a fraction from 0 to 1")
        return number

    def whole(self) -> int:
        if type(self.value) is not int or not 0 <= self.value <= 10**15:
            self.refuse("a whole number of at least 0")
        return int(self.value)

    def one_of(self, *choices: str) -> str:
        if self.value not in choices:
            self.refuse("one of " + ", ".join(choices))
        return str(self.value)

    def maybe(self, read: Callable[[Value], T]) -> T | None:
        """None for null, else what `read` makes of the value."""
        return None if self.value is None else read(self)


def numbers(value: Value, most: int = 10_000) -> tuple[float, ...]:
    return tuple(item.number() for item in value.items(most))


def gappy_numbers(value: Value, most: int = 10_000) -> tuple[float | None, ...]:
    """Numbers of which some may be null."""
    return tuple(item.maybe(Value.number) for item in value.items(most))


def read_bytes(path: Path, most: int) -> bytes:
    """A whole file, unless it is larger than allowed."""
    try:
        return read_regular(path, most)
    except ValueError as error:
        raise ReportError(str(error)) from error


def read_text(path: Path, most: int) -> str:
    try:
        return read_bytes(path, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ReportError(f"{path.name} is not UTF-8 text") from error


def read_json(path: Path, most: int) -> Value:
    """The JSON file, without NaN and infinity."""

    def constant(name: str) -> NoReturn:
        raise ReportError(f"{path.name} holds {name}, which is no JSON; write null instead")

    def real(digits: str) -> float:
        return number if isfinite(number := float(digits)) else constant(digits[:20])

    try:
        return Value(json.loads(read_text(path, most), parse_constant=constant, parse_float=real), path.name)
    except RecursionError as error:
        raise ReportError(f"{path.name} is nested too deeply") from error
    except ReportError:
        raise
    except ValueError as error:
        raise ReportError(f"{path.name} is no JSON: {str(error)[:200]}") from error


def _is_unicode(text: str) -> bool:
    """JSON escapes can spell halves of characters, which no file can hold."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
