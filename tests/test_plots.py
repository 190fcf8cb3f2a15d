"""Figures of networks and time series draw their numbers."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from higsfa import SFA
from higsfa.metrics import delta_values
from higsfa.plots import plot_delta_values, plot_feature_plane, plot_slow_features, plot_unseen_delta, plot_weights

mpl.use("agg")


def test_delta_values_are_means_over_nodes_with_a_band_of_most_of_them(real):
    layers = real.run.network.layers_
    axes = plot_delta_values(real.run.network, ax=Figure().subplots())
    lines = {line.get_label(): line for line in axes.lines}
    assert [name for name in lines if not name.startswith("_")] == ["layer 1 (2x2 nodes)", "layer 2 (1x1 nodes)"]
    for layer, name in zip(layers, lines, strict=False):
        found = lines[name].get_xydata()
        np.testing.assert_allclose(found[:, 0], np.arange(1, layer.delta_values.shape[1] + 1))
        np.testing.assert_allclose(found[:, 1], np.nanmean(layer.delta_values, axis=0))
    (band,) = axes.collections
    low, high = np.nanquantile(layers[0].delta_values, [0.1, 0.9], axis=0)
    heights = set(band.get_paths()[0].vertices[:, 1].round(9))
    assert set(low.round(9)) | set(high.round(9)) <= heights
    noise = next(line for name, line in lines.items() if name.startswith("_"))
    assert set(noise.get_ydata()) == {2.0}


def test_one_layer_and_few_features(real):
    axes = plot_delta_values(real.run.network, 2, n_features=3, ax=Figure().subplots())
    (line,) = (line for line in axes.lines if not line.get_label().startswith("_"))
    np.testing.assert_allclose(line.get_ydata(), real.run.network.layers_[1].delta_values[0, :3])
    for wrong in (0, 3):
        with pytest.raises(ValueError, match="between 1 and 2"):
            plot_delta_values(real.run.network, wrong)
    assert plot_delta_values(real.run.network, 1).get_ylabel() == "Delta, mean over nodes"
    mpl.pyplot.close("all")


def test_figures_of_time_series_draw_the_features_and_their_weights():
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(n, 4)).cumsum(axis=0) for n in (60, 40)]
    sfa = SFA(3, delays=1).fit(parts)
    Y = sfa.transform(parts)
    figure = plot_slow_features(Y, n_features=2, marks=[30])
    assert len(figure.axes) == 2
    first, second = (line for line in figure.axes[0].lines if len(line.get_xdata()) > 2)
    np.testing.assert_array_equal(first.get_ydata(), Y[0][:, 0])
    np.testing.assert_array_equal(second.get_ydata(), Y[1][:, 0])
    with pytest.raises(ValueError, match="times must be"):
        plot_slow_features(Y, times=np.arange(100))
    dots = plot_feature_plane(Y, (0, 2), ax=Figure().subplots()).collections[0]
    np.testing.assert_allclose(dots.get_offsets(), np.concatenate(Y)[:, [0, 2]])
    shown = plot_weights(sfa).axes[0].images[0].get_array()
    assert shown.shape == (4, 2)
    linear = SFA(2).fit(parts)
    heights = [bar.get_height() for bar in plot_weights(linear).axes[0].patches]
    unit = linear.transform(np.eye(4)) - linear.transform(np.zeros((4, 4)))
    np.testing.assert_allclose(heights, unit[:, 0], atol=1e-9)
    with pytest.raises(ValueError, match="one entry for each of 4 inputs"):
        plot_weights(linear, scale=[1.0])
    axes = plot_unseen_delta(linear, parts[:1], parts[1], ax=Figure().subplots())
    points = axes.containers[0].lines[0].get_ydata()
    np.testing.assert_allclose(points, delta_values(linear.transform(parts[0]), graph="sequence"), rtol=1e-9)
