"""Every command does what it says, on a small run."""

import base64
import csv
import json
import re

import numpy as np
import pytest
from PIL import Image, ImageSequence
from sklearn.linear_model import LinearRegression

import higsfa as library
from cli.commands import higsfa, refused
from higsfa import sources
from higsfa.cli.terminal import metrics_tables, score
from higsfa.experiments import load_config
from higsfa.images import Distortion
from higsfa.reconstruction import morph
from real_run import RACES, SIDE, TITLE, N

FACTOR = 11
"""Pictures of 12 pixels are shown 11 times as large."""
TILE = SIDE * FACTOR


def tiles(path, n_rows, n_columns, top=8):
    """The pictures of a sheet, row by row: they end at its lower right corner, with gaps of 8 pixels."""
    sheet = np.asarray(Image.open(path))
    left = sheet.shape[1] - n_columns * (TILE + 8)
    assert sheet.shape[0] == top + n_rows * (TILE + 8)
    return [
        [sheet[y : y + TILE, x : x + TILE] for x in range(left, sheet.shape[1], TILE + 8)]
        for y in range(top, sheet.shape[0], TILE + 8)
    ]


def enlarged(picture):
    grey = np.clip(np.rint(picture), 0, 255).astype(np.uint8)
    return np.asarray(Image.fromarray(grey).resize((TILE, TILE), Image.Resampling.BICUBIC), dtype=float)


def training_images(real):
    """Those of the last fold, whose network was kept."""
    tested = real.run.predictions["sample"][real.run.predictions["fold"] == 1]
    return real.images[np.setdiff1d(np.arange(N), tested)]


def decoder_images(real):
    """The distorted copies for the supervised step of that fold, which the decoder is learned from, too."""
    distortion = Distortion(seed=6, shift=0.3, scale=0.02, rotation=2)
    return np.asarray(sources.repeat(sources.array(training_images(real)), 2, distortion))


# ---------------------------------------------------------------------- experiments


def test_train_writes_a_run_that_the_library_can_read_and_prints_its_scores(quickly, tmp_path):
    arguments = ("--set", "data.max_samples=200", "--set", "title=Other faces", "--jobs", "2")
    out, err = higsfa("train", quickly, "--out", tmp_path / "run", *arguments)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["title"] == "Other faces"
    assert metrics["data"]["n_train"] + metrics["data"]["n_test"] == 200
    assert out.startswith(f"Other faces: {metrics['data']['n_train']} training and {metrics['data']['n_test']} unseen")
    for method in metrics["methods"]:
        (line,) = (line for line in out.splitlines() if line.startswith(f"{method['name']} ") and "%" in line)
        assert f" {method['labels']['age']['mae']['mean']:.2f} " in line
        assert f" {100 * method['labels']['gender']['rate']['mean']:.2f} %" in line
    (line,) = (line for line in out.splitlines() if line.startswith("HiGSFA ") and "%" not in line)
    main = metrics["methods"][0]
    numbers = [*main["delta"]["test"][:3], *main["reconstruction_error"].values(), main["seconds"]["fit"]]
    shown = line.split()[1:]
    assert shown[0] == "12"
    np.testing.assert_allclose([float(text) for text in shown[1:]], numbers, atol=0.051)
    assert "HiGSFA: train on" in err
    assert library.load(tmp_path / "run" / "model.higsfa").input_shape_ == (12, 12)
    assert load_config(tmp_path / "run" / "config.toml").network.n_jobs == 2
    assert not (tmp_path / "run" / "checkpoint").exists()
    assert json.loads(higsfa("train", quickly, "--out", tmp_path / "json", "--json")[0])["title"] == TITLE


