"""Shrinkage and the size of the slow part chosen on samples that training has not seen, from one pass."""

from contextlib import contextmanager
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold

import higsfa
from higsfa import HGSFA, HSFA, HiGSFA, load, save, sources
from higsfa.core import linalg
from higsfa.core.node.held_out import LADDER, noise_level, peak
from higsfa.estimators import choice
from higsfa.estimators import network as network_module
from higsfa.estimators.choice import divide, take_labels
from higsfa.estimators.layer import design_pyramid
from higsfa.graphs import (
    ClusteredGraph,
    CodeGraph,
    EdgeGraph,
    LabelGraph,
    MixedGraph,
    SequenceGraph,
    SerialGraph,
    UniformGraph,
    WindowGraph,
    as_recipe,
)
from higsfa.graphs.label import number_graph

N, CV = 240, 4
GSFA, IGSFA, SFA, ISFA, Layer = (
    partial(cls, shrinkage="auto") for cls in (higsfa.GSFA, higsfa.IGSFA, higsfa.SFA, higsfa.ISFA, higsfa.Layer)
)


def make(seed=0):
    """Samples with a number (some of them missing), classes and weights."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, 12))
    classes = np.array(list("abcde"))[rng.integers(0, 5, N)]
    number = X[:, 0] + 0.5 * X[:, 1] + 0.7 * rng.standard_normal(N)
    number[::9] = np.nan
    for k, name in enumerate("abcde"):
        X[classes == name, 2:7] += np.eye(5)[k]
    return X, {"number": number, "class": classes}, rng.integers(1, 4, N).astype(float)


X, Y, W = make()
NUMBER, CLASS = Y["number"], Y["class"]
CASES = {
    "clustered": (ClusteredGraph(), CLASS, True),
    "self-loops": (ClusteredGraph(self_loops=True), CLASS, True),
    "code": (CodeGraph(), CLASS, True),
    "label": (LabelGraph(n_harmonics=3, label_range=(-9, 9)), NUMBER, True),
    "ranks": (LabelGraph(n_harmonics=3, ranks=True), NUMBER, True),
    "auto": (number_graph("number") + ClusteredGraph("class"), Y, True),
    "serial": (SerialGraph(), NUMBER, True),
    "serial of few groups": (SerialGraph(n_groups=7), np.round(NUMBER, 1), True),
    "mixed": (MixedGraph(n_groups=9), NUMBER, True),
    "window": (WindowGraph(), NUMBER, False),
    "tied window": (WindowGraph(), np.round(NUMBER, 1), False),
    "sum": (SerialGraph("number") + 0.5 * ClusteredGraph("class"), Y, True),
    "three": (LabelGraph("number", 3, (-9, 9)) + 0.5 * ClusteredGraph("class") + 0.1 * UniformGraph(), Y, True),
    "labels": (LabelGraph("number", 3, (-9, 9)) + 0.2 * UniformGraph(), Y, True),
}


def explicit(graph, y, w, fold, shrinkage, expansion, center):
    """K fits and K evaluations."""
    found = []
    for k in range(fold.max() + 1):
        train, test = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        model = GSFA(4, graph=graph, shrinkage=shrinkage, expansion=expansion, center=center, clip_range=False)
        model.fit(X[train], take_labels(y, train), sample_weight=None if w is None else w[train])
        own = graph.build(take_labels(y, test), sample_weight=None if w is None else w[test], n_samples=len(test))
        found.append(own.delta(model.transform(X[test])))
    return np.array(found)


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("expansion", ["identity", "identity | quadratic[:3]"])
@pytest.mark.parametrize("weighted", [False, True, "many"])
@pytest.mark.parametrize("case", CASES)
def test_folds_from_one_pass_are_as_many_fits(case, weighted, expansion, one_by_one, monkeypatch):
    graph, y, takes_weights = CASES[case]
    if weighted and not takes_weights:
        pytest.skip("takes no weights")
    if one_by_one:
        monkeypatch.setattr(choice, "MAX_BYTES", 0)
    w = {False: None, True: W, "many": W + np.arange(N) / N}[weighted]
    center = X.mean(axis=0)
    model = GSFA(4, graph=graph, cv=CV, expansion=expansion, center=center).fit(X, y, sample_weight=w)
    fold = divide(graph, y, np.ones(N) if w is None else w, None, CV)
    assert model.shrinkage_ in LADDER
    found = explicit(graph, y, w, fold, model.shrinkage_, expansion, center)
    np.testing.assert_allclose(model.held_out_delta_values_, found.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(model.held_out_.delta_values[model.held_out_.best], found, rtol=1e-9)
    again = explicit(graph, y, w, fold, 0.03, expansion, center)
    np.testing.assert_allclose(model.held_out_.delta_values[LADDER.index(0.03)], again, rtol=1e-9)


@pytest.mark.parametrize("case", ["clustered", "serial", "sum", "labels"])
def test_the_best_score_on_the_folds_is_taken(case):
    graph, y, _ = CASES[case]
    model = GSFA(4, graph=graph, cv=CV).fit(X, y)
    fold, scores = divide(graph, y, np.ones(N), None, CV), []
    for shrinkage in LADDER:
        own = []
        for k in range(CV):
            train, test = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
            one = GSFA(4, graph=graph, shrinkage=shrinkage).fit(X[train], take_labels(y, train))
            own.append(one.score(X[test], take_labels(y, test)))
        scores.append(np.mean(own))
    np.testing.assert_allclose(model.held_out_.slowness.mean(axis=1), scores, rtol=1e-9)
    assert model.shrinkage_ == LADDER[int(np.argmax(scores))]


def test_each_fold_is_decomposed_once_for_all_values(monkeypatch):
    sizes, found = [], linalg.eigenpairs

    def counted(M, start, stop):
        sizes.append(stop - start)
        return found(M, start, stop)

    monkeypatch.setattr(linalg, "eigenpairs", counted)
    GSFA(4, cv=CV).fit(X, CLASS)
    assert sizes.count(X.shape[1]) == CV  # covariances; of each value only the features that are wanted and one more
    assert sizes.count(5) == CV * len(LADDER) + 1


@pytest.mark.parametrize("case", CASES)
def test_the_fit_is_that_with_the_chosen_number(case):
    graph, y, _ = CASES[case]
    auto = GSFA(4, graph=graph, cv=CV).fit(X, y)
    fixed = GSFA(4, graph=graph, shrinkage=auto.shrinkage_).fit(X, y)
    np.testing.assert_allclose(auto.transform(X), fixed.transform(X), atol=1e-8)
    np.testing.assert_allclose(auto.delta_values_, fixed.delta_values_, rtol=1e-9)
    assert type(auto.statistics_) is type(fixed.statistics_)
    assert fixed.held_out_ is None
    assert fixed.held_out_delta_values_ is None


def test_recordings_are_the_folds_of_time_series():
    rng = np.random.default_rng(1)
    series = np.cumsum(rng.standard_normal((300, 6)), axis=0) * 0.1 + rng.standard_normal((300, 6))
    recording = np.repeat(np.arange(6), 50)
    model = SFA(3, cv=3).fit(series, groups=recording)
    fold = divide(SequenceGraph(), None, np.ones(300), recording, 3)
    assert all(len(np.unique(fold[recording == r])) == 1 for r in range(6))
    deltas = []
    for k in range(3):
        train, test = fold != k, fold == k
        one = SFA(3, shrinkage=model.shrinkage_).fit(series[train], groups=recording[train])
        graph = SequenceGraph().build(groups=recording[test])
        deltas.append(graph.delta(one.transform(series[test])))
    # A recording counts by its transitions here, and by its samples in the graph; they are equally long.
    np.testing.assert_allclose(model.held_out_delta_values_, np.mean(deltas, axis=0), rtol=1e-9)
    same = SFA(3, shrinkage=model.shrinkage_).fit(series, groups=recording)
    np.testing.assert_allclose(model.delta_values_, same.delta_values_, rtol=1e-10)


@pytest.mark.parametrize("cls", [SFA, ISFA])
def test_a_single_recording_cannot_be_divided(cls):
    series = np.random.default_rng(0).standard_normal((100, 4))
    model = cls(2).fit(series)
    assert model.shrinkage_ == 0.0
    assert model.held_out_delta_values_ is None
    assert HSFA([Layer(2, n_components=2), Layer(2, n_components=2)]).fit(series).shrinkage_ == [0.0, 0.0]


def test_what_cannot_be_divided_has_no_shrinkage():
    built = SerialGraph().build(X[:, 0])
    edges = EdgeGraph(np.column_stack([np.arange(N - 1), np.arange(1, N)]))
    for model in (GSFA(2).fit(X, graph=built), GSFA(2, graph=edges).fit(X), GSFA(2).fit(X[:4], list("aabb"))):
        assert model.shrinkage_ == 0.0
        assert model.held_out_delta_values_ is None
    stream = GSFA(2, graph="clustered").partial_fit(X, CLASS)
    assert stream.shrinkage_ == 0.0
    wide = np.column_stack([X, np.random.default_rng(0).standard_normal((N, 60))])
    whole = GSFA(2, graph="clustered").fit(wide[:100], CLASS[:100])
    chosen = whole.shrinkage_
    assert chosen > 0
    assert whole.partial_fit(wide, CLASS).shrinkage_ == chosen  # it goes on with what was chosen
    assert GSFA(2, graph="clustered").fit_from_statistics(whole.statistics_).shrinkage_ == 0.0


def test_folds_hold_all_labels_in_like_proportions():
    fold = divide(ClusteredGraph(), CLASS, np.ones(N), None, 5)
    for name in "abcde":
        counts = np.bincount(fold[name == CLASS], minlength=5)
        assert counts.max() - counts.min() <= 1
    fold = divide(SerialGraph(), NUMBER, np.ones(N), None, 5)
    ranks = np.argsort(np.argsort(NUMBER))
    assert np.ptp([ranks[fold == k].mean() for k in range(5)]) < 5


def test_groups_and_copies_stay_together():
    person = np.random.default_rng(0).integers(0, 40, N)
    fold = divide(SerialGraph(), NUMBER, np.ones(N), person, 5)
    assert all(len(np.unique(fold[person == one])) == 1 for one in np.unique(person))
    assert np.ptp(np.bincount(fold)) < 20
    two = np.repeat([0, 1], N // 2)
    assert np.array_equal(divide(SerialGraph(), NUMBER, np.ones(N), two, 5) == 0, two == two[np.nanargmin(NUMBER)])
    assert divide(SerialGraph(), NUMBER, np.ones(N), np.zeros(N), 5) is None
    repeated = sources.repeat(X, 3)
    together = choice.copies_together(repeated, None)
    fold = divide(SerialGraph(), NUMBER[repeated.sample_index], np.ones(3 * N), together, 5)
    assert np.array_equal(fold[::3], fold[1::3])
    # Copies in several folds would be remembered; together they show that the classes mean nothing.
    rng = np.random.default_rng(0)
    noise, classes = rng.standard_normal((60, 40)), np.array(list("ab"))[rng.integers(0, 2, 60)]
    source = sources.repeat(noise, 3)
    model = GSFA(1).fit(source, classes[source.sample_index])
    assert model.held_out_delta_values_[0] > 1.6
    divided = GSFA(1).fit(np.repeat(noise, 3, axis=0), np.repeat(classes, 3))
    assert divided.held_out_delta_values_[0] < 1.0


@pytest.mark.parametrize("case", ["clustered", "serial", "mixed", "sum", "labels"])
def test_weight_k_is_k_copies_that_stay_together(case):
    graph, y, _ = CASES[case]
    counts = np.random.default_rng(0).integers(0, 4, N)
    rows = np.repeat(np.arange(N), counts)
    weighted = GSFA(3, graph=graph).fit(X, y, sample_weight=counts)
    copied = GSFA(3, graph=graph).fit(X[rows], take_labels(y, rows), groups=rows)
    assert weighted.shrinkage_ == copied.shrinkage_
    np.testing.assert_allclose(weighted.held_out_.slowness, copied.held_out_.slowness, rtol=1e-9)
    np.testing.assert_allclose(weighted.held_out_delta_values_, copied.held_out_delta_values_, rtol=1e-9)


def test_splitters_of_scikit_learn_are_folds():
    for cv in (StratifiedKFold(CV), list(StratifiedKFold(CV).split(X, CLASS))):
        model = GSFA(2, cv=cv).fit(X, CLASS)
        deltas = []
        for train, test in StratifiedKFold(CV).split(X, CLASS):
            one = higsfa.GSFA(2, shrinkage=model.shrinkage_).fit(X[train], CLASS[train])
            deltas.append(ClusteredGraph().build(CLASS[test]).delta(one.transform(X[test])))
        np.testing.assert_allclose(model.held_out_delta_values_, np.mean(deltas, axis=0), rtol=1e-9)
    assert GSFA(2, cv=None).fit(X, CLASS).shrinkage_ == GSFA(2, cv=5).fit(X, CLASS).shrinkage_
    halves = np.arange(N // 2), np.arange(N // 2, N)
    overlapping = [halves, halves[::-1], halves]
    incomplete = [halves, (halves[1][:50], halves[0])]
    for cv in ([halves], overlapping, incomplete):
        with pytest.raises(ValueError, match="each tested once"):
            GSFA(2, cv=cv).fit(X, CLASS)
    assert GSFA(2, cv=[halves, halves[::-1]]).fit(X, CLASS).held_out_.slowness.shape == (len(LADDER), 2)
    with pytest.raises(ValueError, match="one entry per sample"):
        GSFA(2).fit(X, CLASS, groups=[1, 2, 3])
    with pytest.raises(ValueError, match="'cv' parameter"):
        GSFA(2, cv=1).fit(X, CLASS)


@pytest.mark.parametrize("kind", ["frame", "dict", "list", "categorical"])
def test_labels_as_users_have_them(kind):
    y = {"frame": pd.DataFrame(Y), "dict": Y, "list": CLASS.tolist(), "categorical": pd.Series(CLASS, dtype="category")}
    plain = CLASS if kind in ("list", "categorical") else Y
    assert GSFA(3).fit(X, y[kind]).shrinkage_ == GSFA(3).fit(X, plain).shrinkage_


@pytest.mark.parametrize(("graph", "n_fitted"), [("serial", 6), ("auto", 4)])
def test_the_slow_part_is_counted_on_unseen_samples(graph, n_fitted):
    rng = np.random.default_rng(3)
    noise = rng.standard_normal((200, 40))
    label = rng.standard_normal(200)
    noise[:, 0] += label
    plain = IGSFA(10, graph=graph, shrinkage=0.0).fit(noise, label)
    assert plain.n_slow_ >= n_fitted  # training Delta values are low for noise, too
    assert IGSFA(10, graph=graph, n_slow="auto", shrinkage=0.0).fit(noise, label).n_slow_ <= 3
    model = IGSFA(10, graph=graph).fit(noise, label)
    assert model.n_slow_ == min(9, np.sum(model.held_out_delta_values_ < 1.96))
    assert model.n_slow_ < plain.n_slow_ or graph == "auto"  # which allows four to begin with
    assert IGSFA(10, graph=graph, n_slow=4).fit(noise, label).n_slow_ == 4
    assert IGSFA(10, graph=graph, delta_threshold=4.0).fit(noise, label).n_slow_ == 10


NOISY = {
    "auto": lambda number, kind: ("auto", number),
    "serial": lambda number, kind: ("serial", number),
    "label": lambda number, kind: (LabelGraph(n_harmonics=9), number),
    "clustered": lambda number, kind: ("clustered", kind),
    "self-loops": lambda number, kind: (ClusteredGraph(self_loops=True), kind),
    "code": lambda number, kind: (CodeGraph(), kind),
    "sum": lambda number, kind: (LabelGraph("n") + ClusteredGraph("k", self_loops=True), {"n": number, "k": kind}),
}


@pytest.mark.parametrize("case", NOISY)
def test_labels_that_mean_nothing_leave_no_slow_part(case):
    """Also where samples are paired with themselves: with 60 samples a fold, noise has a Delta of 1.7 to 1.9 then."""
    found = []
    for seed in range(4, 10):
        rng = np.random.default_rng(seed)
        graph, y = NOISY[case](rng.standard_normal(300), rng.integers(0, 8, 300))
        model = IGSFA(6, graph=graph, n_slow="auto").fit(rng.standard_normal((300, 8)), y)
        assert model.n_components_ == 6
        found.append(model.n_slow_)
    assert found[0] <= 1 or case != "serial"
    assert np.mean(found) <= 2  # of 6; beyond a standard error by chance is one in six


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("case", NOISY)
def test_the_level_of_noise_is_the_mean_delta_of_noise(case, weighted):
    rng = np.random.default_rng(0)
    graph, y = NOISY[case](rng.standard_normal(40), np.arange(40) % 4)
    w = rng.uniform(0.5, 2, 40) if weighted else None
    built = as_recipe(graph).build(y, sample_weight=w)
    v, noise = built.vertex_weights, rng.standard_normal((40, 20_000))
    noise -= v @ noise / v.sum()
    mean = built.delta(noise / np.sqrt(v @ noise**2 / v.sum())).mean()
    assert noise_level([built]) == pytest.approx(min(2.0, mean), abs=0.02)
    gamma = built.to_sparse().toarray()
    assert sum(part.edges.self_weight for part in built.parts) == pytest.approx(np.trace(gamma), abs=1e-9 * gamma.sum())


# ---------------------------------------------------------------------------------------------- networks

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
    assert net.shrinkage_ == [0.0, pytest.approx(best / 2, rel=0.05)]  # two digits
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


def test_halves_of_a_network_have_no_copies_in_common():
    train, _ = few(3)
    source, seen = sources.repeat(DIGITS[train], 2), []
    graph, y = ClusteredGraph(), DIGIT[train].astype(str)[source.sample_index]
    for half in choice.find_halves(source, graph, y, np.ones(len(source)), None):
        seen.append({tuple(row) for row in half.samples.take(np.arange(len(half.samples))).tolist()})
        assert len(half.samples) == len(source) // 2
    assert not seen[0] & seen[1]


def test_many_samples_are_judged_by_some(monkeypatch):
    monkeypatch.setattr(choice, "MAX_SAMPLES", 100)
    y = DIGIT.astype(str)
    halves = choice.find_halves(sources.as_source(DIGITS), ClusteredGraph(), y, np.ones(len(y)), None)
    assert [len(half.samples) for half in halves] == [100, 100]


def test_too_few_samples_for_halves_mean_no_shrinkage():
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


def test_as_many_features_are_judged_as_will_be_used():
    wide = np.column_stack([X] * 4) + np.random.default_rng(0).standard_normal((N, 48))
    for model, n in ((IGSFA(6, n_slow=2), 2), (IGSFA(6, n_slow=0), 1), (IGSFA(6), 6), (GSFA(), 32), (GSFA(3), 3)):
        assert model.fit(wide, NUMBER).held_out_.delta_values.shape[2] == n
    assert GSFA().fit(wide, NUMBER).held_out_delta_values_.shape == (48,)


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
