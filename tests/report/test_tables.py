"""Tables say what the metrics say, with the best of each column marked."""

import numpy as np
import pytest

from higsfa.report import tables
from higsfa.report.checks import Value
from higsfa.report.reading import read_metrics
from higsfa.report.summary import headline_numbers, outcomes, setup


def records(fake_run):
    return read_metrics(Value(fake_run.metrics, "metrics.json"))


def column(table, title):
    place = [c.title for c in table.columns].index(title)
    return [row.cells[place] for row in table.rows]


def test_accuracy_shows_means_and_standard_errors(fake_run):
    mae = {"HiGSFA": (3.497, 0.008), "HGSFA": (3.921, 0.018), "PCA": (6.804, 0.007), "Chance": (9.33, None)}
    for method in fake_run.metrics["methods"]:
        mean, se = mae[method["name"]]
        method["labels"]["age"]["mae"] = {"mean": mean, "se": se, "values": [mean]}
    table = tables.accuracy_table(records(fake_run))
    assert [row.name for row in table.rows] == ["HiGSFA", "HGSFA", "PCA", "Chance"]
    cells = column(table, "age MAE")
    assert [cell.text for cell in cells] == ["3.497 ± 0.008", "3.921 ± 0.018", "6.804 ± 0.007", "9.330"]
    assert [cell.is_best for cell in cells] == [True, False, False, False]


def test_the_largest_rate_is_best(fake_run):
    rates = [0.934, 0.951, 0.9514, 0.6]
    for method, rate in zip(fake_run.metrics["methods"], rates, strict=True):
        method["labels"]["gender"]["rate"] = {"mean": rate, "se": None, "values": [rate]}
    cells = column(tables.accuracy_table(records(fake_run)), "gender rate")
    assert [cell.text for cell in cells] == ["93.4", "95.1", "95.1", "60.0"]
    assert [cell.is_best for cell in cells] == [False, True, True, False]  # equal as far as the digits shown tell


def test_columns_of_equal_values_and_of_one_value_have_no_best(fake_run):
    for method in fake_run.metrics["methods"][:3]:
        method["delta"]["test"] = [0.5, 1.0]
    fake_run.metrics["methods"][1]["delta"]["test"] = [0.4]
    table = tables.delta_table(records(fake_run), "test")
    assert [cell.text for cell in column(table, "Δ₁")] == ["0.50", "0.40", "0.50"]
    assert [cell.is_best for cell in column(table, "Δ₁")] == [False, True, False]
    assert [cell.text for cell in column(table, "Δ₂")] == ["1.00", "–", "1.00"]
    assert not any(cell.is_best for cell in column(table, "Δ₂"))


@pytest.mark.parametrize("part", ["train", "test"])
def test_delta_values_have_a_row_for_each_method_that_has_features(fake_run, part):
    table = tables.delta_table(records(fake_run), part)
    shown = [[float(cell.text) for cell in row.cells] for row in table.rows]
    expected = [method["delta"][part] for method in fake_run.metrics["methods"][:3]]
    np.testing.assert_allclose(shown, expected, atol=0.0051)
    assert "0 is constant, 2 is noise; lower is slower" in table.lead


def test_cumulative_scores_are_percentages_of_each_threshold(fake_run):
    metrics = records(fake_run)
    table = tables.cumulative_table(metrics, metrics.labels[0])
    error = np.abs(fake_run.estimates["age"] - fake_run.truth["age"])
    assert float(column(table, "≤\N{NO-BREAK SPACE}5")[0].text) == pytest.approx(100 * np.mean(error <= 5), abs=0.051)
    assert len(table.columns) == 22


def test_reconstruction_marks_the_smallest_error_and_leaves_gaps(fake_run):
    table = tables.reconstruction_table(records(fake_run))
    assert [(cell.text, cell.is_best) for cell in column(table, "global")] == [
        ("0.338", False),
        ("0.818", False),
        ("0.201", True),
    ]
    assert [cell.text for cell in column(table, "top-down")] == ["0.372", "0.910", "–"]


def test_sensitivity_and_layers_have_a_row_each(fake_run):
    metrics = records(fake_run)
    assert [row.name for row in tables.sensitivity_table(metrics).rows] == ["1.92", "1.94", "1.96", "1.98"]
    assert [cell.is_best for cell in column(tables.sensitivity_table(metrics), "age MAE")] == [
        False,
        False,
        True,
        False,
    ]
    assert [cell.text for cell in column(tables.layer_table(metrics), "nodes")][:2] == ["961", "465"]
    assert not any(cell.is_best for row in tables.layer_table(metrics).rows for cell in row.cells)


def test_tables_without_data_are_none(fake_run):
    for method in fake_run.metrics["methods"]:
        method |= {"labels": {}, "delta": None, "reconstruction_error": None, "seconds": None}
    fake_run.metrics |= {"layers": None, "sensitivity": None}
    metrics = records(fake_run)
    assert tables.accuracy_table(metrics) is None
    assert tables.cumulative_table(metrics, metrics.labels[0]) is None
    assert tables.delta_table(metrics, "test") is None
    assert tables.reconstruction_table(metrics) is None
    assert tables.sensitivity_table(metrics) is None
    assert tables.layer_table(metrics) is None
    assert tables.cost_table(metrics) is None


def test_the_summary_compares_with_the_best_other_method_and_chance(fake_run):
    for method, mean in zip(fake_run.metrics["methods"], (3.497, 3.921, 6.804, 9.33), strict=True):
        method["labels"]["age"]["mae"] = {"mean": mean, "se": None, "values": [mean]}
    metrics = records(fake_run)
    assert outcomes(metrics)[0] == (
        "It estimates age with a mean absolute error of 3.5 years; HGSFA, the best of the others, has 3.92; "
        "a constant answer has 9.33."
    )
    assert "5,000 pictures of 64 × 64 pixels" in setup(metrics)
    numbers = headline_numbers(metrics)
    assert (numbers[0].value, numbers[0].note) == ("3.5 years", "chance 9.33")
    assert len(numbers) == 4


def test_a_run_without_scores_has_no_headline(fake_run):
    fake_run.metrics["methods"] = [{"name": "SFA", "role": "main"}]
    fake_run.metrics["data"]["image_shape"] = None
    metrics = records(fake_run)
    assert headline_numbers(metrics) == []
    assert outcomes(metrics) == []
    assert setup(metrics).startswith(
        "SFA was trained on 5,000 samples, each in 4 distorted copies, and tested on 1,500"
    )
