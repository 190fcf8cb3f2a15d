"""Time series: recordings in any form, delays, several lags, weights of pairs, streams of them."""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline

from higsfa import ISFA, SFA, DelayEmbedding, load, save
from higsfa.graphs import SequenceGraph
from oracles import assert_same_up_to_sign, dense_gsfa, dense_sequence, recordings

RNG = np.random.default_rng(0)


def signal(n, seed=0, n_features=3):
    """Slow and fast components, mixed."""
    rng = np.random.default_rng(seed)
    t = np.arange(n)[:, None] * [0.02, 0.11, 0.31][:n_features]
    return np.sin(t + rng.uniform(0, 6, n_features)) @ rng.normal(size=(n_features, n_features)) + 0.2 * rng.normal(
        size=(n, n_features)
    )


PARTS = [signal(n, seed) for seed, n in enumerate((60, 35, 80))]
X, GROUPS = np.concatenate(PARTS), np.repeat([0, 1, 2], [60, 35, 80])
MAKERS = [SFA, lambda *given, **params: ISFA(*given, n_slow=1, **params)]


def assert_same_model(one, other, atol=1e-9):
    np.testing.assert_allclose(one.delta_values_, other.delta_values_, rtol=0, atol=atol)
    np.testing.assert_allclose(one.transform(X), other.transform(X), rtol=0, atol=1e2 * atol)


# --- forms ---


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    "params", [{}, {"lag": 3}, {"delays": 2, "lag": [1, 4]}, {"expansion": "identity | quadratic"}]
)
def test_a_list_of_recordings_is_one_array_with_groups(make, params):
    expected = make(2, **params).fit(X, groups=GROUPS)
    for parts in (PARTS, tuple(PARTS), [pd.DataFrame(part) for part in PARTS], [part.tolist() for part in PARTS]):
        assert_same_model(make(2, **params).fit(parts), expected, atol=1e-12)
    found = expected.transform(PARTS)
    assert [len(part) for part in found] == [60, 35, 80]
    np.testing.assert_array_equal(np.concatenate(found), expected.transform(X, groups=GROUPS))
    np.testing.assert_allclose(expected.score(PARTS), expected.score(X, groups=GROUPS), rtol=1e-12)


def test_a_stack_of_recordings_comes_back_as_a_stack():
    stack = np.stack([part[:30] for part in PARTS])
    flat, groups = stack.reshape(-1, 3), np.repeat([0, 1, 2], 30)
    model = SFA(2, delays=1).fit(stack)
    assert_same_model(model, SFA(2, delays=1).fit(flat, groups=groups), atol=1e-12)
    assert model.transform(stack).shape == (3, 30, 2)
    np.testing.assert_array_equal(model.transform(stack).reshape(-1, 2), model.transform(flat, groups=groups))
    assert model.inverse_transform(model.transform(stack)).shape == stack.shape
    np.testing.assert_array_equal(SFA(2).fit_transform(stack), SFA(2).fit(stack).transform(stack))


def test_set_output_keeps_the_index_of_every_table():
    frames = [pd.DataFrame(part, index=pd.date_range("2026", periods=len(part), freq="h")) for part in PARTS]
    frames = [frame.rename(columns=str) for frame in frames]
    model = SFA(2).set_output(transform="pandas").fit(frames)
    for frame, found in zip(frames, model.transform(frames), strict=True):
        pd.testing.assert_index_equal(found.index, frame.index)
        assert list(found.columns) == ["sfa_slow0", "sfa_slow1"]
    assert list(model.feature_names_in_) == ["0", "1", "2"]
    with pytest.raises(ValueError, match="same columns"):
        SFA().fit([frames[0], frames[1][["1", "0", "2"]]])


