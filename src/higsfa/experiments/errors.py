"""What goes wrong in an experiment, said in one line."""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

__all__ = ["ExperimentError", "in_one_line", "named", "noted", "of_the_disk"]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The disk is full, or the user's share of it, or a file has grown as far as it may."""


class ExperimentError(Exception):
    """Something about an experiment that its user can mend; the message is one line and names the way out."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


@contextmanager
def in_one_line(what: str) -> Iterator[None]:
    """Errors that speak of the user's data or settings, as an ExperimentError that begins with `what`."""
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
    """Errors of the file system as an ExperimentError; what was written so far stays."""
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
    """Warnings as lines for metrics.json, the same one once, and not too many of them."""
    texts = list(dict.fromkeys(" ".join(str(item.message).split()) for item in caught))
    more = [f"... and {len(texts) - most} more warnings"] if len(texts) > most else []
    return (*texts[:most], *more)
