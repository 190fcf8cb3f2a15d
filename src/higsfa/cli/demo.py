"""The demonstration on synthetic faces: train, compare, draw, and say what to look at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from higsfa.cli import sheet as sheets
from higsfa.cli.terminal import metrics_tables, say

EXPERIMENT = "faces"  # the shipped config that the demonstration runs
N_PICTURES = 6
AGES = (20, 30, 40, 50, 60, 70)


def run_demo(out: Path, *, overwrite: bool, progress: Any) -> dict[str, Any]:
    """Run the experiment and draw its results; returns its folder, its metrics, and what can be seen in which file."""
    from higsfa.experiments import load_config, train

    run = train(load_config(EXPERIMENT), out, overwrite=overwrite, progress=progress)
    pictures = out / "pictures"
    pictures.mkdir(exist_ok=True)
    faces = run.experiment.folds[-1].test.source.take(np.arange(N_PICTURES))
    for number, face in enumerate(faces, 1):
        sheets.write_picture(pictures / f"face{number}.png", Image.fromarray(face))
    progress.stage("drawing", None)
    rebuilt = [run.examples["images"], *run.examples["reconstructions"]]
    shown = [sheets.as_bytes(row[:8], (0.0, 1.0)) for row in rebuilt]
    names = ["original", *map(str, run.examples["reconstruction_names"])]
    sheets.write_picture(out / "reconstructions.png", sheets.sheet(shown, names))
    rows = [[face, *run.morph(face, age=AGES)] for face in faces[:3]]
    sheets.write_picture(out / "ages.png", sheets.sheet(rows, captions=["photograph", *map(str, AGES)]))
    run.explore()
    progress.stage("writing the report", None)
    run.report()
    files = {
        "report.html": "all results, figures and how to read them",
        "explorer.html": "move features and labels by hand, and watch the face",
        "ages.png": "unseen faces made older and younger",
        "reconstructions.png": "what each method keeps of a picture",
        "pictures": "faces that the network has not seen",
        "model.higsfa": "the trained network",
    }
    return {"folder": out, "metrics": run.metrics, "files": {out / name: text for name, text in files.items()}}


def tell(results: Mapping[str, Any]) -> None:
    """Print the results, what to look at, and what to do next."""
    metrics, out = results["metrics"], results["folder"]
    metrics_tables(metrics)
    for line in findings(metrics):
        say(line)
    say("\nLook at", style="bold")
    width = max(len(str(path)) for path in results["files"])
    for path, text in results["files"].items():
        say(f"  {path!s:<{width}}  {text}")
    say("\nThen try", style="bold")
    say(f"  higsfa predict {out} {out / 'pictures'}")
    say(f"  higsfa morph {out} {out / 'pictures' / 'face1.png'} --age 20,40,60 --gif ages.gif")
    say("\nWith pictures of your own", style="bold")
    say("  higsfa configs folder -o my.toml     copy a config: say in it where pictures and labels are")
    say("  higsfa train my.toml --out runs/mine\n  higsfa report runs/mine")


def findings(metrics: Mapping[str, Any]) -> list[str]:
    """What the numbers of this run say about the methods, in sentences."""
    methods = [method for method in metrics["methods"] if method["role"] != "chance"]
    lines = []
    for what, key in (
        ("Smallest error in age (years)", lambda m: m["labels"]["age"]["mae"]["mean"]),
        ("Slowest first feature on unseen faces (Delta)", lambda m: (m.get("delta") or {"test": [None]})["test"][0]),
        ("Best reconstruction from features (error)", lambda m: (m.get("reconstruction_error") or {}).get("global")),
    ):
        ranked = sorted((value, method["name"]) for method in methods if (value := key(method)) is not None)
        lines.append(f"{what}: " + " < ".join(f"{name} {value:.2f}" for value, name in ranked))
    return lines
