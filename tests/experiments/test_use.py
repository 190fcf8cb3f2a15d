"""Runs in use: the decoder that training keeps, and new pictures as Python sees them."""

import shutil

import numpy as np
import pytest
from safetensors.numpy import load, save

from higsfa.experiments import ExperimentError, Run, use
from higsfa.reconstruction import LinearReconstruction, morph
from higsfa.training.sources import images as image_files


@pytest.fixture
def opened(monkeypatch):
    """Names of the picture files that are decoded, and how often the data of a run are opened."""
    files, data = [], []
    decode, open_experiment = image_files.Decoder.__call__, use.open_experiment

    def decoding(self, path):
        files.append(path.name)
        return decode(self, path)

    def opening(*arguments, **options):
        data.append(arguments)
        return open_experiment(*arguments, **options)

    monkeypatch.setattr(image_files.Decoder, "__call__", decoding)
    monkeypatch.setattr(use, "open_experiment", opening)
    return files, data


def test_morph_and_reconstruct_read_nothing_but_the_photograph(real, opened):
    files, data = opened
    run = Run(real.folder)
    photo = real.photos / "face1.png"
    assert run.morph(photo, age=[20, 60]).shape == (2, 12, 12)
    assert set(run.reconstruct([photo]).errors) == {"linear", "top-down"}
    assert set(files) == {"face1.png"}
    assert data == []


def test_explore_reads_test_pictures_only(real, opened, tmp_path):
    files, data = opened
    run = Run(real.folder)
    assert run.explore(tmp_path / "page.html") == tmp_path / "page.html"
    tested = {f"{i:04d}.png" for i in run.predictions["sample"][run.predictions["fold"] == 1]}
    assert set(files[1:]) <= tested | {"0000.png"}  # the first picture tells the shape
    assert len(data) == 1


def test_the_decoder_is_that_of_the_supervised_set(real):
    from higsfa.experiments.split import make_sets

    images = make_sets(real.run.config, real.run.experiment.folds[-1]).supervised.source
    own = LinearReconstruction().fit(real.run.network.transform(images), images)
    kept = Run(real.folder).decoder
    np.testing.assert_allclose(kept.components_, own.components_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(kept.intercept_, own.intercept_, rtol=1e-6)
    assert kept.image_shape_ == (12, 12)


def damage(folder, change):
    path = folder / "decoder.safetensors"
    whole = path.read_bytes()
    arrays = load(whole)
    if change == "model":
        arrays["model"] = arrays["model"][::-1].copy()
    elif change == "shape":
        arrays["mean"] = arrays["mean"][1:]
    elif change == "dtype":
        arrays["mean"] = arrays["mean"].astype(np.float32)
    elif change == "number":
        arrays["mean"][3] = np.nan
    elif change == "array":
        del arrays["mean"]
    path.write_bytes({"cut": whole[:100], "long": whole + bytes(20_000)}.get(change, save(arrays)))
    if change == "none":
        path.unlink()


@pytest.mark.parametrize("change", ["none", "cut", "long", "model", "shape", "dtype", "number", "array"])
def test_a_decoder_that_is_missing_or_not_of_this_model_is_learned_again_and_kept(real, tmp_path, change):
    folder = tmp_path / "run"
    shutil.copytree(real.folder, folder)
    damage(folder, change)
    expected = Run(real.folder).decoder
    for found in (Run(folder), Run(folder)):
        np.testing.assert_allclose(found.decoder.components_, expected.components_, rtol=1e-6, atol=1e-9)
        assert ("experiment" in vars(found)) == (change is not None)
        change = None


def test_arrays_and_files_are_the_same_to_a_run(real):
    run = Run(real.folder)
    from_files = run.predict(real.photos)
    assert [name.rsplit("/")[-1] for name in from_files.pop("file")] == ["face0.png", "face1.png", "face2.png"]
    from_arrays = run.predict(real.new)
    assert list(from_arrays) == list(from_files)
    for name, values in from_arrays.items():
        np.testing.assert_array_equal(from_files[name], values)
    np.testing.assert_array_equal(run.transform(real.photos), run.network.transform(real.new))
    own = run.head.predict(run.network.transform(real.new))
    np.testing.assert_array_equal(from_arrays["age"], own["age"])


def test_morph_takes_labels_by_name_and_as_texts(real):
    run = Run(real.folder)
    photo = real.photos / "face0.png"
    expected = morph(run.network, run.head, real.new[0], age=[20, 60], decoder=run.decoder)
    np.testing.assert_array_equal(run.morph(photo, age=[20, 60]), expected)
    np.testing.assert_array_equal(run.morph(real.new[0], {"age": ["20", "60"]}), expected)
    assert len(run.morph(photo, {"strength": 100}, strength=2)) == 1
    assert len(run.morph(photo, gender="F")) == 1


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"height": [1]}, "no label 'height': its labels are age, gender"),
        ({"gender": ["X"]}, "gender has no class 'X': use F, M"),
        ({"age": ["old"]}, "age: 'old' is not a number"),
        ({"age": [np.inf]}, "age: inf is not a number"),
        ({"age": [20], "gender": ["F"]}, "give one label"),
    ],
)
def test_labels_and_values_that_a_run_does_not_know_are_named(real, wanted, words):
    with pytest.raises(ExperimentError, match=words):
        real.run.morph(real.new[0], wanted)


def test_one_photograph_is_morphed(real):
    with pytest.raises(ExperimentError, match="holds 3 pictures: give one"):
        real.run.morph(real.photos, age=20)


@pytest.mark.parametrize("factor", [1 / 255, 10.0])
def test_arrays_of_another_range_than_that_of_training_are_warned_of(real, factor):
    run = Run(real.folder)
    images = np.asarray(run.pictures(real.photos), dtype=np.float64)
    run.predict(images)
    with pytest.warns(UserWarning, match=r"pictures: values are .* black is 0 and whose white is 255: scale them"):
        run.predict(images * factor)
