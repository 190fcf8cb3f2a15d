"""The front end of a network: what it computes, that the network goes through it, and that it is kept."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from higsfa import (
    GSFA,
    HGSFA,
    HiGSFA,
    HiSFA,
    LabelHead,
    Layer,
    ModelFileError,
    OrientedEdges,
    load,
    presets,
    save,
    sources,
)
from higsfa.core.edges import Edges
from higsfa.core.expansion.expansion import parse_expansion
from higsfa.estimators.layer import FEW, design_pyramid
from higsfa.images import oriented_edges
from higsfa.reconstruction import feature_gradient
from higsfa.reconstruction.gradients import Differentiable
from literal import _sign


def pictures(n=60, shape=(20, 24), seed=0):
    """Bars of two classes: lying and standing."""
    rng = np.random.default_rng(seed)
    label = np.arange(n) % 2
    images = rng.integers(0, 60, (n, *shape), dtype=np.uint8)
    for image, standing in zip(images, label, strict=True):
        place = int(rng.integers(5, 15))
        image[(slice(None), slice(place, place + 3)) if standing else slice(place, place + 3)] += 150
    return images, label


def small(**params):
    layers = [Layer((4, 4), (2, 2), 6, pca=8, pad=True), Layer((3, 3), n_components=5, pad=True)]
    return HiGSFA(layers, graph="clustered", **params)


@pytest.mark.parametrize("shape", [(17, 22), (16, 19, 3), (12, 12, 1), (13, 16, 2)])
def test_the_gradient_of_edges_is_that_of_differences(shape):
    edges, rng = Edges(shape, 4, 5, 0.0, 2.0), np.random.default_rng(0)
    x = rng.uniform(0.2, 1.8, (3, *shape))
    G, step = rng.normal(size=(3, *edges.out_shape)), 1e-7 * rng.normal(size=x.shape)
    change = np.sum((edges(x + step, np.float64) - edges(x - step, np.float64)) * G, axis=(1, 2, 3)) / 2
    expected = np.sum(edges.pull_back(x, G) * step, axis=tuple(range(1, x.ndim)))
    np.testing.assert_allclose(change, expected, rtol=1e-5, atol=1e-12)


def test_a_network_with_a_front_end_is_one_on_the_edges_of_pictures():
    images, label = pictures()
    inside = small(front=OrientedEdges(cell=2)).fit(images, label)
    outside = small(front=None).fit(oriented_edges(images, cell=2), label)
    np.testing.assert_array_equal(inside.transform(images), outside.transform(oriented_edges(images, cell=2)))
    assert inside.transform(images[:0]).shape == (0, inside.n_components_)


def test_auto_is_for_pictures_of_networks_that_design_themselves():
    images, label = pictures()
    assert HiGSFA().fit(images, label).front_.edges_.cell == 3
    assert presets.pyramid(images.shape[1:], network=HGSFA).front is not None
    assert small().fit(images, label).front_ is None  # layers are for pixels
    assert HiGSFA().fit(images[:, :12, :12], label).front_ is None
    assert HiGSFA().fit(images[:, :12].reshape(len(images), -1), label).front_ is None
    assert HiSFA().fit(images).front_ is None


def test_rows_of_pixels_and_sources_are_pictures_too():
    images, label = pictures()
    net = HiGSFA(input_shape=(20, 24)).fit(images.reshape(len(images), -1), label)
    whole = HiGSFA().fit(sources.map(images, np.array), label)
    np.testing.assert_array_equal(net.transform(images), whole.transform(images))


def test_copies_of_few_pictures_count_once():
    images, label = pictures(20)
    repeated = sources.repeat(images, 250)
    net = HiGSFA().fit(repeated, label[repeated.sample_index])
    assert net.layers_[0].n_expanded == 20  # 20 samples, not 5,000


@pytest.mark.parametrize("front", ["edges", OrientedEdges(cell=5, directions=4)])
def test_a_saved_network_keeps_its_front_end_to_the_bit(tmp_path, front):
    images, label = pictures()
    net = HiGSFA(front=front).fit(images, label)
    save(net, tmp_path / "net.higsfa")
    same = load(tmp_path / "net.higsfa")
    assert same.front_.edges_ == net.front_.edges_
    assert str(same) == str(net)
    Y = net.transform(images)
    np.testing.assert_array_equal(same.transform(images), Y)
    np.testing.assert_array_equal(same.inverse_transform(Y), net.inverse_transform(Y))


def test_pictures_are_rebuilt_through_the_front_end():
    images, label = pictures(200)
    edges = OrientedEdges(cell=2).fit(images)
    rebuilt = edges.inverse_transform(edges.transform(images))
    assert np.corrcoef(rebuilt.ravel(), images.ravel())[0, 1] > 0.8
    net = HiGSFA(front=edges).fit(images, label)
    assert net.inverse_transform(net.transform(images[:3])).shape == (3, 20, 24)


def test_gradients_go_through_the_front_end():
    images, label = pictures()
    net = small(front=OrientedEdges(cell=2)).fit(images / 255, label)
    x, rng = images[0] / 255, np.random.default_rng(0)
    step = 1e-7 * rng.normal(size=x.shape)  # edges that just appear have steep slopes
    in_double = Differentiable(net)
    np.testing.assert_allclose(in_double.features(x.reshape(1, -1)), net.transform(x[None]), atol=1e-4)
    after, before = (in_double.features((x + sign * step).reshape(1, -1))[0, 0] for sign in (1, -1))
    np.testing.assert_allclose(after - before, 2 * np.sum(feature_gradient(net, x, 0) * step), rtol=1e-3)


def test_a_checkpoint_is_taken_for_the_same_edges_and_no_others(tmp_path):
    images, label = pictures()
    first = small(front=OrientedEdges(cell=2)).fit(images, label, checkpoint=tmp_path)
    again = clone(first).fit(images, label, checkpoint=tmp_path)
    np.testing.assert_array_equal(again.transform(images), first.transform(images))
    for other in (OrientedEdges(cell=2, directions=11), None):
        with pytest.raises(ValueError, match="checkpoint"):
            small(front=other).fit(images, label, checkpoint=tmp_path)


def test_black_and_white_of_floats_are_found():
    images, _ = pictures()
    expected = OrientedEdges().fit_transform(images)
    for same in (images / 255, images.astype(np.float64), (images / 255).astype(np.float32)):
        np.testing.assert_allclose(OrientedEdges().fit_transform(same), expected, atol=1e-4)
    other = OrientedEdges().fit(images / 255 * 7 - 3)
    assert (other.edges_.black, other.edges_.white) == pytest.approx(
        ((images / 255 * 7 - 3).min(), (images / 255 * 7 - 3).max())
    )


@pytest.mark.parametrize("white", [16.0, 100.0, 7.5])
def test_pictures_of_another_range_are_not_taken_for_dark_ones(white):
    images, _ = pictures()
    bright = images / images.max()
    expected = OrientedEdges().fit_transform((bright * 255).round().astype(np.uint8))
    np.testing.assert_allclose(OrientedEdges().fit_transform(bright * white), expected, atol=0.05)


@pytest.mark.parametrize(("fitted", "given"), [(1.0, 255.0), (255.0, 1.0)])
def test_new_pictures_of_another_range_are_told(fitted, given):
    rng = np.random.default_rng(0)
    X = rng.random((40, 16, 16))
    net, edges = HiGSFA().fit(fitted * X, np.arange(40) % 2), OrientedEdges().fit(fitted * X)
    for transform in (net.transform, edges.transform):
        with pytest.warns(UserWarning, match=f"white is {given:g} in these pictures, but was {fitted:g}"):
            transform(given * X)
        for new in (fitted * X, 0 * X, X[:0]):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                transform(new)


@pytest.mark.filterwarnings("ignore:Can't test estimator")
def test_the_transformer_passes_the_checks_of_scikit_learn():
    check_estimator(OrientedEdges())
    with pytest.raises(ValueError, match="NaN"):
        OrientedEdges().fit(np.full((3, 8, 8), np.nan))


def test_a_fitted_network_is_shown_as_it_was_trained():
    images, label = pictures()
    net = HiGSFA().fit(images, label)
    shown = str(net)
    assert "edges in 7x8 cells" in shown
    assert str(net.set_params(front=None)) == shown


@pytest.mark.parametrize(
    "params", [{"n_jobs": 2}, {"memory_limit": "53 MB"}, {"memory_limit": "53 MB", "spill": False}]
)
def test_networks_with_edges_and_relu_have_the_same_bits_however_they_are_trained(params):
    images, label = pictures(6000)
    net = small(front=OrientedEdges(cell=2)).set_params(
        layer1__expansion="identity | relu20", layer2__expansion="identity | relu30", n_jobs=1
    )
    expected = clone(net).fit(images, label).transform(images)
    np.testing.assert_array_equal(net.set_params(**params).fit(images, label).transform(images), expected)


def test_the_default_network_has_the_same_bits_on_two_threads():
    images, label = pictures(120)
    one, two = (HiGSFA(n_jobs=n).fit(images, label).transform(images) for n in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_wrong_fronts_and_shapes_are_told():
    images, label = pictures()
    with pytest.raises(ValueError, match="front"):
        HiGSFA(front="pixels").fit(images, label)
    with pytest.raises(ValueError, match="a height, a width"):
        OrientedEdges().fit(images.reshape(len(images), -1))
    with pytest.raises(ValueError, match="features"):
        OrientedEdges().fit(images).inverse_transform(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="OrientedEdges itself"):
        HiGSFA(front="edges", graph="clustered", input_shape=(20, 24)).federated_rounds()
    nan = images / 255
    nan[3, 4, 5] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        HiGSFA().fit(nan, label)


def test_relu_rows_are_rectified_sums_with_fixed_signs():
    expansion = parse_expansion("identity | relu7")
    X = np.random.default_rng(0).normal(size=(6, 50))
    Z = expansion(X, children=2)
    assert Z.shape == (13, 50)
    signs = np.stack(
        [expansion(column[:, None], 2)[6:, 0] - expansion(-column[:, None], 2)[6:, 0] for column in np.eye(6)], axis=1
    )
    np.testing.assert_allclose(np.abs(signs), 1 / np.sqrt(6))
    np.testing.assert_allclose(Z[6:], np.maximum(signs @ X, 0), atol=1e-12)
    G = np.random.default_rng(1).normal(size=Z.shape)
    numeric = np.empty_like(X)
    for i in range(6):
        step = np.zeros_like(X)
        step[i] = 1e-6
        numeric[i] = np.sum((expansion(X + step, 2) - expansion(X - step, 2)) * G, axis=0) / 2e-6
    np.testing.assert_allclose(expansion.backward(X, G, 2), numeric, atol=1e-6)


def test_signs_of_relu_are_the_same_on_every_machine_and_balanced():
    from higsfa.core.expansion.monomials import signs

    W = signs(64, 64, np.dtype(np.float64)) * 8
    assert _sign(1) == W[0, 0]
    assert _sign(64 + 3) == W[1, 2]
    assert abs(W.mean()) < 4 / 64
    np.testing.assert_allclose(W @ W.T / 64, np.eye(64), atol=0.6)


@pytest.mark.parametrize("text", ["relu0", "relu99999", "relu", "relu1.5"])
def test_wrong_numbers_of_relu_rows_are_refused(text):
    with pytest.raises(ValueError, match="relu"):
        parse_expansion(text)


def test_signs_of_relu_are_bounded(tmp_path):
    with pytest.raises(ValueError, match="2000 inputs are too many, at most 1,024"):
        parse_expansion("relu16384").size(2000)
    rng = np.random.default_rng(0)
    node = GSFA(2, graph="clustered").fit(rng.normal(size=(50, 2000)), np.arange(50) % 2)
    save(node, tmp_path / "node")
    written = (tmp_path / "node").read_bytes()
    as_read = rb"\"expansion\":\"%s\",\"n_inputs"
    assert as_read % b"identity" in written
    (tmp_path / "node").write_bytes(written.replace(as_read % b"identity", as_read % b"relu9999"))
    with pytest.raises(ModelFileError, match="2000 inputs are too many"):
        load(tmp_path / "node")


def test_few_samples_leave_slow_features_to_one_node_with_a_kernel():
    few = design_pyramid((16, 16, 13), n_dimensions=2, n_samples=FEW - 1)
    assert [layer.n_slow for layer in few[:-1]] == [0] * (len(few) - 1)
    assert (few[-1].n_slow, few[-1].expansion) == (None, "kernel2000")
    many = design_pyramid((16, 16, 13), n_dimensions=2, n_samples=FEW)
    assert all(layer.n_slow != 0 for layer in many)


@pytest.mark.parametrize("n_samples", [2, 10, 1000])
@pytest.mark.parametrize("shape", [(16, 16, 13), (10, 10, 13), (64, 48, 3), (7, 90, 13), (28, 28), (5000,), (3, 4)])
def test_layers_for_few_samples_fit_any_shape_and_reach_one_node(shape, n_samples):
    layers = design_pyramid(shape, n_dimensions=min(len(shape), 2), n_samples=n_samples)
    network = HiGSFA(layers, front=None, input_shape=shape)
    plans = network._planned(shape)
    assert plans[-1].fields.n_nodes == 1
    assert plans[-1].expansion.size(plans[-1].n_inputs) == n_samples
    assert max(plan.n_raw for plan in plans) <= 1600


def test_eight_pictures_of_each_digit_are_enough_for_nine_of_ten():
    digits = load_digits()
    images, digit = np.kron(digits.images, np.ones((3, 3))).astype(np.float32), digits.target
    order = np.random.default_rng(1).permutation(len(digit))
    train = np.concatenate([order[digit[order] == c][:8] for c in range(10)])
    test = np.setdiff1d(order, train)[:500]
    model = make_pipeline(HiGSFA(), LabelHead()).fit(images[train], digit[train])
    assert model.score(images[test], digit[test]) > 0.9
