"""Tables of text as users have them: separated by commas, semicolons or tabs, and trusted in nothing."""

from __future__ import annotations

import csv as csvlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from higsfa.io import open_regular


@dataclass(frozen=True)
class Table:
    path: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int]

    def column(self, *names: str, required: bool = False) -> Any:
        """The column with the first of these names that exists, stripped of blanks; None if there is none."""
        known = {plain(column): i for i, column in reversed(list(enumerate(self.header)))}
        for name in names:
            if (i := known.get(plain(name))) is not None:
                return [row[i].strip() for row in self.rows]
        if required:
            raise ValueError(f"{self.path}: no column {' or '.join(map(repr, names))} among {self.header}")
        return None


def plain(column: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", column.lower()).strip("_")


def read_table(path: Any, max_rows: int, max_line: int, header: bool = True) -> Table:
    """A table of text in UTF-8, separated by commas, semicolons or tabs."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"csv: there is no file {path}")
    rows, lines = [], []
    with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
        try:
            text = _limited_lines(file, path, max_line)
            n_blank, first = 0, next(text, "")
            while first and not first.strip():
                n_blank, first = n_blank + 1, next(text, "")
            reader = csvlib.reader(chain([first], text), delimiter=max(",;\t", key=first.count))
            for row in reader:
                if any(field.strip() for field in row):
                    rows.append(row)
                    lines.append(n_blank + reader.line_num)
                if len(rows) > max_rows:
                    raise ValueError(f"{path}: more than {max_rows} rows; split the table")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not a table in UTF-8 ({error.reason}); save it as CSV in UTF-8") from None
        except csvlib.Error as error:
            raise ValueError(f"{path}: not a readable CSV table: {error}") from None
    if not rows or (header and len(rows) < 2):
        raise ValueError(f"{path}: the table is empty; it needs a line of column names and at least one row")
    names = [name.strip() for name in rows[0]] if header else [str(i) for i in range(len(rows[0]))]
    start = 1 if header else 0
    width = len(names)
    for i, row in enumerate(rows):
        if len(row) < width or any(field.strip() for field in row[width:]):
            raise ValueError(f"{path}, line {lines[i]}: {len(row)} fields where the first line has {width}")
    return Table(path, names, rows[start:], lines[start:])


def _limited_lines(file: Any, path: Path, max_line: int) -> Iterator[str]:
    while line := file.readline(max_line + 1):
        if len(line) > max_line:
            raise ValueError(f"{path}: a line has more than {max_line} characters; is it a CSV table?")
        yield line
