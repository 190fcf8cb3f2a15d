"""A run folder as an experiment would write it, with made-up numbers."""

import copy
import csv
import json

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

NASTY = "<script>alert(1)</script>"
RACES = ["African", "Asian", "Éire & Öst"]


def score(mean, rng, n_folds=3):
    values = mean * (1 + 0.01 * rng.standard_normal(n_folds))
    return {"mean": values.mean(), "se": values.std(ddof=1) / np.sqrt(n_folds), "values": values.tolist()}


def numeric_scores(truth, estimate, rng):
    error = np.abs(estimate - truth)
    thresholds = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30]
    years = np.unique(np.floor(truth))
    members = [np.floor(truth) == year for year in years]
    return {
        "mae": score(error.mean(), rng),
        "rmse": score(np.sqrt((error**2).mean()), rng),
        "cumulative": {"thresholds": thresholds, "scores": [float((error <= t).mean()) for t in thresholds]},
        "by_label": {
            "label": years.tolist(),
            "mae": [float(error[m].mean()) for m in members],
            "count": [int(m.sum()) for m in members],
        },
    }


def categorical_scores(truth, estimate, classes, rng):
    confusion = [[int(((truth == a) & (estimate == b)).sum()) for b in classes] for a in classes]
    return {"rate": score((truth == estimate).mean(), rng) | {"se": 0.004}, "confusion": confusion}


