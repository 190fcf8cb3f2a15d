"""Tiny data sets in the layouts of the real ones, and small experiments with them."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from PIL import Image

from higsfa.datasets import make_faces
from higsfa.experiments import load_config, with_values

SMALL = {
    "network.preset": "pyramid",
    "network.n_components": 8,
    "network.delta_threshold": None,
    "network.n_jobs": 1,
    "distortion.copies": 1,
    "distortion.supervised_copies": 1,
    "head.n_used_features": 4,
    "head.n_classes": None,
    "comparison.methods": ["chance"],
    "comparison.n_used_features": None,
    "graph.parts": "auto",
    "data.size": 24,
}
"""What makes a shipped experiment run on a tiny data set in a second."""


def table(path, header, rows):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def faces(n, images_per_person=2, seed=0):
    images, labels = make_faces(n, 32, seed, images_per_person=images_per_person, n_jobs=1)
    return [Image.fromarray(image) for image in images], labels


@pytest.fixture
def small():
    def make(name, **changes):
        values = {**SMALL, **{key.replace("__", "."): value for key, value in changes.items()}}
        return with_values(load_config(name), values)

    return make


@pytest.fixture
def morph2(tmp_path):
    """Like MORPH-II: 60 photographs of 30 persons, a table, and one of eyes."""
    folder = tmp_path / "MORPH2"
    folder.mkdir()
    images, labels = faces(60)
    race = np.array(["B", "W"], dtype=object)[np.arange(60) // 2 % 2]
    gender = np.array(["M", "F"], dtype=object)[np.arange(60) // 4 % 2]
    race[:8] = "H"
    rows, eyes = [], []
    for i, image in enumerate(images):
        name = f"{labels['identity'][i]:06d}_{i % 2}{gender[i]}{int(labels['age'][i])}.JPG"
        image.save(folder / name)
        rows.append([labels["identity"][i], race[i], gender[i], round(labels["age"][i], 2), f"Album2/{name}"])
        eyes.append([name, 10, 12, 22, 12])
    table(folder / "morph2.csv", ["id_num", "race", "gender", "age", "photo"], rows)
    table(folder / "eyes.csv", ["photo", "x1", "y1", "x2", "y2"], eyes)
    return folder


@pytest.fixture
def fgnet(tmp_path):
    """Like FG-NET: 20 photographs, some of children."""
    folder = tmp_path / "FGNET"
    (folder / "images").mkdir(parents=True)
    for i, image in enumerate(faces(20, seed=1)[0]):
        image.save(folder / "images" / f"{i // 4 + 1:03d}A{5 + 3 * i:02d}.JPG")
    return folder


@pytest.fixture
def utkface(tmp_path):
    folder = tmp_path / "UTKFace"
    folder.mkdir()
    images, labels = faces(40)
    for i, image in enumerate(images):
        image.save(folder / f"{int(labels['age'][i])}_{i % 2}_{i % 3}_2017{i:04d}.jpg.chip.jpg")
    return folder


@pytest.fixture
def fairface(tmp_path):
    folder = tmp_path / "FairFace"
    images, _ = faces(48)
    groups = ["20-29", "30-39", "40-49"]
    for part, rows in (("train", range(36)), ("val", range(36, 48))):
        (folder / part).mkdir(parents=True)
        lines = []
        for i in rows:
            images[i].save(folder / part / f"{i}.jpg")
            lines.append([f"{part}/{i}.jpg", groups[i % 3], ["Male", "Female"][i % 2], ["Black", "Indian"][i // 2 % 2]])
        table(folder / f"fairface_label_{part}.csv", ["file", "age", "gender", "race"], lines)
    return folder


@pytest.fixture
def pictures(tmp_path):
    """A folder of one's own."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    images, labels = faces(40)
    rows = []
    for i, image in enumerate(images):
        image.save(folder / f"{i}.png")
        split = "train" if i < 30 else "test"
        rows.append([f"{i}.png", round(labels["age"][i], 1), "fm"[i // 2 % 2], int(labels["identity"][i]), split])
    table(folder / "labels.csv", ["file", "age", "gender", "person", "split"], rows)
    return folder
