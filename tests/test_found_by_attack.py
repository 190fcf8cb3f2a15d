"""What a hostile reader found: each of these gave a wrong result without a word."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import tomli_w
from sklearn.base import clone

from higsfa import GSFA, HGSFA, IGSFA, SFA, HiGSFA, Layer, sources
from higsfa.experiments import ExperimentError, load_config
from higsfa.experiments.split import Views, features_of, make_sets, open_experiment
from higsfa.graphs import ClusteredGraph, EdgeGraph, LabelGraph, SerialGraph
from higsfa.images import Distortion
from higsfa.training.checkpoints import CheckpointError

rng = np.random.default_rng(0)
X = rng.standard_normal((300, 3)) + 1
Y = rng.integers(0, 3, 300)


@pytest.mark.parametrize("n", [20_000, 200_000])
def test_slow_signals_of_long_recordings_are_told_apart(n):
    """Their Delta values are about (pi / n)^2, and differ by as little."""
    t = np.arange(n) / n
    signals = np.cos(np.pi * np.outer(t, [1, 2, 3]))
    mixed = np.column_stack([signals, np.random.default_rng(1).standard_normal(n)])
    model = SFA(3).fit(mixed @ np.random.default_rng(2).standard_normal((4, 4)))
    found = model.transform(mixed @ np.random.default_rng(2).standard_normal((4, 4)))
    for k in range(3):
        assert abs(np.corrcoef(found[:, k], signals[:, k])[0, 1]) > 0.9999
    assert np.all(np.diff(model.delta_values_) > 0)


def test_a_recording_ends_where_statistics_are_taken_over():
    a, b, c = (np.cumsum(rng.standard_normal((50, 3)), axis=0) + offset for offset in (0, 0, 300))
    taken = SFA().fit(b).statistics_
    one = SFA().partial_fit(a).fit_from_statistics(taken).partial_fit(c)
    other = SFA().fit(np.concatenate([b, c]), groups=np.repeat([0, 1], 50))
    np.testing.assert_allclose(one.delta_values_, other.delta_values_, atol=1e-12)
    wider = SFA().fit(np.column_stack([b, b[:, 0] ** 2])).statistics_
    assert SFA().partial_fit(a).fit_from_statistics(wider).partial_fit(rng.standard_normal((9, 4))).n_features_in_ == 4


def test_a_fitted_model_does_not_change_with_the_arrays_it_was_given():
    center = X.mean(axis=0)
    model = GSFA(2, graph="clustered", expansion="identity | quadratic", center=center).fit(X, Y)
    before = model.transform(X)
    center[:] = 0
    model.mean_[:] = 7
    model.delta_values_[:] = 7
    np.testing.assert_array_equal(model.transform(X), before)


def test_a_graph_does_not_change_with_the_weights_it_was_built_from():
    w, v = rng.random(300) + 0.5, rng.random(300) + 0.5
    edges = np.column_stack([np.arange(299), np.arange(1, 300)])
    graphs = ClusteredGraph().build(Y, sample_weight=w), EdgeGraph(edges, v).build()
    before = [GSFA(2).fit(X, graph=graph).delta_values_ for graph in graphs]
    w /= w.sum()
    v[:] = 1
    for graph, deltas in zip(graphs, before, strict=True):
        np.testing.assert_array_equal(GSFA(2).fit(X, graph=graph).delta_values_, deltas)


@pytest.mark.parametrize("model", [GSFA(2), HiGSFA([Layer(3, n_components=2)])])
@pytest.mark.parametrize("beside", [{"sample_weight": np.ones(300)}, {"groups": np.zeros(300)}])
def test_weights_beside_a_built_graph_are_refused(model, beside):
    with pytest.raises(ValueError, match="pass them to recipe"):
        model.fit(X, graph=ClusteredGraph().build(Y), **beside)


@pytest.mark.parametrize("kind", ["array", "dask", "mapped"])
def test_a_checkpoint_of_other_data_is_refused_wherever_they_differ(kind, tmp_path):
    dask = pytest.importorskip("dask.array") if kind == "dask" else None
    wrap = {
        "array": lambda A: A,
        "dask": lambda A: dask.from_array(A, chunks=100),
        "mapped": lambda A: sources.map(A, np.negative),
    }
    network = lambda: HiGSFA([Layer(3, n_components=2)], graph=SerialGraph(n_groups=4))  # noqa: E731
    network().fit(wrap[kind](X), X[:, 0], checkpoint=tmp_path)
    other = X.copy()
    other[1:3] *= -30
    with pytest.raises(CheckpointError, match="another fit; data"):
        network().fit(wrap[kind](other), X[:, 0], checkpoint=tmp_path)


def test_the_memory_limit_counts_the_pass_for_principal_components():
    layers = [Layer(64, 64, n_components=10, pca=8, expansion="identity"), Layer(1, n_components=5)]
    network = HiGSFA(layers, graph=SerialGraph(), memory_limit="100 MiB")
    with pytest.raises(ValueError, match="not enough to train layer 1"):
        network.estimate_cost(600, input_shape=(64, 64))
    raw = 8 * 4096**2
    assert network.set_params(memory_limit="4 GiB").estimate_cost(600, input_shape=(64, 64)).memory > 4 * raw


@pytest.mark.parametrize("spread", [600, 3000])
def test_samples_without_a_label_do_not_hide_the_others(spread):
    local = np.random.default_rng(0)
    data = np.concatenate([local.standard_normal((1000, 3)), spread * local.standard_normal((1000, 3))])
    label = np.concatenate([local.integers(0, 4, 1000).astype(float), np.full(1000, np.nan)])
    data[:1000, 0] += label[:1000]
    single = GSFA(graph="clustered").fit(data.astype(np.float32), label)
    double = GSFA(graph="clustered").fit(data, label)
    assert single.rank_ == double.rank_ == 3
    np.testing.assert_allclose(single.delta_values_, double.delta_values_, rtol=1e-3)


def test_what_is_masked_is_missing_or_refused():
    hidden = np.ma.masked_equal(Y, 2)
    model = GSFA(1, graph="clustered").fit(X, hidden)
    assert set(model.statistics_.classes) == {0, 1}
    with pytest.raises(TypeError, match="masked"):
        GSFA(1).fit(np.ma.masked_greater(X, 1), Y)
    with pytest.raises(TypeError, match="masked"):
        GSFA(1).fit(X, Y, sample_weight=np.ma.masked_greater(np.ones(300), 2))


def test_single_precision_of_another_byte_order_is_single_precision():
    model = GSFA(2, graph="clustered").fit(X.astype(">f4"), Y)
    assert model.transform(X.astype(">f4")).dtype == np.float32
    np.testing.assert_array_equal(model.transform(X.astype(">f4")), model.transform(X.astype("<f4")))


def test_features_go_only_where_they_fit():
    model = GSFA(3, graph="clustered").fit(X, Y)
    with pytest.raises(ValueError, match="floating-point"):
        model.transform(X, out=np.empty((300, 3), dtype=int))
    with pytest.raises(ValueError, match="share memory"):
        model.transform(X, out=X[::-1])


def test_samples_of_a_source_must_be_finite_too():
    spoiled = X.copy()
    spoiled[7, 1] = np.inf
    for model in (GSFA(2, graph="clustered").fit(X, Y), HiGSFA([Layer(3, n_components=2)]).fit(X, Y)):
        with pytest.raises(ValueError, match="infinity"):
            model.transform(sources.map(spoiled, np.array))


@pytest.mark.parametrize("n_variables", [40, 300])
@pytest.mark.parametrize("order", ["windows that overlap", "backwards"])
def test_samples_that_overlap_or_lie_backwards_in_memory_give_what_a_copy_gives(n_variables, order):
    """BLAS, which products of more than 256 variables are left to, refuses such arrays, and sums stayed 0."""
    if order == "backwards":
        given = np.random.default_rng(0).standard_normal((1000, n_variables))[::-1]
    else:
        signal = np.random.default_rng(0).standard_normal(1000 + n_variables)
        given = np.lib.stride_tricks.sliding_window_view(signal, n_variables)
    classes = np.arange(len(given)) % 4
    for fit in (lambda A: SFA(3).fit(A), lambda A: GSFA(3, graph="clustered").fit(A, classes)):
        one, other = fit(given), fit(given.copy())
        np.testing.assert_allclose(one.delta_values_, other.delta_values_, rtol=1e-9)
        np.testing.assert_allclose(one.transform(given), other.transform(given.copy()), atol=1e-7)


@pytest.mark.parametrize("offset", [0, 30, 100])
def test_fields_of_a_shared_node_may_have_means_far_apart(offset):
    """Their products drown in the squares of the means, in single precision, unless each has a shift of its own."""
    rng = np.random.default_rng(0)
    fields = rng.standard_normal((3000, 8, 2)) + rng.integers(0, 4, 3000)[:, None, None] * [1.0, 0.3]
    fields = np.float32(fields + offset * np.arange(8)[:, None])
    classes = rng.integers(0, 2, 3000)
    layers = [Layer(2, stride=2, n_components=2, shared=True, expansion="identity")]
    model = HGSFA(layers, graph=ClusteredGraph(self_loops=True)).fit(fields.reshape(3000, 16), classes)
    exact = fields.astype(np.float64)
    inner = [exact[classes == c] - exact[classes == c].mean(axis=0) for c in (0, 1)]
    C_dot = sum(np.einsum("nfi,nfj->ij", z, z) for z in inner) * 2 / (3000 * 8)
    expected = scipy.linalg.eigh(C_dot, np.cov(exact.reshape(-1, 2), rowvar=False, bias=True), eigvals_only=True)
    np.testing.assert_allclose(model.layers_[0].delta_values.ravel(), expected, rtol=1e-4)


@pytest.mark.parametrize("graph", ["auto", LabelGraph(n_harmonics=3, ranks=True), LabelGraph(n_harmonics=3), "serial"])
@pytest.mark.parametrize("model", [GSFA(2, shrinkage="auto"), IGSFA(3, n_slow="auto")])
def test_a_fold_with_a_single_label_value_is_passed_over(model, graph):
    """Persons with one value each make such folds; the error spoke of the label as if all samples had that value."""
    person = np.repeat(np.arange(6), 30)
    data = np.random.default_rng(0).standard_normal((180, 4)) + person[:, None]
    fitted = clone(model).set_params(graph=graph).fit(data, 1.37 * person, groups=person)
    assert fitted.delta_values_[0] < 0.8


@pytest.mark.parametrize("graph", ["auto", LabelGraph(n_harmonics=3)])
def test_folds_without_any_label_are_passed_over(graph):
    few = np.where(np.arange(300) < 4, X[:, 0], np.nan)
    assert GSFA(2, graph=graph, shrinkage="auto").fit(X, few).n_components_ == 2


@pytest.mark.parametrize("what", ["no pictures", "pictures of large integers"])
@pytest.mark.parametrize("table", [{"head": {"views": 2}}, {"distortion": {"copies": 2}}])
def test_views_and_copies_of_data_that_have_none_are_refused_before_training(what, table, tmp_path):
    """Views failed after the network had been trained, and copies of such pictures with a traceback."""
    shape, dtype = ((80, 12), np.float64) if what == "no pictures" else ((80, 8, 8), np.int64)
    images = np.random.default_rng(0).integers(0, 255, shape).astype(dtype)
    np.savez(tmp_path / "data.npz", images=images, size=images.reshape(80, -1).mean(axis=1))
    data = {"kind": "npz", "file": str(tmp_path / "data.npz"), "labels": ["size"]}
    tables = {"title": "x", "data": data, "protocol": {"kind": "random"}, "network": {"preset": "pyramid"}, **table}
    (tmp_path / "config.toml").write_text(tomli_w.dumps(tables))
    config = load_config(tmp_path / "config.toml")
    with pytest.raises(ExperimentError, match=r"\[head\] views|\[distortion\]"):
        make_sets(config, open_experiment(config).folds[0])


def test_no_pictures_have_no_estimates_whatever_the_number_of_views():
    found = features_of(
        lambda source: np.zeros((len(source), 3)), sources.array(np.zeros((0, 8, 8))), Views(3, False, Distortion())
    )
    assert [one.shape for one in found] == [(0, 3), (0, 3)]
