"""A walk as one HTML page: what the animal sees, its path in the box, and features over time."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from higsfa.io import write_atomically
from higsfa.report.page import fill, json_in_html
from higsfa.sources import as_source

MOST_FRAMES = 400  # on one sheet; browsers refuse pictures of more than some 16,000 rows


def write_walk(
    out: str | PathLike[str],
    views: Any,
    walk: Mapping[str, Any],
    features: Any,
    *,
    size: tuple[float, float] = (3.0, 2.0),
    title: str = "A walk and its slow features",
) -> Path:
    """Write a page on which a walk is played, with features beside it.

    Parameters
    ----------
    out : path
        The HTML file; it needs nothing but a browser.
    views : uint8 array of shape (n_frames, height, width, 3), or a source
        At most 400 frames, as :func:`higsfa.datasets.make_rat_views` draws them.
    walk : dict of arrays
        ``x``, ``y`` and ``direction`` of these frames.
    features : array of shape (n_frames, n_features)
        Shown in standard deviations from their mean; a dozen is a good number.
    size : (float, float), default=(3.0, 2.0)
        Of the box.
    title : str

    Returns
    -------
    Path
        The file written.

    Examples
    --------
    >>> import tempfile
    >>> from higsfa.datasets import make_rat_views
    >>> from higsfa.report import write_walk
    >>> views, walk = make_rat_views(20)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_walk(f"{folder}/walk.html", views, walk, views[:, :2, 0, 0]).stat().st_size < 200_000
    True
    """
    source, Y = as_source(views), np.asarray(features, dtype=np.float64)
    n = len(source)
    if not 1 <= n <= MOST_FRAMES:
        raise ValueError(f"views: 1 to {MOST_FRAMES} frames fit on a page, got {n}; pass a part of the walk")
    if source.dtype != np.uint8 or len(source.shape) != 3 or source.shape[2] != 3:
        raise ValueError(f"views must be RGB pictures of uint8, got samples of shape {source.shape}, {source.dtype}")
    path = {name: np.asarray(walk[name], dtype=np.float64) for name in ("x", "y", "direction")}
    if Y.ndim != 2 or len(Y) != n or any(values.shape != (n,) for values in path.values()):
        raise ValueError(f"walk and features must have {n} rows, one for each view; features have shape {Y.shape}")
    if not np.isfinite(Y).all() or not all(np.isfinite(values).all() for values in path.values()):
        raise ValueError("walk and features must be finite")
    spread = Y.std(axis=0)
    Y = np.clip((Y - Y.mean(axis=0)) / np.where(spread > 0, spread, 1.0), -3, 3)
    height, width, _ = source.shape
    sheet, file = source.take(np.arange(n)).reshape(n * height, width, 3), io.BytesIO()
    Image.fromarray(sheet).save(file, format="JPEG", quality=80)
    data = {
        **{name: np.round(values, 3).tolist() for name, values in path.items()},
        "size": [float(side) for side in size],
        "features": np.round(Y.T, 2).tolist(),
        "width": width,
        "height": height,
        "views": "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode("ascii"),
    }
    page = fill("walk.html.jinja", "walk.css", title=title, n_frames=n, n_features=Y.shape[1], data=json_in_html(data))
    write_atomically(out, page.encode("utf-8"))
    return Path(out)
