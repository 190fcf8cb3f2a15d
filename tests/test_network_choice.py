"""Shrinkage and the size of the slow part of networks, chosen on samples that a part of the network has not seen."""

from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
from sklearn.datasets import load_digits

import higsfa
from higsfa import HGSFA, HiGSFA, load, save, sources
from higsfa.core.node.held_out import LADDER, peak
from higsfa.estimators import choice
from higsfa.estimators import network as network_module
from higsfa.estimators.layer import design_pyramid
from higsfa.graphs import ClusteredGraph
from higsfa.training import choice as training_choice

GSFA, Layer = (partial(cls, shrinkage="auto") for cls in (higsfa.GSFA, higsfa.Layer))

DIGITS, DIGIT = load_digits(return_X_y=True)
LAYERS = [Layer((4, 4), (2, 2), n_components=8), Layer((3, 3), n_components=12)]


def few(seed, per_class=15):
    order = np.random.default_rng(seed).permutation(len(DIGITS))
    train = np.concatenate([order[DIGIT[order] == c][:per_class] for c in range(10)])
    return train, np.setdiff1d(order, train)


@pytest.mark.parametrize("cls", [HiGSFA, HGSFA])
def test_a_network_gets_slower_on_unseen_samples(cls):
    layers = [layer.get_params() for layer in LAYERS]
    gains = []
    for seed in range(3):
        train, test = few(seed)
        scores = [
            cls([Layer(**{**one, "shrinkage": value}) for one in layers], input_shape=(8, 8))
            .fit(DIGITS[train], DIGIT[train].astype(str))
            .score(DIGITS[test], DIGIT[test].astype(str))
            for value in ("auto", 0.0)
        ]
        gains.append(scores[0] - scores[1])
    assert min(gains) > 0.1


def network(**params):
    return HiGSFA(LAYERS, input_shape=(8, 8), **params)


def test_the_choice_does_not_depend_on_how_it_is_computed():
    train, _ = few(0)
    images, digit = DIGITS[train].astype(np.float32), DIGIT[train].astype(str)
    first = network().fit(images, digit)
    assert all(one is not None for one in first.held_out_)
    for params in ({"n_jobs": 2}, {"memory_limit": 2**22, "spill": False}, {"memory_limit": 2**22}):
        other = network(**params).fit(images, digit)
        assert other.shrinkage_ == first.shrinkage_
        assert np.array_equal(other.transform(images), first.transform(images))


def test_layers_share_the_value_that_is_best_in_the_sum_over_them():
    alone = []
    for seed in range(4):
        train, _ = few(seed)
        net = network().fit(DIGITS[train], DIGIT[train].astype(str))
        curves = np.array([one.slowness.mean(axis=1) for one in net.held_out_])
        best = int(np.argmax(curves.sum(axis=0)))
        assert net.shrinkage_ == [peak(np.array(LADDER), curves.sum(axis=0))] * 2
        assert [one.best for one in net.held_out_] == [best] * 2
        alone.append(np.argmax(curves, axis=1).tolist())
    assert any(first != second for first, second in alone)  # a layer alone would have taken another value


def test_layers_are_judged_above_a_value_from_the_middle_of_the_ladder(monkeypatch):
    train, _ = few(0)
    images, digit = DIGITS[train], DIGIT[train].astype(str)
    judged = network().fit(images, digit).held_out_[1].slowness
    monkeypatch.setattr(training_choice, "WHILE_JUDGED", 3.0)
    assert not np.allclose(network().fit(images, digit).held_out_[1].slowness, judged, rtol=1e-3)
    below = Layer((4, 4), (2, 2), n_components=8, shrinkage=0.1)
    given = HiGSFA([below, LAYERS[1]], input_shape=(8, 8)).fit(images, digit)
    np.testing.assert_array_equal(given.held_out_[1].slowness, judged)  # as if the first layer had had 0.1 anyway


