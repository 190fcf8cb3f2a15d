"""What commands do with new pictures: features, estimates, reconstructions, morphs, the explorer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa import _cli_sheet as sheets
from higsfa._cli_decoder import RunData
from higsfa._cli_errors import WrongUsage, existing, wrong_usage
from higsfa._cli_views import morphed
from higsfa.io import replacing

MAX_SHOWN = 32
"""Most pictures on one sheet."""
MAX_VALUES = 64
"""Most label values of one morph."""
FRAMES = 24
"""Pictures of an animation of a numeric label."""


def check_ending(path: Path, endings: Sequence[str]) -> None:
    """Refuse names that promise another format."""
    if path.suffix.lower() not in endings:
        raise WrongUsage(f"{path}: the name must end in {' or '.join(endings)}")


# ---------------------------------------------------------------------- features and estimates


@dataclass(frozen=True)
class Given:
    """Pictures that a command was given.

    Parameters
    ----------
    paths : files and folders
    eyes : path of a table, or None
    cropped : bool
        Whether they are cut as those of training were.
    """

    paths: Sequence[Path]
    eyes: Path | None = None
    cropped: bool = False

    def read(self, run: Any) -> tuple[list[str], Any]:
        """Files and their pictures, prepared as those of training."""
        from higsfa.experiments import read_pictures

        for path in self.paths:
            existing(path, "picture or folder")
        if self.eyes is not None:
            existing(self.eyes, "table")
        with wrong_usage(", ".join(map(str, self.paths[:3]))):
            source = read_pictures(run, self.paths, eyes=self.eyes, cropped=self.cropped)
        return [str(path) for path in source.paths], source

    def features(self, run: Any) -> tuple[list[str], NDArray[Any]]:
        """Files and features, one row each."""
        files, source = self.read(run)
        return files, run.network.transform(source)


def estimates(head: Any, features: NDArray[Any]) -> dict[str, list[Any]]:
    """Columns by label; for a categorical label also the probability of its estimate."""
    columns: dict[str, list[Any]] = {}
    found = head.predict(features)
    for name in head.label_names_:
        columns[str(name)] = np.asarray(found[name]).tolist()
        if not head.is_numeric_[name]:
            columns[f"{name}_probability"] = head.predict_proba(features, name).max(axis=1).tolist()
    return columns


def cells(files: Sequence[str], columns: Mapping[str, Sequence[Any]]) -> Iterator[list[str]]:
    """Rows of a table on the screen."""
    for file, *values in zip(files, *columns.values(), strict=True):
        yield [file, *(f"{value:.2f}" if isinstance(value, float) else str(value) for value in values)]


def write_features(path: Path, files: Sequence[str], features: NDArray[Any]) -> None:
    """A .npy file, or a .csv file with the names of the pictures."""
    from higsfa.experiments.run_folder import write_table

    if path.suffix.lower() == ".csv":
        write_table(path, {"file": files, **{f"feature{j}": column for j, column in enumerate(features.T.tolist())}})
        return
    with replacing(path) as file:
        np.lib.format.write_array(file, features, allow_pickle=False)


# ---------------------------------------------------------------------- pictures


def reconstruct(run: Any, given: Given, out: Path, data: RunData) -> dict[str, float]:
    """A sheet of originals and rebuilt pictures; returns the normalised error of each way to rebuild them."""
    files, source = given.read(run)
    if len(files) > MAX_SHOWN:
        raise WrongUsage(f"{len(files)} pictures do not fit on one sheet: give at most {MAX_SHOWN}")
    shape, decoder = tuple(source.shape), data.decoder
    images = np.asarray(source.take(np.arange(len(files))), dtype=np.float64)
    Y = run.network.transform(source)
    rebuilt = {"linear": decoder.predict(Y), "top-down": run.network.inverse_transform(Y)}
    spread = np.sum((images - decoder.mean_.reshape(shape)) ** 2)
    rows = [sheets.as_bytes(pictures, run.pixel_range) for pictures in (images, *rebuilt.values())]
    sheets.write_picture(out, sheets.sheet(rows, ["original", *rebuilt]))
    return {name: float(np.sum((images - pictures) ** 2) / spread) for name, pictures in rebuilt.items()}


def wanted_values(age: str | None, label: str | None) -> tuple[str, list[str]]:
    """The label to change and its values, from --age or --label."""
    if (age is None) == (label is None):
        raise WrongUsage("say with one option what to change: --age 20,40,60, or --label NAME=VALUE,VALUE")
    name, _, listed = ("age", "=", age) if age is not None else str(label).partition("=")
    values = [value.strip() for value in str(listed).split(",") if value.strip()]
    if not name or not values:
        raise WrongUsage("--label: write it as NAME=VALUE,VALUE, such as gender=M,F")
    if len(values) > MAX_VALUES:
        raise WrongUsage(f"{len(values)} values are too many for one strip: give at most {MAX_VALUES}")
    if age is not None:
        for value in values:
            _number("age", value)
    return name.strip(), values


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise WrongUsage(f"{name}: {text!r} is not a number; write values such as 20,40,60")
    return value


def morph_photo(
    run: Any,
    photo: Given,
    name: str,
    texts: Sequence[str],
    out: Path | None,
    gif: Path | None,
    data: RunData,
    strength: float = 1.0,
) -> dict[str, Any]:
    """Draw one picture with other values of a label: a strip, an animation, or both."""
    label, values = _known_values(run.head, name, texts)
    _, source = photo.read(run)
    if len(source) != 1:
        raise WrongUsage(f"{photo.paths[0]} holds {len(source)} pictures: give one")
    picture = source.take(np.arange(1))[0]
    if out is not None:
        frames = (picture, *morphed(run, data, picture, name, values, strength))
        strip = [sheets.as_bytes(frame, run.pixel_range) for frame in frames]
        captions = ["photograph", *(f"{name} {text}" for text in texts)]
        sheets.write_picture(out, sheets.sheet([strip], captions=captions))
    if gif is not None:
        steps = np.linspace(min(values), max(values), FRAMES).tolist() if run.head.is_numeric_[label] else values
        moving = morphed(run, data, picture, name, steps, strength)
        sheets.write_animation(gif, sheets.as_bytes(moving, run.pixel_range))
    return {"label": name, "values": values, "written": [path for path in (out, gif) if path is not None]}


def _known_values(head: Any, name: str, texts: Sequence[str]) -> tuple[Any, list[Any]]:
    """The label and its values as the head knows them."""
    labels = {str(label): label for label in head.label_names_}
    if name not in labels:
        raise WrongUsage(f"this run has no label {name!r}: its labels are {', '.join(labels)}")
    label = labels[name]
    if head.is_numeric_[label]:
        return label, [_number(name, text) for text in texts]
    classes = {str(value): value for value in head.classes_[label].tolist()}
    for text in texts:
        if text not in classes:
            raise WrongUsage(f"{name} has no class {text!r}: use {', '.join(classes)}")
    return label, [classes[text] for text in texts]
