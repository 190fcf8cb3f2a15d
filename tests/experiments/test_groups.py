"""Errors by group and calibration, computed again sample by sample."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from higsfa.experiments.score import MAX_GROUPS, calibration, errors_by_group, find_groups
from higsfa.experiments.split import Label


def main(real, name):
    return real.run.metrics["methods"][0]["labels"][name]


@pytest.mark.parametrize("name", ["age", "gender", "race", "strength"])
def test_a_run_writes_the_errors_of_each_group(real, name):
    p = real.run.predictions
    found = main(real, name)["by_group"]
    assert list(found) == ["age", "gender", "race"]
    for grouping, part in found.items():
        for group, score, count in zip(part["group"], part["score"], part["count"], strict=True):
            hits = []
            for own, true, estimate in zip(p[grouping], p[name], p[f"{name}_estimate"], strict=True):
                inside = 10 * (own // 10) == int(group.partition("–")[0]) if grouping == "age" else own == group
                if inside and true is not None and true == true:
                    hits.append(abs(true - estimate) if name in ("age", "strength") else true == estimate)
            assert count == len(hits)
            np.testing.assert_allclose(score, np.mean(hits), rtol=1e-5)  # tables are rounded
    comparisons = real.run.metrics["methods"][1:]
    assert not any(scores.get("by_group") for method in comparisons for scores in method["labels"].values())


def test_standard_errors_are_those_of_the_mean_and_five_of_five_are_not_certain():
    groups = {"g": (["a", "b", "none"], np.array([0, 0, 0, 1, -1]))}
    numbers = errors_by_group(Label("x", True, None), np.zeros(5), np.array([1.0, 2, 6, 4, 9]), groups)["g"]
    assert numbers["count"] == [3, 1, 0]
    assert numbers["score"] == [3.0, 4.0, None]
    np.testing.assert_allclose(numbers["se"][0], np.std([1, 2, 6], ddof=1) / np.sqrt(3))
    assert numbers["se"][1:] == [None, None]
    true = np.array(["a"] * 4 + [None], dtype=object)
    rates = errors_by_group(Label("x", False, None), true, np.array(["a"] * 5), groups)["g"]
    assert rates["score"] == [1.0, 1.0, None]
    np.testing.assert_allclose(rates["se"][0], np.sqrt(5 / 7 * 2 / 7 / 7))


def test_groups_are_classes_and_decades_also_of_labels_that_were_not_learned():
    n = 40
    folds = [SimpleNamespace(test=SimpleNamespace(rows=rows)) for rows in (np.arange(20), np.arange(20, n))]
    extra = {
        "sex": np.arange(n) % 2,
        "identity": np.arange(n) // 4,
        "width": np.linspace(0, 1, n),
        "one": np.array(["x"] * n),
        "many": np.array([str(i % (MAX_GROUPS + 1)) for i in range(n)]),
    }
    age, height = np.linspace(16, 49, n), np.linspace(100, 200, n)
    age[3] = np.nan
    experiment = SimpleNamespace(
        scored=[Label("age", True, "years"), Label("height", True, None)],
        test_data=SimpleNamespace(labels=extra),
        folds=folds,
    )
    found = find_groups(experiment, {"age": age, "height": height})
    assert list(found) == ["age", "sex"]
    assert found["age"][0] == ["10–19", "20–29", "30–39", "40–49"]
    expected = np.where(np.isnan(age), -1, age // 10 - 1)
    np.testing.assert_array_equal(found["age"][1], expected)
    assert found["sex"][0] == ["0", "1"]


@pytest.mark.parametrize("name", ["gender", "race"])
def test_a_run_writes_how_far_probabilities_can_be_believed(real, name):
    p = real.run.predictions
    known = np.array([value is not None for value in p[name]])
    right = (p[name] == p[f"{name}_estimate"])[known]
    probability = p[f"{name}_probability"][known]
    found = main(real, name)["calibration"]
    rate, mean = calibration_curve(right, probability, n_bins=10)
    np.testing.assert_allclose(found["rate"], rate, rtol=1e-5)
    np.testing.assert_allclose(found["probability"], mean, rtol=1e-5)
    assert sum(found["count"]) == known.sum()
    distance = np.dot(found["count"], np.abs(rate - mean)) / known.sum()
    np.testing.assert_allclose(found["error"], distance, rtol=1e-4, atol=1e-9)


def test_probabilities_that_are_right_have_no_calibration_error():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1, 200_000)
    true = np.where(rng.random(len(p)) < p, "a", "b").astype(object)
    estimated = np.full(len(p), "a", dtype=object)
    assert calibration(true, estimated, p)["error"] < 0.01
    assert calibration(true, estimated, np.ones(len(p)))["error"] == pytest.approx(0.25, abs=0.01)
