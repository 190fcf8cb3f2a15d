"""Every command does what it says, on a small run."""

import csv
import json

import numpy as np
import pytest
from PIL import Image

import higsfa as library
from cli.commands import higsfa, refused
from higsfa.experiments import load_config


def pixels(photos):
    return np.stack([np.asarray(Image.open(photos / f"face{i}.png")) for i in range(3)])


def test_train_writes_a_run_that_the_library_can_read(run, config):
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["data"]["n_train"] == 240
    network = library.load(run / "model.higsfa")
    assert network.input_shape_ == (24, 24)
    assert not (run / "checkpoint").exists()


def test_train_prints_the_scores_that_it_wrote_and_changes_settings(config, tmp_path):
    arguments = ("--set", "data.n_train=120", "--set", 'comparison.methods=["chance"]', "--set", "title=Other faces")
    out, err = higsfa("train", config, "--out", tmp_path / "run", *arguments)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["title"] == "Other faces"
    assert metrics["data"]["n_train"] == 120
    assert [method["name"] for method in metrics["methods"]] == ["HiGSFA", "chance"]
    for method in metrics["methods"]:
        (line,) = (line for line in out.splitlines() if line.startswith(f"{method['name']} ") and "%" in line)
        assert f"{method['labels']['age']['mae']['mean']:.2f}" in line
        assert f"{100 * method['labels']['gender']['rate']['mean']:.2f} %" in line
    assert err.strip() != ""


def test_evaluate_finds_the_scores_of_training_again(run):
    found = json.loads(higsfa("evaluate", run, "--json")[0])
    trained = json.loads((run / "metrics.json").read_text())["methods"][0]
    for label, measure in (("age", "mae"), ("age", "rmse"), ("gender", "rate"), ("race", "rate")):
        assert found["labels"][label][measure]["mean"] == pytest.approx(trained["labels"][label][measure]["mean"])


def test_compare_shows_the_methods_of_all_runs(run):
    out, _ = higsfa("compare", run, run)
    assert out.count("small, HiGSFA") == 2


def test_configs_lists_shows_and_copies(tmp_path):
    known = json.loads(higsfa("configs", "--json")[0])
    assert {"faces", "folder"} <= set(known)
    higsfa("configs", "faces", "-o", tmp_path / "my.toml")
    assert load_config(tmp_path / "my.toml") == load_config("faces")
    assert "--force" in refused("configs", "faces", "-o", tmp_path / "my.toml")


def test_info_describes_runs_and_models(run):
    out, _ = higsfa("info", run)
    assert "Small faces" in out
    assert "model.higsfa" in out
    about = json.loads(higsfa("info", run / "model.higsfa", "--json")[0])
    assert about["kind"] == "HiGSFA"
    assert about["bytes"] == (run / "model.higsfa").stat().st_size
    assert "age, gender, race" in higsfa("info", run / "head.higsfa")[0]


def test_transform_gives_the_features_of_the_network(run, photos, tmp_path):
    about = json.loads(higsfa("transform", run, photos, "-o", tmp_path / "features.npy", "--json")[0])
    features = np.load(tmp_path / "features.npy", allow_pickle=False)
    assert features.shape == (3, 12) == tuple(about["shape"])
    own = library.load(run / "model.higsfa").transform(pixels(photos))
    np.testing.assert_allclose(features, own, rtol=1e-5, atol=1e-6)
    higsfa("transform", run, photos / "face2.png", photos / "face0.png", "-o", tmp_path / "features.csv")
    with open(tmp_path / "features.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert [row[0] for row in rows[1:]] == [str(photos / "face2.png"), str(photos / "face0.png")]
    np.testing.assert_allclose(np.array(rows[1:])[:, 1:].astype(float), features[[2, 0]], rtol=1e-5)


def test_predict_prints_writes_and_says_what_estimates_are(run, photos, tmp_path):
    out, err = higsfa("predict", run, photos, "--json", "-o", tmp_path / "estimates.csv")
    rows = json.loads(out)
    assert [row["file"] for row in rows] == [str(photos / f"face{i}.png") for i in range(3)]
    assert "statistical guesses" in err
    with open(tmp_path / "estimates.csv", newline="") as file:
        written = list(csv.DictReader(file))
    features = library.load(run / "model.higsfa").transform(pixels(photos))
    own = library.load(run / "head.higsfa").predict(features)
    for i in range(3):
        assert rows[i]["age"] == pytest.approx(own["age"][i], rel=1e-4)
        assert float(written[i]["age"]) == pytest.approx(own["age"][i], rel=1e-4)
        assert rows[i]["gender"] == written[i]["gender"] == own["gender"][i]
        assert 0.5 <= float(written[i]["gender_probability"]) <= 1
    assert rows[1]["race"] in higsfa("predict", run, photos / "face1.png")[0]


def test_reconstruct_draws_originals_and_rebuilt_pictures(run, photos, tmp_path):
    found = json.loads(higsfa("reconstruct", run, photos, "-o", tmp_path / "rebuilt.png", "--json")[0])
    image = np.asarray(Image.open(tmp_path / "rebuilt.png"))
    assert image.ndim == 2
    assert np.ptp(image) > 100
    assert set(found["error"]) == {"linear", "top-down"}
    assert all(0 < error < 1.5 for error in found["error"].values())
    assert (run / "decoder.npz").is_file()


def test_morph_draws_a_strip_and_an_animation(run, photos, tmp_path):
    arguments = ("--age", "20,40,60", "-o", tmp_path / "strip.png", "--gif", tmp_path / "ages.gif")
    out, err = higsfa("morph", run, photos / "face0.png", *arguments, "--json")
    assert json.loads(out)["values"] == [20, 40, 60]
    assert "statistical guesses" in err
    assert np.ptp(np.asarray(Image.open(tmp_path / "strip.png"))) > 100
    with Image.open(tmp_path / "ages.gif") as animation:
        assert animation.n_frames > 3
    higsfa("morph", run, photos / "face0.png", "--label", "gender=M,F", "--gif", tmp_path / "gender.webp")
    with Image.open(tmp_path / "gender.webp") as animation:
        assert animation.format == "WEBP"


def test_report_and_explore_write_pages_that_need_no_server(run, tmp_path):
    for command in ("report", "explore"):
        about = json.loads(higsfa(command, run, "-o", tmp_path / f"{command}.html", "--json")[0])
        page = (tmp_path / f"{command}.html").read_text()
        assert about["written"] == str(tmp_path / f"{command}.html")
        assert page.lower().lstrip().startswith("<!doctype html>")
        assert 'src="http' not in page
    assert "--force" in refused("report", run, "-o", tmp_path / "report.html")
