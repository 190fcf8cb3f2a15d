"""Results that are kept one by one, so that an interrupted run goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _data import SIZES, Absent, draw

FOLDER = Path(__file__).resolve().parent / "results"


class Records:
    """A file of results by key, such as "digits/50/pyramid/0.1/0"; the last part is the number of the draw."""

    def __init__(self, name: str) -> None:
        self.path = FOLDER / f"{name}.json"
        self.rows: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else {}

    def __contains__(self, key: str) -> bool:
        return key in self.rows

    def add(self, key: str, row: Any) -> None:
        """Keep a result; the file is whole at any time."""
        self.rows[key] = row
        lines = (f"{json.dumps(name)}: {json.dumps(self.rows[name])}" for name in sorted(self.rows))
        self.path.parent.mkdir(exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        os.replace(new, self.path)

    def of(self, start: str, draws: int) -> list[Any]:
        """The rows of the first draws that are there."""
        return [self.rows[f"{start}/{d}"] for d in range(draws) if f"{start}/{d}" in self.rows]


def choose_cases(args: Any, names: tuple[str, ...]) -> list[tuple[str, int]]:
    """Data sets and sizes that the options --data and --sizes ask for."""
    asked, sizes = tuple(args.data.split(",")), args.sizes and {int(size) for size in args.sizes.split(",")}
    cases = [(data, size) for data in names if data.startswith(asked) for size in SIZES[data]]
    return [(data, size) for data, size in cases if not sizes or size in sizes]


def fill(
    records: Records,
    cases: list[tuple[str, int]],
    draws: int,
    keys_of: Callable[[str, int, int], dict[Any, str]],
    measure: Callable[[str, Any, Any], Any],
    again: bool,
) -> None:
    """Measure what is missing: all keys of a draw on the same images; absent data are skipped."""
    for data, size in cases:
        for number in range(draws):
            keys = keys_of(data, size, number)
            missing = {what: key for what, key in keys.items() if again or key not in records}
            try:
                images = draw(data, size, number) if missing else None
            except Absent as reason:
                print(f"skipped: {reason}")
                break
            for what, key in missing.items():
                records.add(key, measure(data, images, what))
                print(key, records.rows[key], flush=True)


def mean_and_error(values: Any, draws: int) -> str:
    """Mean ± standard error; the number of draws in brackets if there are fewer than wanted."""
    if not len(values):
        return "-"
    error = f" ± {np.std(values, ddof=1) / np.sqrt(len(values)):.2f}" if len(values) > 1 else ""
    return f"{np.mean(values):.2f}{error}" + (f" ({len(values)})" if len(values) < draws else "")
