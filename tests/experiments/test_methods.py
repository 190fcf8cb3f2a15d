"""From tables of a config to graphs, networks and methods of the library."""

import numpy as np
import pytest

from higsfa import HGSFA, HiGSFA, sources
from higsfa.experiments import ExperimentError, load_config, with_values
from higsfa.experiments.interface import Counted
from higsfa.experiments.methods import make_graph, make_network, methods_of
from higsfa.experiments.split import Label
from higsfa.graphs import ClusteredGraph, GraphSum, LabelGraph, MixedGraph, SequenceGraph, SerialGraph, WindowGraph
from higsfa.training.sources import blocks

AGE, SEX = Label("age", True, "years"), Label("sex", False, None)


def faces(**changes):
    values = {key.replace("__", "."): value for key, value in changes.items()}
    return with_values(load_config("faces"), {"comparison.methods": ["chance"], **values})


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"kind": "serial", "label": "age"}, SerialGraph("age")),
        ({"kind": "serial", "label": "age", "n_groups": 7}, SerialGraph("age", n_groups=7)),
        ({"kind": "mixed", "label": "age", "n_groups": 7}, MixedGraph("age", n_groups=7)),
        ({"kind": "clustered", "label": "sex"}, ClusteredGraph("sex")),
        ({"kind": "clustered", "label": "age"}, ClusteredGraph("age")),
        ({"kind": "window", "label": "age"}, WindowGraph("age")),
        ({"kind": "window", "label": "age", "half_width": 5}, WindowGraph("age", 5)),
        ({"kind": "sequence"}, SequenceGraph()),
    ],
)
def test_a_part_is_a_recipe_of_its_kind(part, expected):
    found = make_graph(faces(graph__parts=[part]), [AGE, SEX])
    assert type(found) is type(expected)
    assert found.get_params() == expected.get_params()


def test_graphs_are_sums_of_their_parts_with_weights():
    auto = make_graph(faces(graph__parts="auto"), [AGE, SEX])
    assert [type(graph) for graph in auto.graphs] == [LabelGraph, ClusteredGraph]
    assert [graph.label for graph in auto.graphs] == ["age", "sex"]
    assert isinstance(make_graph(faces(graph__parts="auto"), [SEX]), ClusteredGraph)
    weighted = make_graph(faces(graph__parts=[{"kind": "clustered", "label": "sex", "weight": 0.5}]), [SEX])
    assert isinstance(weighted, GraphSum)
    assert list(weighted.weights) == [0.5]
    two = [{"kind": "serial", "label": "age", "weight": 2}, {"kind": "clustered", "label": "sex"}]
    assert list(make_graph(faces(graph__parts=two), [AGE, SEX]).weights) == [2, 1]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([], "is empty"),
        ([{"kind": "serial", "label": "height"}], "no label 'height'"),
        ([{"kind": "serial", "label": "sex"}], "serial graph needs a numeric label"),
        ([{"kind": "mixed", "label": "sex"}], "mixed graph needs a numeric label"),
        ([{"kind": "window", "label": "sex"}], "window graph needs a numeric label"),
    ],
)
def test_graphs_that_do_not_fit_the_labels_are_refused(parts, words):
    with pytest.raises(ExperimentError, match=words):
        make_graph(faces(graph__parts=parts), [AGE, SEX])


def test_networks_are_what_the_table_says():
    single = make_network(faces(network__preset="single", network__n_components=5, graph__parts="auto"), [AGE], (8, 8))
    assert type(single) is HiGSFA
    (layer,) = single.layers
    assert (tuple(layer.field), layer.n_components) == ((8, 8), 5)
    assert single.input_shape == (8, 8)
    layers = [{"field": [4, 8], "stride": [2, 8], "n_components": 3, "n_slow": 2, "pca": 6}, {"field": [3, 1]}]
    told = faces(network__layers=layers, network__kind="HGSFA", network__memory_limit="1GB", network__n_jobs=2)
    told = make_network(with_values(told, {"graph.parts": "auto"}), [AGE, SEX], (8, 8))
    assert type(told) is HGSFA
    first = told.layers[0]
    assert (first.field, first.stride, first.n_components, first.n_slow, first.pca) == ((4, 8), (2, 8), 3, 2, 6)
    assert (told.n_jobs, told.memory_limit, told.engine) == (2, "1GB", "threads")
    pyramid = make_network(faces(network__n_components=7, graph__parts="auto"), [AGE, SEX], (24, 24))
    assert pyramid.layers[-1].n_components == 7
    assert len(pyramid.layers) > 2


