"""What train writes, report takes: many classes, long warnings, large pictures, very many rows."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from higsfa.evaluation import schema
from higsfa.evaluation.schema import MAX_CONFUSED, MAX_NPZ
from higsfa.experiments import ExperimentError, train
from higsfa.experiments import run as running
from higsfa.experiments.interface import checked
from higsfa.report import figures, write_report
from higsfa.report.reading import read_run


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    monkeypatch.setattr(figures, "draw", lambda *_, **__: "<svg></svg>")


def tables(data, **others):
    network = {"layers": [{"field": [4, 4], "n_components": 3, "pca": 4}], "n_jobs": 1}
    return {
        "title": "limits",
        "data": data,
        "network": network,
        "head": {"n_used_features": 2},
        "protocol": {"kind": "random", "test_share": 0.34},
        "comparison": {"methods": ["pca", "chance"], "n_used_features": {"pca": 2}},
        **others,
    }


def test_a_run_with_hundreds_of_classes_has_a_report(tmp_path):
    who = np.repeat([f"person {i}" for i in range(250)], 4)
    rng = np.random.default_rng(0)
    images = np.clip(rng.integers(0, 255, (250, 4, 4))[np.arange(1000) // 4] + rng.normal(0, 5, (1000, 4, 4)), 0, 255)
    np.savez(tmp_path / "data.npz", images=images.astype(np.uint8), who=who)
    data = {"kind": "npz", "file": str(tmp_path / "data.npz"), "labels": ["who"]}
    run = train(checked(tables(data), "test"), tmp_path / "run")
    (label,) = run.metrics["labels"]
    assert len(label["classes"]) == 250 > 200 > MAX_CONFUSED
    assert run.metrics["methods"][0]["labels"]["who"]["confusion"] is None
    page = write_report(run.folder).read_text("utf-8")
    assert "Accuracy" in page
    assert "Confusion matrix" not in page


def test_a_run_with_long_warnings_and_names_that_are_no_unicode_has_a_report(tmp_path):
    folder = tmp_path / "faces"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(30):
        Image.fromarray(rng.integers(0, 255, (8, 8), dtype=np.uint8)).save(folder / f"{20 + i}_{i % 2}_0_2017{i}.jpg")
    for i in range(6):
        (folder / (f"{i}" + "x" * 240 + ".jpg")).write_bytes(b"")
    with open(bytes(folder) + b"/0\xff.jpg", "wb") as file:
        file.write(b"")
    data = {"kind": "utkface", "folder": str(folder), "size": 4, "labels": ["age"], "normalise_contrast": False}
    run = train(checked(tables(data), "test"), tmp_path / "run")
    (warning,) = (text for text in run.metrics["warnings"] if len(text) > 1000)
    assert "0?.jpg" in " ".join(run.metrics["warnings"])
    assert "0?.jpg" in (run.folder / "log.txt").read_text("utf-8")
    assert warning[:1000] in write_report(run.folder).read_text("utf-8")


def test_as_many_examples_are_kept_as_a_report_takes(tmp_path, monkeypatch):
    limit = 60_000
    for module, name in ((running, "MAX_NPZ"), (schema, "MAX_NPZ"), (schema, "MAX_ARRAY")):
        monkeypatch.setattr(module, name, limit)
    images = np.random.default_rng(0).random((60, 20, 20), dtype=np.float32)
    np.savez(tmp_path / "data.npz", images=images, x=np.arange(60) / 7)
    data = {"kind": "npz", "file": str(tmp_path / "data.npz"), "labels": ["x"]}
    config = checked(tables(data, network={"layers": [{"field": [20, 20], "n_components": 3, "pca": 4}]}), "test")
    run = train(config, tmp_path / "run")
    # Three quarters of the limit, for each picture itself and what HiGSFA and PCA make of it.
    assert len(run.examples["images"]) == 45_000 // (3 * 4 * 400)
    assert run.examples["reconstructions"].shape == (2, 9, 20, 20)
    assert (run.folder / "examples.npz").stat().st_size < limit
    assert read_run(run.folder).examples.images.shape == (9, 20, 20)


@pytest.mark.parametrize(("side", "n"), [(96, 16), (256, 16), (512, 6), (1024, 1), (2048, 0)])
def test_large_pictures_leave_room_for_few_examples(side, n):
    config = checked(tables({"kind": "digits"}, comparison={"methods": ["hgsfa", "pca", "lda", "chance"]}), "test")
    source = SimpleNamespace(shape=(side, side))
    found = running._n_examples(config, SimpleNamespace(test=SimpleNamespace(source=source)))
    assert found == n
    assert 4 * 4 * side**2 * found <= MAX_NPZ


def test_labels_too_large_for_a_report_are_refused_before_training(tmp_path):
    images, x = np.random.default_rng(0).random((60, 4, 4), dtype=np.float32), np.arange(60) * 1e99
    np.savez(tmp_path / "data.npz", images=images, x=x)
    config = checked(tables({"kind": "npz", "file": str(tmp_path / "data.npz"), "labels": ["x"]}), "test")
    with pytest.raises(ExperimentError, match=r"label 'x' has values up to 5\.9e\+100"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
