"""How a run tells what it is doing: to a progress bar, and to its log."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from higsfa.io import without_waiting
from higsfa.training.sources import Derived, Rows, Samples, Source

__all__ = ["Log", "Progress", "Silent", "counted"]


class Progress(Protocol):
    """What shows the progress of a run."""

    def stage(self, text: str, total: int | None) -> None:
        """A new stage begins, of so many steps (unknown if None)."""

    def advance(self, n: int) -> None:
        """So many steps of the stage are done."""


class Silent:
    """Shows nothing."""

    def stage(self, text: str, total: int | None) -> None:
        pass

    def advance(self, n: int) -> None:
        pass


@dataclass
class Log:
    """Stages of a run, shown and written to a file with times.

    Parameters
    ----------
    path : Path
        Lines are appended.
    progress : Progress
    """

    path: Path
    progress: Progress
    started: float = field(default_factory=time.monotonic)

    def stage(self, text: str, total: int | None = None) -> None:
        self.progress.stage(text, total)
        self.note(text)

    def note(self, text: str) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with open(self.path, "a", encoding="utf-8", errors="replace", opener=without_waiting) as file:
            file.write(f"{now} {time.monotonic() - self.started:8.1f} s  {' '.join(text.split())}\n")


def counted(source: Source, progress: Progress, most: int) -> Source:
    """The same samples; reading them advances the progress, `most` steps at most."""
    return Counted(source, progress, most)


@dataclass(frozen=True, eq=False, repr=False)
class Counted(Derived):
    """Samples that are counted when they are read."""

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