def test_shrinkage_that_says_little_more_is_none(monkeypatch):
    train, _ = few(0)
    images, digit = DIGITS[train], DIGIT[train].astype(str)
    net = network().fit(images, digit)
    information = sum(one.information.mean(axis=1) for one in net.held_out_)
    gain = information.max() / information[0] - 1
    assert gain > training_choice.LEAST_GAIN
    assert net.shrinkage_[0] > 0
    monkeypatch.setattr(training_choice, "LEAST_GAIN", gain * 1.001)
    none = network().fit(images, digit)
    assert none.shrinkage_ == [0.0, 0.0]
    assert [one.best for one in none.held_out_] == [0, 0]


@pytest.mark.parametrize("n", [100, 50])
def test_a_value_found_on_a_smaller_share_is_in_proportion_to_it(n, monkeypatch):
    train, _ = few(0, 60)
    monkeypatch.setattr(choice, "MAX_SAMPLES", n)
    net = network().fit(DIGITS[train], DIGIT[train].astype(str))
    best = peak(np.array(LADDER), sum(one.slowness.mean(axis=1) for one in net.held_out_))
    assert net.shrinkage_ == [pytest.approx(best * 1.5 * n / 600, rel=0.05)] * 2  # two digits
    assert best > 0


def test_the_only_layer_that_learns_takes_what_says_most_in_proportion_to_the_samples():
    train, _ = few(1)
    layers = [
        Layer((4, 4), (2, 2), n_components=8, n_slow=0, shrinkage=0.0),
        Layer((3, 3), n_components=12, expansion="identity | relu30"),
    ]
    images, digit = DIGITS[train], DIGIT[train].astype(str)
    net = HiGSFA(layers, input_shape=(8, 8)).fit(images, digit)
    one = net.held_out_[1]
    best = peak(np.array(LADDER), one.information.mean(axis=1))
    assert net.shrinkage_ == [0.0, pytest.approx(best * 2 / 3, rel=0.05)]  # two digits
    assert one.best == np.argmax(one.information.mean(axis=1))
    # What the layer below knows does not depend on labels.
    below = HiGSFA(layers[:1], input_shape=(8, 8)).fit(images, digit[::-1])
    other = HiGSFA(layers[:1], input_shape=(8, 8)).fit(images, digit)
    np.testing.assert_allclose(np.abs(below.transform(images)), np.abs(other.transform(images)), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("height", "top"), [(1.0, 0.2), (3.0, 0.17), (0.5, 1.4)])
def test_between_values_the_highest_point_is_that_of_a_parabola(height, top):
    ladder = np.array(LADDER)
    evidence = np.concatenate([[-100.0], -height * np.log(ladder[1:] / top) ** 2])
    assert peak(ladder, evidence) == pytest.approx(top, rel=0.03)  # two digits
    shifted = evidence.copy()
    shifted[0] = 1.0
    assert peak(ladder, shifted) == 0.0
    assert peak(ladder, ladder) == ladder[-1]
    assert peak(ladder, -ladder) == 0.0
    assert peak(ladder, np.where(ladder == LADDER[1], 1.0, 0.0)) == LADDER[1]


def test_layers_with_a_number_keep_it():
    train, _ = few(1)
    layers = [Layer((4, 4), (2, 2), n_components=8, shrinkage=0.2), Layer((3, 3), n_components=12, n_slow="auto")]
    net = HiGSFA(layers, input_shape=(8, 8)).fit(DIGITS[train], DIGIT[train].astype(str))
    assert net.shrinkage_[0] == 0.2
    assert net.held_out_[0] is None
    assert 5 <= net.n_slow_ <= 11  # nine classes differ from the others
    assert net.layers[0].shrinkage == 0.2