def test_gaps_and_missing_values_cut_recordings():
    rows = np.r_[0:20, 25:60]
    frame = pd.DataFrame(PARTS[0][rows], index=pd.date_range("2026", periods=60, freq="s")[rows])
    frame.iloc[40, 1] = frame.iloc[41, 0] = np.nan
    kept = np.r_[0:40, 42:55]
    pieces = np.r_[np.zeros(20), np.ones(20), np.full(13, 2)]
    for params in ({}, {"lag": 2, "delays": 1}, {"expansion": "identity | quadratic"}):
        with pytest.warns(UserWarning, match="has 1 gaps and 2 of 55 samples .* 1 recording into 3 stretches"):
            found = SFA(2, **params).fit(frame)
        assert_same_model(found, SFA(2, **params).fit(frame.to_numpy()[kept], groups=pieces), atol=1e-12)
        Y = found.transform(frame)
        assert np.isnan(Y[40:42]).all()
        np.testing.assert_array_equal(Y[kept], found.transform(frame.to_numpy()[kept], groups=pieces))
        assert np.isfinite(found.score(frame))
        back = found.inverse_transform(Y)
        assert np.isfinite(back[kept]).all()


def test_a_stream_is_cut_where_values_are_missing():
    gone = X.copy()
    gone[[10, 69, 70, 100]] = np.nan
    kept = ~np.isnan(gone[:, 0])
    pieces = np.cumsum(~kept)[kept]
    for params in ({}, {"lag": [1, 3], "delays": 2}):
        model = SFA(2, **params)
        for lo in range(0, len(X), 35):
            part = gone[lo : lo + 35]
            if np.isnan(part).any():
                with pytest.warns(UserWarning, match="have missing values"):
                    model.partial_fit(part)
            else:
                model.partial_fit(part)
        assert_same_model(model, SFA(2, **params).fit(X[kept], groups=pieces))


def test_mistakes_of_recordings_are_told():
    with pytest.raises(ValueError, match="pass no groups"):
        SFA().fit(PARTS, groups=GROUPS)
    with pytest.raises(ValueError, match=r"same features, but have \[2, 3\]"):
        SFA().fit([PARTS[0], PARTS[1][:, :2]])
    with pytest.raises(ValueError, match="is missing"):
        SFA().fit(X, groups=np.where(GROUPS == 1, np.nan, GROUPS))
    frame = pd.DataFrame(PARTS[0], index=pd.date_range("2026", periods=60))
    with pytest.raises(ValueError, match="does not increase at row 1 "):
        SFA().fit(frame[::-1])
    assert SFA(1).fit(frame.reset_index(drop=True)[::-1]).n_components_ == 1  # rows, not times, are in order
    with pytest.raises(ValueError, match="infinity"):
        SFA().fit(np.where(np.arange(60)[:, None] == 5, [np.nan, np.inf, 0.0], PARTS[0]))
    with pytest.raises(ValueError, match="pair_weight"):
        SFA().fit(X, pair_weight=np.ones((len(X), 2)))
    with pytest.raises(ValueError, match="all pairs of samples lag=1 apart have weight 0"):
        SFA().fit(X, pair_weight=np.zeros(len(X)))


# --- delays ---


def past(part, delays, step=1, drop=True):
    rows = [
        np.concatenate([part[max(0, t - k * step)] for k in range(delays + 1)])
        for t in range(delays * step if drop else 0, len(part))
    ]
    return np.array(rows).reshape(len(rows), part.shape[1] * (delays + 1))


@pytest.mark.parametrize(("delays", "step"), [(0, 1), (1, 1), (3, 1), (2, 5)])
def test_embeddings_hold_the_past_of_each_recording(delays, step):
    for drop in (False, True):
        model = DelayEmbedding(delays, step, drop).fit(PARTS)
        found = model.transform(PARTS)
        for part, one in zip(PARTS, found, strict=True):
            np.testing.assert_array_equal(one, past(part, delays, step, drop))
        for part, back in zip(PARTS, model.inverse_transform(found), strict=True):
            np.testing.assert_allclose(back, part, rtol=1e-14)
    assert len(model.get_feature_names_out()) == 3 * (delays + 1)


def test_an_embedded_reconstruction_is_averaged_over_all_rows_that_hold_a_sample():
    Y = RNG.normal(size=(6, 3))
    found = DelayEmbedding(2).fit(np.zeros((6, 1))).inverse_transform(Y)[:, 0]
    expected = [np.mean([Y[t + k, k] for k in range(3) if t + k < 6]) for t in range(6)]
    np.testing.assert_allclose(found, expected, rtol=1e-14)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("expansion", ["identity", "identity | quadratic[:4]"])
