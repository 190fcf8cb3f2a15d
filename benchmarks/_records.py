"""Results that are kept one by one, so that an interrupted run goes on where it was."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

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


def mean_and_error(values: Any, draws: int) -> str:
    """Mean ± standard error; the number of draws in brackets if there are fewer than wanted."""
    if not len(values):
        return "-"
    error = f" ± {np.std(values, ddof=1) / np.sqrt(len(values)):.2f}" if len(values) > 1 else ""
    return f"{np.mean(values):.2f}{error}" + (f" ({len(values)})" if len(values) < draws else "")
