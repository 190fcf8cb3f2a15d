"""Tables follow the estimators: every parameter is a key, or is left out by name."""

import inspect

import numpy as np
import pytest

from higsfa import HGSFA, HiGSFA, LabelHead, Layer, graphs, presets
from higsfa.experiments import ExperimentError, Run, config, interface, load_config, train
from higsfa.experiments.interface import checked
from higsfa.experiments.methods import Features, make_graph, make_network
from higsfa.experiments.score import fit_head
from higsfa.experiments.split import Label
from higsfa.images import Distortion, oriented_edges


def names(estimator):
    return set(inspect.signature(estimator).parameters)


def keys(table):
    return set(table.model_fields)


def test_every_parameter_of_an_estimator_is_a_key_or_left_out_by_name():
    assert keys(config.LayerTable) == names(Layer)
    assert keys(config.EveryLayerTable) == names(Layer) - {"field", "stride"}
    assert keys(config.DistortionTable) == names(Distortion) | {"copies", "supervised_copies"}
    # Graph, kinds and shape come from other tables, the engine from an option, and a run shows its progress itself.
    elsewhere = {"graph", "label_kinds", "input_shape", "engine", "verbose"}
    own = {"preset", "kind", "n_components", "width", "expansion", "layer_params", "delta_threshold", "dtype"}
    for network in (HiGSFA, HGSFA):
        assert keys(config.NetworkTable) == names(network) - elsewhere | own | {"members"}
    assert keys(config.HeadTable) == names(LabelHead) - {"regressor", "label_kinds"} | {"mirror", "views"}
    assert "n_used_features" in keys(config.ComparisonTable)


def test_a_parameter_that_a_file_cannot_say_is_no_key_until_somebody_decides():
    class New(Layer):
        _parameter_constraints = {**Layer._parameter_constraints, "hook": [callable], "mode": [callable, None]}

        def __init__(self, field, hook, mode=None, speed: int = 3):
            pass

    table = config.follows(New, types={"field": int})(config.Table)
    assert keys(table) == {"field", "speed"}
    assert keys(table) != names(New)  # which is what the tests above would notice


def test_every_recipe_is_a_kind_of_part_with_all_its_parameters():
    assert set(config.RECIPES) == set(graphs.SHORTHANDS) - {"auto"}
    assert set(config.RECIPES) == set(config.GraphPart.model_fields["kind"].annotation.__args__)
    assert set.union(*map(names, config.RECIPES.values())) == keys(config.GraphPart) - {"kind", "weight"}


def test_every_preset_for_labels_is_known():
    known = set(config.NetworkTable.model_fields["preset"].annotation.__args__)
    assert known - {"single"} == set(presets.__all__) - {"qhsfa_1d", "rat_hisfa", "rat_hsfa"}  # which are for time


VALUES = {
    **{"field": [2, 2], "stride": [1, 2], "n_components": 7, "expansion": "quadratic", "pca": 3, "n_slow": 2},
    **{"delta_threshold": 1.1, "scaling": "qr", "min_scale": 0.25, "shared": True, "pad": True, "shrinkage": 0.125},
    **{"weighted": True, "n_fields": 3},
}
DIGITS = {"title": "t", "data": {"kind": "digits"}, "protocol": {"kind": "random"}}


def network_of(table, shape=(8, 8)):
    return make_network(checked({**DIGITS, "network": table}, "test"), [Label("digit", False, None)], shape)


def test_every_key_of_a_layer_reaches_it():
    assert set(VALUES) == names(Layer)
    (layer,) = network_of({"layers": [VALUES]}).layers
    assert layer.get_params() == {
        key: tuple(value) if isinstance(value, list) else value for key, value in VALUES.items()
    }
    given = {key: VALUES[key] for key in ("scaling", "min_scale", "shrinkage", "weighted")}
    usual, changed = network_of({}).layers, network_of({"layer_params": given}).layers
    for before, after in zip(usual, changed, strict=True):
        assert after.get_params() == {**before.get_params(), **given}


