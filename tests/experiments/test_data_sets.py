"""The shipped experiments on tiny data sets in the layouts of the real ones."""

import numpy as np
import pytest

from higsfa.datasets import read_morph2
from higsfa.experiments import ExperimentError, Run, train


def test_morph2_with_s1_s2_s3(morph2, small, tmp_path):
    config = small(
        "morph2_s1s2s3",
        data__folder=str(morph2),
        data__csv=str(morph2 / "morph2.csv"),
        data__eyes=str(morph2 / "eyes.csv"),
        protocol__sizes={"MB": 4, "MW": 4, "FB": 3, "FW": 3},
    )
    run = train(config, tmp_path / "run")
    assert run.metrics["n_folds"] == 2
    assert (run.metrics["data"]["n_train"], run.metrics["data"]["n_test"]) == (14, 46)
    assert len(run.predictions["fold"]) == 92
    labels = read_morph2(morph2, morph2 / "morph2.csv").labels
    np.testing.assert_array_equal(run.predictions["age"], np.floor(labels["age"])[run.predictions["sample"]])
    assert run.evaluate()["n_test"] == 46


def test_morph2_with_persons_left_out(morph2, small, tmp_path):
    config = small(
        "morph2_lopo",
        data__folder=str(morph2),
        data__csv=str(morph2 / "morph2.csv"),
        data__eyes=None,
        protocol__n_persons=8,
        protocol__repeats=3,
        protocol__seed=3,
    )
    run = train(config, tmp_path / "run")
    labels = read_morph2(morph2, morph2 / "morph2.csv").labels
    race = labels["race"][run.predictions["sample"]]
    shown = np.where(race == "B", "B", np.where(race == "W", "R", None))
    assert run.predictions["race"].tolist() == shown.tolist()
    assert None in shown
    assert set(run.predictions["race_estimate"]) <= {"B", "R"}
    values = []
    for fold in range(3):
        tested = run.predictions["fold"] == fold
        assert len(set(labels["identity"][run.predictions["sample"][tested]])) == 8
        known = tested & (shown != None)  # noqa: E711
        values.append(np.mean(run.predictions["race_estimate"][known] == shown[known]))
    rate = run.metrics["methods"][0]["labels"]["race"]["rate"]
    np.testing.assert_allclose(rate["values"], values)
    np.testing.assert_allclose(rate["se"], np.std(values, ddof=1) / np.sqrt(3))


def test_fgnet_across_data_sets(morph2, fgnet, small, tmp_path):
    config = small(
        "fgnet_cross",
        data__folder=str(morph2),
        data__csv=str(morph2 / "morph2.csv"),
        data__eyes=str(morph2 / "eyes.csv"),
        test_data__folder=str(fgnet),
        test_data__size=24,
    )
    run = train(config, tmp_path / "run")
    assert run.metrics["data"]["n_train"] == 60
    assert sorted(run.predictions["age"]) == [age for age in range(5, 65, 3) if age >= 16]
    wrong = small("fgnet_cross", data__folder=str(morph2), data__csv=str(morph2 / "morph2.csv"), data__eyes=None,
                  test_data__folder=str(fgnet), test_data__size=32)  # fmt: skip
    with pytest.raises(ExperimentError, match="same size"):
        train(wrong, tmp_path / "other")


def test_utkface(utkface, small, tmp_path):
    (utkface / "not_a_face.jpg").write_bytes(b"")
    run = train(small("utkface", data__folder=str(utkface)), tmp_path / "run")
    assert (run.metrics["data"]["n_train"], run.metrics["data"]["n_test"]) == (32, 8)
    assert run.metrics["labels"][2]["classes"] == ["Asian", "Black", "White"]
    assert any("not_a_face" in text or "1 " in text for text in run.metrics["warnings"])


def test_fairface(fairface, small, tmp_path):
    config = small(
        "fairface",
        data__folder=str(fairface),
        data__csv=str(fairface / "fairface_label_train.csv"),
        data__test_csv=str(fairface / "fairface_label_val.csv"),
    )
    run = train(config, tmp_path / "run")
    assert (run.metrics["data"]["n_train"], run.metrics["data"]["n_test"]) == (36, 12)
    assert set(run.predictions["age"]) == {24.5, 34.5, 44.5}


def test_own_folder_and_new_pictures(pictures, small, tmp_path):
    config = small(
        "folder",
        data__folder=str(pictures),
        data__csv=str(pictures / "labels.csv"),
        data__split_column="split",
        protocol__kind="split",
    )
    run = train(config, tmp_path / "run")
    assert run.predictions["sample"].tolist() == list(range(30, 40))
    new = run.pictures([pictures / "30.png", pictures / "31.png"])
    assert [path.name for path in new.paths] == ["30.png", "31.png"]
    features = run.network.transform(new)
    np.testing.assert_allclose(features[:, :20], run.examples["features"][:2], rtol=1e-4, atol=1e-5)
    estimates = run.head.predict(features)
    assert estimates["gender"].tolist() == run.predictions["gender_estimate"][:2].tolist()
    assert len(run.pictures([pictures])) == 40
    with pytest.raises(ExperimentError, match=r"nobody\.png"):
        run.pictures(["nobody.png"])
    moved = tmp_path / "moved"
    pictures.rename(moved)
    with pytest.raises(ExperimentError, match="pictures"):
        run.evaluate()
    assert Run(run.folder, data_folder=moved).evaluate()["n_test"] == 10


def test_corrupt_picture_stops_the_run_by_name(pictures, small, tmp_path):
    (pictures / "7.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    config = small("folder", data__folder=str(pictures), data__csv=str(pictures / "labels.csv"))
    with pytest.raises(ExperimentError, match=r"7\.png"):
        train(config, tmp_path / "run")
    assert "7.png" in (tmp_path / "run" / "log.txt").read_text()
