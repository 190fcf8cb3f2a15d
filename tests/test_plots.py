"""Figures of networks draw the numbers of the networks."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from higsfa.plots import plot_delta_values

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
