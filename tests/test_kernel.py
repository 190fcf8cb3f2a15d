"""Layers of one node with a kernel: against a node on the kernel's own variables, saved, exported, derived."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import eigh

from higsfa import GSFA, HGSFA, HiGSFA, Layer, ModelFileError, load, save
from higsfa.core.expansion.expansion import Expansion, parse_expansion
from higsfa.core.expansion.kernel import Kernel
from higsfa.reconstruction.gradients import Differentiable


def samples(n=60, seed=0):
    rng = np.random.default_rng(seed)
    label = np.arange(n) % 3
    X = rng.normal(size=(n, 12)) + 1.5 * np.eye(3)[label][:, np.arange(12) % 3]
    return X, label


def network(cls=HiGSFA, n=20, **params):
    below = Layer(6, 6, 4, expansion="identity", n_slow=0 if cls is HiGSFA else None)
    return cls([below, Layer(2, None, 5, expansion=f"kernel{n}", shrinkage=0.1)], front=None, **params)


def rows_of(X, P, width):
    return np.exp(-((X[:, None] - P[None]) ** 2).sum(axis=2) / width)


def test_rows_and_gradient_of_a_kernel():
    rng = np.random.default_rng(0)
    P, X, G = rng.normal(size=(7, 4)), rng.normal(size=(4, 9)), rng.normal(size=(7, 9))
    expansion = Expansion((Kernel(7, points=P, width=3.0),))
    assert_allclose(expansion(X), rows_of(X.T, P, 3.0).T, rtol=1e-12)
    slope = np.empty_like(X)
    for i in range(4):
        step = 1e-6 * (np.arange(4) == i)[:, None]
        slope[i] = ((expansion(X + step) - expansion(X - step)) * G).sum(axis=0) / 2e-6
    assert_allclose(expansion.backward(X, G), slope, atol=1e-8)
    assert str(expansion) == "kernel7"
    assert parse_expansion("kernel7") == expansion


@pytest.mark.parametrize("n", [20, 60, 80])
def test_slow_features_are_those_of_a_node_on_nystroems_variables(n):
    """n points: some of the samples, all of them, more than there are."""
    X, label = samples()
    net = HGSFA([Layer(12, None, 2, expansion=f"kernel{n}", shrinkage=0.1)], graph="clustered", front=None).fit(
        X, label
    )
    kernel = net.layers_[0].nodes[0].frontend.expansion.terms[0]
    P, n_points = kernel.points[: min(n, 60)], min(n, 60)
    centred = X - X.mean(axis=0)
    assert not kernel.points[n_points:].any()
    assert min(np.abs(centred - p).max(axis=1).min() for p in P) < 1e-12
    assert_allclose(kernel.width, (P**2).sum(axis=1).mean())
    values, axes = eigh(rows_of(P, P, kernel.width))
    U = rows_of(centred, P, kernel.width) @ (axes / np.sqrt(values)) @ axes.T
    node = GSFA(2, graph="clustered", shrinkage=0.1, expansion="identity").fit(U, label)
    expected, found = node.transform(U), net.transform(X)
    assert_allclose(net.delta_values_[:2], node.delta_values_[:2], rtol=1e-8)
    assert_allclose(np.abs(np.sum(expected * found, axis=0)), np.sum(expected**2, axis=0), rtol=1e-6)


def test_a_kernel_preserves_information_as_other_nodes_do():
    X, label = samples()
    net = network().fit(X, label)
    assert net.n_slow_ == 2
    assert net.transform(X).shape == (60, 5)
    rebuilt = net.inverse_transform(net.transform(X))
    assert np.mean((X - rebuilt) ** 2) < 0.7 * np.mean((X - X.mean(axis=0)) ** 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_saved_and_loaded_it_has_the_same_bits(dtype, tmp_path):
    X, label = samples()
    net = network(n=80).fit(X.astype(dtype), label)
    save(net, tmp_path / "net")
    again = load(tmp_path / "net")
    new = samples(seed=1)[0].astype(dtype)
    assert_array_equal(again.transform(new), net.transform(new))
    save(again, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "net").read_bytes()


def test_files_without_points_or_with_a_kernel_elsewhere_are_refused(tmp_path):
    X, label = samples()
    net = network(n=9).fit(X, label)
    save(net, tmp_path / "net")
    written = (tmp_path / "net").read_bytes()
    assert b"kernel9" in written
    (tmp_path / "net").write_bytes(written.replace(b"kernel9", b"kernel8"))
    with pytest.raises(ModelFileError):
        load(tmp_path / "net")


@pytest.mark.parametrize("params", [{"n_jobs": 2}, {"memory_limit": "3600 kB", "spill": False}])
def test_it_has_the_same_bits_however_it_is_trained(params):
    X, label = samples(600)
    plain = network(n=100).fit(X, label)
    assert_array_equal(network(n=100, **params).fit(X, label).transform(X), plain.transform(X))


def test_a_checkpoint_goes_on_with_the_same_bits(tmp_path):
    X, label = samples()
    plain = network().fit(X, label).transform(X)
    assert_array_equal(network().fit(X, label, checkpoint=tmp_path / "c").transform(X), plain)
    assert_array_equal(network().fit(X, label, checkpoint=tmp_path / "c").transform(X), plain)


def test_shrinkage_can_be_chosen():
    X, label = samples(200)
    net = network().set_params(layer2__shrinkage="auto").fit(X, label)
    assert net.held_out_[1] is not None
    assert net.shrinkage_[1] >= 0


def test_gradients_go_through_a_kernel():
    X, label = samples()
    model = Differentiable(network().fit(X, label))
    x = samples(5, seed=2)[0] * 0.3
    G = np.random.default_rng(0).normal(size=(5, 5))
    slope = np.empty_like(x)
    for i in range(12):
        step = 1e-6 * (np.arange(12) == i)
        slope[:, i] = ((model.features(x + step) - model.features(x - step)) * G).sum(axis=1) / 2e-6
    assert_allclose(model.gradient(x, G), slope, atol=1e-6)


def test_a_kernel_where_it_cannot_be_is_refused():
    X, label = samples()
    for layers in ([Layer(6, 6, 3, expansion="kernel9")], [Layer(12, None, 3, expansion="identity | kernel9")]):
        with pytest.raises(ValueError, match=r"layer 1: .*kernel9: a kernel is for one node, alone"):
            HiGSFA(layers, front=None).fit(X, label)
    with pytest.raises(ValueError, match="needs samples as points"):
        GSFA(2, graph="clustered", expansion="kernel9").fit(X, label)
    with pytest.raises(ValueError, match="kernel"):
        parse_expansion("kernel0")
