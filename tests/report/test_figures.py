"""Figures draw what the run says: every line, bar, dot and tile, read back from the canvas."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from higsfa.report import figures
from higsfa.report.figures import contact_sheet
from higsfa.report.reading import read_run
from real_run import RACES, SIDE, UNIT


@pytest.fixture(scope="module")
def run(real):
    return read_run(real.folder)


def label(run, name):
    return next(label for label in run.metrics.labels if label.name == name)


def scores(real, name):
    return {method["name"]: method["labels"][name] for method in real.run.metrics["methods"]}


# ---------------------------------------------------------------------------------------------- estimates


@pytest.mark.parametrize("name", ["age", "strength"])
def test_estimates_are_dots_and_their_means_a_line(real, run, painted, name):
    shown = painted(figures.estimate_figure, run, label(run, name))
    p = real.run.predictions
    known = ~np.isnan(p[name])
    true, estimate = p[name][known], p[f"{name}_estimate"][known]
    dots = shown.axes[0].collections[0].get_offsets()
    np.testing.assert_allclose(np.asarray(dots), np.column_stack([true, estimate]))
    # Ages are put into bins because 60 years are more than a curve can show; so are strengths.
    edges = np.linspace(true.min(), true.max(), 26)
    groups = np.minimum(np.searchsorted(edges, true, side="right"), 25)
    line = shown.lines["mean estimate"]
    expected = [(true[groups == g].mean(), estimate[groups == g].mean()) for g in np.unique(groups)]
    np.testing.assert_allclose(line.get_xydata(), expected)
    band = shown.axes[0].collections[1].get_paths()[0].vertices
    error = [np.abs(true - estimate)[groups == g].mean() for g in np.unique(groups)]
    middle = np.array([x for x, _ in expected])
    for x, e in zip(middle, error, strict=True):
        for corner in ((x, x - e), (x, x + e)):
            assert np.abs(band - corner).max(axis=1).min() <= 1e-9 * np.abs(band).max()
    perfect = shown.lines["perfect"].get_xydata()
    np.testing.assert_allclose(perfect, [[true.min()] * 2, [true.max()] * 2])
    unit = {"age": "years", "strength": UNIT}[name]
    assert shown.axes[0].get_xlabel() == f"true {name} ({unit})"
    assert shown.axes[0].get_ylabel() == f"estimated {name}"
    mae = np.abs(true - estimate).mean()
    assert f"{len(true)} estimates of {name}, mean absolute error {mae:.3g}" in shown.figure.alt


@pytest.mark.parametrize(("n", "binned"), [(7, True), (8, False), (25, False), (26, True)])
def test_whole_labels_keep_their_values_if_there_are_8_to_25(n, binned):
    true = np.repeat(np.arange(n), 4) + np.tile([0.0, 0.5], 2 * n)
    curve = figures._curve(true, true + 1)
    whole = np.arange(n) + 0.25
    assert (len(curve.label) == n and np.allclose(curve.label, whole)) != binned


@pytest.mark.parametrize("name", ["age", "strength"])
def test_error_curves_are_those_of_the_metrics(real, run, painted, name):
    shown = painted(figures.error_figure, run.metrics, label(run, name))
    assert set(shown.lines) == {"HiGSFA", "HGSFA", "PCA", "PCA + LDA"}
    for method, line in shown.lines.items():
        curve = scores(real, name)[method]["by_label"]
        np.testing.assert_allclose(line.get_xydata(), np.column_stack([curve["label"], curve["mae"]]))
        assert line.get_marker() == ""  # too many points for markers
    assert np.max(shown.lines["HiGSFA"].get_ydata()) > 1
    front, behind = shown.axes
    counts = scores(real, name)["HiGSFA"]["by_label"]["count"]
    assert behind.get_ylim() == (0, 4 * max(counts))
    assert behind.collections[0].get_paths()[0].vertices[:, 1].max() == max(counts)
    assert behind.get_zorder() < front.get_zorder()
    assert front.get_ylim()[0] == 0
    assert front.get_ylabel().startswith("MAE (")


def test_few_points_have_markers_and_gaps_stay_gaps(changed, painted, tmp_path):
    for method in changed.metrics["methods"]:
        method["labels"]["age"]["by_label"] = {"label": [20.0, 30.0, 40.0], "mae": [1.0, None, 3.0], "count": [5, 6, 7]}
    found = read_run(changed.write(tmp_path))
    line = painted(figures.error_figure, found.metrics, found.metrics.labels[0]).lines["HiGSFA"]
    np.testing.assert_array_equal(line.get_ydata(), [1, np.nan, 3])
    assert line.get_marker() == "o"


@pytest.mark.parametrize("name", ["age", "strength"])
def test_cumulative_scores_rise_to_per_cent_of_the_metrics(real, run, painted, name):
    shown = painted(figures.cumulative_figure, run.metrics, label(run, name))
    assert set(shown.lines) == {"HiGSFA", "HGSFA", "PCA", "PCA + LDA", "chance"}
    for method, line in shown.lines.items():
        curve = scores(real, name)[method]["cumulative"]
        np.testing.assert_allclose(line.get_xdata(), curve["thresholds"])
        np.testing.assert_allclose(line.get_ydata(), 100 * np.array(curve["scores"]))
        assert np.all(np.diff(line.get_ydata()) >= 0)
    assert shown.axes[0].get_ylim() == (0, 102)


def test_thresholds_in_any_order_are_drawn_from_left_to_right(changed, painted, tmp_path):
    curve = {"thresholds": [5, 1, 3], "scores": [0.9, 0.1, 0.4]}
    changed.metrics["methods"][0]["labels"]["age"]["cumulative"] = curve
    found = read_run(changed.write(tmp_path))
    line = painted(figures.cumulative_figure, found.metrics, found.metrics.labels[0]).lines["HiGSFA"]
    np.testing.assert_allclose(line.get_xydata(), [[1, 10], [3, 40], [5, 90]])


@pytest.mark.parametrize("name", ["gender", "race"])
def test_confusions_have_true_classes_as_rows_and_estimates_as_columns(real, run, painted, name):
    shown = painted(figures.confusion_figure, run.metrics, label(run, name))
    counts = np.array(scores(real, name)["HiGSFA"]["confusion"])
    shares = counts / counts.sum(axis=1, keepdims=True)
    axes = shown.axes[0]
    found = {text.get_position(): text.get_text() for text in axes.texts}
    for true, estimated in np.ndindex(*counts.shape):
        expected = f"{100 * shares[true, estimated]:.0f} %\n({counts[true, estimated]})"
        assert found[estimated, true] == expected
    alpha = np.asarray(axes.collections[0].get_array())[..., 3]
    np.testing.assert_allclose(alpha, 0.05 + 0.6 * shares)
    assert axes.yaxis_inverted()
    classes = sorted(set(RACES) if name == "race" else "FM")
    shortened = [text if len(text) <= 16 else text[:15] + "…" for text in classes]
    assert [text.get_text() for text in axes.get_xticklabels()] == shortened
    assert [text.get_text() for text in axes.get_yticklabels()] == shortened
    assert (axes.get_xlabel(), axes.get_ylabel()) == (f"estimated {name}", f"true {name}")
    assert f"{100 * np.trace(counts) / counts.sum():.1f}\N{NO-BREAK SPACE}% of the samples" in shown.figure.alt


def test_large_confusions_have_no_numbers_and_empty_rows_no_shares(changed, painted, tmp_path):
    counts = np.diag([4] * 11)
    counts[2] = 0
    changed.metrics["labels"][1]["classes"] = [str(i) for i in range(11)]
    changed.metrics["methods"][0]["labels"]["gender"]["confusion"] = counts.tolist()
    found = read_run(changed.write(tmp_path))
    axes = painted(figures.confusion_figure, found.metrics, found.metrics.labels[1]).axes[0]
    assert len(axes.texts) == 0
    alpha = np.asarray(axes.collections[0].get_array())[..., 3]
    np.testing.assert_allclose(alpha[2], 0.05)
    np.testing.assert_allclose(alpha[3, 3], 0.65)


# ---------------------------------------------------------------------------------------------- features


def test_deltas_are_those_of_the_metrics(real, run, painted):
    shown = painted(figures.delta_figure, run.metrics)
    assert [name for name in shown.lines if not name.startswith("_")] == ["HiGSFA", "HGSFA", "PCA", "PCA + LDA"]
    for method in real.run.metrics["methods"][:4]:
        line = shown.lines[method["name"]]
        np.testing.assert_allclose(line.get_ydata(), method["delta"]["test"])
        np.testing.assert_allclose(line.get_xdata(), np.arange(1, len(method["delta"]["test"]) + 1))
    noise = next(line for name, line in shown.lines.items() if name.startswith("_"))
    assert set(noise.get_ydata()) == {2.0}
    assert shown.axes[0].get_ylim()[0] == 0


def test_layers_are_those_of_the_metrics(real, run, painted):
    shown = painted(figures.layer_figure, run.metrics)
    layers = real.run.metrics["layers"]
    for name, key in (("mean over nodes", "mean_delta_1"), ("slowest node", "min_delta_1")):
        np.testing.assert_allclose(shown.lines[name].get_ydata(), [layer[key] for layer in layers])
        np.testing.assert_allclose(shown.lines[name].get_xdata(), [1, 2])


def test_values_that_are_missing_are_gaps_in_lines(changed, painted, tmp_path):
    changed.metrics["methods"][0]["delta"]["test"][1] = None
    changed.metrics["layers"][0]["mean_delta_1"] = None
    changed.metrics["layers"][1]["min_delta_1"] = None
    found = read_run(changed.write(tmp_path)).metrics
    deltas = painted(figures.delta_figure, found).lines["HiGSFA"].get_ydata()
    assert np.isnan(deltas).tolist() == [False, True] + [False] * 8
    layers = painted(figures.layer_figure, found).lines
    assert np.isnan(layers["mean over nodes"].get_ydata()).tolist() == [True, False]
    assert np.isnan(layers["slowest node"].get_ydata()).tolist() == [False, True]


def test_features_are_dots_in_pairs_coloured_by_a_number(real, run, painted):
    shown = painted(figures.feature_figure, run, label(run, "age"))
    features, rows = real.run.examples["features"], real.run.examples["feature_rows"]
    for axes, (i, j) in zip(shown.axes, ((0, 1), (2, 3)), strict=False):
        dots = axes.collections[0]
        np.testing.assert_allclose(np.asarray(dots.get_offsets()), features[:, [i, j]], rtol=1e-6)
        np.testing.assert_allclose(dots.get_array(), real.run.predictions["age"][rows])
        assert (axes.get_xlabel(), axes.get_ylabel()) == (f"feature {i + 1}", f"feature {j + 1}")
    assert "of 100 test samples, coloured by age" in shown.figure.alt


def test_features_of_classes_have_a_colour_each_and_others_are_grey(real, run, changed, painted, tmp_path):
    features, rows = real.run.examples["features"], real.run.examples["feature_rows"]
    race = real.run.predictions["race"][rows]
    shown = painted(figures.feature_figure, run, label(run, "race"))
    found = {dots.get_label(): np.asarray(dots.get_offsets()) for dots in shown.axes[0].collections}
    names = {**{name: name if len(name) <= 18 else name[:17] + "…" for name in RACES}, None: "others"}
    for name in set(race):
        np.testing.assert_allclose(found[names[name]], features[race == name][:, :2], rtol=1e-6)
    assert sum(map(len, found.values())) == 100
    changed.metrics["labels"][2]["classes"] = None
    again = read_run(changed.write(tmp_path))
    shown = painted(figures.feature_figure, again, again.metrics.labels[2])
    assert {dots.get_label() for dots in shown.axes[0].collections} == set(names.values()) & set(found)


def test_samples_without_a_value_or_with_broken_features_are_not_shown(changed, painted, tmp_path):
    rows = changed.examples["feature_rows"]
    changed.predictions["age"] = changed.predictions["age"].copy()
    changed.predictions["age"][rows[:3]] = np.nan
    changed.examples["features"] = changed.examples["features"].copy()
    changed.examples["features"][5, 1] = np.nan
    changed.examples["features"] = changed.examples["features"][:, :3]
    run = read_run(changed.write(tmp_path))
    shown = painted(figures.feature_figure, run, run.metrics.labels[0])
    assert len(shown.axes[0].collections[0].get_offsets()) == 96
    assert len(shown.axes) == 2  # one pair of features, and the bar of colours
    changed.examples["features"] = changed.examples["features"][:, :1]
    run = read_run(changed.write(tmp_path))
    assert figures.feature_figure(run, run.metrics.labels[0]) is None


def test_figures_without_data_are_none(changed, tmp_path):
    for method in changed.metrics["methods"]:
        method |= {"labels": {}, "delta": None}
    changed.metrics["layers"] = [{"layer": 1}]
    changed.predictions = None
    run = read_run(changed.write(tmp_path))
    age, gender = run.metrics.labels[:2]
    assert figures.estimate_figure(run, age) is None
    assert figures.error_figure(run.metrics, age) is None
    assert figures.cumulative_figure(run.metrics, age) is None
    assert figures.confusion_figure(run.metrics, gender) is None
    assert figures.delta_figure(run.metrics) is None
    assert figures.layer_figure(run.metrics) is None
    assert figures.feature_figure(run, age) is None


# ---------------------------------------------------------------------------------------------- style and pictures


def test_methods_are_told_apart_and_the_main_one_stands_out(run):
    looks = figures.looks_of(run.metrics.methods)
    assert list(looks) == ["HiGSFA", "HGSFA", "PCA", "PCA + LDA", "chance"]
    assert looks["HiGSFA"]["linewidth"] > max(looks[name]["linewidth"] for name in list(looks)[1:])
    assert looks["chance"]["marker"] == ""
    for key in ("color", "marker"):
        assert len({looks[name][key] for name in looks}) == 5
    assert len({str(looks[name].get("linestyle")) for name in looks}) == 5


def test_legends_only_tell_apart(painted):
    from matplotlib.figure import Figure

    for n_lines, legend in ((1, False), (2, True)):
        axes = Figure().subplots()
        for i in range(n_lines):
            axes.plot([0, 1], label=str(i))
        figures._finish(axes, "x", "y")
        assert (axes.get_legend() is not None) == legend
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x", "y")


def unpacked(url, n, height=SIDE):
    """The pictures of a strip; gaps between them are clear."""
    strip = np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))))
    width, gap = height, max(2, height // 16)
    assert strip.shape == (height, n * (width + gap) - gap, 2)
    tiles = [strip[:, i * (width + gap) : i * (width + gap) + width] for i in range(n)]
    assert all(np.all(tile[..., 1] == 255) for tile in tiles)
    assert all(np.all(strip[:, (i + 1) * (width + gap) - gap : (i + 1) * (width + gap), 1] == 0) for i in range(n - 1))
    return [tile[..., 0] for tile in tiles]


def test_the_contact_sheet_has_every_picture_above_what_is_left_of_it(real, run):
    blocks = contact_sheet(run)
    examples = real.run.examples
    assert [block.n_pictures for block in blocks] == [8, 8]
    for start, block in zip((0, 8), blocks, strict=True):
        assert [strip.name for strip in block.strips] == ["input", "HiGSFA", "HGSFA", "PCA"]
        shown = [examples["images"], *examples["reconstructions"]]
        for strip, pictures in zip(block.strips, shown, strict=True):
            for i, tile in enumerate(unpacked(strip.url, 8)):
                assert np.abs(tile - 255 * pictures[start + i]).max() <= 0.51
        errors = [method["reconstruction_error"]["global"] for method in real.run.metrics["methods"][:3]]
        assert [strip.note for strip in block.strips] == ["", *(f"error {error:.3g}" for error in errors)]


def test_pictures_of_any_number_and_size_fit_the_sheet(changed, tmp_path):
    changed.examples["images"] = np.full((9, 200, 200), 0.5)
    changed.examples["images"][0, 0, 0] = np.nan
    changed.examples["reconstructions"] = np.full((3, 9, 200, 200), 2.0)
    blocks = contact_sheet(read_run(changed.write(tmp_path)))
    assert [block.n_pictures for block in blocks] == [8, 1]
    (tile,) = unpacked(blocks[1].strips[1].url, 1, 128)
    assert np.all(tile == 255)
    changed.examples["reconstructions"] = changed.examples["reconstruction_names"] = None
    changed.examples = {key: value for key, value in changed.examples.items() if value is not None}
    assert contact_sheet(read_run(changed.write(tmp_path))) == ()


# ---------------------------------------------------------------------------------------------- groups


@pytest.mark.parametrize("name", ["age", "race"])
def test_groups_are_dots_with_bars_that_end_where_scores_end(real, run, painted, name):
    shown = painted(figures.group_figure, run.metrics, label(run, name))
    factor, most = (1, np.inf) if name == "age" else (100, 100)
    parts = scores(real, name)["HiGSFA"]["by_group"].values()
    dots = shown.axes[0].collections[1].get_offsets()
    np.testing.assert_allclose(dots[:, 0], [factor * score for part in parts for score in part["score"]])
    assert np.all(np.diff(dots[:, 1]) >= 1)
    bars = np.array([segment[:, 0] for segment in shown.axes[0].collections[0].get_segments()])
    assert bars.min() >= 0
    assert bars.max() <= most
    errors = np.array([error or 0 for part in parts for error in part["se"]])
    np.testing.assert_allclose(bars[:, 1], np.minimum(dots[:, 0] + 2 * factor * errors, most))
    texts = [text.get_text() for text in shown.axes[0].get_yticklabels()]
    assert texts[-1].endswith(f"({list(parts)[-1]['count'][-1]})")


def test_the_reliability_diagram_shows_rates_over_probabilities_and_counts(real, run, painted):
    shown = painted(figures.calibration_figure, run.metrics, label(run, "race"))
    own = scores(real, "race")["HiGSFA"]["calibration"]
    x, y = shown.lines["estimates"].get_data()
    np.testing.assert_allclose(x, 100 * np.array(own["probability"]))
    np.testing.assert_allclose(y, 100 * np.array(own["rate"]))
    bars = shown.axes[1].containers[0]
    assert [bar.get_height() for bar in bars] == own["count"]
    assert [text.get_text() for text in shown.axes[1].texts] == [str(count) for count in own["count"]]
    assert figures.calibration_figure(run.metrics, label(run, "age")) is None