def test_the_table_of_a_run_has_means_standard_errors_and_warnings(real, capsys):
    metrics = json.loads(json.dumps(real.run.metrics)) | {"warnings": ["left out:\nx.png"]}
    metrics["methods"][0]["delta"]["test"][1] = None
    metrics["methods"][1]["labels"]["age"] = None
    metrics["n_folds"] = None
    metrics_tables(metrics)
    out, err = capsys.readouterr()
    main = metrics["methods"][0]
    age = main["labels"]["age"]["mae"]
    assert f"{age['mean']:.2f} ± {age['se']:.2f}" in out
    race = main["labels"]["race"]["rate"]
    assert f"{100 * race['mean']:.2f} ± {100 * race['se']:.2f} %" in out
    first, _, third = main["delta"]["test"][:3]
    assert f"{first:.2f} - {third:.2f}" in out
    assert "folds" not in out.splitlines()[0]
    assert err == "warning: left out: x.png\n"
    header = next(line for line in out.splitlines() if "age MAE" in line)
    assert header.split("  ")[-1].strip().startswith("strength RMSE, $x_1$")
    assert "chance" not in out.partition("What features hold")[2]
    metrics_tables(real.run.metrics)
    assert capsys.readouterr().out.splitlines()[0] == f"{TITLE}: 300 training and 100 unseen samples, 2 folds"


def test_scores_without_a_mean_or_an_error():
    assert score(None, "mae") == score({"mean": None}, "mae") == "-"
    assert score({"mean": 0.5, "se": None}, "rate") == "50.00 %"
    assert score({"mean": 0.5, "se": 0.25}, "mae") == "0.50 ± 0.25"


def test_evaluate_finds_the_scores_of_training_again(run):
    found = json.loads(higsfa("evaluate", run, "--json")[0])
    trained = json.loads((run / "metrics.json").read_text())["methods"][0]
    for label, measure in (("age", "mae"), ("age", "rmse"), ("gender", "rate"), ("race", "rate")):
        assert found["labels"][label][measure]["mean"] == pytest.approx(trained["labels"][label][measure]["values"][1])
    out, _ = higsfa("evaluate", run)
    assert out.startswith(f"{TITLE}: 100 unseen samples")
    assert f" {found['labels']['age']['mae']['mean']:.2f} " in out


def test_compare_shows_the_methods_of_all_runs(run):
    out, _ = higsfa("compare", run, run)
    assert out.count("spots, HiGSFA ") == 2
    found = json.loads(higsfa("compare", run, "--json")[0])
    main = found["rows"][0]["scores"]["age"]["mae"]
    assert any(f"{main['mean']:.2f} ± {main['se']:.2f}" in line for line in out.splitlines() if "spots, HiGSFA" in line)
    assert [label["name"] for label in found["labels"]] == ["age", "gender", "race", "strength"]


def test_configs_lists_shows_and_copies(tmp_path):
    known = json.loads(higsfa("configs", "--json")[0])
    assert {"faces", "folder"} <= set(known)
    listed = higsfa("configs")[0]
    assert all(name in listed and text in listed for name, text in known.items())
    text = higsfa("configs", "faces")[0]
    out, _ = higsfa("configs", "faces", "-o", tmp_path / "my.toml")
    assert f"higsfa train {tmp_path / 'my.toml'}" in out
    assert (tmp_path / "my.toml").read_text("utf-8") == text
    assert load_config(tmp_path / "my.toml") == load_config("faces")
    assert "--force" in refused("configs", "faces", "-o", tmp_path / "my.toml")
    about = json.loads(higsfa("configs", "digits", "-o", tmp_path / "my.toml", "--force", "--json")[0])
    assert (about["name"], about["written"]) == ("digits", str(tmp_path / "my.toml"))
    assert load_config(tmp_path / "my.toml").data.kind == "digits"
    assert "faces" in refused("configs", "fases")
    assert "name the config" in refused("configs", "-o", tmp_path / "other.toml")


def test_info_describes_runs_and_models(run):
    out, _ = higsfa("info", run)
    assert TITLE in out
    size = (run / "model.higsfa").stat().st_size
    assert f"model.higsfa {size:,}" in " ".join(out.split())
    assert "HiGSFA for input 12x12, fitted" in out
    whole = json.loads(higsfa("info", run, "--json")[0])
    assert whole["files"]["model.higsfa"] == size
    assert whole["metrics"]["title"] == TITLE
    about = json.loads(higsfa("info", run / "model.higsfa", "--json")[0])
    assert (about["kind"], about["bytes"]) == ("HiGSFA", size)
    out, _ = higsfa("info", run / "model.higsfa")
    assert f"HiGSFA, {size:,} bytes\n" in out
    assert "".join(str(library.load(run / "model.higsfa")).split()) in "".join(out.split())
    out, _ = higsfa("info", run / "head.higsfa")
    assert "LabelHead" in out
    assert "labels age, gender, race, strength" in out


