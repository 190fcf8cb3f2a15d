"""How fast images are distorted, how faithfully, and what that means to a network.

    python benchmarks/distortion.py            some seconds
    python benchmarks/distortion.py --learn    also trains networks on distorted faces: ten minutes, 1 GiB
    python benchmarks/distortion.py --write    also writes benchmarks/results/distortion.json

One core. Competitors draw nothing: they get ready-made matrices and do the warp alone, image by image. Pillow works on
floats of an image padded by repeated edges, because it rounds bytes down and fills the outside with black. Its cubic
kernel is another one; scipy's is ours, but swings on beyond the border, where we repeat the pixel at the border.

Faithfulness: waves of all directions are distorted, and drawn anew at the places where the pixels come from. Learning:
a pyramid network for the age of synthetic faces, trained on distorted copies and tested on faces as they are.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from _timing import Task, environment, print_table, take_turns, write_json
from PIL import Image
from scipy import ndimage

from higsfa import LabelHead, presets
from higsfa.datasets import make_faces
from higsfa.graphs import SerialGraph
from higsfa.images import Distortion

RESULTS = Path(__file__).parent / "results" / "distortion.json"
TARGET = 2000.0
Interpolation = Literal["linear", "cubic"]
INTERPOLATIONS: tuple[Interpolation, ...] = ("linear", "cubic")
FREQUENCIES = (0.05, 0.1, 0.2, 0.3, 0.4)
PADDING = 12
"""Pixels: more than any position of the default distortions lies outside of a 96 x 96 image."""


def matrices(distortion: Distortion, n: int, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each image, the matrix and offset that take (row, column) of the copy to those of the original."""
    drawn = distortion.draw(np.arange(n), np.zeros(n, dtype=int))
    center = np.full(2, (size - 1) / 2)
    pairs = []
    for k in range(n):
        angle, scale = np.deg2rad(drawn.rotation[k]), drawn.scale[k]
        matrix = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]) / scale
        shift = np.array([drawn.shift_y[k], drawn.shift_x[k]])
        pairs.append((matrix, center - matrix @ (center + shift)))
    return pairs


def with_scipy(images: np.ndarray, pairs: list[tuple[np.ndarray, np.ndarray]], order: int) -> np.ndarray:
    out = np.empty_like(images)
    for image, (matrix, offset), place in zip(images, pairs, out, strict=True):
        grey = ndimage.affine_transform(image, matrix, offset, output=np.float32, order=order, mode="nearest")
        place[...] = np.clip(np.rint(grey), 0, 255)
    return out


def with_pillow(
    images: np.ndarray, pairs: list[tuple[np.ndarray, np.ndarray]], filter_: Image.Resampling
) -> np.ndarray:
    out = np.empty_like(images)
    height, width = images.shape[1:]
    for image, (matrix, offset), place in zip(images, pairs, out, strict=True):
        padded = Image.fromarray(np.pad(image.astype(np.float32), PADDING, mode="edge"))
        # Pillow counts x first, and pixel centres at halves.
        turn = matrix[::-1, ::-1]
        move = offset[::-1] + 0.5 + PADDING - turn @ np.full(2, 0.5)
        data = (*turn[0], move[0], *turn[1], move[1])
        warped = padded.transform((width, height), Image.Transform.AFFINE, data, filter_)
        place[...] = np.clip(np.rint(np.asarray(warped)), 0, 255)
    return out


