"""A real experiment, small and quick, whose network is good: bright spots in pictures of 12 x 12 pixels.

Where a spot lies tells the age and the gender, its form tells the race, its brightness the strength. Every person has
two pictures. Names are as bad as users can make them.
"""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from PIL import Image

SIDE = 12
NASTY = "<script>alert(1)</script>"
RACES = ["W", "=Éire & Öst", NASTY]
TITLE = "Spots – 合成 & <b>"
UNIT = "$x_1$ & 年"
N = 400
CONFIG = f"""
title = "{TITLE}"

[data]
kind = "folder"
folder = "."
csv = "labels.csv"
size = {SIDE}
normalise_contrast = false
labels = ["age", "gender", "race", "strength"]
person_column = "person"

[labels.strength]
unit = "{UNIT}"

[distortion]
copies = 2
supervised_copies = 2
shift = 0.3
scale = 0.02
rotation = 2
seed = 5

[network]
layers = [
    {{ field = [6, 6], stride = [6, 6], n_components = 12, pca = 12 }},
    {{ field = [2, 2], n_components = 12 }},
]
n_jobs = 1

[head]
n_used_features = {{ age = 9, gender = "cv", race = 10, strength = 10 }}
n_classes = {{ age = 12 }}
integer = ["age"]

[protocol]
kind = "random"
by_person = true
repeats = 2
test_share = 0.25

[graph]  # one that leaves errors to look at
parts = [
    {{ kind = "serial", label = "age" }},
    {{ kind = "clustered", label = "gender" }},
    {{ kind = "clustered", label = "race" }},
    {{ kind = "serial", label = "strength" }},
]

[comparison]
methods = ["hgsfa", "pca", "lda", "chance"]
n_used_features = {{ hgsfa = 10, pca = 10, lda = 1 }}
sensitivity = [1.5, 1.96]
"""
QUICK = {
    "distortion": None,
    "head.n_used_features": 6,
    "comparison": {"methods": ["chance"]},
    "protocol.repeats": 1,
}
"""What makes the experiment a matter of a second, and still better than chance."""


def draw(n, seed):
    """Pictures (n, side, side) of bytes, and their labels."""
    rng = np.random.default_rng(seed)
    person = np.arange(n) // 2
    gender, race = (rng.integers(0, k, n // 2 + 1)[person] for k in (2, 3))
    age, strength = rng.uniform(16, 76, n), rng.uniform(60, 150, n)
    row, column = np.mgrid[:SIDE, :SIDE][:, None].astype(float)
    place = 2.5 + (age - 16) / 60 * (SIDE - 6), np.array([0.32, 0.68])[gender] * SIDE + rng.normal(0, 0.4, n)
    size = np.array([1.6, 2.6, 1.2])[race], np.array([1.6, 1.2, 2.6])[race]
    down, right = (
        ((at - p[:, None, None]) / s[:, None, None]) ** 2
        for at, p, s in zip((row, column), place, size, strict=True)
    )  # fmt: skip
    images = 40 + strength[:, None, None] * np.exp(-(down + right) / 2) + rng.normal(0, 4, (n, SIDE, SIDE))
    labels = {
        "age": age.round(5),
        "gender": np.array(["F", "M"], dtype=object)[gender],
        "race": np.array(RACES, dtype=object)[race],
        "strength": strength.round(3),
        "person": person,
    }
    return np.clip(images.round(), 0, 255).astype(np.uint8), labels


def write(folder, images, labels):
    """Pictures 0000.png, ... and labels.csv; a few labels are unknown."""
    labels["race"][[7, 150, 301]] = None
    labels["strength"][[11, 222]] = np.nan
    with open(folder / "labels.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["file", *labels])
        for i, image in enumerate(images):
            Image.fromarray(image).save(folder / f"{i:04d}.png")
            values = [column[i] for column in labels.values()]
            table.writerow([f"{i:04d}.png", *("" if value is None or value != value else value for value in values)])


def trained(folder: Path) -> SimpleNamespace:
    """The experiment, trained: `run`, `config` (a file), `images` and `labels` of all samples, `photos` (a folder)."""
    from higsfa.experiments import load_config, train

    data, photos = folder / "data", folder / "photos"
    for made in (data, photos):
        made.mkdir()
    images, labels = draw(N, 0)
    write(data, images, labels)
    config = data / "spots.toml"
    config.write_text(CONFIG, encoding="utf-8")
    new, _ = draw(3, 99)
    for i, image in enumerate(new):
        Image.fromarray(image).save(photos / f"face{i}.png")
    run = train(load_config(config), folder / "spots")
    made = {"run": run, "folder": run.folder, "config": config, "images": images, "labels": labels}
    return SimpleNamespace(**made, photos=photos, new=new)
