"""Exported models give the numbers of this library: all expansions, estimators, networks, heads and pipelines."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler

from higsfa import (
    GSFA,
    HGSFA,
    HSFA,
    IGSFA,
    ISFA,
    SFA,
    HiGSFA,
    HiSFA,
    LabelClassifier,
    LabelHead,
    LabelRegressor,
    Layer,
    OrientedEdges,
)
from higsfa.core.expansion.expansion import _NUMBERED, _PLAIN, FunctionExpansion, parse_expansion
from higsfa.export import to_onnx, to_torch
from higsfa.export.steps import TERMS
from higsfa.reconstruction import feature_gradient

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

EXPANSIONS = [
    "identity",
    "identity[1:4] | power0.8",
    "power0.5 | power1 | power2 | power2.3",
    "signed_power0.7 | signed_power3[2:]",
    "max2 | max2[:3]",
    "quadratic[1:5]",
    "identity | normalized_quadratic",
    "polynomial3",
    "polynomial1 | polynomial4[:3]",
    "relu30 | relu8[4]",
]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(500, 6)).astype(np.float32) + np.float32(3)
AGE = X[:, 0] + X[:, 1] * X[:, 2]
UNSEEN = (3 + 2 * RNG.normal(size=(80, 6))).astype(np.float32)  # beyond the range of the training data, too
UNSEEN[0] = X.mean(axis=0) + np.float32(1e-3)  # powers of numbers near 0; nearer, single precision has no digits left


def run(model: Any, samples: np.ndarray, dtype: str = "float32") -> dict[str, np.ndarray]:
    """Outputs of the exported model, by name."""
    session = onnxruntime.InferenceSession(
        to_onnx(model, dtype=dtype).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"X": samples.astype(dtype)}), strict=True))


def assert_same_features(model: Any, samples: np.ndarray, seen: np.ndarray, *, guarded: bool = True) -> None:
    """Differences are relative to standard deviations; without a range guard, to larger features if they are."""
    deviation = np.std(model.transform(seen.astype(np.float64)), axis=0)
    deviation[deviation == 0] = 1  # columns beyond the rank of a node are 0
    ours = model.transform(samples.astype(np.float64))
    deviation = deviation if guarded else np.maximum(deviation, np.abs(ours))
    for dtype, tolerance in (("float32", 1e-4), ("float64", 1e-9)):
        found = run(model, samples, dtype)["features"]
        assert found.dtype == dtype
        assert found.shape == ours.shape
        np.testing.assert_array_less(np.abs(found - ours) / deviation, tolerance)


def test_every_term_with_a_name_can_be_exported() -> None:
    made = {
        type(parse_expansion(example).terms[0]) for example in [*_PLAIN, *(entry[2] for entry in _NUMBERED.values())]
    }
    assert made == set(TERMS)


@pytest.mark.parametrize("expansion", EXPANSIONS)
@pytest.mark.parametrize("cls", [SFA, ISFA, GSFA, IGSFA])
def test_single_estimators_with_all_expansions(cls: type, expansion: str) -> None:
    model = cls(n_components=4, expansion=expansion)
    model = model.fit(X) if cls in (SFA, ISFA) else model.set_params(graph="serial").fit(X, AGE)
    assert_same_features(model, UNSEEN, X)


@pytest.mark.parametrize("clip_range", [True, False])
@pytest.mark.parametrize("expansion", EXPANSIONS)
@pytest.mark.parametrize("cls", [HSFA, HiSFA, HGSFA, HiGSFA])
def test_networks_with_all_expansions(cls: type, expansion: str, clip_range: bool) -> None:
    images = RNG.normal(size=(300, 6, 8)).astype(np.float32)
    layers = [
        Layer((2, 4), pca=6, n_components=5, expansion=expansion),
        Layer((3, 1), n_components=6, expansion="identity | power0.8[:2] | max2[:3] | quadratic[:2]"),
        Layer((1, 2), n_components=4),
    ]
    net = cls(layers, front=None, clip_range=clip_range)
    net = net.fit(images) if cls in (HSFA, HiSFA) else net.set_params(graph="serial").fit(images, images[:, 0, 0])
    assert_same_features(net, RNG.normal(size=(40, 6, 8)).astype(np.float32), images, guarded=clip_range)


def test_shared_weights_padded_fields_and_several_top_nodes() -> None:
    images = RNG.normal(size=(300, 7, 9, 2)).astype(np.float32)
    layers = [
        Layer((3, 3), (2, 2), n_components=5, expansion="identity | quadratic[:1]", shared=True, pad=True),
        Layer((2, 2), (1, 2), n_components=3, pad=True),
    ]
    net = HiGSFA(layers, graph="serial", front=None).fit(images, images[:, 0, 0, 0])
    assert net.n_slow_ is None  # several top nodes
    assert_same_features(net, RNG.normal(size=(40, 7, 9, 2)).astype(np.float32), images)


def test_nodes_of_less_rank_than_outputs_give_zeros() -> None:
    images = RNG.normal(size=(200, 4, 4)).astype(np.float32)
    images[:, :2, :2] = 0  # the first of four nodes sees nothing
    net = HiGSFA([Layer((2, 2), n_components=3), Layer((2, 2), n_components=4)], graph="serial", front=None)
    net.fit(images, images[:, 3, 3])
    assert_same_features(net, RNG.normal(size=(30, 4, 4)).astype(np.float32), images)


@pytest.mark.parametrize("shape", [(20, 25), (24, 24, 3), (17, 16, 2)])
def test_oriented_edges_are_those_of_ours(shape: tuple[int, ...]) -> None:
    images = RNG.integers(0, 256, size=(40, *shape), dtype=np.uint8)
    images[0] = 128  # no edge at all
    if len(shape) == 3:
        images[1] = images[1, :, :, :1]  # all channels are equally strong
    edges = OrientedEdges().fit(images)
    found, ours = run(edges, images)["features"], edges.transform(images)
    assert np.max(np.abs(found - ours)) < 2e-5
    alone = make_pipeline(edges, GSFA(n_components=2, graph="serial").fit(ours, ours[:, 0]))
    assert run(alone, images)["features"].shape == (40, 2)


def test_a_network_on_pictures_with_heads_of_several_labels() -> None:
    images = RNG.integers(0, 256, size=(240, 16, 16), dtype=np.uint8)
    labels = {
        "age": images[:, 0, 0] / 3.0,
        "eyes": np.where(images[:, 8, 8] > 99, "brown", "blue"),
        7: images[:, 3, 3] // 90,
    }
    net = HiGSFA([Layer((8, 8), n_components=10), Layer((2, 2), n_components=12)], graph="auto", front="edges")
    net.set_params(layers=[Layer((2, 2), n_components=9), Layer((3, 3), n_components=12)], graph="serial")
    net.fit(images, labels["age"])
    head = LabelHead(integer={"age": True}, label_kinds={7: "categorical"}).fit(net.transform(images), labels)
    unseen = RNG.integers(0, 256, size=(100, 16, 16), dtype=np.uint8)
    found, ours = run(make_pipeline(net, head), unseen), head.predict(net.transform(unseen.astype(np.float64)))
    assert list(found) == ["age", "age_probabilities", "eyes", "eyes_probabilities", "label7", "label7_probabilities"]
    assert found["age"].dtype == np.int64
    assert np.mean(found["age"] != ours["age"]) <= 0.02  # integer parts, of numbers that differ by rounding
    assert np.mean(found["eyes"] != ours["eyes"]) <= 0.02
    assert np.mean(found["label7"] != ours[7]) <= 0.02
    for name, label in (("age", "age"), ("eyes", "eyes"), ("label7", 7)):
        probabilities = head.predict_proba(net.transform(unseen.astype(np.float64)), label)
        np.testing.assert_allclose(found[f"{name}_probabilities"], probabilities, atol=2e-3)


@pytest.mark.parametrize("values", [[3, 5, 8], [0.5, 1.5, 2.5], ["a", "ä", "c"], [False, True, True]])
def test_classes_come_back_as_they_were_given(values: list[Any]) -> None:
    y = np.array(values)[(X[:, 0] > 3) * 1 + (X[:, 1] > 3)]
    pipeline = make_pipeline(
        GSFA(n_components=2, graph="clustered", label_kinds="categorical"), LabelHead(label_kinds="categorical")
    )
    pipeline.fit(X, y)
    found = run(pipeline, UNSEEN, "float64")
    assert found["label"].tolist() == pipeline.predict(UNSEEN.astype(np.float64)).tolist()
    np.testing.assert_allclose(
        found["probabilities"], pipeline.predict_proba(UNSEEN.astype(np.float64)), rtol=1e-9, atol=1e-12
    )
    props = json.loads(to_onnx(pipeline).metadata_props[0].value)
    assert props["classes"]["label"] == sorted(set(values))


def test_samples_so_far_out_that_densities_vanish_get_an_answer() -> None:
    head = LabelClassifier(n_used_features=3).fit(X[:, :3], X[:, 0] > 3)
    far = np.array([[1e30, 0, 0], [-1e30, 1e30, 1], [3, 3, 3]])
    found = run(head, far, "float64")
    assert np.all(np.isfinite(found["probabilities"]))
    assert found["label"].tolist() == head.predict(far).tolist()


def test_regressors_export_numbers_only() -> None:
    pipeline = make_pipeline(StandardScaler(), IGSFA(n_components=3, graph="serial"), LabelRegressor()).fit(X, AGE)
    found = run(pipeline, UNSEEN)
    assert list(found) == ["label"]
    np.testing.assert_allclose(found["label"], pipeline.predict(UNSEEN), atol=1e-4 * AGE.std())


@pytest.mark.parametrize(
    "scaler",
    [
        StandardScaler(),
        StandardScaler(with_mean=False),
        StandardScaler(with_std=False),
        MinMaxScaler((-1, 2), clip=True),
        MinMaxScaler(),
        PCA(4),
        PCA(5, whiten=True),
        "passthrough",
    ],
)
def test_affine_steps_of_scikit_learn(scaler: Any) -> None:
    pipeline = make_pipeline(scaler, GSFA(n_components=3, graph="serial", expansion="identity | quadratic"))
    pipeline.fit(X.astype(np.float64), AGE)  # a PCA of float32 data computes in float32 ever after
    assert_same_features(pipeline, UNSEEN, X)


def test_numbers_beyond_single_precision_are_computed_in_double() -> None:
    tiny = (X - 3).astype(np.float64) * 1e-20
    model = GSFA(n_components=2, graph="serial", expansion="identity | quadratic").fit(tiny, AGE)
    assert not model._node.fits_single
    found = run(model, tiny)["features"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, model.transform(tiny), atol=1e-3)


def test_one_sample_and_many_run_in_the_same_graph(tmp_path: Any) -> None:
    model = IGSFA(n_components=3, graph="serial", expansion="identity | quadratic").fit(X, AGE)
    made = to_onnx(model, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == made.SerializeToString()
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    whole = session.run(None, {"X": UNSEEN})[0]
    parts = [session.run(None, {"X": UNSEEN[k : k + 1]})[0] for k in range(len(UNSEEN))]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-4, atol=1e-4)


def test_the_number_of_operations_does_not_grow_with_the_number_of_nodes() -> None:
    counts = []
    for size in (8, 16):
        images = RNG.normal(size=(60, size, size)).astype(np.float32)
        net = HiGSFA([Layer((2, 2), n_components=3, shared=False)], graph="serial", front=None).fit(
            images, images[:, 0, 0]
        )
        counts.append(len(to_onnx(net).graph.node))
    assert counts[0] == counts[1]


def _doubled(samples: np.ndarray) -> np.ndarray:
    return np.hstack([samples, 2 * samples])


@pytest.mark.parametrize(
    ("model", "word"),
    [
        (lambda: GSFA(graph="serial", expansion=_doubled).fit(X, AGE), "_doubled"),
        (lambda: GSFA(graph="serial", expansion=FunctionExpansion(_doubled, "twice")).fit(X, AGE), "twice"),
        (lambda: LinearRegression().fit(X, AGE), "LinearRegression"),
        (lambda: make_pipeline(Normalizer(), GSFA(graph="serial")).fit(X, AGE), "Normalizer"),
        (lambda: make_pipeline(GSFA(graph="clustered"), LogisticRegression()).fit(X, AGE > 9), "LogisticRegression"),
        (lambda: LabelHead(regressor=LinearRegression()).fit(X, AGE), "LinearRegression"),
    ],
)
def test_what_cannot_be_exported_is_refused_by_name(model: Any, word: str) -> None:
    with pytest.raises(TypeError, match=word):
        to_onnx(model())


def test_names_and_types_are_checked() -> None:
    node = GSFA(n_components=2, graph="serial").fit(X, AGE)
    with pytest.raises(ValueError, match="dtype='float16'"):
        to_onnx(node, dtype="float16")
    head = LabelHead().fit(X, {"X": AGE, "b": AGE})
    with pytest.raises(ValueError, match="differ"):
        to_onnx(head)
    with pytest.raises(Exception, match="not fitted"):
        to_onnx(GSFA())


# ---------------------------------------------------------------------- torch, where it is installed


@pytest.mark.parametrize("expansion", EXPANSIONS)
def test_modules_of_torch_have_our_features_and_gradients(expansion: str) -> None:
    torch = pytest.importorskip("torch")
    model = IGSFA(n_components=4, graph="serial", expansion=expansion).fit(X.astype(np.float64), AGE)
    module = to_torch(model, dtype="float64")
    samples = torch.tensor(UNSEEN.astype(np.float64), requires_grad=True)
    features = module(samples)
    np.testing.assert_allclose(features.detach().numpy(), model.transform(UNSEEN.astype(np.float64)), atol=1e-9)
    features[:, 1].sum().backward()
    np.testing.assert_allclose(samples.grad.numpy(), feature_gradient(model, UNSEEN, 1), atol=1e-9)
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_a_network_with_its_head_in_torch() -> None:
    torch = pytest.importorskip("torch")
    images = RNG.integers(0, 256, size=(120, 18, 16), dtype=np.uint8)
    labels = {"age": images[:, 0, 0] / 3.0, "eyes": images[:, 8, 8] > 99}
    layers = [Layer((2, 2), pca=8, n_components=6, expansion="identity | quadratic[:2]")]
    layers.append(Layer((3, 2), n_components=5, pad=True))
    net = HiGSFA(layers, graph="serial", front="edges").fit(images, labels["age"])
    head = LabelHead(2).fit(net.transform(images), labels)
    found = to_torch(make_pipeline(net, head), dtype="float64")(torch.tensor(images))
    ours = head.predict(net.transform(images))
    np.testing.assert_allclose(found["age"][0].detach().numpy()[:, 0], ours["age"], rtol=1e-3)
    assert np.mean(found["eyes"][0].numpy()[:, 0] != ours["eyes"]) <= 0.02
    assert found["eyes"][1].shape == (120, 2)


def test_a_module_learns_and_its_weights_travel() -> None:
    torch = pytest.importorskip("torch")
    model = GSFA(n_components=1, graph="serial", expansion="identity | quadratic").fit(X, AGE)
    module, target = to_torch(model), torch.tensor(AGE)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    losses = []
    for _ in range(50):
        loss = torch.nn.functional.mse_loss(module(torch.tensor(X))[:, 0], target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    other = to_torch(model)
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(torch.tensor(UNSEEN)), module(torch.tensor(UNSEEN)))


def test_a_kernel_is_exported():
    net = HiGSFA([Layer(6, None, 5, expansion="kernel40", shrinkage=0.1)], front=None).fit(X, AGE)
    (found,) = run(net, UNSEEN, "float64").values()
    np.testing.assert_allclose(found, net.transform(UNSEEN.astype(np.float64)), atol=1e-5)
