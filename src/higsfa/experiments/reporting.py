"""What an experiment tells its user: errors in one line, warnings, progress, and a log."""

from __future__ import annotations

import errno
import os
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from higsfa.io import without_waiting
from higsfa.training.sources import Derived, Rows, Samples

__all__ = ["Counted", "ExperimentError", "Log", "Progress", "Silent", "in_one_line", "named", "noted", "of_the_disk"]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The disk is full, or the user's quota, or a file has reached its size limit."""


class ExperimentError(Exception):
    """An error that the user can mend; the message is one line and says how."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


@contextmanager
def in_one_line(what: str) -> Iterator[None]:
    """Turn errors about the user's data or settings into an ExperimentError that begins with `what`."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise
        raise ExperimentError(f"{what}: {error}") from error
    except (ValueError, TypeError, MemoryError) as error:
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
            f"the disk that holds {os.fspath(folder)} is full: free some space and go on with resume (--resume); "
            "what is finished was kept"
        ) from error


def named(names: Iterable[str]) -> str:
    """Names for a message."""
    return ", ".join(map(repr, names)) or "none"


def noted(caught: Sequence[warnings.WarningMessage], most: int = 20) -> tuple[str, ...]:
    """Warnings as lines for metrics.json, without repetitions, `most` of them."""
    texts = list(dict.fromkeys(" ".join(str(item.message).split()) for item in caught))
    more = [f"... and {len(texts) - most} more warnings"] if len(texts) > most else []
    return (*texts[:most], *more)


class Progress(Protocol):
    """What shows the progress of a run."""

    def stage(self, text: str, total: int | None) -> None:
        """A new stage begins, of `total` steps (None: unknown)."""
        return

    def advance(self, n: int) -> None:
        """`n` steps of the stage are done."""
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
