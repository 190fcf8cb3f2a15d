"""scikit-learn's newer conventions: routing of metadata, callbacks, other arrays, what a notebook shows."""

import os
import subprocess
import sys

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline

from higsfa import GSFA, HSFA, IGSFA, SFA, DelayEmbedding, HiGSFA, LabelClassifier, LabelHead, Layer, OrientedEdges

LAYERS = [Layer(field=(4, 4), n_components=6, n_slow=3), Layer(field=(2, 2), n_components=9, n_slow=9)]


@pytest.fixture(scope="module")
def digits():
    X, digit = load_digits(return_X_y=True)
    return X[:600], digit[:600]


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


# ------------------------------------------------------------------ metadata


@pytest.mark.usefixtures("routing")
def test_sample_weight_is_routed_to_the_step_that_asks_for_it(digits):
    X, digit = digits
    weight = np.where(digit < 5, 3.0, 1.0)
    gsfa = GSFA(n_components=4).set_fit_request(sample_weight=True)
    model = make_pipeline(gsfa, LogisticRegression(max_iter=1000).set_fit_request(sample_weight=False))
    model.fit(X, digit, sample_weight=weight)
    expected = GSFA(n_components=4).fit(X, digit, sample_weight=weight).transform(X)
    assert np.array_equal(model[0].transform(X), expected)
    assert not np.allclose(expected, GSFA(n_components=4).fit(X, digit).transform(X))


@pytest.mark.usefixtures("routing")
def test_groups_go_to_the_splitter_and_to_the_estimator_that_asks_for_them():
    X = np.random.default_rng(0).normal(size=(300, 3)).cumsum(axis=0)
    recording = np.repeat(np.arange(6), 50)
    sfa = SFA(n_components=1).set_fit_request(groups=True).set_score_request(groups=True)
    found = cross_validate(
        sfa, X, cv=GroupKFold(3), params={"groups": recording}, return_estimator=True, return_indices=True
    )
    for score, fitted, train, test in zip(
        found["test_score"], found["estimator"], found["indices"]["train"], found["indices"]["test"], strict=True
    ):
        alone = SFA(n_components=1).fit(X[train], groups=recording[train])
        assert np.array_equal(fitted.delta_values_, alone.delta_values_)
        assert score == alone.score(X[test], groups=recording[test])


@pytest.mark.usefixtures("routing")
def test_grid_search_routes_groups_and_weights_of_networks(digits):
    X, digit = digits
    weight, person = np.where(digit < 5, 2.0, 1.0), np.arange(len(X)) % 60
    net = HiGSFA(LAYERS, graph="clustered", input_shape=(8, 8)).set_fit_request(sample_weight=True, groups=True)
    head = LabelClassifier(n_used_features=9).set_fit_request(sample_weight=False, groups=False)
    right = get_scorer("accuracy").set_score_request(sample_weight=False)
    model = make_pipeline(net, head)
    search = GridSearchCV(model, {"higsfa__layer1__n_slow": [1, 3]}, cv=GroupKFold(2), scoring=right)
    search.fit(X, digit, sample_weight=weight, groups=person)
    best = clone(net).set_params(layer1__n_slow=search.best_params_["higsfa__layer1__n_slow"])
    best.fit(X, digit, sample_weight=weight, groups=person)
    assert np.array_equal(search.best_estimator_[0].transform(X), best.transform(X))


@pytest.mark.usefixtures("routing")
def test_recordings_of_a_pipeline_stay_apart():
    X, recording = np.random.default_rng(0).normal(size=(200, 2)), np.repeat([0, 1], 100)
    delays = DelayEmbedding(2).set_fit_request(groups=True).set_transform_request(groups=True)
    model = make_pipeline(delays, SFA(1).set_fit_request(groups=True).set_transform_request(groups=False))
    model.fit(X, groups=recording)
    embedded = DelayEmbedding(2).fit_transform(X, groups=recording)
    assert np.array_equal(model[1].delta_values_, SFA(1).fit(embedded, groups=recording).delta_values_)


# ------------------------------------------------------------------ callbacks


class Recorder:
    """A callback that notes the names of tasks, and who began and ended."""

    def __init__(self, fails_in=None):
        self.begun, self.ended, self.up, self.down, self.fails_in, self.scored = [], [], 0, 0, fails_in, None

    def setup(self, estimator, context):
        self.up += 1

    def teardown(self, estimator, context):
        self.down += 1

    def on_fit_task_begin(self, estimator, context):
        self.begun.append(context.task_name)
        if context.task_name == self.fails_in:
            raise RuntimeError("callback failed")

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        self.ended.append(context.task_name)
        if fitted_estimator is not None:
            self.scored = fitted_estimator.transform(X).shape


callbacks = pytest.mark.skipif(not hasattr(GSFA, "set_callbacks"), reason="callbacks came with scikit-learn 1.9")


@callbacks
@pytest.mark.parametrize("estimator", [GSFA(2), IGSFA(3), SFA(2), OrientedEdges(input_shape=(8, 8))], ids=repr)
def test_a_single_fit_is_one_task_whose_end_shows_the_fitted_estimator(estimator, digits):
    seen = Recorder()
    fitted = clone(estimator).set_callbacks(seen).fit(digits[0], None if isinstance(estimator, SFA) else digits[1])
    assert seen.begun == seen.ended == ["fit"]
    assert (seen.up, seen.down) == (1, 1)
    assert seen.scored == fitted.transform(digits[0]).shape