def faithfulness(interpolation: Interpolation, frequency: float, n: int = 64, size: int = 96) -> tuple[float, float]:
    """What is left of the amplitude of waves, in units of it, and root mean square error, in units of the waves' own.

    The frequency is in cycles per pixel; no grid can hold more than 0.5.
    """
    numbers, middle = np.arange(n), (size - 1) / 2
    direction = np.exp(1j * np.pi * numbers / n)[:, None, None]
    grid = (np.arange(size) - middle) + 1j * (np.arange(size) - middle)[:, None]

    def waves(places: np.ndarray) -> np.ndarray:
        return np.asarray(np.cos(2 * np.pi * frequency * (places * direction.conj()).real + 1.0))

    distortion = Distortion(interpolation=interpolation)
    drawn = distortion.draw(numbers, 0 * numbers)
    turn, shift = np.exp(1j * np.deg2rad(drawn.rotation)) / drawn.scale, drawn.shift_x + 1j * drawn.shift_y
    true = waves((grid - shift[:, None, None]) * turn[:, None, None])
    out = distortion.apply(waves(np.broadcast_to(grid, (n, size, size))), numbers, 0 * numbers)
    true, out = (images[:, PADDING:-PADDING, PADDING:-PADDING] for images in (true, out))
    power = np.mean(true**2)
    return float(np.mean(true * out) / power), float(np.sqrt(np.mean((out - true) ** 2) / power))


def age_error(distortion: Distortion | None, copies: int, n_train: int = 4000, n_test: int = 2000) -> float:
    """Mean absolute error in years on unseen faces as they are; training images are distorted, if wished."""
    faces, labels = make_faces(n_train + n_test, size=64, random_state=0)
    numbers, copy = np.divmod(np.arange(n_train * copies), copies)
    images, age = faces[numbers], labels["age"][numbers]
    if distortion is not None:
        images = distortion.apply(images, numbers, copy)
    network = presets.pyramid(
        (64, 64), front=None, layer_params={"shrinkage": 0.0}, graph=SerialGraph("age", n_groups=32)
    )
    features = network.fit_transform(np.divide(images, 255, dtype=np.float32), {"age": age})
    head = LabelHead(covariance="separate", n_used_features={"age": 5}).fit(features, {"age": age})
    estimates = head.predict(network.transform(np.divide(faces[n_train:], 255, dtype=np.float32)))["age"]
    return float(np.abs(estimates - labels["age"][n_train:]).mean())


def learning() -> dict[str, float]:
    """Errors in age after training on faces as they are, and on two copies of each."""
    cases: dict[str, tuple[Distortion | None, int]] = {"no distortion, one copy": (None, 1)}
    for first in (False, True):
        for interpolation in INTERPOLATIONS:
            name = f"{interpolation}, {'the face and one copy' if first else 'two copies'}"
            cases[name] = Distortion(interpolation=interpolation, identity_first=first), 2
    errors = {}
    for name, case in cases.items():
        errors[name] = age_error(*case)
        print(f"{name}: {errors[name]:.2f} years", flush=True)
    return errors


@dataclass(frozen=True)
class Pictures:
    """Smooth random images, grey and with three channels, and the matrices that distort them."""

    grey: np.ndarray
    colour: np.ndarray
    pairs: Any


