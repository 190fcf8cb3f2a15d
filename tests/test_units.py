"""Single precision data in any unit: features are those of the same data in another unit, up to rounding."""

import warnings

import numpy as np
import pytest

from higsfa import GSFA, HGSFA, IGSFA, SFA, HiGSFA, Layer, sources
from higsfa.core.expansion.expansion import parse_expansion
from higsfa.estimators.validation import as_source, working_dtype
from higsfa.graphs import ClusteredGraph, SerialGraph
from oracles import assert_same_up_to_sign

N = 600
rng = np.random.default_rng(0)
LABEL = rng.uniform(0, 1, N)
SIGNAL = np.column_stack([np.cos(3 * LABEL), LABEL**2, np.cumsum(rng.standard_normal(N)) / 20])
X = (SIGNAL @ rng.standard_normal((3, 4)) + 0.3 * rng.standard_normal((N, 4))).astype(np.float32)
SCALES = [2.0**-66, 2.0**66]  # 1e-20 and 1e20, exact in binary
every_scale = pytest.mark.parametrize("scale", [np.float32(scale) for scale in SCALES], ids=["small", "large"])
EXPANSIONS = ["identity", "identity | quadratic", "identity | power0.8", "identity | polynomial3"]
every_expansion = pytest.mark.parametrize("expansion", EXPANSIONS)
ESTIMATORS = {
    "serial": lambda e: GSFA(expansion=e, graph=SerialGraph(n_groups=8)),
    "clustered": lambda e: GSFA(expansion=e, graph=ClusteredGraph()),
    "sequence": lambda e: SFA(expansion=e),
}


def _y(name):
    return np.floor(6 * LABEL) if name == "clustered" else LABEL


@every_scale
@every_expansion
@pytest.mark.parametrize("name", ESTIMATORS)
def test_units_of_single_precision_data_change_nothing(name, expansion, scale):
    make, y = ESTIMATORS[name], _y(name)
    one, other = make(expansion).fit(X, y), make(expansion).fit(scale * X, y)
    np.testing.assert_allclose(other.delta_values_[:3], one.delta_values_[:3], rtol=2e-4)
    Y = other.transform(scale * X)
    assert Y.dtype == np.float32
    assert_same_up_to_sign(Y[:, :2], one.transform(X)[:, :2], atol=2e-3)


@every_scale
@every_expansion
def test_units_of_one_input_among_others_change_nothing(expansion, scale):
    units = np.array([1, scale, 1, 1 / scale], dtype=np.float32)
    one = ESTIMATORS["serial"](expansion).fit(X, LABEL)
    other = ESTIMATORS["serial"](expansion).fit(X * units, LABEL)
    np.testing.assert_allclose(other.delta_values_[:3], one.delta_values_[:3], rtol=2e-4)
    assert_same_up_to_sign(other.transform(X * units)[:, :2], one.transform(X)[:, :2], atol=2e-3)


@every_scale
@every_expansion
def test_units_scale_the_features_that_preserve_information(expansion, scale):
    one = IGSFA(4, expansion=expansion, graph="serial", n_slow=1).fit(X, LABEL)
    other = IGSFA(4, expansion=expansion, graph="serial", n_slow=1).fit(scale * X, LABEL)
    Y = other.transform(scale * X)
    assert_same_up_to_sign(Y / scale, one.transform(X), atol=2e-3)
    np.testing.assert_allclose(other.inverse_transform(Y) / scale, one.inverse_transform(one.transform(X)), atol=2e-3)


@every_scale
@pytest.mark.parametrize("kind", [HGSFA, HiGSFA])
@pytest.mark.parametrize("bottom", [{}, {"pca": 3}, {"shared": True}], ids=["plain", "pca", "shared"])
def test_units_change_nothing_in_networks(kind, bottom, scale):
    images = np.concatenate([X, X[:, ::-1] + 0.1 * rng.standard_normal((N, 4)).astype(np.float32)], axis=1)
    layers = [
        Layer(4, n_components=3, expansion="identity | quadratic", **bottom),
        Layer(2, n_components=3, expansion="identity | quadratic"),
    ]
    one, other = (kind(layers, graph="serial").fit(data, LABEL) for data in (images, scale * images))
    np.testing.assert_allclose(other.delta_values_[:3], one.delta_values_[:3], rtol=5e-4)
    Y, expected = other.transform(scale * images), one.transform(images)
    assert Y.dtype == np.float32
    factor = scale if kind is HiGSFA else np.float32(1)
    assert_same_up_to_sign(Y[:, :1] / factor, expected[:, :1], atol=2e-3 * np.abs(expected).max())


@every_scale
def test_batches_of_any_unit_add_up(scale):
    whole = GSFA(graph="clustered").fit(scale * X, np.floor(6 * LABEL))
    parts = GSFA(graph="clustered")
    for a in range(0, N, 150):
        parts.partial_fit(scale * X[a : a + 150], np.floor(6 * LABEL[a : a + 150]))
    np.testing.assert_allclose(parts.delta_values_, whole.delta_values_, rtol=1e-3)


def _chosen(data, expansion="identity | quadratic"):
    return working_dtype(as_source(data), [parse_expansion(expansion)])[0]


def test_single_precision_is_left_only_where_it_must_be():
    wide, many = np.float32(1e-12), np.tile(X, (5, 1))
    assert _chosen(X) == np.float32
    assert _chosen(X * wide, "identity") == np.float32
    assert _chosen(X * wide) == np.float64
    assert _chosen(X * np.float32(1e-5)) == np.float32
    assert _chosen(X * np.float32(1e-5), "polynomial5") == np.float64
    assert _chosen(X * np.float32(1e-5), "power5.0") == np.float64
    assert _chosen(X.astype(np.float64) * 1e-20) == np.float64
    assert _chosen((100 * np.abs(X)).astype(np.uint8)) == np.float32
    assert _chosen(np.zeros_like(X)) == np.float32
    almost_constant = X.copy()
    almost_constant[:, 1] = np.where(LABEL > 0.5, np.float32(1e-3), np.nextafter(np.float32(1e-3), np.float32(1)))
    assert _chosen(almost_constant) == np.float32
    late = many.copy()
    late[-30:, 2], late[:-30, 2] = 1e-20, 0.0
    assert _chosen(late) == np.float64


def test_of_lazy_data_only_the_first_samples_are_looked_at():
    read = []

    def noted(batch):
        read.append(len(batch))
        return batch * np.float32(1e-20)

    assert working_dtype(sources.map(X, noted), [parse_expansion("identity")])[0] == np.float64
    assert sum(read) <= 65  # one to know the type


def test_variables_that_vanish_after_all_are_named():
    data = sources.array(X * np.where(np.arange(N)[:, None] < 100, 0, [1, 1, np.float32(1e-30), 1]))[np.arange(N)]
    with pytest.warns(UserWarning, match="1 of 4 variables are so small that their squares vanish in single precision"):
        SFA().fit(sources.map(data, lambda batch: batch.astype(np.float32)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        constant = X.copy()
        constant[:, 1], constant[:, 2] = 0.0, 1e-30
        SFA().fit(constant)
