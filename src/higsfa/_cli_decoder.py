"""The linear map from a run's features to pixels: learned from the run's training data once, then kept beside it."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from higsfa._cli_errors import WrongUsage
from higsfa.io import open_regular, replacing

FILE = "decoder.npz"
"""In the run folder: the arrays below, and `model`, the hash of the network that they belong to."""
ARRAYS = ("components", "intercept", "mean", "feature_mean", "feature_scale")
MAX_BYTES = 2 * 2**30


class RunData:
    """The data of a run and its decoder, read when they are asked for.

    Parameters
    ----------
    run : Run
    progress : Progress
    folder : path, optional
        Where the data lie now.
    """

    def __init__(self, run: Any, progress: Any, folder: Path | None = None) -> None:
        self._run, self.progress, self._folder = run, progress, folder

    @cached_property
    def fold(self) -> Any:
        """Training and test samples of the last fold, which the model is of."""
        from higsfa.experiments import with_paths
        from higsfa.experiments.protocol import open_experiment

        self.progress.stage("reading the data of the run", None)
        config = self._run.config if self._folder is None else with_paths(self._run.config, self._folder)
        experiment = open_experiment(config)
        if not experiment.are_images:
            raise WrongUsage(f"{self._run.folder} was not trained on pictures, so there is nothing to draw")
        return experiment.folds[-1]

    @cached_property
    def decoder(self) -> Any:
        """A LinearReconstruction: from the run folder if one is there that belongs to this model, else learned."""
        path, model = self._run.folder / FILE, _hash(self._run.folder / "model.higsfa")
        return _read(path, model, tuple(self._run.network.input_shape_)) or self._learned(path, model)

    def _learned(self, path: Path, model: str) -> Any:
        from higsfa.reconstruction import LinearReconstruction

        images = self.fold.train.source
        self.progress.stage("learning to draw pictures from features", None)
        decoder = LinearReconstruction().fit(self._run.network.transform(images), images)
        with replacing(path) as file:
            arrays = {name: getattr(decoder, f"{name}_") for name in ARRAYS}
            np.savez(file, allow_pickle=False, model=np.array(model), **arrays)
        return decoder


def _read(path: Path, model: str, shape: tuple[int, ...]) -> Any:
    """The decoder in a file; None if there is none, or one of another model, or a damaged one."""
    from higsfa.io.arrays import read_npz
    from higsfa.reconstruction import LinearReconstruction

    if not path.is_file():
        return None
    try:
        found = read_npz(path, ("model", *ARRAYS), limit=MAX_BYTES)
        arrays = {name: found[name].astype(np.float64) for name in ARRAYS}
    except (ValueError, OSError):
        return None
    k, n_pixels = len(arrays["feature_mean"]), int(np.prod(shape))
    shapes = dict(zip(ARRAYS, ((k, n_pixels), (n_pixels,), (n_pixels,), (k,), (k,)), strict=True))
    if str(found["model"]) != model or any(arrays[name].shape != shapes[name] for name in ARRAYS):
        return None
    decoder = LinearReconstruction()
    for name, array in arrays.items():
        setattr(decoder, f"{name}_", array)
    decoder.image_shape_, decoder.n_features_in_ = shape, k
    return decoder


def _hash(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
