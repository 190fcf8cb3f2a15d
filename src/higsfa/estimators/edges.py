"""OrientedEdges: the front end for pictures, by itself and as the first step of a network."""

from __future__ import annotations

import warnings
from math import prod
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from higsfa.core.edges import Edges, EdgesInverse
from higsfa.estimators.validation import (
    Estimator,
    assert_finite,
    assign,
    batches,
    check_data,
    fit_task,
    like,
    read_features,
)
from higsfa.training.sources import Source, evenly_spread
from higsfa.training.sources.derived import Mapped

LEAST_SIZE = 16
"""Pixels on the shorter side of pictures that get a front end by themselves."""
MOST_CELLS = 16
"""Cells on the longer side, with cell="auto"."""
N_PILOT, PILOT_VALUES = 512, 2**25
"""Pictures, and pixels of them in all, that are looked at when fitting."""
N_LOOKED_AT = 16
"""New pictures that tell where black and white are."""
MOST_CHANNELS = 4


class OrientedEdges(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Strength of edges in each direction, in each cell of a picture.

    A fixed description of pictures, whose pixels depend more on light than on the label. It is the first step of
    networks on pictures, ``HiGSFA(front="edges")``, and can be used alone, in front of any classifier.

    Parameters
    ----------
    cell : int or "auto", default="auto"
        Side of a cell in pixels. "auto": a sixteenth of the longer side, 3 at least.
    directions : int, default=12
        Directions from dark to bright around the circle: the first is brighter to the right, the next turn clockwise.
    input_shape : tuple of int, optional
        Shape of a picture: height, width and, for colour, the number of channels. That of the data by default; needed
        where samples are rows of pixels.

    Attributes
    ----------
    edges_ : Edges
        What is computed, with `out_shape`: rows, columns, and `directions` plus one mean for each channel.
    n_features_in_ : int
        Pixels of a picture, all channels.

    Notes
    -----
    Black and white are those of the dtype for integers of 8 and 16 bits. For other numbers, as some samples tell, 0 and
    1 if they lie between them, 0 and 255 if they do and some are above the middle, else the least and the largest one.

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa import OrientedEdges
    >>> brighter_to_the_right = np.tile(np.linspace(0, 1, 64), (5, 64, 1))
    >>> edges = OrientedEdges().fit(brighter_to_the_right)
    >>> edges.edges_.out_shape
    (16, 16, 13)
    >>> Y = edges.transform(brighter_to_the_right)
    >>> Y.shape, int(Y.reshape(5, 16, 16, 13)[0, 8, 8, :12].argmax())
    ((5, 3328), 0)
    """

    _parameter_constraints: dict[str, Any] = {
        "cell": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "directions": [Interval(Integral, 1, 64, closed="both")],
        "input_shape": [tuple, list, None],
    }

    def __init__(self, cell: Any = "auto", directions: int = 12, *, input_shape: Any = None) -> None:
        assign(locals())

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> OrientedEdges:
        """Find black and white, and how to turn cells into pictures.

        Parameters
        ----------
        X : array-like of shape (n_samples, height, width), (n_samples, height, width, channels), or a source
        y : ignored

        Returns
        -------
        self
        """
        with fit_task(self, X, y):
            return self.fit_source(check_data(self, X, reset=True, allow_nd=True), self.input_shape)

    def fit_source(self, source: Source, shape: Any) -> OrientedEdges:
        """Fit to samples that have been checked, of this shape (theirs by default)."""
        shape = tuple(int(size) for size in (source.shape if shape is None else shape))
        if len(shape) not in (2, 3) or prod(shape) != prod(source.shape) or min(shape) < 1:
            raise ValueError(
                f"input_shape={shape} for samples of shape {source.shape}: pictures have a height, a width and, for "
                "colour, channels last"
            )
        images = source.take(evenly_spread(len(source), min(N_PILOT, max(1, PILOT_VALUES // prod(shape)))))
        assert_finite(self, images)
        self.edges_ = self.plan(shape, *pixel_range(images))
        self._inverse = EdgesInverse.fit(self.edges_, images)
        self.n_features_in_ = prod(shape)
        return self

    def plan(self, shape: tuple[int, ...], black: float = 0.0, white: float = 1.0) -> Edges:
        """What is computed of pictures of this shape."""
        cell = max(3, round(max(shape[:2]) / MOST_CELLS)) if self.cell == "auto" else int(self.cell)
        return Edges(shape, min(cell, *shape[:2]), int(self.directions), black, white)

    def check_range(self, source: Source) -> None:
        """Warn of new pictures from 0 to 1 where those of `fit` went from 0 to 255, or the other way round."""
        images = source.take(evenly_spread(len(source), N_LOOKED_AT))
        if not images.size or not images.max() > 0:
            return
        white = pixel_range(images)[1]
        if {white, self.edges_.white} == {1.0, 255.0}:
            warnings.warn(
                f"X: white is {white:g} in these pictures, but was {self.edges_.white:g} in those that fit saw; scale "
                "them alike, or estimates mean little",
                UserWarning,
                stacklevel=3,
            )

    def seen(self, source: Source) -> Source:
        """A source of the cells of pictures, (n, rows, columns, channels)."""
        return Mapped(source, self.edges_.out_shape, np.dtype(np.float32), self.edges_)

    @property
    def _n_features_out(self) -> int:
        return prod(self.edges_.out_shape)

    def transform(self, X: Any) -> np.ndarray:
        """Describe pictures.

        Parameters
        ----------
        X : samples, as in `fit`

        Returns
        -------
        array of float32, of shape (n_samples, n_features)
            ``.reshape(-1, *edges_.out_shape)`` gives rows, columns and channels.
        """
        check_is_fitted(self)
        source = check_data(self, X, reset=False, min_samples=0, allow_nd=True)
        self.check_range(source)
        out = np.empty((len(source), self._n_features_out), np.float32)
        for where, part in batches(source, 1024):
            out[where] = self.edges_(part).reshape(len(part), -1)
        return like(X, out)

    def inverse_transform(self, Y: Any) -> np.ndarray:
        """Pictures that have about these edges, with the usual brightness and contrast.

        Parameters
        ----------
        Y : array-like of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, ...)
        """
        check_is_fitted(self)
        given, Y = Y, read_features(Y)
        if Y.shape[1] != self._n_features_out:
            raise ValueError(f"Y has {Y.shape[1]} features, but {self._n_features_out} are made of a picture")
        return like(given, self._inverse(self.edges_, Y))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        return tags


def pixel_range(images: np.ndarray) -> tuple[float, float]:
    """Black and white of pictures."""
    if images.dtype.kind in "iu" and images.dtype.itemsize <= 2:
        limits = np.iinfo(images.dtype)
        return float(limits.min), float(limits.max)
    low, high = float(images.min()), float(images.max())
    for white, least in ((1.0, 0.0), (255.0, 127.0)):
        if low >= -0.01 * white and least <= high <= 1.01 * white:
            return 0.0, white
    return (low, high) if high > low else (low, low + 1.0)


def make_front(given: Any, shape: tuple[int, ...]) -> OrientedEdges | None:
    """The front end that a network's parameter `front` asks for, not yet fitted; "auto" is edges for pictures."""
    if given == "auto":
        colour = len(shape) == 2 or (len(shape) == 3 and shape[2] <= MOST_CHANNELS)
        return OrientedEdges() if colour and min(shape[:2]) >= LEAST_SIZE else None
    if given == "edges":
        return OrientedEdges()
    return given if given is None else OrientedEdges(**given.get_params(deep=False))
