"""Folders of colour pictures, and copies by the number of samples."""

import csv

import numpy as np
import pytest
from PIL import Image

from higsfa.experiments import train
from higsfa.experiments.config import DistortionTable
from higsfa.experiments.interface import checked
from higsfa.experiments.split import make_sets, open_experiment


def folder(path, n=40, *, colour=True):
    """Red and green squares on noise; grey ones of the same brightness if not in colour."""
    rng = np.random.default_rng(0)
    with open(path / "labels.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "kind"])
        for i in range(n):
            picture = rng.integers(0, 40, (20, 20, 3), dtype=np.uint8)
            picture[6:14, 6:14, i % 2] += 180
            image = Image.fromarray(picture)
            (image if colour else image.convert("L")).save(path / f"{i}.png")
            writer.writerow([f"{i}.png", "red" if i % 2 == 0 else "green"])


def tables(path, **data):
    network = {"n_jobs": 1, "layer_params": {"n_components": 6, "n_slow": 2, "pca": 8, "expansion": "identity"}}
    network["layer_params"]["shrinkage"] = 0.1
    return {
        "title": "t",
        "data": {"kind": "folder", "folder": str(path), "csv": str(path / "labels.csv"), "labels": ["kind"], "size": 20}
        | data,
        "network": network,
        "distortion": {"copies": "auto", "supervised_copies": "auto"},
        "head": {"n_used_features": 2},
        "protocol": {"kind": "random"},
    }


def test_a_folder_of_colour_pictures_is_seen_in_colour_in_training_and_afterwards(tmp_path):
    folder(tmp_path)
    run = train(checked(tables(tmp_path), "test"), tmp_path / "run")
    assert run.network.input_shape_ == (20, 20, 3)
    assert run.metrics["data"]["copies"] == 9  # three for each of three networks
    assert run.metrics["methods"][0]["labels"]["kind"]["rate"]["mean"] == 1.0
    new = [tmp_path / f"{i}.png" for i in range(4)]
    assert np.asarray(run.predict(new)["kind"]).tolist() == ["red", "green", "red", "green"]


@pytest.mark.parametrize(
    ("colour", "given", "shape"), [(False, "auto", (20, 20)), (True, False, (20, 20)), (False, True, (20, 20, 3))]
)
def test_grey_folders_stay_grey_and_the_key_decides(tmp_path, colour, given, shape):
    folder(tmp_path, 12, colour=colour)
    config = checked(tables(tmp_path, colour=given), "test")
    assert make_sets(config, open_experiment(config).folds[0]).network.source.shape == shape


@pytest.mark.parametrize(("n", "copies"), [(100, 8), (7500, 8), (12_000, 5), (60_000, 1), (10**6, 1)])
def test_the_fewer_samples_the_more_copies(n, copies):
    assert DistortionTable(copies="auto", supervised_copies="auto").n_copies(n) == (copies, 1)
    assert DistortionTable(copies=3, supervised_copies="auto").n_copies(n) == (3, 1)
    assert DistortionTable(copies="auto", supervised_copies=2).n_copies(n) == (copies, 2)