class FakeRun:
    """The content of a run folder, to be changed by a test before it is written."""

    def __init__(self, n=1500):
        rng = np.random.default_rng(0)
        age = np.clip(rng.gamma(6, 5.5, n) + 14, 16, 77).round()
        gender = np.where(rng.random(n) < 0.4, "f", "m")
        race = rng.choice(RACES, n, p=[0.5, 0.2, 0.3])
        nasty = rng.normal(3, 1, n)
        self.labels = [
            {"name": "age", "kind": "numeric", "unit": "years", "classes": None},
            {"name": "gender", "kind": "categorical", "unit": None, "classes": ["f", "m"]},
            {"name": "race", "kind": "categorical", "unit": None, "classes": RACES},
            {"name": NASTY, "kind": "numeric", "unit": "$x_1$ & 年", "classes": None},
        ]
        methods = []
        strength = {
            "HiGSFA": (4.6, 0.95, 1.0),
            "HGSFA": (5.4, 0.92, 1.15),
            "PCA": (8.5, 0.8, 1.9),
            "Chance": (None, 0, 0),
        }
        for name, (spread, right, first_delta) in strength.items():
            chance = spread is None
            mean = 0.9 * age + 3.6 if not chance else np.full(n, np.median(age))
            guess = mean + (0 if chance else spread) * rng.standard_normal(n)
            guessed_gender = np.where(rng.random(n) < right, gender, "m")
            guessed_race = np.where(rng.random(n) < right, race, RACES[0])
            guessed_nasty = nasty + (0.3 if not chance else 1) * rng.standard_normal(n)
            delta = np.minimum(2.02, (0.4 + 0.35 * np.arange(10)) * (first_delta or 1))
            methods.append({
                "name": name,
                "role": {"HiGSFA": "main", "Chance": "chance"}.get(name, "comparison"),
                "n_features": None if chance else 75,
                "seconds": None if chance else {"fit": 421.0 * first_delta, "transform": 12.3},
                "labels": {
                    "age": numeric_scores(age, guess, rng),
                    "gender": categorical_scores(gender, guessed_gender, ["f", "m"], rng),
                    "race": categorical_scores(race, guessed_race, RACES, rng),
                    NASTY: numeric_scores(nasty, guessed_nasty, rng),
                },
                "delta": None if chance else {"label": "age", "train": (0.9 * delta).tolist(), "test": delta.tolist()},
                "reconstruction_error": None if chance else {
                    "global": {"PCA": 0.201, "HGSFA": 0.818, "HiGSFA": 0.338}[name],
                    "top_down": {"PCA": None, "HGSFA": 0.91, "HiGSFA": 0.372}[name],
                },
            })  # fmt: skip
            if name == "HiGSFA":
                self.estimates = {"age": guess, "gender": guessed_gender, "race": guessed_race, NASTY: guessed_nasty}
        self.truth = {"age": age, "gender": gender, "race": race, NASTY: nasty}
        layers = [
            {
                "layer": k + 1,
                "nodes": nodes,
                "expanded": 104 + 40 * k,
                "n_components": 18 + 9 * k,
                "mean_n_slow": 3.0 + 0.66 * k,
                "mean_delta_1": 1.7 - 0.18 * k,
                "min_delta_1": 1.5 - 0.19 * k,
            }
            for k, nodes in enumerate([961, 465, 225, 105, 49, 9, 1])
        ]
        sensitivity = [
            {
                "delta_threshold": 1.92 + 0.02 * k,
                "mae": {"age": 3.5 + 0.01 * abs(k - 2)},
                "rate": {"gender": 0.976 - 0.01 * k, "race": 0.99},
                "delta_test": [0.38, 0.99, 1.9],
            }
            for k in range(4)
        ]
        self.metrics = {
            "format": 1,
            "title": "Synthetic faces – 合成の顔",
            "created": "2026-11-16T01:02:03+00:00",
            "higsfa": "0.1.0",
            "data": {
                "name": "faces",
                "n_train": 5000,
                "n_supervised": 5000,
                "n_test": n,
                "image_shape": [64, 64],
                "copies": 4,
            },
            "labels": self.labels,
            "n_folds": 3,
            "methods": methods,
            "layers": layers,
            "sensitivity": sensitivity,
            "warnings": ["Class Éire & Öst has only 12 training samples."],
        }
        images = np.stack([self._face(rng) for _ in range(16)]).astype(np.float32)
        rebuilt = np.stack([gaussian_filter(images, (0, s, s)) for s in (2, 6, 3)]).astype(np.float32)
        rows = rng.permutation(n)[:1000]
        features = rng.standard_normal((1000, 9)).astype(np.float32)
        features[:, 0] += (age[rows] - age.mean()) / 5
        features[:, 1] = features[:, 0] ** 2 / 5 + 0.5 * features[:, 1]
        features[:, 2] += 3 * (gender[rows] == "f")
        self.examples = {
            "images": images,
            "reconstructions": rebuilt,
            "reconstruction_names": np.array(["PCA", "HGSFA", "HiGSFA"]),
            "features": features,
            "feature_rows": rows,
        }
        self.environment = {"python": "3.11.7", "packages": {"numpy": "2.4.6", "scipy": "1.17"}, "processors": 2}
        self.config = 'title = "Synthetic <faces>"\n\n[data]\nname = "faces"\nn_train = 5000\n'

    @staticmethod
    def _face(rng, side=64):
        y, x = np.mgrid[:side, :side] / side - 0.5
        a, b, t = 0.3 + 0.1 * rng.random(), 0.42 + 0.05 * rng.random(), 0.4 + 0.5 * rng.random()
        face = 0.25 + t * 0.6 * ((x / a) ** 2 + (y / b) ** 2 < 1)
        for side_x in (-0.12, 0.12):
            face -= 0.35 * ((x - side_x) ** 2 + (y + 0.1) ** 2 < 0.003 + 0.003 * rng.random())
        face -= 0.3 * ((np.abs(x) < 0.13) & (np.abs(y - 0.2) < 0.02 + 0.02 * rng.random()))
        return np.clip(gaussian_filter(face, 0.8) + 0.02 * rng.standard_normal((side, side)), 0, 1)

    def write(self, folder):
        (folder / "metrics.json").write_text(json.dumps(self.metrics), encoding="utf-8")
        (folder / "environment.json").write_text(json.dumps(self.environment), encoding="utf-8")
        (folder / "config.toml").write_text(self.config, encoding="utf-8")
        if self.examples is not None:
            np.savez_compressed(folder / "examples.npz", **self.examples)
        if self.truth is not None:
            with open(folder / "predictions.csv", "w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(["fold", "sample", *(c for name in self.truth for c in (name, f"{name}_estimate"))])
                columns = [values for name in self.truth for values in (self.truth[name], self.estimates[name])]
                writer.writerows([0, i, *row] for i, row in enumerate(zip(*columns, strict=True)))
        return folder


_RUN = FakeRun()


@pytest.fixture
def fake_run():
    return copy.deepcopy(_RUN)


@pytest.fixture(scope="session")
def full_folder(tmp_path_factory):
    return copy.deepcopy(_RUN).write(tmp_path_factory.mktemp("full run"))


@pytest.fixture(scope="session")
def full_report(full_folder):
    from higsfa.report import write_report

    return write_report(full_folder)