def make_pictures(n: int, size: int) -> Pictures:
    noise = np.random.default_rng(0).standard_normal((n, size, size))
    smooth = ndimage.gaussian_filter(noise, (0, 1.5, 1.5))
    images = np.clip(128 + 255 * smooth, 0, 255).astype(np.uint8)
    colour = np.repeat(images[: n // 2, :, :, None], 3, axis=3)
    return Pictures(images, colour, matrices(Distortion(), n, size))


def distort(distortion: Distortion, batch: np.ndarray) -> np.ndarray:
    numbers = np.arange(len(batch))
    return distortion.apply(batch, numbers, np.zeros(len(batch), dtype=int))


def speed(pictures: Pictures, rounds: int) -> dict[str, float]:
    """Images per second of one core."""
    images, pairs, n = pictures.grey, pictures.pairs, len(pictures.grey)
    tones: dict[str, Any] = {"brightness": 0.1, "contrast": 0.1, "mirror": True}
    linear = Distortion(interpolation="linear")
    tasks: dict[str, tuple[int, Task]] = {
        "shift, rotation, scale": (n, partial(distort, Distortion(), images)),
        "the same, linear": (n, partial(distort, linear, images)),
        "one image a call": (n, lambda: [distort(Distortion(), images[k : k + 1]) for k in range(n)]),
        "one image a call, linear": (n, lambda: [distort(linear, images[k : k + 1]) for k in range(n)]),
        "and mirror, brightness, contrast": (n, partial(distort, Distortion(**tones), images)),
        "and noise": (n, partial(distort, Distortion(noise=0.02, **tones), images)),
        "float32 images": (n, partial(distort, Distortion(), images.astype(np.float32))),
        "float64 images": (n, partial(distort, Distortion(), images.astype(np.float64))),
        "three channels": (n // 2, partial(distort, Distortion(), pictures.colour)),
        "three channels, linear": (n // 2, partial(distort, linear, pictures.colour)),
        "warp alone by scipy.ndimage, cubic": (n, partial(with_scipy, images, pairs, 3)),
        "warp alone by scipy.ndimage, linear": (n, partial(with_scipy, images, pairs, 1)),
        "warp alone by Pillow, cubic": (n, partial(with_pillow, images, pairs, Image.Resampling.BICUBIC)),
        "warp alone by Pillow, linear": (n, partial(with_pillow, images, pairs, Image.Resampling.BILINEAR)),
    }
    timings = take_turns({name: task for name, (_, task) in tasks.items()}, rounds)
    # Processor time: the machine may be shared, the task has one thread.
    rates = {name: count / min(timings[name].cpu_seconds) for name, (count, _) in tasks.items()}
    rows = [[name, f"{rate:,.0f}"] for name, rate in rates.items()]
    print_table(
        f"{images.shape[1]} x {images.shape[2]} uint8, one core",
        ["task (cubic unless said)", "images per second"],
        rows,
    )
    own = rates["shift, rotation, scale"]
    print(f"\nTarget: {TARGET:,.0f} a second. {'Met' if own >= TARGET else 'MISSED'}, {own / TARGET:.1f} times.")
    return rates


def differences(pictures: Pictures) -> dict[str, Any]:
    """Grey levels between our images and those of others."""
    images, pairs, results = pictures.grey, pictures.pairs, {}
    others: tuple[tuple[Interpolation, str, np.ndarray], ...] = (
        ("linear", "scipy.ndimage", with_scipy(images, pairs, 1)),
        ("linear", "Pillow", with_pillow(images, pairs, Image.Resampling.BILINEAR)),
        ("cubic", "scipy.ndimage", with_scipy(images, pairs, 3)),
    )
    for interpolation, name, other in others:
        ours = distort(Distortion(interpolation=interpolation), images)
        difference = np.abs(other.astype(int) - ours)
        inner = difference[:, PADDING:-PADDING, PADDING:-PADDING]
        largest, share = int(inner.max()), float(np.mean(inner > 0))
        results[f"{name}, {interpolation}"] = {
            "largest": largest,
            "share_of_pixels": share,
            "largest_at_border": int(difference.max()),
        }
        print(
            f"Grey levels between ours and {name}, {interpolation}: at most {largest}, in {share:.4%} of inner pixels; "
            f"at most {difference.max()} near the border."
        )
    return results


def waves() -> dict[str, Any]:
    """What is left of waves, by their frequency."""
    results: dict[str, Any] = {}
    rows = []
    for frequency in FREQUENCIES:
        row = [f"{frequency:g}"]
        for interpolation in INTERPOLATIONS:
            left, error = faithfulness(interpolation, frequency)
            results[f"{interpolation}, {frequency:g}"] = {"amplitude": left, "error": error}
            row += [f"{left:.3f}", f"{error:.2%}"]
        rows.append(row)
    header = ["cycles per pixel", *(f"{what}, {i}" for i in INTERPOLATIONS for what in ("amplitude left", "error"))]
    print()
    print_table("Waves", header, rows)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the results to a file")
    parser.add_argument("--learn", action="store_true", help="train networks on distorted faces")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()

    pictures = make_pictures(256, 96)
    results: dict[str, Any] = {"images_per_second": speed(pictures, arguments.rounds)}
    results |= {"difference": differences(pictures), "faithfulness": waves()}
    if arguments.learn:
        print("\nError in age on unseen faces as they are, after training on")
        results["age_error"] = learning()
    if arguments.write:
        write_json(RESULTS, {"environment": environment(("higsfa", "numpy", "scipy", "pillow"), 1), **results})


if __name__ == "__main__":
    main()
