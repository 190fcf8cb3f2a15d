"""The numbers of a run, computed again from its data, its predictions and its network."""

import csv
import json

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LinearRegression

from higsfa import LabelHead, sources
from higsfa.experiments import load_config, methods, score, train, with_values
from higsfa.experiments.score import _mean
from higsfa.experiments.split import Label, make_sets, open_experiment
from higsfa.images import Distortion
from higsfa.training.sources import evenly_spread
from real_run import NASTY, RACES, TITLE, UNIT, N

PAPER_THRESHOLDS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30]


def rows_of(run):
    with open(run.folder / "predictions.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def method(run, name):
    (found,) = (found for found in run.metrics["methods"] if found["name"] == name)
    return found


def folds(run):
    """Rows to train on and to test on: who is not tested is trained on."""
    p = run.predictions
    tested = [p["sample"][p["fold"] == k] for k in range(run.metrics["n_folds"])]
    return [(np.setdiff1d(np.arange(N), test), test) for test in tested]


def copies(real, rows, seed):
    """Two distorted copies of each training image, as a config of seed 5 makes them."""
    distortion = Distortion(seed=seed, shift=0.3, scale=0.02, rotation=2)
    whole = sources.repeat(sources.array(real.images[rows]), 2, distortion)
    return np.asarray(whole), whole.sample_index


@pytest.fixture(scope="module")
def single(real, tmp_path_factory):
    """The same experiment on one fold, whose network is at hand."""
    changes = {"protocol.repeats": 1, "comparison.methods": ["pca", "chance"], "comparison.sensitivity": []}
    changes |= {"comparison.n_used_features": {"pca": 10}, "output.examples": 7}
    return train(with_values(load_config(real.config), changes), tmp_path_factory.mktemp("runs") / "single")


# ---------------------------------------------------------------------------------------------- what is written


def test_the_network_behind_these_tests_is_far_better_than_chance(real):
    main, chance = method(real.run, "HiGSFA")["labels"], method(real.run, "chance")["labels"]
    for label in ("age", "strength"):
        assert main[label]["mae"]["mean"] < 0.5 * chance[label]["mae"]["mean"]
        assert main[label]["rmse"]["mean"] < 0.5 * chance[label]["rmse"]["mean"]
    assert main["gender"]["rate"]["mean"] > 0.9 > 0.6 > chance["gender"]["rate"]["mean"]
    assert main["race"]["rate"]["mean"] > 0.75 > 0.5 > chance["race"]["rate"]["mean"]


def test_metrics_name_data_labels_and_methods(real):
    metrics = json.loads((real.folder / "metrics.json").read_text("utf-8"))
    assert metrics == real.run.metrics
    assert metrics["format"] == 1
    assert metrics["title"] == TITLE
    assert metrics["n_folds"] == 2
    assert metrics["warnings"] == []
    assert metrics["data"] == {
        **{"name": "data", "n_train": 300, "n_supervised": 300, "n_test": 100, "image_shape": [12, 12], "copies": 2},
        **{"pixel_range": [0, 255], "cropping": "centre", "networks": 1},
    }
    classes = {"gender": ["F", "M"], "race": sorted(RACES)}
    units = {"age": "years", "strength": UNIT}
    assert metrics["labels"] == [
        {"name": name, "kind": kind, "unit": units.get(name), "classes": classes.get(name)}
        for name, kind in zip(real.labels, ["numeric", "categorical", "categorical", "numeric"], strict=False)
    ]
    assert [(m["name"], m["role"], m["n_features"]) for m in metrics["methods"]] == [
        ("HiGSFA", "main", 12),
        ("HGSFA", "comparison", 12),
        ("PCA", "comparison", 12),
        ("PCA + LDA", "comparison", None),
        ("chance", "chance", None),
    ]
    for found in metrics["methods"]:
        assert (found["seconds"] is None) == (found["name"] == "chance")
        assert (found["delta"] is None) == (found["name"] == "chance")
        assert (found["reconstruction_error"] is None) == (found["name"] in ("chance", "PCA + LDA"))


def test_predictions_are_a_table_of_true_labels_and_estimates(real):
    rows = rows_of(real.run)
    assert list(rows[0]) == [
        *("fold", "sample", "age", "age_estimate", "gender", "gender_estimate", "gender_probability"),
        *("race", "race_estimate", "race_probability", "strength", "strength_estimate"),
    ]
    for row in rows:
        sample = int(row["sample"])
        assert float(row["age"]) == np.floor(real.labels["age"][sample])
        assert float(row["age_estimate"]) == int(float(row["age_estimate"]))
        assert row["gender"] == real.labels["gender"][sample]
        race = real.labels["race"][sample]
        assert row["race"] == ("" if race is None else "'=Éire & Öst" if race == RACES[1] else race)
        known = not np.isnan(real.labels["strength"][sample])
        assert row["strength"] == (format(real.labels["strength"][sample], ".7g") if known else "")
        for name, least in (("gender", 1 / 2), ("race", 1 / 3)):
            assert least <= float(row[f"{name}_probability"]) <= 1
    read = real.run.predictions
    assert set(read["race"]) == {*RACES, None}
    assert np.isnan(read["strength"]).sum() == sum(row["strength"] == "" for row in rows) > 0
    assert read["sample"].tolist() == [int(row["sample"]) for row in rows]
    assert [len(test) for _, test in folds(real.run)] == [100, 100]


def test_persons_are_in_training_or_in_test_but_not_in_both(real):
    for train_rows, test_rows in folds(real.run):
        assert not set(real.labels["person"][train_rows]) & set(real.labels["person"][test_rows])
    assert set(folds(real.run)[0][1]) != set(folds(real.run)[1][1])


# ---------------------------------------------------------------------------------------------- scores


@pytest.mark.parametrize("label", ["age", "strength"])
def test_errors_are_those_of_the_predictions(real, label):
    p, found = real.run.predictions, method(real.run, "HiGSFA")["labels"][label]
    known = ~np.isnan(p[label])
    error = np.abs(p[label] - p[f"{label}_estimate"])
    by_fold = [error[known & (p["fold"] == k)] for k in (0, 1)]
    for name, values in (("mae", [e.mean() for e in by_fold]), ("rmse", [np.sqrt((e**2).mean()) for e in by_fold])):
        np.testing.assert_allclose(found[name]["values"], values, rtol=1e-5)
        np.testing.assert_allclose(found[name]["mean"], np.mean(values), rtol=1e-5)
        np.testing.assert_allclose(found[name]["se"], abs(values[0] - values[1]) / 2, rtol=1e-3)
    thresholds = np.array(found["cumulative"]["thresholds"])
    step = 0.1 * p[label][known].std()
    expected = PAPER_THRESHOLDS if label == "age" else step * np.arange(21)
    np.testing.assert_allclose(thresholds, expected, rtol=1e-3)
    assert found["cumulative"]["scores"] == [np.mean(error[known] <= t) for t in thresholds]


def test_errors_by_label_are_means_over_years_or_over_twenty_bins(real):
    p = real.run.predictions
    curve = method(real.run, "HiGSFA")["labels"]["age"]["by_label"]
    years = sorted(set(p["age"]))
    assert curve["label"] == years
    assert curve["count"] == [int(np.sum(p["age"] == year)) for year in years]
    error = np.abs(p["age"] - p["age_estimate"])
    np.testing.assert_allclose(curve["mae"], [error[p["age"] == year].mean() for year in years])
    # The strengths lie between 60 and 150, so whole numbers of them are told apart, too.
    known = ~np.isnan(p["strength"])
    true, estimate = p["strength"][known], p["strength_estimate"][known]
    curve = method(real.run, "HiGSFA")["labels"]["strength"]["by_label"]
    groups = [np.floor(true) == value for value in np.unique(np.floor(true))]
    np.testing.assert_allclose(curve["label"], [true[g].mean() for g in groups], rtol=1e-5)
    np.testing.assert_allclose(curve["mae"], [np.abs(true - estimate)[g].mean() for g in groups], rtol=1e-4)


@pytest.mark.parametrize(("width", "n_bins"), [(4.0, 20), (200.0, None), (201.0, 20), (5.0, None), (0.0, 1)])
def test_labels_of_few_or_many_whole_numbers_are_put_into_bins(width, n_bins):
    true = np.linspace(0, width, 400)
    scores = score.pooled_scores(Label("x", True, None), [{"mae": 0.0}], true, true + 1, [])
    n_whole = len(np.unique(np.floor(true)))
    assert len(scores["by_label"]["label"]) == (n_whole if n_bins is None else n_bins)
    assert scores["by_label"]["mae"] == pytest.approx([1.0] * len(scores["by_label"]["mae"]))


@pytest.mark.parametrize("label", ["gender", "race"])
def test_rows_of_a_confusion_matrix_are_true_classes_and_columns_are_estimates(real, label):
    p, found = real.run.predictions, method(real.run, "HiGSFA")["labels"][label]
    classes = sorted(set(p[label]) - {None})
    counts = [[int(np.sum((p[label] == a) & (p[f"{label}_estimate"] == b))) for b in classes] for a in classes]
    assert found["confusion"] == counts
    if label == "race":
        assert not np.array_equal(counts, np.transpose(counts))  # else this test could not tell rows from columns
    by_fold = []
    for k in (0, 1):
        known = (p["fold"] == k) & (p[label] != None)  # noqa: E711
        by_fold.append(np.mean(p[label][known] == p[f"{label}_estimate"][known]))
    assert found["rate"]["values"] == pytest.approx(by_fold)
    assert found["rate"]["mean"] == pytest.approx(np.mean(by_fold))


def test_the_confusion_of_very_many_classes_is_left_out():
    def confusion(n):
        names = [f"{i:03d}" for i in range(n)]
        true = np.array(names, dtype=object)
        return score.pooled_scores(Label("x", False, None), [{"rate": 1.0}], true, true, names)["confusion"]

    assert np.array_equal(confusion(100), np.eye(100))
    assert confusion(101) is None


def test_chance_is_the_best_constant(real):
    p, chance = real.run.predictions, method(real.run, "chance")["labels"]
    for label in ("age", "strength"):
        parts = [p[label][(p["fold"] == k) & ~np.isnan(p[label])] for k in (0, 1)]
        assert chance[label]["mae"]["values"] == pytest.approx([np.abs(x - np.median(x)).mean() for x in parts])
        assert chance[label]["rmse"]["values"] == pytest.approx([x.std() for x in parts])
    counts = [np.unique(p["gender"][p["fold"] == k], return_counts=True)[1] for k in (0, 1)]
    assert chance["gender"]["rate"]["values"] == [c.max() / c.sum() for c in counts]
    assert np.count_nonzero(np.sum(chance["race"]["confusion"], axis=0)) <= 2  # one constant for each fold


def test_classes_that_are_numbers_are_in_the_order_of_numbers():
    columns = [np.array(["10", "9", None], dtype=object), np.array(["2"], dtype=object)]
    assert score.classes_of(columns) == ["2", "9", "10"]
    assert score.classes_of([np.array(["10", "9", "b"], dtype=object)]) == ["10", "9", "b"]


def test_scores_are_means_over_folds():
    numbers = [{"a": [1.0, 2.0, 5.0], "b": "text", "c": None}, {"a": [3.0, 6.0], "b": "text", "c": 1.0}]
    assert _mean(numbers) == {"a": [2.0, 4.0], "b": "text", "c": None}


def test_saved_model_gives_the_scores_of_the_last_fold(real):
    found = real.run.evaluate()
    assert found["n_test"] == 100
    assert (found["run"], found["method"]) == ("spots", "HiGSFA")
    p = real.run.predictions
    for label, key in (("age", "mae"), ("age", "rmse"), ("gender", "rate"), ("race", "rate"), ("strength", "mae")):
        trained = method(real.run, "HiGSFA")["labels"][label][key]["values"]
        assert found["labels"][label][key]["mean"] == pytest.approx(trained[1])
    last = p["fold"] == 1
    confusion = np.array(found["labels"]["race"]["confusion"])
    classes = sorted(RACES)
    assert confusion[0, 1] == np.sum(last & (p["race"] == classes[0]) & (p["race_estimate"] == classes[1]))
    assert confusion.sum() == np.sum(last & (p["race"] != None))  # noqa: E711


# ---------------------------------------------------------------------------------------------- sets and heads


def test_network_and_head_are_trained_on_copies_with_distortions_of_their_own(real):
    config = real.run.config
    experiment = open_experiment(config)
    rows = folds(real.run)[0][0]
    sets = make_sets(config, experiment.folds[0])
    for part, seed in ((sets.network, 5), (sets.supervised, 6)):
        images, index = copies(real, rows, seed)
        np.testing.assert_array_equal(np.asarray(part.source), images)
        np.testing.assert_array_equal(part.labels["age"], real.labels["age"][rows][index])
    assert not np.array_equal(np.asarray(sets.network.source), np.asarray(sets.supervised.source))
    np.testing.assert_array_equal(np.asarray(sets.test.source), real.images[folds(real.run)[0][1]])
    plain = make_sets(with_values(config, {"distortion": None}), experiment.folds[0])
    np.testing.assert_array_equal(np.asarray(plain.network.source), real.images[rows])


def test_cross_validation_of_the_head_keeps_persons_and_copies_together(real, monkeypatch):
    seen = {}

    class Watched(LabelHead):
        def fit(self, X, y, groups=None):
            seen.update(groups=groups, n=len(X))
            return super().fit(X, y, groups=groups)

    monkeypatch.setattr(score, "LabelHead", Watched)
    config = real.run.config
    experiment = open_experiment(config)
    sets = make_sets(config, experiment.folds[0])
    Y = np.random.default_rng(0).standard_normal((len(sets.supervised), 4))
    score.fit_head(config, methods.Features(experiment.labels, Y, Y), sets.supervised, 2)
    rows, index = folds(real.run)[0][0], copies(real, folds(real.run)[0][0], 6)[1]
    person = real.labels["person"][rows][index]
    assert seen["n"] == 600
    same = seen["groups"][:, None] == seen["groups"][None, :]
    np.testing.assert_array_equal(same, person[:, None] == person[None, :])


def test_heads_use_the_features_and_classes_that_the_config_names(real):
    head = real.run.head
    assert [head.n_used_features_[name] for name in ("age", "race", "strength")] == [9, 10, 10]
    assert 1 <= head.n_used_features_["gender"] <= 12
    n_known = 2 * (~np.isnan(real.labels["strength"][folds(real.run)[1][0]])).sum()
    assert len(head.classes_["age"]) == 12
    assert len(head.classes_["strength"]) == n_known // 20
    assert head.classes_["race"].tolist() == sorted(RACES)
    assert "features used: {'age': 9" in (real.folder / "log.txt").read_text()


@pytest.mark.parametrize(("n", "n_classes"), [(30, 2), (100, 5), (2000, 39)])
def test_numeric_labels_are_cut_into_classes_of_twenty_samples_between_2_and_39(n, n_classes):
    config = with_values(load_config("faces"), {"head.integer": []})
    label = Label("age", True, "years")
    Y, age = np.random.default_rng(0).standard_normal((n, 2)), np.linspace(20, 60, n)
    samples = type("Samples", (), {"labels": {"age": age}, "groups": np.arange(n)})
    head = score.fit_head(config, methods.Features([label], Y, Y), samples, {})
    assert len(head.classes_["age"]) == n_classes
    told = with_values(config, {"head.n_classes": {"age": 3}})
    assert len(score.fit_head(told, methods.Features([label], Y, Y), samples, 1).classes_["age"]) == 3


def test_discriminants_are_those_of_sklearn_with_numbers_cut_into_classes():
    rng = np.random.default_rng(0)
    age = rng.uniform(20, 60, 200)
    Y = np.column_stack([age + rng.normal(0, 9, 200), rng.standard_normal(200), np.full(200, 3.0)])
    age[:5] = np.nan
    edges = np.quantile(age[5:], np.arange(1, 9) / 9)
    codes = (age[5:, None] >= edges).sum(axis=1)
    expected = LinearDiscriminantAnalysis().fit(Y[5:, :2], codes).transform(Y[:, :2])
    found = methods._discriminants(Y, age, Label("age", True, None))(Y)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-8)
    kinds = np.where(age > 40, "old", "young").astype(object)
    kinds[:5] = None
    expected = LinearDiscriminantAnalysis().fit(Y[5:, :2], kinds[5:]).transform(Y[:, :2])
    found = methods._discriminants(Y, kinds, Label("kind", False, None))(Y)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-8)


