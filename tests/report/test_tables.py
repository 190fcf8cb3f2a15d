"""Tables say what the metrics say, with the best of each column marked."""

import json

import numpy as np
import pytest

from higsfa.evaluation.schema import Metrics, checked
from higsfa.report import tables
from higsfa.report.tables import headlines, outcomes, setup
from real_run import UNIT

NAMES = ["HiGSFA", "HGSFA", "PCA", "PCA + LDA", "chance"]
SPACE = "\N{NO-BREAK SPACE}"


def records(changed):
    return checked(Metrics, json.loads(json.dumps(changed.metrics)), "metrics.json")


def column(table, title):
    place = [c.title for c in table.columns].index(title)
    return [row.cells[place] for row in table.rows]


def texts(table, title):
    return [cell.text for cell in column(table, title)]


def best(table, title):
    return [row.name for row, cell in zip(table.rows, column(table, title), strict=True) if cell.is_best]


def number(text):
    return float(text.partition(" ±")[0].replace("−", "-"))


def set_scores(changed, label, measure, values):
    for method, (mean, se) in zip(changed.metrics["methods"], values, strict=True):
        method["labels"][label][measure] = {"mean": mean, "se": se, "values": [mean]}


# ---------------------------------------------------------------------------------------------- a real run


def test_accuracy_is_that_of_the_run(changed):
    table = tables.accuracy_table(records(changed))
    methods = changed.metrics["methods"]
    assert [(row.name, row.role) for row in table.rows] == [(m["name"], m["role"]) for m in methods]
    assert [(c.title, c.note) for c in table.columns] == [
        ("age MAE", "years"),
        ("age RMSE", "years"),
        ("gender rate", "%"),
        ("race rate", "%"),
        ("strength MAE", UNIT),
        ("strength RMSE", UNIT),
    ]
    for title, factor, choose in (("age MAE", 1, min), ("age RMSE", 1, min), ("race rate", 100, max)):
        label, measure = title.lower().split()
        scores = [method["labels"][label][measure] for method in methods]
        shown = texts(table, title)
        np.testing.assert_allclose([number(text) for text in shown], [factor * s["mean"] for s in scores], atol=0.051)
        for text, score in zip(shown, scores, strict=True):
            assert number(text.partition("± ")[2] or "0") == pytest.approx(factor * (score["se"] or 0), abs=0.051)
        winner = choose(range(5), key=lambda i: scores[i]["mean"])
        assert methods[winner]["name"] in best(table, title)
    assert "means over 2 folds" in table.lead


@pytest.mark.parametrize("part", ["train", "test"])
def test_delta_values_have_a_row_for_each_method_that_has_features(changed, part):
    table = tables.delta_table(records(changed), part)
    assert [row.name for row in table.rows] == NAMES[:4]
    for row, method in zip(table.rows, changed.metrics["methods"], strict=False):
        np.testing.assert_allclose([float(cell.text) for cell in row.cells], method["delta"][part], atol=0.0051)
    assert "0 is constant, 2 is noise; lower is slower" in table.lead
    words = {"train": "training samples in order by age", "test": "test samples in order by age"}
    assert words[part] in table.lead
    assert table.caption.endswith({"train": "training samples", "test": "test samples"}[part])
    assert [c.title for c in table.columns][::9] == ["Δ₁", "Δ₁₀"]


def test_cumulative_scores_are_percentages_of_each_threshold(real, changed):
    metrics = records(changed)
    table = tables.cumulative_table(metrics, metrics.labels[0])
    p = real.run.predictions
    error = np.abs(p["age"] - p["age_estimate"])
    for threshold in (0, 5, 30):
        shown = column(table, f"≤{SPACE}{threshold}")[0].text
        assert float(shown) == pytest.approx(100 * np.mean(error <= threshold), abs=0.051)
    assert len(table.columns) == 22
    assert "off by at most so many years" in table.lead
    assert [row.name for row in table.rows] == NAMES


def test_reconstruction_sensitivity_layers_and_cost_are_those_of_the_run(changed):
    metrics, source = records(changed), changed.metrics
    table = tables.reconstruction_table(metrics)
    errors = [method["reconstruction_error"] for method in source["methods"][:3]]
    assert [row.name for row in table.rows] == NAMES[:3]
    assert texts(table, "global") == [f"{error['global']:.3f}" for error in errors]
    assert texts(table, "top-down") == [f"{errors[0]['top_down']:.3f}", f"{errors[1]['top_down']:.3f}", "–"]
    assert texts(table, "features") == ["12"] * 3
    assert best(table, "global") == ["PCA"]
    table = tables.sensitivity_table(metrics)
    assert [row.name for row in table.rows] == ["1.5", "1.96"]
    for title, key, name, factor in (("age MAE", "mae", "age", 1), ("race rate", "rate", "race", 100)):
        expected = [factor * row[key][name] for row in source["sensitivity"]]
        np.testing.assert_allclose([float(text) for text in texts(table, title)], expected, atol=0.051)
    for j, title in enumerate(("Δ₁", "Δ₂", "Δ₃")):
        assert texts(table, title) == [f"{row['delta_test'][j]:.2f}" for row in source["sensitivity"]]
    table = tables.layer_table(metrics)
    assert [row.name for row in table.rows] == ["1", "2"]
    for title, key, form in (
        ("nodes", "nodes", "d"),
        ("expanded", "expanded", "d"),
        ("features", "n_components", "d"),
        ("slow", "mean_n_slow", ".1f"),
        ("mean Δ₁", "mean_delta_1", ".2f"),
        ("lowest Δ₁", "min_delta_1", ".2f"),
    ):
        assert texts(table, title) == [format(layer[key], form) for layer in source["layers"]]
    assert not any(cell.is_best for row in table.rows for cell in row.cells)
    table = tables.cost_table(metrics)
    assert [row.name for row in table.rows] == NAMES[:4]
    for title, key in (("training", "fit"), ("extraction", "transform")):
        assert texts(table, title) == [f"{m['seconds'][key]:.1f} s" for m in source["methods"][:4]]
    assert texts(table, "features") == ["12", "12", "12", "–"]


