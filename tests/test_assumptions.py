"""Mistakes of a first try: each gives a warning that says what was assumed, and the way out."""

import numpy as np
import pytest

from higsfa import GSFA, HGSFA, HSFA, IGSFA, ISFA, SFA, HiGSFA, HiSFA, LabelHead, Layer
from higsfa.graphs import AutoGraph, SerialGraph

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 6))
RECORDING = np.repeat([3, 1, 2], 20)
FIELDS = [Layer(2, n_components=2), Layer(3, n_components=2)]


@pytest.mark.parametrize("make", [GSFA, lambda: HiGSFA(FIELDS), LabelHead])
def test_one_hot_columns_are_said_to_be_several_labels(make):
    with pytest.warns(UserWarning, match="3 columns look like one label, one-hot, but were taken as 3 labels"):
        make().fit(X, np.eye(3)[np.arange(60) % 3])


@pytest.mark.parametrize(
    "y", [RECORDING, RECORDING.astype(str), RECORDING.astype(str).astype(object), RECORDING.tolist()]
)
@pytest.mark.parametrize("make", [SFA, ISFA, lambda: HiSFA(FIELDS), lambda: HSFA(FIELDS)])
def test_recordings_passed_as_labels_are_said_to_be_ignored(make, y):
    with pytest.warns(
        UserWarning, match="y is not used: .* which of 3 recordings each belongs to, pass it as groups=y"
    ):
        make().fit(X, y)


@pytest.mark.parametrize(
    "y",
    [
        None,
        np.zeros(60, int),
        np.arange(60) % 3,
        np.arange(60),
        RNG.normal(size=60),
        np.repeat([1, 2, 1], 20),
        ["a"] * 60,
    ],
)
def test_other_labels_of_a_pipeline_pass_in_silence(y):
    SFA().fit(X, y)
    SFA().fit(X, RECORDING, groups=RECORDING)


PICTURES = RNG.normal(size=(40, 3, 8, 8))


@pytest.mark.parametrize(
    ("layers", "taken"),
    [(None, "volumes of 3 x 8 x 8 points"), ([Layer((3, 8), n_components=3)], "3 x 8 pixels with 8 channels")],
)
def test_channels_in_front_are_said_to_be_something_else(layers, taken):
    text = rf"samples of shape \(3, 8, 8\) were taken as {taken}; .* np.moveaxis\(X, 1, -1\)"
    with pytest.warns(UserWarning, match=text):
        HiGSFA(layers, graph="serial").fit(PICTURES, RNG.normal(size=40))


def test_channels_at_the_end_are_fine():
    HiGSFA([Layer((8, 8), n_components=3)], graph="serial").fit(np.moveaxis(PICTURES, 1, -1), RNG.normal(size=40))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: IGSFA(2, n_slow=3, graph="serial"),
            "^n_slow=3 is more than n_components=2: all features are slow",
        ),
        (
            lambda: HiGSFA([Layer(2, n_components=2, n_slow=3)], graph="serial"),
            "^layer 1: n_slow=3 is more than n_comp",
        ),
    ],
)
def test_more_slow_features_than_features_are_told(make, text):
    with pytest.warns(UserWarning, match=text):
        make().fit(X, X[:, 0])


def test_as_many_slow_features_as_features_are_fine():
    IGSFA(3, n_slow=3, graph="serial").fit(X, X[:, 0])
    HGSFA([Layer(2, n_components=2, n_slow=3)], graph="serial").fit(X, X[:, 0])  # it has slow features only


@pytest.mark.parametrize("make", [GSFA, lambda: HiGSFA(FIELDS), LabelHead])
def test_names_that_differ_in_blanks_are_said_to_be_different(make):
    y = np.array(["cat", "dog", "cat "])[np.arange(60) % 3]
    with pytest.warns(UserWarning, match="'cat' and 'cat ' differ only in case or in blanks"):
        make().fit(X, y)


# ---------------------------------------------------------------------- kinds of labels

SIGN = np.arange(258) % 43
SHAPES = RNG.normal(size=(43, 6))[SIGN] + 0.01 * RNG.normal(size=(258, 6))
AGE = 16 + np.arange(258) % 62


def graph_of(estimator):
    """The graph that an estimator takes, from the origin of its sums."""
    return str(estimator.statistics_.origin)


@pytest.mark.filterwarnings("ignore:.*43 different whole numbers")
def test_43_sign_codes_are_classes_for_graph_and_head():
    gsfa = GSFA(5).fit(SHAPES, SIGN)
    assert "Clustered" in graph_of(gsfa)
    head = LabelHead(covariance=1.0).fit(gsfa.transform(SHAPES), SIGN)
    assert np.mean(head.predict(gsfa.transform(SHAPES)) == SIGN) == 1


