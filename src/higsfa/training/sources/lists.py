"""Samples as people have them: lists of arrays, pictures or paths, and tensors of other libraries."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from higsfa.training.sources.base import Samples
from higsfa.training.sources.images import EXTENSIONS, MAX_PIXELS, images, is_colour, upright

WAY = "pass sources.images(paths, shape=(height, width)), which makes all of one size"


def collected(X: Any) -> Any:
    """One array, or a source, of what was in a list; whatever is none stays as it is.

    Paths become a source of pictures, `PIL` images an array. If any of them has colours, all are (height, width, 3),
    else all are grey. Of a list of arrays or tensors, all must have one shape.
    """
    if isinstance(X, str | os.PathLike):
        raise TypeError(f"X is a path, {os.fspath(X)!r}: pass sources.images(folder) or sources.npy(file) instead")
    if isinstance(X, Image.Image):
        raise TypeError("X is one picture: pass a list of pictures, [X]")
    if not isinstance(X, list | tuple) and getattr(X, "ndim", 0) != 1:
        return _array(X)
    if len(X) == 0:
        return X
    items = list(X)
    if _all(items, str | os.PathLike):
        return _files(items)
    if _all(items, Image.Image):
        return _pictures(items)
    if all(hasattr(item, "__array__") or hasattr(item, "__dlpack__") for item in items):
        return _stacked([_array(item) for item in items])
    return np.asarray(X) if _depth(X) > 2 else X


def _all(items: list[Any], kind: Any) -> bool:
    """Whether all items are of a kind; an error if some are."""
    which = [isinstance(item, kind) for item in items]
    if any(which) and not all(which):
        a, b = type(items[which.index(True)]).__name__, type(items[which.index(False)]).__name__
        raise TypeError(f"X holds a {a} (item {which.index(True)}) and a {b} (item {which.index(False)}): use one kind")
    return all(which)


def _depth(X: Any) -> int:
    """Number of nested lists, along the first items."""
    return 1 + _depth(X[0]) if isinstance(X, list | tuple) and len(X) else 0


def _array(item: Any) -> Any:
    if hasattr(item, "__array__") or not hasattr(item, "__dlpack__"):
        return item
    try:
        return np.from_dlpack(item)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        name = type(item).__name__
        raise TypeError(f"X: a {name} cannot be read as an array ({error}); move it to the processor first") from error


def _stacked(items: list[Any]) -> Samples:
    arrays = [np.asarray(item) for item in items]
    for i, one in enumerate(arrays):
        if one.shape != arrays[0].shape:
            raise ValueError(
                f"X: item {i} of the list has shape {one.shape} and item 0 has {arrays[0].shape}, but all samples must "
                "have one shape; recordings are joined by np.concatenate, and told apart by groups"
            )
    return np.stack(arrays)


def _files(paths: list[Any]) -> Any:
    def is_picture(path: Any) -> bool:
        return Path(path).suffix.lower() in EXTENSIONS or os.path.isfile(path)

    if not any(is_picture(path) for path in paths[:100]):
        raise ValueError(f"X is a list of texts such as {paths[0]!r}, no numbers; if they are picture files, {WAY}")
    return images(paths, mode="auto")


def _pictures(pictures: list[Image.Image]) -> Samples:
    mode = "RGB" if any(is_colour(picture) for picture in pictures) else "L"
    for i, picture in enumerate(pictures):
        if picture.size != pictures[0].size:
            raise ValueError(
                f"X: picture {i} of the list has {picture.size} pixels and picture 0 has {pictures[0].size}, but all "
                f"must have one size: resize them, or {WAY}"
            )
    return np.stack([np.asarray(upright(p, mode, MAX_PIXELS, Path(f"picture {i}"))) for i, p in enumerate(pictures)])
