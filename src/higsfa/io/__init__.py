"""Whole files: written completely or not at all, and read only if they are regular.

A pipe or a device in place of a file could make a reader wait forever, or never end.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

__all__ = ["open_regular", "read_regular", "replacing", "without_waiting", "write_atomically"]


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file open for writing bytes, which replaces `path` once it is complete and on disk; else nothing changes."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "cannot write, there is no such directory", str(path.parent))
    temporary = path.with_name(f".higsfa-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        # Name the user's file, not the temporary one.
        if error.filename in (None, str(temporary)):
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file completely, or leave it as it was."""
    with replacing(path) as file:
        file.write(data)


def _sync_folder(folder: Path) -> None:
    """Make a new name survive a power cut, if the system can."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """A regular file, or a link to one, open for reading bytes; a ValueError for anything else, at once."""
    file = open(path, "rb", opener=without_waiting)  # noqa: SIM115  for the caller to close
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError(f"{os.fspath(path)} is not a regular file but a pipe, a device or the like; name a file")
    return file


def without_waiting(path: str, flags: int) -> int:
    """Opener for `open` that does not wait for the other end of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """All bytes of a regular file; more than `most` are a ValueError."""
    with open_regular(path) as file:
        # `read` allocates what it is asked for, so ask for no more than the file has.
        data = file.read(min(os.fstat(file.fileno()).st_size, most) + 1)
    if len(data) > most:
        raise ValueError(f"{os.fspath(path)} is larger than {most:,} bytes; check that it is the right file")
    return data