def test_keys_of_networks_and_heads_reach_them(tmp_path):
    network = network_of({"spill": False, "clip_range": False, "n_jobs": 3})
    assert (network.spill, network.clip_range, network.n_jobs) == (False, False, 3)
    assert network_of({"spill": str(tmp_path)}).spill == str(tmp_path)
    tables = {**DIGITS, "head": {"covariance": 0.5, "cv": 3, "candidates": [1, 2]}}
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(60, 4))
    features = Features([Label("digit", False, None)], Y, Y)
    samples = type("Samples", (), {"labels": {"digit": np.arange(60) % 3}, "groups": np.arange(60)})
    head = fit_head(checked(tables, "test"), features, samples, "cv")
    assert (head.covariance, head.cv, list(head.candidates)) == (0.5, 3, [1, 2])


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"kind": "clustered", "label": "a", "self_loops": True}, graphs.ClusteredGraph("a", self_loops=True)),
        ({"kind": "window", "label": "a", "mirrored": True}, graphs.WindowGraph("a", mirrored=True)),
        ({"kind": "sequence", "lag": 3}, graphs.SequenceGraph(lag=3)),
    ],
)
def test_every_key_of_a_part_reaches_its_recipe(part, expected):
    found = make_graph(checked({**DIGITS, "graph": {"parts": [part]}}, "test"), [Label("a", True, None)])
    assert type(found) is type(expected)
    assert found.get_params() == expected.get_params()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"network": {"layers": [{"field": 2, "scaling": "none"}]}}, "scaling = 'none'"),
        ({"network": {"layers": [{"field": 2, "min_scale": 1.0}]}}, "min_scale = 1.0"),
        ({"network": {"layers": [{"field": 2, "shrinkage": -0.1}]}}, "shrinkage = -0.1"),
        ({"network": {"layers": [{"field": 2, "shrinkage": float("nan")}]}}, "shrinkage = nan"),
        ({"network": {"layer_params": {"stride": 2}}}, "unknown key 'stride' in .network.layer_params"),
        ({"head": {"covariance": 1.5}}, "covariance = 1.5"),
        ({"head": {"regressor": "svm"}}, "unknown key 'regressor'"),
        (
            {"graph": {"parts": [{"kind": "serial", "label": "a", "mirrored": True}]}},
            "mirrored is for parts of kind window",
        ),
        ({"graph": {"parts": [{"kind": "sequence", "lag": 0}]}}, "lag = 0"),
    ],
)
def test_values_that_the_estimators_refuse_are_refused_in_the_file(table, words):
    with pytest.raises(ExperimentError, match=words):
        checked({**DIGITS, **table}, "test")


def test_an_old_key_is_refused_by_a_message_that_names_the_new_one(monkeypatch, tmp_path):
    monkeypatch.setattr(interface, "RENAMED", {"size": "n_components"})
    tables = {**DIGITS, "network": {"size": 5}}
    with pytest.raises(ExperimentError, match=r"key 'size' in \[network\] is called 'n_components' now; rename it"):
        checked(tables, "test")
    path = tmp_path / "config.toml"
    path.write_text('title = "t"\n[data]\nkind = "digits"\n[protocol]\nkind = "random"\n[network]\nsize = 5\n')
    with pytest.raises(ExperimentError, match="rename it"):
        load_config(path)
    assert load_config(path, of_run=True).network.n_components == 5  # written by an earlier version


def test_photographs_are_seen_as_edges_in_training_and_afterwards(tmp_path):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (60, 64, 64), dtype=np.uint8)
    np.savez(tmp_path / "data.npz", images=images, x=images[:, :8, :8].mean(axis=(1, 2)))
    data = {"kind": "npz", "file": str(tmp_path / "data.npz"), "labels": ["x"]}
    network = {"preset": "photographs", "n_jobs": 1, "layer_params": {"n_components": 4, "n_slow": 2, "pca": 8}}
    network["layer_params"]["expansion"] = "identity"
    tables = {
        "title": "t",
        "data": data,
        "network": network,
        "head": {"n_used_features": 2},
        "protocol": {"kind": "random"},
    }
    run = train(checked(tables, "test"), tmp_path / "run")
    assert run.network.input_shape_ == (64, 64)
    assert run.network.front_.edges_.out_shape == (16, 16, 13)
    assert run.metrics["data"]["image_shape"] == [64, 64]
    tested = run.predictions["sample"]
    cells = oriented_edges(images[tested]).reshape(len(tested), -1)
    np.testing.assert_allclose(run.network.front_.transform(images[tested]), cells, atol=1e-6)
    np.testing.assert_array_equal(run.transform(images[tested]), run.network.transform(images[tested]))
    np.testing.assert_allclose(run.predict(images[tested])["x"], run.predictions["x_estimate"], rtol=1e-5)
    assert (
        Run(run.folder).evaluate()["labels"]["x"]["mae"]["mean"]
        == run.metrics["methods"][0]["labels"]["x"]["mae"]["mean"]
    )
    assert run.reconstruct(images[:2]).pictures["top-down"].shape == (2, 64, 64)