# ---------------------------------------------------------------------------------------------- features


def delta(Y, values):
    """The mean squared step from sample to sample in the order of values, by the variance."""
    known = ~np.isnan(values)
    Y = Y[known][np.argsort(values[known])]
    return np.mean(np.diff(Y, axis=0) ** 2, axis=0) / Y.var(axis=0)


def test_slowness_is_that_of_the_features_in_the_order_of_the_label(real, single):
    ((train_rows, test_rows),) = folds(single)
    found = method(single, "HiGSFA")["delta"]
    assert found["label"] == "age"
    images, index = copies(real, train_rows, 6)
    tested = single.network.transform(real.images[test_rows])
    np.testing.assert_allclose(found["test"], delta(tested, real.labels["age"][test_rows])[:10], rtol=1e-3)
    # Copies of a sample share its age; their order is left open, so the mean over orders is taken.
    Y, age = single.network.transform(images).astype(float), real.labels["age"][train_rows][index]
    trials = []
    rng = np.random.default_rng(0)
    for _ in range(200):
        order = rng.permutation(len(Y))
        trials.append(delta(Y[order], age[order])[:10])
    np.testing.assert_allclose(found["train"], np.mean(trials, axis=0), rtol=0.02)


def test_reconstructions_are_those_of_least_squares_for_each_method_in_its_place(real, single):
    ((train_rows, test_rows),) = folds(single)
    images, _ = copies(real, train_rows, 6)
    flat, tested = images.reshape(len(images), -1).astype(float), real.images[test_rows].reshape(100, -1).astype(float)
    scatter = np.sum((tested - tested.mean(axis=0)) ** 2)
    shown = np.unique(np.linspace(0, 99, 7).astype(int))
    examples = single.examples
    np.testing.assert_allclose(examples["images"], real.images[test_rows[shown]] / 255, atol=1e-6)
    assert examples["reconstruction_names"].tolist() == ["HiGSFA", "PCA"]
    pca = PCA(12, random_state=0).fit(copies(real, train_rows, 5)[0].reshape(600, -1).astype(np.float32))
    ways = {"HiGSFA": lambda x: single.network.transform(x.reshape(-1, 12, 12)), "PCA": pca.transform}
    for place, (name, transform) in enumerate(ways.items()):
        fit = LinearRegression().fit(transform(flat), flat)
        rebuilt = fit.predict(transform(tested))
        error = np.sum((tested - rebuilt) ** 2) / scatter
        found = method(single, name)["reconstruction_error"]
        assert found["global"] == pytest.approx(error, rel=1e-3)
        expected = np.clip(rebuilt[shown] / 255, 0, 1).reshape(-1, 12, 12)
        np.testing.assert_allclose(examples["reconstructions"][place], expected, atol=2e-3)
    top_down = single.network.inverse_transform(single.network.transform(real.images[test_rows])).reshape(100, -1)
    found = method(single, "HiGSFA")["reconstruction_error"]["top_down"]
    assert found == pytest.approx(np.sum((tested - top_down) ** 2) / scatter, rel=1e-3)
    assert method(single, "PCA")["reconstruction_error"]["top_down"] is None


