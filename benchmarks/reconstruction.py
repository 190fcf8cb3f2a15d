"""Reconstruction, refinement and morphing of synthetic faces, measured.

    python benchmarks/reconstruction.py          48 x 48 pixels, about four minutes on two cores
    python benchmarks/reconstruction.py --g3     and the paper's network, 96 x 96 pixels, about eight minutes more

Networks learn from one set of faces, linear maps and label heads from a second, everything is measured on a third.
Figures go to docs/images. Times are processor seconds with BLAS at one thread.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from _timing import environment, write_json
from matplotlib.figure import Figure
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits

from higsfa import HGSFA, HiGSFA, LabelHead, presets
from higsfa.datasets import draw_faces, face_parameters, make_faces, with_age
from higsfa.graphs import ClusteredGraph, SerialGraph
from higsfa.metrics import reconstruction_error
from higsfa.plots import plot_features
from higsfa.reconstruction import ImagePrior, LinearReconstruction, morph, refine
from higsfa.training.runner import one_by_one
from higsfa.training.stores import feature_major, field_of

HERE = Path(__file__).resolve().parent
IMAGES = HERE.parent / "docs" / "images"
AGES = [20, 30, 40, 50, 60]
SHRINKAGE = 3.0
GRAPH = SerialGraph("age", n_groups=32) + ClusteredGraph("gender") + ClusteredGraph("race")


class Faces:
    """The three sets of faces."""

    def __init__(self, size: int, n_train: int, n_second: int, n_unseen: int) -> None:
        self.size = size
        self.train, self.train_labels = _labelled(n_train, size, 0)
        self.second, self.second_labels = _labelled(n_second, size, 5)
        self.parameters = face_parameters(n_unseen, 1001)
        self.unseen = draw_faces(self.parameters, size)


class Trained:
    """A network and what is learned from its features."""

    def __init__(self, net: Any, faces: Faces) -> None:
        start = time.process_time()
        self.net = net.fit(faces.train, faces.train_labels)
        self.seconds = time.process_time() - start
        self.Y = net.transform(faces.second).astype(np.float64)
        self.Y_unseen = net.transform(faces.unseen.astype(np.float64))
        self.decoder = LinearReconstruction().fit(self.Y, faces.second)
        self.prior = ImagePrior(200, max_samples=1000).fit(self.Y, faces.second, self.decoder)
        head = LabelHead(n_used_features={"age": 5, "gender": 4, "race": 4}, n_classes={"age": 39}, covariance="shared")
        self.head = head.fit(self.Y, faces.second_labels)


def _labelled(n: int, size: int, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    images, labels = make_faces(n, size, seed, n_jobs=2)
    return images, {name: labels[name] for name in ("age", "gender", "race")}


# ---------------------------------------------------------------------- linear


def linear(faces: Faces, trained: Trained, n_components: int) -> dict[str, float]:
    """Normalised errors on unseen faces, global map and top-down."""
    options = {"graph": GRAPH, "front": None, "layer_params": {"shrinkage": SHRINKAGE}, "n_jobs": 2}
    slow = presets.pyramid((faces.size,) * 2, n_components, network=HGSFA, **options).fit(
        faces.train, faces.train_labels
    )
    pca = PCA(n_components, random_state=0).fit(faces.train.reshape(len(faces.train), -1))
    maps = {
        "PCA": lambda X: pca.transform(X.reshape(len(X), -1)),
        "HiGSFA": trained.net.transform,
        "HGSFA": slow.transform,
    }
    out = {}
    for name, features in maps.items():
        model = LinearReconstruction().fit(features(faces.second), faces.second)
        out[name] = model.error(features(faces.unseen), faces.unseen)
    out["HiGSFA, top-down, equal weights"] = reconstruction_error(
        faces.unseen, trained.net.inverse_transform(trained.Y_unseen)
    )
    out["HiGSFA, top-down, precision weights"] = reconstruction_error(
        faces.unseen, weighted_inverse(trained.net, trained.Y_unseen, error_variances(trained.net, faces.second[:600]))
    )
    return out


def error_variances(net: Any, images: np.ndarray) -> list[list[np.ndarray]]:
    """For each node of each layer, variance of the error of its own linear inverse, by raw input."""
    out, block = [], feature_major(images.astype(np.float64), 1)
    for layer in net._trained:
        above = layer.encode(block, block.dtype, one_by_one)
        fields = [field_of(block, index).array() for index in layer.plan.fields.index]
        out.append([np.var(x - layer.node(p).decode(above[p]), axis=1) for p, x in enumerate(fields)])
        block = above
    return out


def weighted_inverse(net: Any, Y: np.ndarray, variances: list[list[np.ndarray]]) -> np.ndarray:
    """Top-down reconstruction in which a field counts by the precision of what it says about each input."""
    top = net._trained[-1].plan
    block = np.ascontiguousarray(Y.T).reshape(top.fields.n_nodes, top.n_components, len(Y))
    for layer, spread in zip(reversed(net._trained), reversed(variances), strict=True):
        fields, width = layer.plan.fields, layer.plan.width
        below = np.zeros((int(np.prod(fields.grid)), width, len(Y)))
        total = np.zeros((*below.shape[:2], 1))
        floor = 1e-3 * float(np.mean(np.concatenate(spread))) + 1e-300
        for p, index in enumerate(fields.index):
            weight = (1 / (spread[p] + floor)).reshape(len(index), width, 1)
            below[index] += weight * layer.node(p).decode(block[p]).reshape(len(index), width, -1)
            total[index] += weight
        block = below / np.where(total > 0, total, 1)
    return block.reshape(-1, len(Y)).T.reshape(len(Y), *net.input_shape_)


# ---------------------------------------------------------------------- refine


def refined(faces: Faces, trained: Trained, n: int) -> dict[str, dict[str, float]]:
    out = {}
    for name, prior in (("with prior", trained.prior), ("without prior", None)):
        start = time.process_time()
        result = refine(
            trained.net, trained.Y_unseen[:n], trained.decoder, prior=prior, truth=faces.unseen[:n], bounds=(0, 255)
        )
        seconds = (time.process_time() - start) / n
        ratio = result.reconstruction_error / result.reconstruction_error_before
        out[name] = {
            "faces": n,
            "squared_feature_error_falls_by": _ratio(result.feature_error_before**2, result.feature_error**2),
            "smallest_fall_of_one_face": float(np.min((result.feature_error_before / result.feature_error) ** 2)),
            "reconstruction_error_ratio": _ratio(result.reconstruction_error, result.reconstruction_error_before),
            "faces_with_smaller_reconstruction_error": float(np.mean(ratio < 1)),
            "iterations": float(result.n_iter.mean()),
            "cpu_seconds_per_face": seconds,
        }
    return out


def _ratio(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.mean(a) / np.mean(b))


# ---------------------------------------------------------------------- morph


def morphed(faces: Faces, trained: Trained, n: int) -> dict[str, dict[str, Any]]:
    true = np.stack([draw_faces(with_age(faces.parameters, age), faces.size) for age in AGES], axis=1)[:n].astype(float)
    photos = faces.unseen[:n, None].astype(float)
    far = np.abs(faces.parameters["age"][:n, None] - AGES) > 10
    before = np.sqrt(np.mean((photos - true) ** 2, axis=(2, 3)))
    drawn = _estimates(trained, true)
    out: dict[str, dict[str, Any]] = {
        "true faces": {"mean_estimates": drawn.mean(axis=0).round(1).tolist(), "monotone": _monotone(drawn)}
    }
    for name, options in (("linear step", {"n_steps": 0}), ("linear step and 6 steps", {"prior": trained.prior})):
        start = time.process_time()
        frames = np.array(
            [
                morph(trained.net, trained.head, x, decoder=trained.decoder, age=AGES, **options)
                for x in faces.unseen[:n]
            ]
        )
        seconds = (time.process_time() - start) / frames[:, :, 0, 0].size
        after = np.sqrt(np.mean((frames - true) ** 2, axis=(2, 3)))
        estimates = _estimates(trained, frames)
        out[name] = {
            "faces": n,
            "monotone": _monotone(estimates),
            "mean_estimates": estimates.mean(axis=0).round(1).tolist(),
            "mean_distance_of_estimate_from_target": float(np.mean(np.abs(estimates - AGES))),
            "pixel_distance_ratio_all": float(np.sqrt(np.sum(after**2) / np.sum(before**2))),
            "mean_pixel_distance_ratio_beyond_10_years": float(np.mean((after / before)[far])),
            "closer_beyond_10_years": float(np.mean((after < before)[far])),
            "closer_within_10_years": float(np.mean((after < before)[~far])),
            "cpu_seconds_per_frame": seconds,
        }
    return out


def _estimates(trained: Trained, frames: np.ndarray) -> np.ndarray:
    flat = frames.reshape(-1, *frames.shape[2:])
    return trained.head.predict(trained.net.transform(flat))["age"].reshape(frames.shape[:2])


def _monotone(estimates: np.ndarray) -> float:
    return float(np.mean(np.all(np.diff(estimates, axis=1) > 0, axis=1)))


# ---------------------------------------------------------------------- figures


def figure_of_morphs(faces: Faces, trained: Trained, path: Path, n: int = 4) -> None:
    figure = Figure(figsize=(1.25 * (1 + len(AGES)), 1.4 * 2 * n), layout="constrained")
    panels = figure.subplots(2 * n, 1 + len(AGES), squeeze=False)
    for i in range(n):
        photo = faces.unseen[i]
        one = {name: values[i : i + 1] for name, values in faces.parameters.items()}
        frames = morph(trained.net, trained.head, photo, decoder=trained.decoder, prior=trained.prior, age=AGES)
        drawn = [draw_faces(with_age(one, age), faces.size)[0] for age in AGES]
        for row, pictures in ((panels[2 * i], [photo, *frames]), (panels[2 * i + 1], [None, *drawn])):
            for ax, picture in zip(row, pictures, strict=True):
                ax.set_axis_off()
                if picture is not None:
                    ax.imshow(picture, cmap="gray", vmin=0, vmax=255)
        panels[2 * i][0].set_title(f"photo, age {one['age'][0]:.0f}", fontsize="small")
        for ax, age in zip(panels[2 * i][1:], AGES, strict=True):
            ax.set_title(f"morphed, {age}", fontsize="small")
        for ax, age in zip(panels[2 * i + 1][1:], AGES, strict=True):
            ax.set_title(f"true, {age}", fontsize="small")
    figure.savefig(path, dpi=70)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--g3", action="store_true", help="also the paper's network on 96 x 96 pixels")
    asked = parser.parse_args()
    results: dict[str, Any] = {"environment": environment(("numpy", "scipy", "scikit-learn"), 1)}
    with threadpool_limits(1):
        faces = Faces(48, 2000, 1500, 50)
        smooth = {"shrinkage": SHRINKAGE}
        net = presets.pyramid((48, 48), 60, front=None, network=HiGSFA, graph=GRAPH, layer_params=smooth, n_jobs=2)
        path = HERE / "results" / "reconstruction.json"
        trained = Trained(net, faces)
        results["pyramid 48x48"] = measure(faces, trained, 20, 50, n_components=60)
        figure_of_morphs(faces, trained, IMAGES / "morphs.png", n=3)
        write_json(path, results)
        if asked.g3:
            faces = Faces(96, 5000, 3000, 24)
            net = presets.higsfa_g3(n_jobs=2)
            trained = Trained(net, faces)
            results["higsfa_g3 96x96"] = measure(faces, trained, 24, 16)
            write_json(path, results)
            figure = plot_features(net, faces.second, trained.Y, features=5, decoder=trained.decoder)
            figure.savefig(IMAGES / "features.png", dpi=70)


def measure(faces: Faces, trained: Trained, n_refine: int, n_morph: int, n_components: int | None = None) -> dict:
    out: dict[str, Any] = {"fit_cpu_seconds": trained.seconds}
    if n_components is not None:
        out["linear"] = linear(faces, trained, n_components)
    out["refine"] = refined(faces, trained, n_refine)
    out["morph"] = morphed(faces, trained, n_morph)
    for part in out:
        print(f"\n{part}: {out[part]}", flush=True)
    return out


if __name__ == "__main__":
    main()
