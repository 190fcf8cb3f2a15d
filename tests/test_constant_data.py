"""Data that do not vary: no features, and the mean comes back. Data that are too large: refused."""

import warnings

import numpy as np
import pytest

from higsfa import GSFA, IGSFA, ISFA, SFA, HiSFA, Layer, load, save

MEAN = np.array([0.1, 1e3, -7.3])
N = 200


def rounding(kind):
    """The mean in every row, off by a unit in the last place here and there."""
    steps = np.random.default_rng(0).integers(-1, 2, (N, 3))
    return (MEAN.astype(kind) * (1 + steps * np.finfo(kind).eps)).astype(kind)


CONSTANT = {
    "zeros": np.zeros((N, 3)),
    "float64": np.tile(MEAN, (N, 1)),
    "float32": np.tile(MEAN, (N, 1)).astype(np.float32),
    "rounding errors": rounding(np.float64),
    "rounding errors of float32": rounding(np.float32),
}
MODELS = {
    "plain": {},
    "expanded": {"expansion": "identity | quadratic"},
    "without inputs": {"expansion": "quadratic"},
    "shrunk": {"shrinkage": 0.1},
    "two wanted": {"n_components": 2},
}


@pytest.mark.parametrize(
    ("data", "options"),
    # Products of rounding errors do vary, as far as anyone can tell.
    [(d, o) for d in CONSTANT for o in MODELS if "errors" not in d or "expansion" not in MODELS[o]],
)
@pytest.mark.parametrize("cls", [SFA, GSFA, ISFA, IGSFA])
def test_constant_data_have_no_features_and_come_back_as_their_mean(cls, options, data):
    X, y = CONSTANT[data], np.arange(N) % 3
    model = cls(**MODELS[options])
    with pytest.warns(UserWarning, match="constant up to rounding|the data support 0"):
        model.fit(X, y)
    assert (model.rank_, model.n_components_, model.n_slow_) == (0, 0, 0)
    assert model.delta_values_.shape == (0,)
    Y = model.transform(X[:7])
    assert Y.shape == (7, 0)
    assert Y.dtype == X.dtype
    np.testing.assert_allclose(model.inverse_transform(Y), X[:7], rtol=4 * np.finfo(X.dtype).eps)
    assert list(model.get_feature_names_out()) == []


@pytest.mark.parametrize("cls", [SFA, GSFA, ISFA, IGSFA])
def test_frames_without_columns_come_back_as_the_mean_from_a_file_too(cls, tmp_path):
    X = CONSTANT["float64"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = cls().set_output(transform="pandas").fit(X, np.arange(N) % 3)
    frame = model.transform(X[:7])
    assert frame.shape == (7, 0)
    save(model, tmp_path / "model")
    for fitted in (model, load(tmp_path / "model")):
        np.testing.assert_allclose(fitted.inverse_transform(frame), X[:7], rtol=1e-15)


def test_a_wrong_number_of_columns_is_still_refused():
    X = np.random.default_rng(0).standard_normal((N, 3))
    model = SFA(2).fit(X)
    with pytest.raises(ValueError, match="Y has 0 features, but SFA makes 2"):
        model.inverse_transform(np.zeros((5, 0)))


@pytest.mark.parametrize("share", [0.7, 3.0])
def test_data_that_are_too_large_are_refused_in_words(share):
    """Sums of squares may fit where those of squared differences in time, twice as large, do not."""
    X = np.random.default_rng(0).standard_normal((N, 4))
    X *= np.sqrt(share) * np.sqrt(np.finfo(float).max / np.max(np.sum(X**2, axis=0)))
    for fit in (SFA().fit, SFA().partial_fit, HiSFA([Layer((4,), n_components=2)]).fit):
        fit(X / 4)
        with pytest.raises(ValueError, match="X holds numbers too large for float64"):
            fit(X)
