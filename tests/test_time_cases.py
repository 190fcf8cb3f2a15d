"""The worked cases of docs/time-series.md show what the page says."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).parents[1] / "examples" / "time_series.py"


@pytest.fixture(scope="module")
def cases():
    spec = importlib.util.spec_from_file_location("time_series_example", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_slowest_feature_tells_the_well_and_its_time_scale_is_that_of_jumps(cases):
    found = cases.wells()
    assert found["in the right well"] > 0.97
    scales = found["time scales at lags (5, 20, 100)"]
    assert np.all(np.diff(scales) > 0)  # short lags see what goes on within a well, too
    np.testing.assert_allclose(scales[-1], found["time scale of the jumps"], rtol=0.25)
    assert found["second time scale at lag 5"] < 0.1 * scales[0]


def test_iterated_slow_features_find_changes_better_than_differences(cases):
    found = cases.change()
    ours = np.array(found["slow features, iterated"])
    for other in ("plain differences", "PCA of differences"):
        assert np.all(ours > found[other])
    assert ours.mean() > 0.9


def test_position_and_speed_tell_an_operating_point_and_drift_from_a_fault(cases):
    found = cases.monitoring()
    assert np.all(found["normal"] < 0.03)
    for name in ("new operating point", "drift"):
        assert found[name][0] > 0.5
        assert found[name][1] < 0.03
    assert found["oscillation"][1] > 0.2
    assert found["oscillation"][1] > 3 * found["oscillation"][0]
    assert found["T2 after adapting"] < 4


def test_sessions_are_cut_and_judged_by_other_sessions(cases):
    found = cases.sessions()
    assert "4 gaps and 12 of 4620 samples have missing values" in found["warning"]
    assert found["correlation with what was hidden"] > 0.9
    delta, low, high = found["Delta, unseen"]
    assert low < found["Delta, held out"] < high
    assert low < delta < high
    assert found["transitions of one recording"] > found["transitions of sessions"]


def test_the_figures_of_the_page_are_drawn(cases, tmp_path):
    found = {name: case() for name, case in cases.CASES.items()}
    cases.draw(found, tmp_path)
    names = ("change", "monitor", "plane", "unseen", "weights", "wells")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"time_{name}.png" for name in names]
