"""What features see: the three views, and the figure that shows them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from higsfa.plots import plot_features
from higsfa.reconstruction import extreme_inputs, feature_gradient, feature_template


def test_gradient_is_the_slope_along_any_direction(faces):
    image = faces.images.mean(axis=0)
    direction = np.random.default_rng(0).normal(size=image.shape)
    gradient = feature_gradient(faces.net, image, 2)
    ends = faces.net.transform(np.array([image - 1e-6 * direction, image + 1e-6 * direction]))
    assert gradient.shape == image.shape
    assert_allclose(np.sum(gradient * direction), (ends[1, 2] - ends[0, 2]) / 2e-6, rtol=1e-3)
    several = feature_gradient(faces.net, np.array([image, faces.unseen[0]]), 2)
    assert_allclose(several[0], gradient, atol=1e-9)
    assert_allclose(several[1], feature_gradient(faces.net, faces.unseen[0], 2), atol=1e-9)
    flat = feature_gradient(faces.net, np.array([image.ravel(), faces.unseen[0].ravel()]), 2)
    assert_allclose(flat, several.reshape(2, -1), atol=1e-9)


def test_template_is_the_difference_that_one_unit_makes(faces):
    y = faces.Y[:1].copy()
    more = y.copy()
    more[0, 3] += 1
    change = faces.net.inverse_transform(more) - faces.net.inverse_transform(y)
    assert_allclose(feature_template(faces.net, 3), change[0], atol=1e-8)
    assert_allclose(feature_template(faces.decoder, 3).ravel(), faces.decoder.components_[3], atol=1e-9)


def test_extremes_are_the_ends_of_the_order(faces):
    largest, smallest = extreme_inputs(faces.Y, 1, 4)
    values = np.sort(faces.Y[:, 1])
    assert_allclose(faces.Y[smallest, 1], values[:4])
    assert_allclose(faces.Y[largest, 1], values[::-1][:4])
    assert len(extreme_inputs(faces.Y[:2], 0, 5)[0]) == 2
    assert [len(rows) for rows in extreme_inputs(faces.Y, 0)] == [5, 5]
    ties = np.array([[1.0], [5.0], [-2.0], [5.0], [-2.0]])
    assert [rows.tolist() for rows in extreme_inputs(ties, 0, 4)] == [[1, 3, 0, 2], [2, 4, 0, 1]]


def test_wrong_numbers_are_refused(faces):
    with pytest.raises(ValueError, match="from 0 to 29"):
        feature_template(faces.net, 30)
    with pytest.raises(ValueError, match="from 0 to 29"):
        extreme_inputs(faces.Y, -1)
    for shape in (5, (2, 5), 2048, (2, 1025)):
        with pytest.raises(ValueError, match="images of shape"):
            feature_gradient(faces.net, np.zeros(shape), 0)
    with pytest.raises(ValueError, match="n=0"):
        extreme_inputs(faces.Y, 0, 0)
    with pytest.raises(ValueError, match="feature 1 holds NaN"):
        extreme_inputs(np.array([[1.0, np.nan], [1.0, 2.0]]), 1)
    with pytest.raises(TypeError):
        extreme_inputs(faces.Y, 1.5)


def test_figure_shows_each_view_of_each_feature(faces):
    figure = plot_features(faces.net, faces.images, faces.Y, features=3, decoder=faces.decoder, n_extremes=2)
    assert len(figure.axes) == 3 * 6
    assert all(len(ax.images) == 1 for ax in figure.axes)
    largest, _ = extreme_inputs(faces.Y, 0, 2)
    assert_allclose(figure.axes[5].images[0].get_array(), faces.images[largest[0]])
    with pytest.raises(ValueError, match="grey images"):
        plot_features(faces.net, faces.images[:, :5])