def test_other_networks_to_compare_with_are_those_of_the_paper():
    config = faces(network__preset="higsfa_g3", comparison__methods=["hgsfa", "higsfa_hgsfa_parameters"])
    labels = [AGE, Label("gender", False, None), Label("race", False, None)]
    kinds = ("main", "hgsfa", "higsfa_hgsfa_parameters")
    main, slow, other = (make_network(config, labels, (96, 96), kind) for kind in kinds)
    assert (type(main), type(slow), type(other)) == (HiGSFA, HGSFA, HiGSFA)
    sizes = [[layer.n_components for layer in network.layers] for network in (main, slow, other)]
    assert sizes[1] == sizes[2] != sizes[0]
    assert type(make_network(faces(network__preset="pyramid"), labels, (16, 16), "hgsfa")) is HGSFA


def test_a_threshold_holds_for_layers_whose_number_of_slow_features_is_open():
    layers = [{"field": 2, "n_slow": 1}, {"field": 2}]
    config = faces(network__layers=layers, network__delta_threshold=1.2, graph__parts=[{"kind": "sequence"}])
    usual = make_network(faces(network__layers=layers, graph__parts=[{"kind": "sequence"}]), [], (4,)).layers
    for given, expected in ((None, 1.2), (0.9, 0.9)):
        found = make_network(config, [], (4,), delta_threshold=given).layers
        assert found[0].delta_threshold == usual[0].delta_threshold
        assert found[1].delta_threshold == expected != usual[1].delta_threshold


def test_wrong_networks_are_refused_before_training():
    with pytest.raises(ExperimentError, match=r"\[network\].*n_jobs = 0"):
        make_network(faces(network__n_jobs=0, graph__parts="auto"), [AGE, SEX], (8, 8))
    with pytest.raises(ExperimentError, match=r"\[network\]"):
        make_network(faces(network__layers=[{"field": 20}], graph__parts="auto"), [AGE], (8, 8))


def test_methods_are_named_and_have_roles():
    config = with_values(
        load_config("faces"),
        {"comparison.methods": ["chance", "pca", "hgsfa", "pca", "lda", "gsfa"], "comparison.sensitivity": [1.5, 1.5]},
    )
    found = methods_of(config)
    assert [(m.key, m.name, m.role, m.delta_threshold) for m in found] == [
        ("main", "HiGSFA", "main", None),
        ("chance", "chance", "chance", None),
        ("pca", "PCA", "comparison", None),
        ("hgsfa", "HGSFA", "comparison", None),
        ("lda", "PCA + LDA", "comparison", None),
        ("gsfa", "PCA + GSFA", "comparison", None),
        ("threshold-1.5", "HiGSFA, delta_threshold 1.5", "sensitivity", 1.5),
    ]
    assert [m.network for m in found] == ["main", None, None, "hgsfa", None, None, "main"]
    assert [m.is_rebuilt for m in found] == [True, False, True, True, False, True, False]
    assert methods_of(faces(network__kind="HGSFA"))[0].name == "HGSFA"
    assert methods_of(faces(network__preset="hgsfa_g3"))[0].name == "HGSFA"


def test_samples_are_counted_up_to_the_number_that_was_announced():
    seen = []
    progress = type("Progress", (), {"advance": staticmethod(seen.append)})
    array = sources.array(np.arange(10.0)[:, None])
    source = Counted(array, progress, 12)
    for rows in (range(5), range(5), range(5), range(5)):
        np.testing.assert_array_equal(source.take(np.array(rows)), np.arange(5.0)[:, None])
    assert seen == [5, 5, 2]
    assert source.fingerprint() == array.fingerprint()


def test_a_source_is_read_in_blocks_that_cover_it():
    X = np.arange(30.0).reshape(10, 3)
    parts = list(blocks(sources.array(X), 7))
    assert [(where.start, where.stop) for where, _ in parts] == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10)]
    np.testing.assert_array_equal(np.concatenate([rows for _, rows in parts]), X)
    assert len(list(blocks(sources.array(X), 2))) == 10