@pytest.mark.parametrize("cls", [HiGSFA, HGSFA])
def test_weights_of_a_pyramid_are_copies_that_stay_together(cls):
    train, _ = few(4)
    counts = np.random.default_rng(0).integers(0, 3, len(train))
    images, digit, rows = DIGITS[train].reshape(-1, 8, 8), DIGIT[train].astype(str), np.repeat(np.arange(150), counts)
    layers = design_pyramid((8, 8))
    weighted = cls(layers).fit(images, digit, sample_weight=counts)
    copied = cls(layers).fit(images[rows], digit[rows], groups=rows)
    assert weighted.shrinkage_ == copied.shrinkage_
    judged = [[layer for layer in net.held_out_ if layer is not None] for net in (weighted, copied)]
    assert judged[0]
    for one, other in zip(*judged, strict=True):
        # Without shrinkage the terms normalized_quadratic make a direction of variance 1e-9 (docs/experiments.md).
        np.testing.assert_allclose(one.slowness[1:], other.slowness[1:], rtol=1e-6)


def test_shared_weights_are_judged_by_all_fields():
    train, _ = few(2)
    layers = [Layer((4, 4), (2, 2), n_components=8, shared=True), Layer((3, 3), n_components=12)]
    net = HiGSFA(layers, input_shape=(8, 8)).fit(DIGITS[train], DIGIT[train].astype(str))
    assert net.held_out_[0].slowness.shape == (len(LADDER), 1)


def test_parts_of_a_network_have_no_copies_in_common():
    train, _ = few(3)
    source, seen = sources.repeat(DIGITS[train], 2), []
    graph, y = ClusteredGraph(), DIGIT[train].astype(str)[source.sample_index]
    parts = choice.find_parts(source, graph, y, np.ones(len(source)), None)
    for part, share in zip(parts, (2 / 3, 1 / 3), strict=True):
        seen.append({tuple(row) for row in part.samples.take(np.arange(len(part.samples))).tolist()})
        assert len(part.samples) == share * len(source)
        assert part.share == pytest.approx(share)
    assert not seen[0] & seen[1]


def test_many_samples_are_judged_by_some(monkeypatch):
    monkeypatch.setattr(choice, "MAX_SAMPLES", 100)
    y = DIGIT.astype(str)
    parts = choice.find_parts(sources.as_source(DIGITS), ClusteredGraph(), y, np.ones(len(y)), None)
    assert [len(part.samples) for part in parts] == [100, 50]
    assert parts[0].share == 100 / len(y)


def test_too_few_samples_for_parts_mean_no_shrinkage():
    net = network().fit(DIGITS[:20], DIGIT[:20].astype(str))
    assert net.shrinkage_ == [0.0, 0.0]


def test_files_remember_what_was_chosen(tmp_path):
    train, _ = few(0)
    net = network().fit(DIGITS[train], DIGIT[train].astype(str))
    node = GSFA(5).fit(DIGITS[train], DIGIT[train].astype(str))
    for model in (net, node):
        save(model, tmp_path / "model.higsfa")
        again = load(tmp_path / "model.higsfa")
        assert again.shrinkage_ == model.shrinkage_
        assert again.get_params(deep=False).keys() == model.get_params(deep=False).keys()
        np.testing.assert_array_equal(again.transform(DIGITS[:5]), model.transform(DIGITS[:5]))
    assert again.shrinkage == "auto"
    assert again.held_out_delta_values_ is None
    assert load(tmp_path / "model.higsfa").shrinkage_ == node.shrinkage_ > 0


def test_progress_of_choosing_counts_every_tile_of_every_node(monkeypatch):
    announced, done = [], []

    @contextmanager
    def progress(verbose, plans, prefix=""):
        def on_layer(layer, steps):
            announced.append((prefix, layer, steps))
            done.append(0)

            def on_node(n):
                done[-1] += n

            return on_node

        yield on_layer

    monkeypatch.setattr(network_module, "progress", progress)
    train, _ = few(0)
    network().fit(DIGITS[train], DIGIT[train].astype(str))
    assert announced == [("shrinkage, ", 0, 9), ("shrinkage, ", 1, 1), ("", 0, 9), ("", 1, 1)]
    assert done == [9, 1, 9, 1]