def test_features_for_figures_are_those_of_the_last_fold_with_their_rows(real, single):
    for run in (real.run, single):
        rows, features = run.examples["feature_rows"], run.examples["features"]
        assert set(run.predictions["fold"][rows]) == {run.metrics["n_folds"] - 1}
        samples = run.predictions["sample"][rows]
        np.testing.assert_allclose(run.network.transform(real.images[samples]), features, rtol=1e-4, atol=1e-4)
    assert len(real.run.examples["images"]) == 16
    assert real.run.examples["reconstruction_names"].tolist() == ["HiGSFA", "HGSFA", "PCA"]


def test_pca_is_scored_with_ten_of_its_components(real, single):
    ((train_rows, test_rows),) = folds(single)
    pca = PCA(12, random_state=0).fit(copies(real, train_rows, 5)[0].reshape(600, -1).astype(np.float32))
    images, index = copies(real, train_rows, 6)
    head = LabelHead(n_used_features=10, n_classes={"age": 12}, integer=True)
    head.fit(pca.transform(images.reshape(600, -1)), {"age": real.labels["age"][train_rows][index]})
    estimate = head.predict(pca.transform(real.images[test_rows].reshape(100, -1)))["age"]
    error = np.abs(estimate - np.floor(real.labels["age"][test_rows]))
    assert method(single, "PCA")["labels"]["age"]["mae"]["mean"] == pytest.approx(error.mean(), abs=0.05)


