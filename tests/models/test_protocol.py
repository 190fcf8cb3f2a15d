"""Files of frozen protocols: later versions read them, and they give the features that they gave."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import higsfa.models as models
from higsfa import load
from model_files import accepted, inner_header, put_together, refused, taken_apart

HERE = Path(__file__).parent
FILES = ["protocol1", "version01"]


@pytest.mark.parametrize("name", FILES)
def test_a_file_gives_the_numbers_that_it_gave_when_it_was_written(name):
    model, expected = load(HERE / f"{name}.higsfa"), np.load(HERE / f"{name}.npz")
    inputs = expected["inputs"]
    features = model[:-1].transform(inputs)
    close = {"rtol": 1e-9, "atol": 1e-11}
    assert_allclose(features, expected["features"], **close)
    assert_allclose(model[0].inverse_transform(features), expected["back"], **close)
    assert_allclose(model.predict(inputs)["age"], expected["age"], **close)
    assert_allclose(model.predict_proba(inputs, label="side"), expected["side"], **close)


@pytest.mark.parametrize("name", FILES)
def test_a_file_keeps_its_parameters_whatever_they_are_called_today(name):
    net, head = (step for _, step in load(HERE / f"{name}.higsfa").steps)
    assert "1 GiB" in net.get_params(deep=False).values()
    assert net.layers[1].delta_threshold == 1.9
    assert str(net.layers[1].expansion) == "identity | quadratic[:3]"
    assert {"age": 3, "side": "cv"} in head.get_params(deep=False).values()
    assert head.covariance == 0.1  # once called regularization
    assert head.covariance_ == {"age": 0.1, "side": 0.1}
    assert {mixture for _, mixture in head.cv_results_["side"]} == {0.1}


def test_the_frozen_file_says_protocol_1_and_every_older_protocol_can_be_upgraded():
    header = inner_header((HERE / "protocol1.higsfa").read_bytes())
    assert (header["protocol"], "version" in header) == (1, True)
    assert set(models.UPGRADES) == set(range(1, models.PROTOCOL))


def test_only_files_of_version_0_1_have_their_parameters_renamed(monkeypatch, tmp_path):
    monkeypatch.setattr(models, "RENAMED", models.RENAMED | {"loud": "verbose"})
    for name in FILES:
        header, listing, arrays = taken_apart((HERE / f"{name}.higsfa").read_bytes())
        params = header["steps"][0]["model"]["params"]
        params["loud"] = params.pop("verbose") + 3
        data = put_together(header, listing, arrays)
        if name == "version01":
            assert accepted(data, tmp_path / "model")[0].verbose == 3
        else:
            assert "unknown or missing: 'loud', 'verbose'" in refused(data, tmp_path / "model")


@pytest.mark.parametrize("steps", [None, 3, [], [3], [{}], [{"model": 3}], [{"model": {"params": [1]}}]])
def test_damaged_files_of_version_0_1_are_refused(steps, tmp_path):
    header, listing, arrays = taken_apart((HERE / "version01.higsfa").read_bytes())
    refused(put_together(header | {"steps": steps}, listing, arrays), tmp_path / "model")