# ---------------------------------------------------------------------- new pictures


def test_transform_gives_the_features_of_the_network(run, real, photos, tmp_path):
    about = json.loads(higsfa("transform", run, photos, "-o", tmp_path / "features.npy", "--json")[0])
    features = np.load(tmp_path / "features.npy", allow_pickle=False)
    assert features.shape == (3, 12) == tuple(about["shape"])
    assert about["files"] == [str(photos / f"face{i}.png") for i in range(3)]
    own = library.load(run / "model.higsfa").transform(real.new)
    np.testing.assert_allclose(features, own, rtol=1e-5, atol=1e-6)
    out, _ = higsfa("transform", run, photos / "face2.png", photos / "face0.png", "-o", tmp_path / "features.csv")
    assert out == f"Features of 2 pictures, 12 each, written to {tmp_path / 'features.csv'}\n"
    with open(tmp_path / "features.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["file", *(f"feature{j}" for j in range(12))]
    assert [row[0] for row in rows[1:]] == [str(photos / "face2.png"), str(photos / "face0.png")]
    np.testing.assert_allclose(np.array(rows[1:])[:, 1:].astype(float), features[[2, 0]], rtol=1e-5)
    assert ".npy or .csv" in refused("transform", run, photos, "-o", tmp_path / "features.txt")


def test_predict_prints_writes_and_says_what_estimates_are(run, real, photos, tmp_path):
    out, err = higsfa("predict", run, photos, "--json", "-o", tmp_path / "estimates.csv")
    rows = json.loads(out)
    assert [row["file"] for row in rows] == [str(photos / f"face{i}.png") for i in range(3)]
    assert "statistical guesses" in err
    with open(tmp_path / "estimates.csv", newline="", encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    features = real.run.network.transform(real.new)
    own, sure = real.run.head.predict(features), real.run.head.predict_proba(features, "race").max(axis=1)
    for i in range(3):
        assert rows[i]["age"] == int(written[i]["age"]) == own["age"][i]
        assert rows[i]["gender"] == written[i]["gender"] == own["gender"][i]
        assert rows[i]["race"] == own["race"][i]
        assert written[i]["race"] == ("'" + RACES[1] if own["race"][i] == RACES[1] else own["race"][i])
        assert float(written[i]["strength"]) == pytest.approx(own["strength"][i], rel=1e-5)
        assert float(written[i]["race_probability"]) == pytest.approx(sure[i], rel=1e-4)
    out, _ = higsfa("predict", run, photos / "face1.png")
    assert own["race"][1] in out
    assert f" {own['strength'][1]:.2f}" in out
    out, _ = higsfa("predict", run, photos, "-o", tmp_path / "again.csv")
    assert out == f"Estimates for 3 pictures written to {tmp_path / 'again.csv'}\n"


def test_pictures_whose_names_are_no_unicode_can_be_estimated(run, photos, tmp_path):
    name = b"\xff=1.png"
    (tmp_path / "f").mkdir()
    path = bytes(tmp_path / "f") + b"/" + name
    with open(path, "wb") as file:
        file.write((photos / "face0.png").read_bytes())
    for command, ending in (("predict", "e.csv"), ("transform", "f.csv")):
        higsfa(command, run, tmp_path / "f", "-o", tmp_path / ending)
        assert (tmp_path / ending).read_bytes().split(b"\n")[1].startswith(path + b",")
    assert "f/?=1.png" in higsfa("predict", run, tmp_path / "f")[0]
    assert json.loads(higsfa("predict", run, tmp_path / "f", "--json")[0])[0]["file"].endswith("\udcff=1.png")
    out, _ = higsfa("transform", run, photos, "-o", tmp_path.joinpath("\udcfe.npy"))
    assert out.endswith("/?.npy\n")


def test_reconstruct_draws_originals_and_what_features_keep_of_them(run, real, photos, tmp_path):
    found = json.loads(higsfa("reconstruct", run, photos, "-o", tmp_path / "rebuilt.png", "--json")[0])
    images, network = decoder_images(real), real.run.network
    flat = images.reshape(len(images), -1).astype(float)
    linear = LinearRegression().fit(network.transform(images), flat)
    Y = network.transform(real.new)
    rebuilt = {
        "linear": linear.predict(Y).reshape(3, SIDE, SIDE),
        "top-down": network.inverse_transform(Y).reshape(3, SIDE, SIDE),
    }
    shown = tiles(tmp_path / "rebuilt.png", 3, 3)
    for row, pictures in zip(shown, (real.new, *rebuilt.values()), strict=True):
        for tile, picture in zip(row, pictures, strict=True):
            assert np.abs(tile - enlarged(picture)).max() <= 2
    mean = flat.mean(axis=0).reshape(SIDE, SIDE)
    for name, pictures in rebuilt.items():
        error = np.sum((real.new - pictures) ** 2) / np.sum((real.new - mean) ** 2)
        assert found["error"][name] == pytest.approx(error, rel=1e-3)
    assert found["error"]["linear"] < 0.7
    out, _ = higsfa("reconstruct", run, photos / "face1.png", "-o", tmp_path / "one.png")
    assert f"Written to {tmp_path / 'one.png'}" in out
    assert np.abs(tiles(tmp_path / "one.png", 3, 1)[0][0] - enlarged(real.new[1])).max() <= 2
    many = [photos / "face0.png"] * 33
    assert "at most 32" in refused("reconstruct", run, *many, "-o", tmp_path / "many.png")


def test_morph_draws_a_strip_and_an_animation_of_other_ages(run, real, photos, tmp_path):
    arguments = ("--age", "20,40,60", "-o", tmp_path / "strip.png", "--gif", tmp_path / "ages.gif")
    out, err = higsfa("morph", run, photos / "face0.png", *arguments, "--json")
    assert json.loads(out) == {
        "label": "age",
        "values": [20, 40, 60],
        "written": [str(tmp_path / "strip.png"), str(tmp_path / "ages.gif")],
    }
    assert "statistical guesses" in err
    images, network, head = decoder_images(real), real.run.network, real.run.head
    decoder = library.reconstruction.LinearReconstruction().fit(network.transform(images), images)
    frames = morph(network, head, real.new[0], age=[20, 40, 60], decoder=decoder)
    (strip,) = tiles(tmp_path / "strip.png", 1, 4, top=30)
    for tile, picture in zip(strip, (real.new[0], *frames), strict=True):
        assert np.abs(tile - enlarged(picture)).max() <= 3
    centres = slice(FACTOR // 2, None, FACTOR)
    ages = head.predict(network.transform(np.stack([tile[centres, centres] for tile in strip[1:]])))["age"]
    assert ages[0] < ages[1] < ages[2]
    with Image.open(tmp_path / "ages.gif") as animation:
        assert animation.n_frames == 24 + 22
        moving = [np.asarray(frame.convert("L"), dtype=float) for frame in ImageSequence.Iterator(animation)]
    there = morph(network, head, real.new[0], age=np.linspace(20, 60, 24), decoder=decoder)
    for number in (0, 12, 23):
        assert np.abs(moving[number] - enlarged(there[number])).max() <= 3
    assert np.abs(moving[45] - enlarged(there[1])).max() <= 3


def test_morph_changes_labels_that_are_named_like_its_own_options(run, real, photos, tmp_path):
    arguments = ("--label", "strength=60,150", "--strength", "0.5", "-o", tmp_path / "strip.png")
    out, err = higsfa("morph", run, photos / "face1.png", *arguments)
    assert out == f"Written to {tmp_path / 'strip.png'}\n"
    assert "statistical guesses" not in err
    (photograph, weak, strong) = tiles(tmp_path / "strip.png", 1, 3, top=30)[0]
    assert weak.max() < photograph.max() + 3
    assert weak.astype(float).max() < strong.max()
    higsfa("morph", run, photos / "face0.png", "--label", "gender=M,F", "--gif", tmp_path / "gender.webp")
    with Image.open(tmp_path / "gender.webp") as animation:
        assert (animation.format, animation.n_frames) == ("WEBP", 2)


def test_morph_as_the_manual_has_it_writes_a_strip_here(run, photos, tmp_path):
    out, _ = higsfa("morph", run, photos / "face0.png", "--age", "20,60", cwd=tmp_path)
    assert out == "Written to morph.png\n"
    assert len(tiles(tmp_path / "morph.png", 1, 3, top=30)[0]) == 3
    assert "--force" in refused("morph", run, photos / "face0.png", "--age", "20,60", cwd=tmp_path)


# ---------------------------------------------------------------------- pages


def test_report_and_explore_write_pages_that_need_no_server(run, tmp_path):
    for command in ("report", "explore"):
        about = json.loads(higsfa(command, run, "-o", tmp_path / f"{command}.html", "--json")[0])
        page = (tmp_path / f"{command}.html").read_text()
        assert about == {"written": str(tmp_path / f"{command}.html"), "bytes": len(page.encode())}
        assert page.lower().lstrip().startswith("<!doctype html>")
        assert 'src="http' not in page
        assert "--force" in refused(command, run, "-o", tmp_path / f"{command}.html")
    out, err = higsfa("explore", run, "-o", tmp_path / "again.html")
    assert out == f"Written to {tmp_path / 'again.html'}. Open it in a browser.\n"
    assert "statistical guesses" in err
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "explore.html").read_bytes()


def test_the_explorer_of_a_run_shows_its_test_pictures_and_their_labels(run, real, tmp_path):
    higsfa("explore", run, "-o", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])
    p = real.run.predictions
    samples = p["sample"][p["fold"] == 1][np.linspace(0, 99, 12).round().astype(int)]
    for face, sample in zip(data["faces"], samples, strict=True):
        photograph = np.frombuffer(base64.b64decode(face["photograph"]), np.uint8)
        np.testing.assert_array_equal(photograph.reshape(SIDE, SIDE), real.images[sample])
        race = real.labels["race"][sample]
        assert face["annotated"].get("race") == race
        assert face["annotated"]["gender"] == real.labels["gender"][sample]
        assert float(face["annotated"]["age"]) == pytest.approx(real.labels["age"][sample], rel=1e-3)
    assert f"<title>Explore: {TITLE.replace('&', '&amp;').replace('<b>', '&lt;b&gt;')}</title>" in text


def test_tune_leaves_a_config_that_train_takes_as_it_is(quickly, tmp_path):
    options = ("--only", "width", "--vary", "network.layer_params.shrinkage=[0.1]", "--candidates", "3", "--jobs", "1")
    out, err = higsfa("tune", quickly, "--out", tmp_path / "tuned", *options)
    assert "3 candidates in" in out
    assert "as given" in out
    assert "age MAE" in out
    assert "gender rate" in out
    assert f"higsfa train {tmp_path / 'tuned' / 'best.toml'} --out RUN" in out
    assert "train on" in err
    higsfa("train", tmp_path / "tuned" / "best.toml", "--out", tmp_path / "run")
    assert (tmp_path / "run" / "metrics.json").is_file()
    assert "--resume" in refused("tune", quickly, "--out", tmp_path / "tuned", *options)
    again = json.loads(higsfa("tune", quickly, "--out", tmp_path / "tuned", *options, "--resume", "--json")[0])
    assert len({done["candidate"] for done in again["results"]}) == 3
    assert again["config"] == str(tmp_path / "tuned" / "best.toml")
    assert again["best"]["error"] == min(d["error"] for d in again["results"] if d["rung"] == again["best"]["rung"])


def test_tune_tells_wrong_options_in_one_line(quickly, tmp_path):
    out = tmp_path / "tuned"
    assert "no setting 'depth'" in refused("tune", quickly, "--out", out, "--only", "depth")
    assert "--vary network.width: write it as KEY=VALUE" in refused(
        "tune", quickly, "--out", out, "--vary", "network.width"
    )
    assert "needs a list of values" in refused("tune", quickly, "--out", out, "--vary", "network.width=2")
    assert "--minutes" in refused("tune", quickly, "--out", out, "--minutes", "0")
    assert not out.exists()