def test_layers_are_those_of_the_network(real, single):
    for number, (found, layer) in enumerate(zip(single.metrics["layers"], single.network.layers_, strict=True), 1):
        first = layer.delta_values[:, 0]
        assert found["layer"] == number
        assert found["nodes"] == len(layer.nodes) == (4, 1)[number - 1]
        assert found["n_components"] == 12
        assert found["expanded"] == (24, 96)[number - 1]
        assert found["mean_n_slow"] == pytest.approx(np.mean([node.n_slow for node in layer.nodes]))
        assert found["mean_delta_1"] == pytest.approx(first.mean())
        assert found["min_delta_1"] == pytest.approx(first.min())


def test_the_default_threshold_among_others_repeats_the_main_method(real):
    low, usual = real.run.metrics["sensitivity"]
    main = method(real.run, "HiGSFA")
    assert (low["delta_threshold"], usual["delta_threshold"]) == (1.5, 1.96)
    for name in ("age", "strength"):
        assert usual["mae"][name] == pytest.approx(main["labels"][name]["mae"]["mean"], rel=0.02)
    assert set(usual["rate"]) == {"gender", "race"}
    assert usual["rate"]["race"] == pytest.approx(main["labels"]["race"]["rate"]["mean"], abs=0.02)
    np.testing.assert_allclose(usual["delta_test"], main["delta"]["test"], rtol=1e-6)
    assert not np.allclose(low["delta_test"], main["delta"]["test"], rtol=0.01)


def test_seconds_and_environment_are_recorded(real):
    for found in real.run.metrics["methods"][:4]:
        assert 0 < found["seconds"]["fit"] < 1000
        assert 0 < found["seconds"]["transform"] < 1000
    environment = json.loads((real.folder / "environment.json").read_text())
    assert environment["packages"]["numpy"] == np.__version__
    assert 0 < environment["seconds"] < 1000
    assert environment["processors"] >= 1


def test_examples_are_spread_over_the_samples():
    assert evenly_spread(5, 10).tolist() == [0, 1, 2, 3, 4]
    assert evenly_spread(101, 3).tolist() == [0, 50, 100]
    assert evenly_spread(1, 3).tolist() == [0]


def test_names_of_users_reach_the_files_as_they_are(real):
    assert NASTY in real.run.metrics["labels"][2]["classes"]
    assert NASTY in real.run.predictions["race"]
    assert f'title = "{TITLE}"' in (real.folder / "config.toml").read_text("utf-8")