# ---------------------------------------------------------------------------------------------- changed numbers


def test_accuracy_shows_as_many_digits_as_errors_have(changed):
    set_scores(changed, "age", "mae", [(3.497, 0.008), (3.921, 0.018), (6.804, 0.007), (7.1, 0.02), (9.33, None)])
    table = tables.accuracy_table(records(changed))
    assert texts(table, "age MAE") == ["3.497 ± 0.008", "3.921 ± 0.018", "6.804 ± 0.007", "7.100 ± 0.020", "9.330"]
    assert best(table, "age MAE") == ["HiGSFA"]


def test_the_largest_rate_is_best(changed):
    set_scores(changed, "gender", "rate", [(rate, None) for rate in (0.934, 0.951, 0.9514, 0.7, 0.6)])
    table = tables.accuracy_table(records(changed))
    assert texts(table, "gender rate") == ["93.4", "95.1", "95.1", "70.0", "60.0"]
    assert best(table, "gender rate") == ["HGSFA", "PCA"]  # equal as far as the digits shown tell


def test_columns_of_equal_values_and_of_one_value_have_no_best(changed):
    for method in changed.metrics["methods"][:4]:
        method["delta"]["test"] = [0.5, 1.0]
    changed.metrics["methods"][1]["delta"]["test"] = [0.4]
    table = tables.delta_table(records(changed), "test")
    assert texts(table, "Δ₁") == ["0.50", "0.40", "0.50", "0.50"]
    assert best(table, "Δ₁") == ["HGSFA"]
    assert texts(table, "Δ₂") == ["1.00", "–", "1.00", "1.00"]
    assert best(table, "Δ₂") == []


def test_times_are_compared_as_they_are_shown(changed):
    for method, seconds in zip(changed.metrics["methods"], (7200.0, 119.94, 119.96, 120.0, None), strict=True):
        method["seconds"] = seconds and {"fit": seconds, "transform": None}
    table = tables.cost_table(records(changed))
    assert texts(table, "training") == ["2.0 h", "119.9 s", "120.0 s", "2.0 min"]
    assert best(table, "training") == ["HGSFA"]


def test_tables_without_data_are_none(changed):
    for method in changed.metrics["methods"]:
        method |= {"labels": {}, "delta": None, "reconstruction_error": None, "seconds": None}
    changed.metrics |= {"layers": None, "sensitivity": None}
    metrics = records(changed)
    assert tables.accuracy_table(metrics) is None
    assert tables.cumulative_table(metrics, metrics.labels[0]) is None
    assert tables.delta_table(metrics, "test") is None
    assert tables.reconstruction_table(metrics) is None
    assert tables.sensitivity_table(metrics) is None
    assert tables.layer_table(metrics) is None
    assert tables.cost_table(metrics) is None


def test_one_fold_has_no_spread(changed):
    changed.metrics["n_folds"] = 1
    assert "folds" not in tables.accuracy_table(records(changed)).lead


# ---------------------------------------------------------------------------------------------- the summary


def test_the_summary_compares_with_the_best_other_method_and_chance(changed):
    set_scores(changed, "age", "mae", [(mean, None) for mean in (3.497, 3.921, 6.804, 7.0, 9.33)])
    set_scores(changed, "gender", "rate", [(mean, None) for mean in (0.9, 0.8, 0.95, 0.7, 0.5)])
    metrics = records(changed)
    assert outcomes(metrics)[:2] == [
        "It estimates age with a mean absolute error of 3.5 years; HGSFA, the best of the others, has 3.92; "
        "a constant answer has 9.33.",
        f"It finds the right gender for 90.0{SPACE}% of the test samples; PCA, the best of the others, has "
        f"95.0{SPACE}%; a constant answer has 50.0{SPACE}%.",
    ]
    assert len(outcomes(metrics)) == 3
    assert setup(metrics) == (
        "HiGSFA was trained on 300 pictures of 12 × 12 pixels, each in 2 distorted copies, and tested on 100 others. "
        "The experiment was repeated on 2 splits of the data."
    )
    shown = headlines(metrics)
    assert [(n.value, n.name, n.note) for n in shown[:2]] == [
        ("3.5 years", "age, mean absolute error", "chance 9.33"),
        (f"90.0{SPACE}%", "gender, classified correctly", f"chance 50.0{SPACE}%"),
    ]
    delta = changed.metrics["methods"][0]["delta"]["test"][0]
    assert (shown[3].value, shown[3].name) == (f"{delta:.2f}", "Delta of the first feature, test")
    assert len(shown) == 4


