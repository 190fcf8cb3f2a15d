"""Labels estimated from means over views of pictures: distorted copies and mirror images."""

import shutil

import numpy as np
import pytest
import tomli_w

from higsfa import LabelHead
from higsfa.experiments import ExperimentError, Run, load_config, train, with_values
from higsfa.experiments.split import Views, features_of, make_sets, views_of
from higsfa.images import Distortion
from higsfa.sources import array
from real_run import QUICK

MIRRORED = {**QUICK, "distortion": {"copies": 2, "supervised_copies": 2, "shift": 0.3, "mirror": True}}
# The features behind a mirrored head must not depend on a choice that the test would have to repeat.
FIXED = {
    "data.labels": ["age", "race"],
    "labels": {},
    "graph.parts": "auto",
    "head.n_used_features": 6,
    "head.covariance": "shared",
}


@pytest.fixture(scope="module")
def config(real):
    return with_values(load_config(real.config), {**MIRRORED, **FIXED, "comparison": {"methods": ["pca"]}})


@pytest.fixture(scope="module")
def run(config, tmp_path_factory):
    return train(config, tmp_path_factory.mktemp("mirrored") / "run")


def means(network, images):
    images = np.asarray(images)
    return (network.transform(images) + network.transform(images[:, :, ::-1])) / 2


def test_head_learns_and_estimates_from_means_over_mirror_images(real, run):
    sets = make_sets(run.config, run.experiment.folds[0])
    head = LabelHead(6, n_classes={"age": 12}, integer={"age": True}, covariance="shared")
    head.fit(means(run.network, sets.supervised.source), sets.supervised.labels)
    expected = head.predict(means(run.network, sets.test.source))
    assert np.mean(run.predictions["age_estimate"] == expected["age"]) > 0.99
    assert np.mean(run.predictions["race_estimate"] == expected["race"]) > 0.99
    found = run.predict(real.images[run.predictions["sample"]])
    np.testing.assert_allclose(found["age"], run.predictions["age_estimate"], atol=1e-4)
    mirrored = run.predict(real.images[run.predictions["sample"]][:, :, ::-1])
    np.testing.assert_allclose(found["race_probability"], mirrored["race_probability"], atol=1e-4)
    assert run.evaluate()["labels"]["age"]["mae"] == run.metrics["methods"][0]["labels"]["age"]["mae"]


def test_features_and_reconstructions_are_those_of_the_picture_itself(real, run):
    rows = run.predictions["sample"][run.examples["feature_rows"]]
    plain = run.network.transform(real.images[rows])
    np.testing.assert_allclose(run.examples["features"], plain, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(run.transform(real.images[:5]), run.network.transform(real.images[:5]))


def test_auto_follows_the_copies_and_is_overruled(config):
    asked = {"head.mirror": False}, {"distortion.mirror": False}, {"distortion": None}, {"head.mirror": True}
    found = [with_values(config, values).averages_mirror_images for values in asked]
    assert config.averages_mirror_images
    assert found == [False, False, False, True]


def test_runs_of_earlier_versions_estimate_without_mirror_images(real, run, config, tmp_path):
    off = train(with_values(config, {"head.mirror": False}), tmp_path / "off")
    old = tmp_path / "old"
    shutil.copytree(off.folder, old)
    tables = off.config.plain()
    del tables["head"]["mirror"], tables["head"]["views"]
    (old / "config.toml").write_text(tomli_w.dumps(tables), encoding="utf-8")
    images = real.images[run.predictions["sample"]]
    np.testing.assert_array_equal(Run(old).predict(images)["age"], off.predict(images)["age"])
    assert np.any(off.predict(images)["age"] != run.predict(images)["age"])


def test_an_unfinished_run_is_continued_only_with_the_same_average(config, tmp_path):
    folder, plain = tmp_path / "run", with_values(config, {"distortion.mirror": False})
    train(plain, folder)
    tables = plain.plain()
    del tables["head"]["mirror"], tables["head"]["views"]  # as an earlier version wrote it
    (folder / "config.toml").write_text(tomli_w.dumps(tables), encoding="utf-8")
    train(plain, folder, resume=True)
    with pytest.raises(ExperimentError, match="other settings"):
        train(with_values(plain, {"head.mirror": True}), folder, resume=True)


def test_mirror_images_of_what_is_no_image_are_refused(tmp_path):
    config = with_values(load_config("toy"), {"data.n_train": 200, "data.n_test": 50, "head.mirror": True})
    with pytest.raises(ExperimentError, match=r"\[head\] mirror"):
        train(config, tmp_path / "run")


@pytest.mark.parametrize("shape", [(5, 4, 6), (5, 4, 6, 3)])
def test_pairs_are_pictures_and_their_mirror_images_left_to_right(shape):
    images = np.random.default_rng(0).normal(size=shape)
    own, mean = features_of(
        lambda source: np.asarray(source).reshape(len(source), -1), array(images), Views(1, True, Distortion())
    )
    np.testing.assert_array_equal(own, images.reshape(5, -1))
    np.testing.assert_allclose(mean, ((images + np.flip(images, axis=2)) / 2).reshape(5, -1))


@pytest.fixture(scope="module")
def several(config, tmp_path_factory):
    values = {"head.views": 3, "distortion.shift": 1.0, "distortion.contrast": 0.2}
    return train(with_values(config, values), tmp_path_factory.mktemp("views") / "run")


def test_estimates_are_from_means_over_pictures_moved_ones_and_mirror_images(real, several):
    images = real.images[several.predictions["sample"]]
    moved = Distortion(shift=1.0, rotation=several.config.distortion.rotation, scale=several.config.distortion.scale)
    views = [images, *(moved.apply(images, 0, copy) for copy in (1, 2))]
    assert not np.array_equal(views[1], views[2])
    expected = several.head.predict(np.mean([means(several.network, view) for view in views], axis=0))
    found = several.predict(images)
    np.testing.assert_allclose(found["age"], expected["age"], atol=1e-4)
    assert np.mean(found["race"] == expected["race"]) > 0.99
    np.testing.assert_allclose(found["age"], several.predictions["age_estimate"], atol=1e-4)


def test_an_estimate_does_not_depend_on_what_else_is_estimated(real, several):
    all_of_them, one = several.predict(real.images[:6]), several.predict(real.images[4:5])
    np.testing.assert_allclose(one["race_probability"], all_of_them["race_probability"][4:5], atol=1e-5)


def test_several_views_are_taken_where_copies_are_left_to_the_library(config):
    asked = (
        {"distortion.supervised_copies": "auto"},
        {"distortion.supervised_copies": "auto", "head.views": 2},
        {"head.views": 3},
        {"distortion": None},
    )
    found = [with_values(config, values) for values in asked]
    assert [one.n_views for one in found] == [5, 2, 3, 1]
    assert config.n_views == 1
    assert views_of(found[0]).n_copies == 10
    assert views_of(found[3]).n_copies == 1
