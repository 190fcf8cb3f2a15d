"""The demonstration, on a small experiment, and what it says about the numbers."""

import json

import numpy as np
from PIL import Image

from cli.commands import higsfa, refused
from higsfa.cli import demo
from higsfa.cli.demo import findings
from higsfa.experiments import Run, load_config


def test_demo_tells_the_whole_story(quickly, real, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "EXPERIMENT", quickly)
    folder = tmp_path / "demo"
    out, err = higsfa("demo", "--out", folder)
    metrics = json.loads((folder / "metrics.json").read_text())
    lines = out.splitlines()
    for line in findings(metrics):
        assert line in lines
    for name in ("report.html", "explorer.html", "model.higsfa", "ages.png", "reconstructions.png", "pictures"):
        assert any(line.split()[:1] == [str(folder / name)] for line in lines)
        assert (folder / name).stat().st_size > 1000
    assert "higsfa configs folder" in out
    assert "statistical guesses" in err
    samples = Run(folder).predictions["sample"]
    for number in range(6):
        face = np.asarray(Image.open(folder / "pictures" / f"face{number + 1}.png"))
        np.testing.assert_array_equal(face, real.images[samples[number]])
    with Image.open(folder / "ages.png") as sheet:
        assert sheet.size == (8 + 7 * 140, 30 + 3 * 140)
    with Image.open(folder / "reconstructions.png") as sheet:
        assert sheet.height == 8 + 2 * 140
        tile = np.asarray(sheet)[8 : 8 + 132, sheet.width - 140 : sheet.width - 8]
    eighth = Image.fromarray(real.images[samples[np.linspace(0, 99, 16).astype(int)[7]]])
    eighth = np.asarray(eighth.resize((132, 132), Image.Resampling.BICUBIC), dtype=int)
    assert np.abs(tile - eighth).max() <= 2
    assert "--force" in refused("demo", "--out", folder)
    results = {"folder": folder, "metrics": metrics, "files": {folder / "ages.png": "ages"}}
    monkeypatch.setattr(demo, "run_demo", lambda out, *, overwrite, progress: results if overwrite else None)
    about = json.loads(higsfa("demo", "--out", folder, "--force", "--json")[0])
    assert about["metrics"] == metrics
    assert about["files"] == {str(folder / "ages.png"): "ages"}


def test_the_experiment_of_the_demonstration_compares_all_methods():
    config = load_config("faces")
    assert demo.EXPERIMENT == "faces"
    assert config.comparison.methods == ["hgsfa", "pca", "lda", "chance"]
    assert config.data.labels == ["age", "gender", "race"]


def test_findings_state_the_order_that_came_out():
    def method(name, mae, delta, rebuilt, role="comparison"):
        labels = {"age": {"mae": {"mean": mae}}}
        return {"name": name, "role": role, "labels": labels} | {"delta": delta, "reconstruction_error": rebuilt}

    methods = [
        method("A", 5.0, {"test": [0.2, 9]}, {"global": 0.5}, "main"),
        method("B", 4.0, {"test": [0.4, 9]}, None),
        method("C", 3.0, None, {"global": 0.1}),
        method("D", 1.0, None, None, "chance"),
    ]
    age, slow, rebuilt = findings({"methods": methods})
    assert age.endswith(": C 3.00 < B 4.00 < A 5.00")
    assert slow.endswith(": A 0.20 < B 0.40")
    assert rebuilt.endswith(": C 0.10 < A 0.50")
