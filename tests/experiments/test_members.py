"""Several networks that share the copies, and whose estimates are averaged."""

import shutil

import numpy as np
import pytest
import tomli_w

from higsfa import HiGSFA
from higsfa.estimators.layer import counted_samples
from higsfa.experiments import ExperimentError, Run, load_config, train, with_values
from higsfa.experiments.methods import make_network
from higsfa.experiments.split import joined, make_sets, shares
from higsfa.models import load
from real_run import QUICK

VALUES = {
    **QUICK,
    "distortion": {"copies": 5, "supervised_copies": 1, "shift": 0.5},
    "data.labels": ["age", "race"],
    "labels": {},
    "graph.parts": "auto",
    "network.members": 2,
}


@pytest.fixture(scope="module")
def config(real):
    return with_values(load_config(real.config), VALUES)


@pytest.fixture(scope="module")
def run(config, tmp_path_factory):
    return train(config, tmp_path_factory.mktemp("members") / "run")


def test_networks_share_the_copies_of_all_pictures(config, run):
    fold = run.experiment.folds[0]
    network, n = make_sets(config, fold).network, len(fold.train)
    first, second = shares(network, 2)
    np.testing.assert_array_equal(first.source.sample_index, np.repeat(np.arange(n), 3))
    np.testing.assert_array_equal(second.source.sample_index, np.repeat(np.arange(n), 2))
    pictures = np.asarray(network.source).reshape(n, 5, *network.source.shape)
    np.testing.assert_array_equal(np.asarray(first.source), pictures[:, ::2].reshape(-1, *network.source.shape))
    np.testing.assert_array_equal(np.asarray(second.source), pictures[:, 1::2].reshape(-1, *network.source.shape))
    np.testing.assert_array_equal(first.labels["race"], np.repeat(fold.train.labels["race"], 3))
    assert shares(network, 1) == [network]


def test_each_network_is_that_of_its_share(config, run):
    sets = make_sets(config, run.experiment.folds[0])
    n = counted_samples(sets.network.source.sample_index)
    for part, (network, _) in zip(shares(sets.network, 2), run.members, strict=True):
        alone = make_network(config, run.experiment.labels, part.source.shape, n_samples=n)
        alone.fit(np.asarray(part.source), part.labels)
        images = np.asarray(sets.test.source)[:10]
        np.testing.assert_allclose(network.transform(images), alone.transform(images), rtol=1e-3, atol=1e-3)


def test_estimates_are_those_of_mean_probabilities(real, run):
    images = real.images[run.predictions["sample"]]
    saved = [[load(run.folder / f"{name}{n}.higsfa") for name in ("model", "head")] for n in ("", "2")]
    race = np.mean([head.predict_proba(network.transform(images), "race") for network, head in saved], axis=0)
    age = np.mean([head.predict_proba(network.transform(images), "age") for network, head in saved], axis=0)
    classes = saved[0][1].label_classes_
    found = run.predict(images)
    np.testing.assert_array_equal(found["race"], classes["race"][race.argmax(axis=1)])
    np.testing.assert_allclose(found["race_probability"], race.max(axis=1), atol=1e-6)
    np.testing.assert_array_equal(found["age"], np.floor(age @ classes["age"] + 1e-9))
    assert np.any(found["race_probability"] != saved[0][1].predict_proba(saved[0][0].transform(images), "race").max(1))
    np.testing.assert_array_equal(found["race"], run.predictions["race_estimate"])
    np.testing.assert_array_equal(found["age"], run.predictions["age_estimate"])


def test_scores_and_pages_of_such_a_run(real, run):
    assert run.metrics["data"]["networks"] == 2
    assert run.evaluate()["labels"]["age"]["mae"] == run.metrics["methods"][0]["labels"]["age"]["mae"]
    assert "means over 2 networks" in run.report().read_text(encoding="utf-8")
    first, _ = run.members[0]
    np.testing.assert_array_equal(run.transform(real.images[:3]), first.transform(real.images[:3]))
    assert run.reconstruct(real.images[:3]).pictures["linear"].shape == (3, 12, 12)
    assert run.morph(real.images[0], race=["W"]).shape == (1, 12, 12)


def test_features_side_by_side_are_those_of_each_network(real, run):
    networks = [network for network, _ in run.members]
    expected = np.hstack([network.transform(real.images[:7]) for network in networks])
    source = make_sets(run.config, run.experiment.folds[0]).test.source
    np.testing.assert_allclose(joined(networks)(source[:0]), expected[:0])
    found = joined(networks)(source)
    np.testing.assert_allclose(found, np.hstack([network.transform(source) for network in networks]), atol=1e-5)
    assert joined(networks[:1]) == networks[0].transform


def test_as_many_networks_as_there_are_pairs_of_copies_three_at_most(config):
    left = with_values(config, {"network.members": "auto", "distortion.copies": "auto"})
    sizes = 1_000, 10_000, 12_000, 15_000, 20_000, 30_000, 100_000
    assert [left.n_members(n) for n in sizes] == [3, 3, 3, 2, 2, 1, 1]
    assert [left.n_copies(n)[0] for n in sizes] == [9, 6, 6, 4, 4, 2, 1]
    fixed = with_values(config, {"network.members": "auto"})
    assert (fixed.n_members(1_000), fixed.n_copies(1_000)[0]) == (1, 5)
    assert with_values(left, {"network.members": 4}).n_copies(12_000)[0] == 4
    assert with_values(fixed, {"distortion": None}).n_members(1_000) == 1


@pytest.mark.parametrize("values", [{"network.members": 6}, {"distortion": None}])
def test_more_networks_than_copies_are_refused_before_training(config, tmp_path, values):
    with pytest.raises(ExperimentError, match=r"\[network\] members = \d: networks share the copies"):
        train(with_values(config, values), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_runs_of_earlier_versions_have_one_network(real, config, tmp_path):
    one = train(with_values(config, {"network.members": 1}), tmp_path / "one")
    old = tmp_path / "old"
    shutil.copytree(one.folder, old)
    tables = one.config.plain()
    del tables["network"]["members"]
    tables["distortion"]["copies"] = "auto"
    (old / "config.toml").write_text(tomli_w.dumps(tables), encoding="utf-8")
    assert len(Run(old).members) == 1
    np.testing.assert_array_equal(Run(old).predict(real.images[:9])["age"], one.predict(real.images[:9])["age"])


def test_an_interrupted_run_goes_on_with_the_next_network(config, run, real, tmp_path, monkeypatch):
    fit, calls = HiGSFA.fit, []

    def stopped(self, *args, **params):
        calls.append(len(args[0]))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return fit(self, *args, **params)

    monkeypatch.setattr(HiGSFA, "fit", stopped)
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "run")
    resumed = train(config, tmp_path / "run", resume=True)
    assert len(set(calls)) == 2
    np.testing.assert_array_equal(resumed.predict(real.images[:9])["age"], run.predict(real.images[:9])["age"])


def test_overwriting_deletes_networks_that_are_no_longer_there(config, run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    train(with_values(config, {"network.members": 1}), folder, overwrite=True)
    assert not (folder / "model2.higsfa").exists()
    assert not (folder / "head2.higsfa").exists()