def test_delays_of_sfa_leave_rows_without_past_out(make, expansion):
    params = {"expansion": expansion, "lag": 2}
    embedded = [past(part, 3) for part in PARTS]
    one, other = make(3, delays=3, **params).fit(PARTS), make(3, **params).fit(embedded)
    np.testing.assert_allclose(one.delta_values_, other.delta_values_, atol=1e-11)
    for part, found, expected in zip(PARTS, one.transform(PARTS), other.transform(embedded), strict=True):
        np.testing.assert_allclose(found[3:], expected, atol=1e-9)
        assert len(found) == len(part)
        assert np.isfinite(found).all()
    assert one.n_features_in_ == 3
    pipeline = make_pipeline(DelayEmbedding(3, drop=True), make(3, **params)).fit(PARTS)
    np.testing.assert_allclose(pipeline[-1].delta_values_, one.delta_values_, atol=1e-11)
    whole = make(None, delays=3, lag=2).fit(PARTS)
    for part, back in zip(PARTS, whole.inverse_transform(whole.transform(PARTS)), strict=True):
        np.testing.assert_allclose(back, part, atol=1e-7)


# --- weights ---


@pytest.mark.parametrize("by_degree", [False, True])
@pytest.mark.parametrize("lag", [1, [1, 2, 5]])
def test_weights_of_samples_and_pairs_equal_sums_over_all_pairs(lag, by_degree):
    n = len(X)
    w, pairs = RNG.uniform(0, 2, n), RNG.uniform(0, 2, (n, np.size(lag)))
    pairs[::7] = 0
    w[::5] = 0
    for given in (pairs, pairs[:, 0]):
        v, gamma = dense_sequence(n, lag, GROUPS, w, given, by_degree)
        reference = dense_gsfa(X, v, gamma)
        model = SFA(lag=lag, node_weights="degree" if by_degree else None)
        model.fit(X, groups=GROUPS, sample_weight=w, pair_weight=given)
        np.testing.assert_allclose(model.delta_values_, reference.deltas, rtol=0, atol=1e-9)
        assert_same_up_to_sign(model.transform(X), reference(X), atol=1e-9)
        split = np.split(np.arange(n), np.cumsum([60, 35]))
        of = {"sample_weight": [w[rows] for rows in split], "pair_weight": [given[rows] for rows in split]}
        assert_same_model(type(model)(**model.get_params()).fit(PARTS, **of), model, atol=1e-12)
        score = model.score(X, groups=GROUPS, sample_weight=w, pair_weight=given)
        graph_delta = np.maximum(0, 1 - reference.deltas / 2).sum()
        np.testing.assert_allclose(score, graph_delta, atol=1e-9)


@pytest.mark.parametrize("params", [{"lag": [1, 4]}, {"node_weights": "degree"}, {"delays": 2, "lag": [2, 3]}, {}])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_any_batches_are_one_fit(params, weighted, size, monkeypatch):
    monkeypatch.setattr("higsfa.estimators.stream.MAX_ROWS", 20)
    w, pairs = RNG.uniform(0.1, 2, len(X)), RNG.uniform(0.1, 2, len(X))
    weights = {"sample_weight": w, "pair_weight": pairs} if weighted else {}
    whole, model = SFA(2, **params).fit(X, groups=GROUPS, **weights), SFA(2, **params)
    for lo in range(0, len(X), size):
        rows = slice(lo, lo + size)
        model.partial_fit(X[rows], groups=GROUPS[rows], **{key: value[rows] for key, value in weights.items()})
    assert_same_model(model, whole)
    if not weighted:
        complete = SFA(2, **params).partial_fit(PARTS[:1]).partial_fit(PARTS[1:])
        assert_same_model(complete, whole)
        less = SFA(2, **params).fit(PARTS).unlearn(PARTS[1])
        assert_same_model(less, SFA(2, **params).fit(PARTS[::2]))
        added = SFA(2, **params).fit(PARTS[0]).statistics_ + SFA(2, **params).fit(PARTS[1:]).statistics_
        assert_same_model(SFA(2, **params).fit_from_statistics(added), whole)


