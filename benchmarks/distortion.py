"""How fast images are distorted, and how far the competitors for the warp are from each other.

    python benchmarks/distortion.py            some seconds
    python benchmarks/distortion.py --write    also writes benchmarks/results/distortion.json

One core. Competitors draw nothing: they get ready-made matrices and do the warp alone, image by image. Pillow works on
floats of an image padded by repeated edges, because it rounds bytes down and fills the outside with black.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _timing import Task, environment, print_table, take_turns, write_json
from PIL import Image
from scipy import ndimage

from higsfa.images import Distortion

RESULTS = Path(__file__).parent / "results" / "distortion.json"
TARGET = 2000.0
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


def with_scipy(images: np.ndarray, pairs: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    out = np.empty_like(images)
    for image, (matrix, offset), place in zip(images, pairs, out, strict=True):
        ndimage.affine_transform(image, matrix, offset, output=place, order=1, mode="nearest")
    return out


def with_pillow(images: np.ndarray, pairs: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    out = np.empty_like(images)
    height, width = images.shape[1:]
    for image, (matrix, offset), place in zip(images, pairs, out, strict=True):
        padded = Image.fromarray(np.pad(image.astype(np.float32), PADDING, mode="edge"))
        # Pillow counts x first, and pixel centres at halves.
        turn = matrix[::-1, ::-1]
        move = offset[::-1] + 0.5 + PADDING - turn @ np.full(2, 0.5)
        data = (*turn[0], move[0], *turn[1], move[1])
        warped = padded.transform((width, height), Image.Transform.AFFINE, data, Image.Resampling.BILINEAR)
        place[...] = np.rint(np.asarray(warped))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the results to a file")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()

    n, size = 256, 96
    noise = np.random.default_rng(0).standard_normal((n, size, size))
    smooth = ndimage.gaussian_filter(noise, (0, 1.5, 1.5))
    images = np.clip(128 + 255 * smooth, 0, 255).astype(np.uint8)
    colour = np.repeat(images[: n // 2, :, :, None], 3, axis=3)
    numbers, zeros = np.arange(n), np.zeros(n, dtype=int)
    pairs = matrices(Distortion(), n, size)

    def distort(distortion: Distortion, batch: np.ndarray) -> np.ndarray:
        return distortion.apply(batch, numbers[: len(batch)], zeros[: len(batch)])

    tones: dict[str, Any] = {"brightness": 0.1, "contrast": 0.1, "mirror": True}
    tasks: dict[str, tuple[int, Task]] = {
        "shift, rotation, scale": (n, partial(distort, Distortion(), images)),
        "the same, one image a call": (n, lambda: [distort(Distortion(), images[k : k + 1]) for k in range(n)]),
        "and mirror, brightness, contrast": (n, partial(distort, Distortion(**tones), images)),
        "and noise": (n, partial(distort, Distortion(noise=0.02, **tones), images)),
        "float32 images": (n, partial(distort, Distortion(), images.astype(np.float32))),
        "three channels": (n // 2, partial(distort, Distortion(), colour)),
        "warp alone by scipy.ndimage": (n, partial(with_scipy, images, pairs)),
        "warp alone by Pillow": (n, partial(with_pillow, images, pairs)),
    }
    timings = take_turns({name: task for name, (_, task) in tasks.items()}, arguments.rounds)
    # Processor time: the machine may be shared, the task has one thread.
    rates = {name: count / min(timings[name].cpu_seconds) for name, (count, _) in tasks.items()}
    rows = [[name, f"{rate:,.0f}"] for name, rate in rates.items()]
    print_table(f"{size} x {size} uint8, one core", ["task", "images per second"], rows)
    own = rates["shift, rotation, scale"]
    print(f"\nTarget: {TARGET:,.0f} a second. {'Met' if own >= TARGET else 'MISSED'}, {own / TARGET:.1f} times.")

    ours = distort(Distortion(), images).astype(int)
    apart = {}
    for name, other in (("scipy.ndimage", with_scipy), ("Pillow", with_pillow)):
        difference = np.abs(other(images, pairs).astype(int) - ours)
        apart[name] = {"largest": int(difference.max()), "share_of_pixels": float(np.mean(difference > 0))}
        largest, share = apart[name]["largest"], apart[name]["share_of_pixels"]
        print(f"Grey levels between ours and {name}: at most {largest}, in {share:.4%} of pixels.")
    if arguments.write:
        about = environment(("higsfa", "numpy", "scipy", "pillow"), 1)
        write_json(RESULTS, {"environment": about, "images_per_second": rates, "difference": apart})


if __name__ == "__main__":
    main()
