"""Grey values and cuts of pictures: known in training, kept in the run, and the same for new pictures."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from higsfa.datasets import make_faces, read_fgnet, read_morph2
from higsfa.experiments import ExperimentError, Run, load_config, train, with_values
from higsfa.experiments.data import Samples, range_of, scaled, unit_range
from higsfa.experiments.interface import checked
from higsfa.experiments.split import make_sets, network_input, open_experiment
from higsfa.images import FaceSampler

TINY = {
    "title": "tiny",
    "network": {"layers": [{"field": [12, 12], "n_components": 4, "pca": 6}], "n_jobs": 1},
    "head": {"n_used_features": 2},
    "protocol": {"kind": "random"},
    "comparison": {"methods": ["chance"]},
}


def from_arrays(folder, images, **changes):
    """An experiment on images in a file, and the bytes that they were made of."""
    folder.mkdir(exist_ok=True)
    np.savez(folder / "data.npz", images=images, row=np.arange(len(images)) / 7)
    data = {"kind": "npz", "file": str(folder / "data.npz"), "labels": ["row"]}
    return with_values(checked({**TINY, "data": data}, "test"), changes)


@pytest.fixture(scope="module")
def spots():
    from real_run import draw

    return draw(60, 1)[0]


def saved(images, folder):
    folder.mkdir()
    for i, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{i:03d}.png")
    return folder


@pytest.mark.parametrize(
    ("dtype", "black", "white"),
    [("uint8", 0, 255), ("float32", 0, 1), ("float64", 0, 255), ("uint16", 0, 65535), ("float32", -2, 6)],
)
@pytest.mark.parametrize("network_dtype", [None, "float64"])
def test_examples_and_new_pictures_have_the_grey_values_of_training(
    spots, tmp_path, dtype, black, white, network_dtype
):
    images = (black + spots * ((white - black) / 255)).astype(dtype)
    changes = {} if network_dtype is None else {"network.dtype": network_dtype}
    changes |= {"data.pixel_range": [black, white]} if black else {}
    run = train(from_arrays(tmp_path / "data", images, **changes), tmp_path / "run")
    assert run.pixel_range == (black, white)
    tested = run.predictions["sample"]
    np.testing.assert_allclose(run.examples["images"][0], spots[tested[0]] / 255, atol=1e-5)
    np.testing.assert_allclose(run.examples["images"][-1], spots[tested[-1]] / 255, atol=1e-5)
    rebuilt = run.examples["reconstructions"][0]
    assert abs(rebuilt.mean() - run.examples["images"].mean()) < 0.05
    new = run.pictures([saved(spots[tested], tmp_path / "photos")])
    np.testing.assert_allclose(np.asarray(new), images[tested], rtol=1e-5, atol=1e-5 * (white - black))
    seen = network_input(run.config, Samples(new, {}, pixel_range=run.pixel_range)).source
    assert seen.dtype == (network_dtype or new.dtype)
    np.testing.assert_array_equal(run.transform(new), run.network.transform(seen))
    np.testing.assert_allclose(run.transform(new), run.examples["features"], rtol=1e-3, atol=1e-3)


def test_a_range_that_is_not_usual_is_guessed_with_a_warning_or_told(spots, tmp_path):
    images = spots.astype(np.float32) * 1000 - 7e5
    guessed = open_experiment(from_arrays(tmp_path, images))
    assert guessed.data.pixel_range == (images.min(), images.max())
    assert any("pixel_range" in text for text in guessed.warnings)
    told = open_experiment(from_arrays(tmp_path, images, **{"data.pixel_range": [-8e5, 1e3]}))
    assert told.data.pixel_range == (-8e5, 1e3)
    assert told.warnings == ()
    with pytest.raises(ExperimentError, match=r"pixel_range = \[1.0, 1.0\]"):
        from_arrays(tmp_path, images, **{"data.pixel_range": [1, 1]})


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([0, 1], "uint8", (0, 255)),
        ([0, 1], "bool", (0, 1)),
        ([0, 1], "int64", (0, 1)),
        ([-0.5, 1.5], "float32", (0, 1)),
        ([-0.51, 1.0], "float32", (0, 255)),
        ([0, 1.51], "float64", (0, 255)),
        ([-127, 382], "float64", (0, 255)),
        ([0, 383], "int32", (0, 65535)),
        ([0, 4095], "uint16", (0, 65535)),
    ],
)
def test_values_tell_their_range(values, dtype, expected):
    assert range_of(np.array(values, dtype=dtype)) == (expected, False)


def test_values_without_a_usual_range_span_it_themselves():
    assert range_of(np.array([-1e6, 2e6])) == ((-1e6, 2e6), True)
    (black, white), is_guess = range_of(np.full(3, 1e7))
    assert is_guess
    assert black == 1e7 < white
    with pytest.raises(ValueError, match="not finite"):
        range_of(np.array([0.0, np.nan]))


def test_grey_values_are_scaled_and_cut_at_black_and_white():
    np.testing.assert_allclose(unit_range([-10, -2, 2, 6, 9], (-2, 6)), [0, 0, 0.5, 1, 1])
    grey = np.array([[0, 51, 255]], dtype=np.uint8)
    other = scaled(grey, lambda image: image, (-2.0, 6.0))
    assert other.dtype == np.float32
    np.testing.assert_allclose(other, [[-2, -0.4, 6]], atol=1e-6)
    same = scaled(grey, lambda image: image, (0.0, 255.0))
    assert same.dtype == np.uint8
    np.testing.assert_array_equal(same, grey)


def test_samples_that_are_no_images_have_no_grey_values(tmp_path):
    config = from_arrays(tmp_path, np.random.default_rng(0).random((40, 5)), network={"preset": "single", "n_jobs": 1})
    run = train(with_values(config, {"network.n_components": 2}), tmp_path / "run")
    assert run.pixel_range is None
    assert run.metrics["data"]["image_shape"] is None
    assert set(run.examples) == {"features", "feature_rows"}
    with pytest.raises(ExperimentError, match="not on grey or RGB pictures"):
        run.pictures([tmp_path])
    with pytest.raises(ExperimentError, match="for images"):
        train(with_values(config, {"distortion.copies": 2}), tmp_path / "other")


@pytest.mark.parametrize(
    ("dtype", "top", "works"),
    [("uint8", 255, True), ("float32", 1, True), ("float32", 255, False), ("int32", 255, False)],
)
def test_tones_are_distorted_only_where_their_range_is_known_by_type(spots, tmp_path, dtype, top, works):
    images = (spots * (top / 255)).astype(dtype)
    config = from_arrays(tmp_path, images)
    for key in ("brightness", "contrast", "noise"):
        changed = with_values(config, {f"distortion.{key}": 0.1, "distortion.shift": 0.0})
        experiment = open_experiment(changed)
        if works:
            sets = make_sets(changed, experiment.folds[0])
            off = np.asarray(sets.network.source) - images[experiment.folds[0].train.rows].astype(float)
            assert 0.01 < np.abs(off).max() / top < 0.6
        else:
            with pytest.raises(ExperimentError, match="brightness, contrast and noise"):
                make_sets(changed, experiment.folds[0])
    moved = with_values(config, {"distortion.shift": 1.0})
    make_sets(moved, open_experiment(moved).folds[0])


def test_digits_go_from_0_to_1(tmp_path):
    values = {"network.n_jobs": 1, "data.max_samples": 100, "comparison.methods": ["chance"], "head.n_used_features": 4}
    config = with_values(load_config("digits"), {**values, "distortion": None, "protocol.repeats": 1})
    run = train(with_values(config, {"network.n_components": 8}), tmp_path / "run")
    assert run.pixel_range == (0, 1)
    assert run.cropping is None
    shown = (255 * run.examples["images"]).round().astype(np.uint8)
    new = run.pictures([saved(shown, tmp_path / "photos")])
    np.testing.assert_allclose(np.asarray(new), run.examples["images"], atol=0.003)


# ---------------------------------------------------------------------------------------------- eyes


@pytest.fixture
def aligned(morph2, small, tmp_path):
    """A run on faces that were aligned by their eyes."""
    files = {"data__csv": str(morph2 / "morph2.csv"), "data__eyes": str(morph2 / "eyes.csv")}
    sizes = {"MB": 4, "MW": 4, "FB": 3, "FW": 3}
    config = small("morph2_s1s2s3", data__folder=str(morph2), **files, protocol__sizes=sizes)
    return train(config, tmp_path / "aligned")


def test_new_faces_are_aligned_as_those_of_training(aligned, morph2):
    assert aligned.cropping == "eyes"
    last = aligned.predictions["sample"][aligned.examples["feature_rows"]][:3]
    found = read_morph2(morph2, morph2 / "morph2.csv", eyes=morph2 / "eyes.csv")
    photos = [found.paths[i] for i in last]
    for eyes in (morph2 / "eyes.csv", str(morph2 / "eyes.csv"), found.eyes[last]):
        new = aligned.pictures(photos, eyes=eyes)
        np.testing.assert_allclose(
            aligned.network.transform(new), aligned.examples["features"][:3], rtol=1e-3, atol=1e-3
        )
    sampled = FaceSampler(24).sample(Image.open(photos[0]), [[10, 12], [22, 12]])
    np.testing.assert_array_equal(np.asarray(new)[0], sampled)
    cut = aligned.pictures(photos, cropped=True)
    assert np.abs(np.asarray(cut).astype(int) - np.asarray(new)).mean() > 5


def test_a_run_on_aligned_faces_wants_eyes_and_says_so(aligned, morph2, tmp_path):
    photo = sorted(morph2.glob("*.JPG"))[0]
    for wrong in ({}, {"eyes": np.ones((1, 2, 2)), "cropped": True}):
        with pytest.raises(ExperimentError, match=r"aligned by their eyes.*--eyes.*--cropped"):
            aligned.pictures([photo], **wrong)
    with pytest.raises(ExperimentError, match=r"eyes: shape \(1, 2, 2\)"):
        aligned.pictures([photo], eyes=np.ones((2, 2, 2)))
    with pytest.raises(ExperimentError, match=f"eyes: those of .*{photo.name}.* are not known"):
        aligned.pictures([photo], eyes=[[[1, 2], [3, np.nan]]])
    other = tmp_path / "other.csv"
    other.write_text("a.png,1,2,3,4\n")
    with pytest.raises(ExperimentError, match=r"none of its names, such as 'a\.png'"):
        aligned.pictures([photo], eyes=other)


def test_a_run_on_whole_pictures_wants_no_eyes(real):
    assert real.run.cropping == "centre"
    photo = real.photos / "face1.png"
    for wrong in ({"eyes": np.ones((1, 2, 2))}, {"cropped": True}):
        with pytest.raises(ExperimentError, match="cut about their centre"):
            real.run.pictures([photo], **wrong)
    np.testing.assert_array_equal(np.asarray(real.run.pictures(photo)), real.new[1:2])
    wide = Image.fromarray(np.pad(real.new[1], ((0, 0), (5, 5))))
    wide.save(real.photos.parent / "wide.png")
    np.testing.assert_array_equal(np.asarray(real.run.pictures(real.photos.parent / "wide.png"))[0], real.new[1])


def test_runs_of_early_versions_that_do_not_say_what_grey_values_mean_are_refused(real, tmp_path):
    shutil.copytree(real.folder, tmp_path / "old")
    metrics = dict(real.run.metrics)
    metrics["data"] = {key: value for key, value in metrics["data"].items() if key not in ("pixel_range", "cropping")}
    (tmp_path / "old" / "metrics.json").write_text(json.dumps(metrics))
    with pytest.raises(ExperimentError, match="train it again"):
        Run(tmp_path / "old").pictures([real.photos])


# ---------------------------------------------------------------------------------------------- other data sets


def points(folder, eyes):
    """Landmark files of FG-NET with these eyes."""
    (folder / "points").mkdir()
    for path in (folder / "images").iterdir():
        places = np.zeros((68, 2))
        places[[31, 36]] = eyes
        lines = "\n".join(f"{x} {y}" for x, y in places)
        (folder / "points" / f"{path.stem.lower()}.pts").write_text(f"version: 1\nn_points: 68\n{{\n{lines}\n}}\n")


def cross(small, morph2, fgnet, **changes):
    return small(
        "fgnet_cross",
        data__folder=str(morph2),
        data__csv=str(morph2 / "morph2.csv"),
        test_data__folder=str(fgnet),
        test_data__size=24,
        **changes,
    )


def test_faces_of_two_data_sets_that_are_cut_differently_are_reported(morph2, fgnet, small):
    eyes = str(morph2 / "eyes.csv")
    experiment = open_experiment(cross(small, morph2, fgnet, data__eyes=eyes))
    assert [text for text in experiment.warnings if "scores say little" in text] == list(experiment.warnings)
    assert "aligned by the eyes" in experiment.warnings[0]
    assert open_experiment(cross(small, morph2, fgnet, data__eyes=None)).warnings == ()
    points(fgnet, [[10, 12], [22, 12]])
    assert read_fgnet(fgnet).eyes.shape == (20, 2, 2)
    assert open_experiment(cross(small, morph2, fgnet, data__eyes=eyes)).warnings == ()


def test_data_sets_with_other_grey_values_are_refused(morph2, small, tmp_path):
    images, labels = make_faces(20, 24, random_state=0)
    for scale, words in ((1, None), (255, "black and white are")):
        np.savez(tmp_path / "test.npz", images=images / np.float32(scale), age=labels["age"])
        test_data = {"kind": "npz", "file": str(tmp_path / "test.npz"), "labels": ["age"]}
        config = cross(small, morph2, tmp_path, data__eyes=None)
        tables = config.plain()
        tables["test_data"] = test_data
        other = checked(tables, "test")
        if words is None:
            assert len(open_experiment(other).folds[0].test) == int(np.sum(labels["age"] >= 16))
        else:
            with pytest.raises(ExperimentError, match=words):
                open_experiment(other)


def test_binary_race_is_binary_in_another_data_set_too(morph2, small, tmp_path):
    races = np.array(["B", "W", "H", "", "B", "A"] * 4)
    images, _ = make_faces(24, 24, random_state=0)
    ages = np.linspace(10, 70, 24)
    np.savez(tmp_path / "test.npz", images=images, race=races, age=ages)
    tables = cross(small, morph2, tmp_path, data__eyes=None, protocol__binary_race=True).plain()
    tables["data"]["labels"] = ["age", "race"]
    tables["test_data"] = {"kind": "npz", "file": str(tmp_path / "test.npz"), "labels": ["age", "race"]}
    run = train(checked(tables, "test"), tmp_path / "run")
    kept = np.floor(ages) >= 16
    expected = [{"B": "B", "W": "R"}.get(race) for race in races[kept]]
    assert run.predictions["race"].tolist() == expected
    assert run.metrics["labels"][1]["classes"] == ["B", "R"]
    assert set(run.predictions["race_estimate"]) <= {"B", "R"}