@pytest.mark.parametrize("make", [GSFA, lambda: HiGSFA(FIELDS), LabelHead])
@pytest.mark.parametrize(
    ("y", "taken"), [(SIGN, "from 0 to 42 were taken as classes"), (AGE, "16 to 77 were taken as a number")]
)
def test_a_guess_about_more_than_20_whole_numbers_is_told(make, y, taken):
    with pytest.warns(UserWarning, match=taken):
        make().fit(SHAPES, y)


@pytest.mark.filterwarnings("ignore:.*62 different whole numbers")
def test_whole_ages_are_a_number_for_graph_and_head():
    assert "Label" in graph_of(GSFA(5).fit(SHAPES, AGE))
    assert LabelHead().fit(SHAPES, AGE).is_numeric_ == {0: True}


FORMS = {
    "vector": (lambda y: y, lambda kind: kind),
    "dict": (lambda y: {"a": y}, lambda kind: {"a": kind}),
    "columns": (lambda y: np.column_stack([y, np.arange(258) % 5]), lambda kind: {0: kind}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("y", "kind"), [(AGE, "categorical"), (AGE, "numeric"), (SIGN, "numeric"), (SIGN % 9, "numeric")]
)
def test_the_switch_decides_for_graph_and_head_without_a_warning(y, kind, form):
    labels, kinds = FORMS[form][0](y), FORMS[form][1](kind)
    gsfa = GSFA(5, label_kinds=kinds).fit(SHAPES, labels)
    recipe = {"categorical": "Clustered", "numeric": "Label"}[kind]
    assert graph_of(gsfa).startswith(recipe)
    net = HiGSFA([Layer(6, n_components=5, n_slow=5, expansion="identity")], label_kinds=kinds).fit(SHAPES, labels)
    np.testing.assert_allclose(net.delta_values_, gsfa.delta_values_, rtol=1e-6)
    head = LabelHead(2, label_kinds=kinds, covariance=1.0).fit(SHAPES, labels)
    assert head.is_numeric_[head.label_names_[0]] == (kind == "numeric")
    graph = AutoGraph().settled(labels, np.ones(len(SHAPES)), kinds).build(labels)
    assert gsfa.score(SHAPES, labels) == pytest.approx(graph.slowness(gsfa.transform(SHAPES)))


def test_the_switch_reaches_an_automatic_graph_within_a_sum():
    from higsfa.graphs import UniformGraph

    gsfa = GSFA(5, graph=AutoGraph() + 0.1 * UniformGraph(), label_kinds="categorical").fit(SHAPES, AGE)
    assert "Clustered" in graph_of(gsfa)
    assert "Serial" in graph_of(GSFA(5, graph=SerialGraph(), label_kinds="categorical").fit(SHAPES, AGE))


def test_a_fold_with_fewer_values_does_not_change_the_kind():
    from sklearn.base import clone
    from sklearn.model_selection import cross_validate

    few = np.where(np.arange(258) < 129, np.arange(258) % 4, 16 + np.arange(258) % 62)
    gsfa = GSFA(2, label_kinds="numeric")
    assert clone(gsfa).get_params()["label_kinds"] == "numeric"
    found = cross_validate(gsfa, SHAPES, few, cv=[(np.arange(129), np.arange(129, 258))], return_estimator=True)
    assert "Label" in graph_of(found["estimator"][0])
    assert "Label" in graph_of(GSFA(2, label_kinds="numeric", shrinkage="auto").fit(SHAPES, few))


@pytest.mark.parametrize("make", [lambda **options: GSFA(2, **options), lambda **options: HiGSFA(FIELDS, **options)])
def test_few_samples_are_scored_by_the_graph_that_was_fitted(make):
    digit = SIGN % 9
    fitted, same = make().fit(SHAPES, digit), make(graph="clustered").fit(SHAPES, digit)
    assert fitted.label_kinds_ == {0: "categorical"}
    assert same.label_kinds_ is None
    rows = np.arange(13)  # nine digits in thirteen samples are a number, by themselves
    assert fitted.score(SHAPES[rows], digit[rows]) == same.score(SHAPES[rows], digit[rows])


@pytest.mark.parametrize("make", [GSFA, lambda **kinds: HiGSFA(FIELDS, **kinds), LabelHead])
def test_wrong_switches_are_told(make):
    with pytest.raises(ValueError, match="'sign', which is not among the labels"):
        make(label_kinds={"sign": "categorical"}).fit(SHAPES, SIGN)
    with pytest.raises(ValueError, match="label_kinds"):
        make(label_kinds="classes").fit(SHAPES, SIGN)


def test_a_number_of_classes_is_for_numbers_and_says_that_a_label_is_one():
    assert LabelHead(n_classes={0: 5}).fit(SHAPES, AGE).is_numeric_ == {0: True}
    with pytest.raises(
        ValueError, match=r"n_classes={0: 5} is for numbers, but label_kinds says that 0 is categorical"
    ):
        LabelHead(n_classes={0: 5}, label_kinds="categorical").fit(SHAPES, AGE)
