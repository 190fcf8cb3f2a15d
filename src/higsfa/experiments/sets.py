"""The three sets of a fold: one trains the network, one the supervised step, one tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa import sources
from higsfa.experiments.config import Config, DistortionTable
from higsfa.experiments.errors import ExperimentError
from higsfa.experiments.pictures import PixelRange
from higsfa.experiments.protocol import Experiment, Fold, Part
from higsfa.images import Distortion
from higsfa.sources import Source

__all__ = ["Sets", "blocks", "make_sets", "spread"]

BLOCK_VALUES = 2**22
"""Pixels read at once."""


@dataclass(frozen=True, eq=False)
class Samples:
    """A source, copies included, with the labels and the cross-validation group of each of its rows."""

    source: Source
    labels: dict[str, NDArray[Any]]
    groups: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, eq=False)
class Sets:
    """The sets of a fold; the paper calls them DR, S and T."""

    network: Samples
    supervised: Samples
    test: Samples
    pixel_range: PixelRange | None

    @property
    def are_images(self) -> bool:
        return self.pixel_range is not None


@dataclass(frozen=True)
class Cast:
    """Samples in another precision."""

    dtype: str

    def __call__(self, samples: NDArray[Any]) -> NDArray[Any]:
        return samples.astype(self.dtype)


def make_sets(config: Config, experiment: Experiment, fold: Fold) -> Sets:
    """Distorted copies for training, with different distortions for network and supervised step; none for testing."""
    table = config.distortion
    if table is None:
        train = _samples(config, fold.train, fold.train.source)
        return Sets(train, train, _samples(config, fold.test, fold.test.source), experiment.pixel_range)
    _check_distortion(table, experiment, fold)
    amplitudes = table.model_dump(exclude={"copies", "supervised_copies", "seed"})
    repeated = [
        sources.repeat(fold.train.source, copies, Distortion(seed=seed, **amplitudes))
        for copies, seed in ((table.copies, table.seed), (table.supervised_copies, table.seed + 1))
    ]
    network, supervised = (_samples(config, fold.train, source) for source in repeated)
    return Sets(network, supervised, _samples(config, fold.test, fold.test.source), experiment.pixel_range)


def _check_distortion(table: DistortionTable, experiment: Experiment, fold: Fold) -> None:
    """Distortion knows the range of grey values by their type only."""
    if not experiment.are_images:
        raise ExperimentError("[distortion] is for images, and these data are not; leave the table out")
    dtype = fold.train.samples.dtype
    assumed = (float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)) if dtype.kind in "iu" else (0.0, 1.0)
    if experiment.pixel_range != assumed and (table.brightness or table.contrast or table.noise):
        raise ExperimentError(
            f"[distortion] brightness, contrast and noise are for bytes and for floats from 0 to 1; these images are "
            f"{dtype} with black and white {experiment.pixel_range}: store them otherwise, or set the three to 0"
        )


def _samples(config: Config, part: Part, source: Source) -> Samples:
    index = source.sample_index
    if config.network.dtype is not None:
        source = sources.map(source, Cast(config.network.dtype))
    return Samples(source, {name: values[index] for name, values in part.labels.items()}, part.groups[index])


def blocks(source: Source) -> Iterator[tuple[slice, NDArray[Any]]]:
    """The whole source in order, as rows of values."""
    step = max(1, BLOCK_VALUES // max(1, int(np.prod(source.shape))))
    for lo in range(0, len(source), step):
        hi = min(lo + step, len(source))
        yield slice(lo, hi), source.take(np.arange(lo, hi)).reshape(hi - lo, -1)


def spread(n: int, most: int) -> NDArray[np.intp]:
    """At most so many of n rows, evenly spread."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.intp))