def test_a_headline_of_few_labels_ends_with_slowness_and_reconstruction(changed):
    changed.metrics["labels"] = changed.metrics["labels"][:1]
    main = changed.metrics["methods"][0]
    main["reconstruction_error"]["global"] = 0.25
    shown = headlines(records(changed))
    assert [n.name.split(",")[0] for n in shown] == ["age", "Delta of the first feature", "reconstruction error"]
    assert shown[2].value == "0.25"
    main["delta"]["test"][0] = None
    assert len(headlines(records(changed))) == 2


def test_a_run_without_scores_has_no_headline(changed):
    changed.metrics["methods"] = [{"name": "SFA", "role": "main"}]
    changed.metrics["data"] |= {"image_shape": None, "copies": 1, "n_train": 5000}
    changed.metrics["n_folds"] = 1
    metrics = records(changed)
    assert headlines(metrics) == []
    assert outcomes(metrics) == []
    assert setup(metrics) == "SFA was trained on 5,000 samples and tested on 100 others."


# ---------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("values", "errors", "least", "decimals"),
    [
        ([3.497, 9.33], [], 0, 2),
        ([3.497, 9.33], [0.008], 0, 3),
        ([1200.0], [], 0, 0),
        ([1200.0], [], 1, 1),
        ([0.0, 25.0], [], 0, 1),
        ([0.00001], [], 0, 4),
        ([-0.5], [0.0], 0, 3),
        ([], [], 2, 2),
    ],
)
def test_digits_tell_values_apart(values, errors, least, decimals):
    assert tables.decimals_for(values, errors, least) == decimals


def test_numbers_are_written_for_people():
    assert [tables.fixed(v, d) for v, d in ((12345.678, 1), (-0.5, 2), (3e30, 2), (999999999.0, 0))] == [
        *("12,345.7", "−0.50", "3.00e+30", "999,999,999"),
    ]
    assert tables.fixed(1e9, 0) == "1e+09"
    assert [tables.short(v) for v in (4.1234, 0.25, 5000, 100, 0)] == ["4.12", "0.25", "5,000", "100", "0"]
    assert tables.short(3e30) == "3e+30"
    assert [tables.duration(s) for s in (1.24, 119.99, 120, 340, 7199, 7200, 9000)] == [
        *("1.2 s", "120.0 s", "2.0 min", "5.7 min", "120.0 min", "2.0 h", "2.5 h"),
    ]
    assert tables.percent(0.93449) == f"93.4{SPACE}%"
    assert tables.shortened("a\x00b\nc" * 3, 9) == tables.shortened("a b c" * 3, 9) == "a b ca b…"
    assert tables.shortened("123456", 6) == "123456"


# ---------------------------------------------------------------------------------------------- groups


def test_groups_are_rows_with_their_samples_and_the_errors_of_all_labels(changed):
    table = tables.group_table(records(changed))
    scores = changed.metrics["methods"][0]["labels"]
    by_age = scores["age"]["by_group"]
    names = [f"{name}: {group}" for name, part in by_age.items() for group in part["group"]]
    assert [row.name for row in table.rows] == names
    assert [c.title for c in table.columns] == ["samples", "age MAE", "gender rate", "race rate", "strength MAE"]
    counts = [count for part in by_age.values() for count in part["count"]]
    assert texts(table, "samples") == [str(count) for count in counts]
    for title, factor in (("age MAE", 1), ("race rate", 100)):
        expected = [score for part in scores[title.split()[0]]["by_group"].values() for score in part["score"]]
        found = [number(text) for text in texts(table, title)]
        np.testing.assert_allclose(found, factor * np.array(expected), atol=0.051)
    for method in changed.metrics["methods"]:
        for own in method["labels"].values():
            own.pop("by_group", None)
            own.pop("calibration", None)
    assert tables.group_table(records(changed)) is None
    assert tables.calibration_table(records(changed)) is None


def test_calibration_compares_probabilities_with_the_share_that_is_right(changed):
    own = {"probability": [0.6, 0.9], "rate": [0.5, 0.9], "count": [10, 30], "error": 0.025}
    changed.metrics["methods"][0]["labels"]["gender"]["calibration"] = own
    table = tables.calibration_table(records(changed))
    assert [row.name for row in table.rows] == ["gender", "race"]
    assert texts(table, "mean probability")[0] == "82.5"
    assert texts(table, "correct")[0] == "80.0"
    assert texts(table, "calibration error")[0] == "2.5"
