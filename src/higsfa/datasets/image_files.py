"""Image files: listed, and found by the paths in a table, but never outside their folder."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path, PureWindowsPath
from typing import Any

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")


def existing_folder(folder: Any) -> Path:
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"folder: there is no folder {folder}")
    return folder


def subfolder(folder: Path, name: str) -> Path | None:
    """The subfolder of that name, ignoring case."""
    return next((path for path in sorted(folder.iterdir()) if path.name.lower() == name and path.is_dir()), None)


def files_in(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Files with these suffixes in the folder and its subfolders, sorted by path."""
    found = []
    for where, folders, names in os.walk(folder):
        folders.sort()
        found += [Path(where, name) for name in names if name.lower().endswith(suffixes) and not name.startswith(".")]
    return sorted(found)


def stem(path: str) -> str:
    """The name of an image file in lower case, without folders and suffix."""
    name = path.replace("\\", "/").rpartition("/")[2].lower()
    return name.rpartition(".")[0] if name.endswith(IMAGE_SUFFIXES) else name


def parse_names(
    folder: Path, pattern: str, example: str, on_malformed: str, data_set: str
) -> tuple[tuple[Path, ...], list[tuple[str, ...]], tuple[str, ...]]:
    """Images whose names match the pattern, the groups of each match, and notes on the images left out."""
    check_choice("on_malformed", on_malformed)
    paths, found, skipped = [], [], []
    for path in files_in(folder, IMAGE_SUFFIXES):
        match = re.fullmatch(pattern, path.name, re.IGNORECASE | re.ASCII)
        if match is None:
            skipped.append(f"{path.relative_to(folder)}: the name is not of the form {example}")
        else:
            paths.append(path)
            found.append(match.groups())
    if not paths:
        raise FileNotFoundError(f"folder: no image with a name of the form {example} in {folder}")
    if skipped:
        some = f"{data_set}: {len(skipped)} images have names that are not of the form {example}: {first_few(skipped)}"
        if on_malformed == "raise":
            raise ValueError(f"{some}; on_malformed='skip' leaves them out")
        warnings.warn(f"{some}; they are left out", UserWarning, stacklevel=3)
    return tuple(paths), found, tuple(skipped)


def path_parts(photo: str, where: str) -> list[str]:
    """The parts of a path in a table. It must not lead out of the folder, on any operating system."""
    parts = [part for part in photo.replace("\\", "/").split("/") if part not in ("", ".")]
    outside = photo.startswith(("/", "\\")) or PureWindowsPath(photo).drive or ".." in parts or "\0" in photo
    if outside or not parts:
        raise ValueError(
            f"{where}: path {photo!r} must name a file inside the folder; absolute paths and '..' are not allowed"
        )
    return parts


def finder(folder: Path, any_folder: bool) -> Callable[[list[str]], Path | None]:
    """A function that finds the file of a path in the folder, ignoring case.

    A path may begin with the name of the folder itself. With `any_folder` it may begin with any names, for data sets
    whose file names are unique. Links in the folder are followed: the folder is the user's own, even if the table is
    somebody else's.
    """
    above = [part.lower() for part in folder.resolve().parts]
    listings: dict[str, dict[str, str]] = {}

    def listing(where: str) -> dict[str, str]:
        if where not in listings:
            entries = sorted(os.listdir(where)) if os.path.isdir(where) else []
            listings[where] = {entry.lower(): entry for entry in entries} | {entry: entry for entry in entries}
        return listings[where]

    def descend(parts: list[str]) -> Path | None:
        where = str(folder)
        for part in parts:
            entry = listing(where).get(part) or listing(where).get(part.lower())
            if entry is None:
                return None
            where = os.path.join(where, entry)
        return Path(where) if os.path.isfile(where) else None

    def find(parts: list[str]) -> Path | None:
        for i in range(len(parts)):
            begins_above = i == 0 or any_folder or [part.lower() for part in parts[:i]] == above[-i:]
            if begins_above and (path := descend(parts[i:])) is not None:
                return path
        return None

    return find


def check_choice(name: str, value: str) -> None:
    if value not in ("raise", "skip"):
        raise ValueError(f"{name}={value!r} is unknown; use 'raise' or 'skip'")


def first_few(texts: list[str], n: int = 5) -> str:
    return ", ".join(texts[:n]) + (", ..." if len(texts) > n else "")