@pytest.mark.parametrize("lag", [1, 70])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_batches_of_any_sizes_wait_in_memory_that_is_used_again(lag, dtype, monkeypatch):
    """Longer tails than there is room for, batches too large to wait, and an array that the user fills anew."""
    monkeypatch.setattr("higsfa.estimators.stream.MAX_ROWS", 40)
    Z = signal(700, 3).astype(dtype)
    model, buffer, lo = SFA(2, lag=lag), np.empty_like(Z), 0
    for size in (5, 10, 10, 10, 90, 3, 3, 60, 1, 200, 9, 12, 12, 12, 263):
        given = buffer[:size]
        given[...] = Z[lo : lo + size]
        model.partial_fit(given)
        given[...], lo = np.nan, lo + size
    assert lo == len(Z)
    whole = SFA(2, lag=lag).fit(Z)
    atol = 1e-10 if dtype == np.float64 else 1e-5
    np.testing.assert_allclose(model.delta_values_, whole.delta_values_, atol=atol)


def test_forgetting_weights_pairs_by_their_age():
    """A transition belongs to the batch of its later sample."""
    model = SFA(lag=[1, 2])
    for lo in range(0, len(X), 25):
        model.partial_fit(X[lo : lo + 25], forgetting=0.5)
    age = (len(X) - 1 - np.arange(len(X))) // 25
    pairs = np.stack([0.5 ** np.append(age, np.zeros(2))[np.arange(len(X)) + lag] for lag in (1, 2)], axis=1)
    assert_same_model(model, SFA(lag=[1, 2]).fit(X, sample_weight=0.5**age, pair_weight=pairs))


# --- choosing, scores, files ---


def test_folds_are_recordings_of_a_list():
    parts = [signal(40, seed) for seed in range(6)]
    groups = np.repeat(np.arange(6), 40)
    listed = SFA(2, shrinkage="auto", cv=3).fit(parts)
    assert_same_model(listed, SFA(2, shrinkage="auto", cv=3).fit(np.concatenate(parts), groups=groups), atol=1e-12)
    assert listed.held_out_delta_values_ is not None


def test_a_grid_search_divides_a_list_by_recordings():
    parts = [signal(40, seed) for seed in range(4)]
    search = GridSearchCV(SFA(1), {"delays": [0, 2]}, cv=KFold(2)).fit(parts)
    train, test = parts[2:], parts[:2]
    expected = SFA(1, delays=2).fit(train).score(test)
    np.testing.assert_allclose(search.cv_results_["split0_test_score"][1], expected)


def test_time_scales_are_those_of_decay():
    rng, tau = np.random.default_rng(1), np.array([50.0, 5.0])
    x, a = np.zeros((200_000, 2)), np.exp(-1 / tau)
    noise = rng.normal(size=x.shape) * np.sqrt(1 - a**2)
    for t in range(1, len(x)):
        x[t] = a * x[t - 1] + noise[t]
    for lag in (1, 3):
        np.testing.assert_allclose(SFA(lag=lag).fit(x).timescales_, tau, rtol=0.1)
    assert np.isnan(SFA().fit(np.tile([[1.0], [-1.0]], (50, 1))).timescales_).all()
    with pytest.raises(AttributeError, match="needs a single lag"):
        SFA(lag=[1, 2]).fit(x[:100]).timescales_  # noqa: B018


@pytest.mark.parametrize("params", [{"lag": [1, 4], "delays": 2}, {"node_weights": "degree"}, {}])
def test_models_and_sums_of_time_series_come_back_from_files(params, tmp_path):
    model = SFA(2, **params).fit(PARTS)
    save(model, tmp_path / "model.higsfa")
    save(model.statistics_, tmp_path / "sums.higsfa")
    loaded = load(tmp_path / "model.higsfa")
    assert loaded.get_params() == model.get_params()
    assert loaded.n_features_in_ == 3
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
    again = SFA(2, **params).fit_from_statistics(load(tmp_path / "sums.higsfa"))
    assert_same_model(again, model, atol=1e-12)
    assert again.n_features_in_ == 3
    other = {"lag": 2} if params else {"delays": 1}
    with pytest.raises(ValueError, match="does not fit"):
        SFA(**other).fit_from_statistics(model.statistics_)


def test_recordings_of_these_tests_are_those_of_the_oracle():
    assert [len(run) for run in recordings(len(X), GROUPS)] == [60, 35, 80]
    assert SequenceGraph([4, 1]).lags() == (1, 4)