@callbacks
def test_a_network_tells_of_every_layer_in_at_most_ten_parts_and_does_not_change(digits):
    X, digit = digits
    net, seen = HiGSFA(LAYERS, graph="clustered", input_shape=(8, 8), n_jobs=2), Recorder()
    told = clone(net).set_callbacks(seen).fit(X, digit)
    layers = [name for name in seen.begun if name != "part"]
    assert layers == ["fit", "layer 1", "layer 2"]
    assert sorted(seen.begun) == sorted(seen.ended)
    assert [name for name in seen.ended if name != "part"] == ["layer 1", "layer 2", "fit"]
    assert 2 <= seen.begun.count("part") <= 20
    assert np.array_equal(told.transform(X), net.fit(X, digit).transform(X))


@callbacks
def test_layers_whose_shrinkage_is_chosen_are_told_apart_from_the_fit(digits):
    layers, seen = [Layer(32, n_components=6, shrinkage="auto"), Layer(2, n_components=4, shrinkage="auto")], Recorder()
    HiGSFA(layers, graph="clustered", input_shape=64).set_callbacks(seen).fit(*digits)
    expected = ["fit", "shrinkage, layer 1", "shrinkage, layer 2", "layer 1", "layer 2"]
    assert [name for name in seen.begun if name != "part"] == expected


@callbacks
@pytest.mark.parametrize("place", ["fit", "layer 2", "part"])
def test_a_callback_that_fails_leaves_the_network_as_it_was_and_is_taken_down(digits, place):
    X, digit = digits
    seen = Recorder(fails_in=place)
    net = HiGSFA(LAYERS, graph="clustered", input_shape=(8, 8)).set_callbacks(seen)
    before = dict(vars(net))
    with pytest.raises(RuntimeError, match="callback failed"):
        net.fit(X, digit)
    assert (seen.up, seen.down) == (1, 1)
    assert vars(net) == before


@callbacks
def test_the_progress_bar_of_scikit_learn_goes_through_a_pipeline(digits, capsys):
    from sklearn.callback import ProgressBar

    X, digit = digits
    model = make_pipeline(HSFA(LAYERS, input_shape=(8, 8)), LabelHead(n_used_features=4))
    model.set_callbacks(ProgressBar()).fit(X, digit)  # a warning, which is an error here, if a step takes no callbacks
    assert "HSFA - fit" in capsys.readouterr().out


# ------------------------------------------------------------------ other arrays


DISPATCHED = """
import importlib, sys
import numpy as np, sklearn
from sklearn.base import clone
from sklearn.datasets import load_digits
from higsfa import GSFA, SFA, HiGSFA, LabelClassifier, Layer, OrientedEdges

xp = importlib.import_module(sys.argv[1])
X, digit = load_digits(return_X_y=True)
X, digit = X[:300].astype(np.float32), digit[:300]
layers = [Layer(field=(4, 4), n_components=6, n_slow=3), Layer(field=(2, 2), n_components=9, n_slow=9)]
net = HiGSFA(layers, graph="clustered", input_shape=(8, 8))
for model in (GSFA(3, expansion="identity | power0.8"), SFA(3), net, OrientedEdges(input_shape=(8, 8))):
    fitted = model.fit(X, None if isinstance(model, SFA) else digit)
    expected, other = fitted.transform(X), xp.asarray(X)
    plain = fitted.transform(other)
    assert isinstance(plain, np.ndarray) and np.array_equal(plain, expected), model
    with sklearn.config_context(array_api_dispatch=True):
        assert type(fitted.transform(X)) is np.ndarray, model
        Y = fitted.transform(other)
        back = fitted.inverse_transform(Y)
        again = clone(model).fit(other, None if isinstance(model, SFA) else digit)
    assert type(Y) is type(back) is type(other), (model, type(Y), type(back))
    assert np.array_equal(np.asarray(Y), expected), model
    assert np.array_equal(np.asarray(back), fitted.inverse_transform(expected)), model
    assert np.array_equal(again.transform(X), expected), model
head = LabelClassifier(n_used_features=9).fit(net.transform(X), digit)
with sklearn.config_context(array_api_dispatch=True):
    assert np.array_equal(head.predict(net.transform(xp.asarray(X))), head.predict(net.transform(X)))
"""


@pytest.mark.parametrize("name", ["array_api_strict", "torch"])
def test_features_of_other_arrays_are_arrays_of_that_kind_where_scikit_learn_dispatches(name):
    """In a process of its own: scipy wants to know before it is imported."""
    pytest.importorskip(name)
    environment = os.environ | {"SCIPY_ARRAY_API": "1"}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", DISPATCHED, name], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-2000:]


# ------------------------------------------------------------------ in a notebook


def test_a_notebook_shows_parameters_and_layers_of_a_network(digits, monkeypatch):
    monkeypatch.setenv("HIGSFA_DOCS", "https://example.org/higsfa/")
    net = HiGSFA(LAYERS, graph="clustered", input_shape=(8, 8)).fit(*digits)
    shown = net._repr_mimebundle_()["text/html"]
    assert len(shown) == len(net._repr_html_())  # they differ in a running number
    assert "memory_limit" in shown
    assert "2x2" in shown
    assert 'href="https://example.org/higsfa/generated/higsfa.HiGSFA.html"' in shown


@pytest.mark.parametrize("estimator", [SFA(), GSFA(), LabelHead(), DelayEmbedding(), OrientedEdges()], ids=repr)
def test_links_lead_to_the_page_of_the_class_or_nowhere(estimator, monkeypatch):
    monkeypatch.setenv("HIGSFA_DOCS", "file:///site")
    assert estimator._get_doc_link() == f"file:///site/generated/higsfa.{type(estimator).__name__}.html"
    monkeypatch.setenv("HIGSFA_DOCS", "")
    assert estimator._get_doc_link() == ""
    assert 'href="https://scikit-learn.org' not in estimator._repr_html_()
