import os

import numpy as np
import pytest
from PIL import Image

from higsfa import presets
from higsfa.datasets import make_rat_views, read_morph2
from higsfa.experiments import ExperimentError, load_config, with_values
from higsfa.experiments.data import read_data
from higsfa.experiments.methods import make_graph, make_network
from higsfa.experiments.split import Label, decoded, open_experiment, read_labels
from higsfa.images import FaceSampler, normalize_contrast
from higsfa.io.arrays import read_npz


@pytest.mark.parametrize("with_eyes", [True, False])
def test_faces_are_aligned_by_their_eyes_where_these_are_known(morph2, small, with_eyes):
    files = {"csv": str(morph2 / "morph2.csv"), "eyes": str(morph2 / "eyes.csv") if with_eyes else None}
    config = small("morph2_s1s2s3", data__folder=str(morph2), **{f"data__{key}": value for key, value in files.items()})
    found = read_morph2(morph2, **files)
    read = read_data(config.data).source.take([0, 5])
    for got, path in zip(read, (found.paths[0], found.paths[5]), strict=True):
        photo = Image.open(path)
        aligned = FaceSampler(24).sample(photo, [[10, 12], [22, 12]])
        whole = normalize_contrast(np.asarray(photo.resize((24, 24), Image.Resampling.BILINEAR)))
        far, near = (np.abs(got.astype(int) - other).mean() for other in (whole, aligned))
        assert near == 0 if with_eyes else far < 0.3 * near


def save(path, **arrays):
    np.savez(path, **arrays)
    return path


@pytest.fixture
def npz(tmp_path):
    rng = np.random.default_rng(0)
    return save(
        tmp_path / "fairface64.npz",
        images=rng.integers(0, 255, (30, 16, 16), dtype=np.uint8),
        age=rng.choice([24.5, 34.5, 44.5], 30),
        gender=rng.integers(0, 2, 30).astype(np.uint8),
        race=rng.integers(0, 7, 30).astype(np.uint8),
        split=np.array(["train"] * 20 + ["val"] * 8 + ["other"] * 2),
    )


def config_of(npz, **changes):
    values = {key.replace("__", "."): value for key, value in changes.items()}
    return with_values(load_config("fairface_npz"), {"data.file": str(npz), **values})


def test_npz_is_read_and_split_and_codes_get_names(npz):
    experiment = open_experiment(config_of(npz))
    (fold,) = experiment.folds
    assert (len(fold.train), len(fold.test)) == (20, 8)
    with np.load(npz) as arrays:
        names = np.array(["male", "female"])[arrays["gender"][20:28]]
        assert fold.test.labels["gender"].tolist() == names.tolist()
        np.testing.assert_array_equal(fold.test.source.take(np.arange(8)), arrays["images"][20:28])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data__labels": ["hight"]}, "no array 'hight'"),
        ({"data__images": "age"}, "must be"),
        ({"data__test": "validation"}, "no value 'validation'"),
        ({"labels__gender__names": ["one"]}, "names has 1 entries"),
        ({"data__labels": None}, "labels"),
    ],
)
def test_wrong_npz_is_explained(npz, change, words):
    with pytest.raises(ExperimentError, match=words):
        open_experiment(config_of(npz, **change))


def test_objects_and_too_large_arrays_are_not_read(tmp_path):
    path = save(tmp_path / "a.npz", images=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="Python objects"):
        read_npz(path, limit=10**6)
    path = save(tmp_path / "b.npz", images=np.zeros(1000))
    with pytest.raises(ValueError, match="8,000 bytes"):
        read_npz(path, limit=7999)
    (tmp_path / "c.npz").write_bytes(b"PK no zip")
    with pytest.raises(ValueError, match=r"not a \.npz file"):
        read_npz(tmp_path / "c.npz", limit=10)


def test_labels_are_guessed_or_as_told(pictures, small):
    config = small("folder", data__folder=str(pictures), data__csv=str(pictures / "labels.csv"))
    data = read_data(config.data)
    labels, values = read_labels(config, data)
    assert [(label.name, label.is_numeric, label.unit) for label in labels] == [
        ("age", True, "years"),
        ("gender", False, None),
    ]
    assert set(values["gender"]) == {"f", "m"}
    told = with_values(config, {"data.labels": ["person"], "labels.person.kind": "categorical"})
    (label,), values = read_labels(told, data)
    assert not label.is_numeric
    assert values["person"][0] == "0"


def test_random_splits_keep_persons_apart(pictures, small):
    changes = {"data__person_column": "person", "protocol__by_person": True, "protocol__repeats": 3}
    config = small("folder", data__folder=str(pictures), data__csv=str(pictures / "labels.csv"), **changes)
    experiment = open_experiment(config)
    assert len(experiment.folds) == 3
    for fold in experiment.folds:
        assert not set(fold.train.groups) & set(fold.test.groups)
        assert len(fold.train) + len(fold.test) == 40


def test_max_samples_and_bad_pictures(pictures, small):
    changes = {"data__folder": str(pictures), "data__csv": str(pictures / "labels.csv")}
    assert len(read_data(small("folder", data__max_samples=7, **changes).data)) == 7
    (pictures / "3.png").write_bytes(b"no picture")
    config = small("folder", **changes)
    with pytest.raises(ExperimentError, match=r"3\.png"):
        decoded(config, open_experiment(config), pictures)
    data = read_data(small("folder", data__on_bad_file="skip", **changes).data)
    assert len(data) == 39
    assert any("3.png" in text for text in data.warnings)


def test_missing_things_are_named(pictures, small, tmp_path):
    good = {"data__folder": str(pictures), "data__csv": str(pictures / "labels.csv")}
    for change, words in (
        ({"data__folder": str(tmp_path / "nowhere")}, "nowhere"),
        ({"data__csv": str(tmp_path / "none.csv")}, "none.csv"),
        ({"data__labels": ["height"]}, "no label 'height'.*'age'"),
        ({"data__labels": ["age", "age"]}, "clashes"),
        ({"data__path_column": "photo"}, "no column 'photo'"),
        ({"data__split_column": "part"}, "no column 'part'"),
        ({"labels__height__unit": "m"}, "no label 'height'"),
        ({"protocol__kind": "split"}, "no split of their own"),
        ({"protocol__by_person": True}, "identity"),
        ({"graph__parts": [{"kind": "serial", "label": "gender"}]}, "clustered"),
    ):
        config = small("folder", **{**good, **change})
        with pytest.raises(ExperimentError, match=words) as caught:
            make_graph(config, open_experiment(config).labels)
        assert "\n" not in str(caught.value)
    (pictures / "1.png").unlink()
    with pytest.raises(ExperimentError, match=r"1\.png"):
        open_experiment(small("folder", **good))


def test_empty_folder_is_named(small, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ExperimentError, match="empty"):
        open_experiment(small("utkface", data__folder=str(tmp_path / "empty")))


@pytest.mark.parametrize("place", ["csv", "eyes", "points", "npz"])
def test_pipes_in_place_of_labels_are_refused_and_not_waited_for(place, morph2, fgnet, small, tmp_path, alarm):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    tables = {"data__folder": str(morph2), "data__csv": str(morph2 / "morph2.csv"), "data__eyes": None}
    if place == "points":
        (fgnet / "points").mkdir()
        os.mkfifo(fgnet / "points" / "001a05.pts")
        config = with_values(load_config("fgnet_cross"), {"data": {"kind": "fgnet", "folder": str(fgnet)}})
    elif place == "npz":
        config = with_values(load_config("fairface_npz"), {"data.file": str(pipe)})
    else:
        config = small("morph2_lopo", **{**tables, f"data__{place}": str(pipe)})
    with pytest.raises(ExperimentError, match=r"not a regular file|there is no file"):
        read_data(config.data)


def test_many_files_that_are_left_out_are_counted(pictures, small):
    for i in range(14):
        (pictures / f"{i}.png").write_bytes(b"no picture")
    changes = {"data__folder": str(pictures), "data__csv": str(pictures / "labels.csv"), "data__on_bad_file": "skip"}
    data = read_data(small("folder", **changes).data)
    assert len(data) == 26
    assert len(data.warnings) == 11
    assert "0.png" in data.warnings[0]
    assert data.warnings[-1] == "left out: ... and 4 more files left out"
    assert data.labels["person"].tolist() == [i // 2 for i in range(14, 40)]


@pytest.mark.parametrize(("n_jobs", "threads"), [(3, 3), (1, 1)])
def test_pictures_are_decoded_by_as_many_threads_as_told(pictures, small, n_jobs, threads):
    config = small("folder", data__folder=str(pictures), data__csv=str(pictures / "labels.csv"))
    assert read_data(config.data, n_jobs=n_jobs).source.n_threads == threads
    assert read_data(config.data, n_jobs=-1).source.n_threads == read_data(config.data).source.n_threads >= 1


def test_a_part_of_the_samples_is_drawn_without_order_and_kept_in_order(npz):
    everything = open_experiment(config_of(npz))
    some = read_data(config_of(npz, data__max_samples=13).data)
    with np.load(npz) as arrays:
        images = arrays["images"][arrays["split"] != "other"]
        ages = arrays["age"][arrays["split"] != "other"]
    places = [int(np.flatnonzero((images == image).all(axis=(1, 2)))[0]) for image in np.asarray(some.source)]
    assert len(some) == len(set(places)) == 13
    assert places == sorted(places) != list(range(13))
    np.testing.assert_array_equal(some.labels["age"], ages[places])
    assert some.is_test.tolist() == [place >= 20 for place in places]
    assert len(everything.folds[0].train) == 20
    assert len(read_data(config_of(npz, data__max_samples=28).data)) == 28


@pytest.mark.parametrize(("n", "fits"), [(2, True), (1, False)])
def test_two_samples_are_the_least_to_train_and_to_test_on(tmp_path, n, fits):
    split = np.array(["train"] * 10 + ["val"] * n)
    images = np.random.default_rng(0).integers(0, 255, (10 + n, 8, 8), dtype=np.uint8)
    path = save(tmp_path / "a.npz", images=images, age=np.arange(10.0 + n), gender=np.arange(10 + n) % 2, split=split)
    config = config_of(path, data__labels=["age"], labels=None)
    if fits:
        assert len(open_experiment(config).folds[0].test) == 2
    else:
        with pytest.raises(ExperimentError, match="only 1 samples for test"):
            open_experiment(config)


def test_a_label_that_no_test_sample_has_is_named(tmp_path):
    split = np.array(["train"] * 10 + ["val"] * 4)
    age = np.where(split == "val", np.nan, np.arange(14.0))
    path = save(tmp_path / "a.npz", images=np.zeros((14, 8, 8), np.uint8), age=age, split=split)
    with pytest.raises(ExperimentError, match="'age': no sample for test has it"):
        open_experiment(config_of(path, data__labels=["age"], labels=None))
    path = save(tmp_path / "b.npz", images=np.zeros((14, 8, 8), np.uint8), age=np.full(14, np.nan), split=split)
    with pytest.raises(ExperimentError, match="all its values are missing"):
        open_experiment(config_of(path, data__labels=["age"], labels=None))


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"age": np.zeros(13)}, r"'age' has shape \(13,\), but there are 14 images"),
        ({"age": np.zeros((14, 2))}, r"'age' must have one value per image, got shape \(14, 2\)"),
        ({"age": np.array(1.0)}, r"'age' has shape \(\)"),
        ({"images": np.zeros((14, 8, 8, 2), np.uint8)}, r"must be \(n, height, width\), with 1 or 3 channels"),
        (
            {"images": np.zeros((0, 8, 8), np.uint8), "age": np.zeros(0), "split": np.zeros(0, "<U5")},
            "no value 'train'",
        ),
    ],
)
def test_arrays_that_do_not_fit_together_are_named(tmp_path, arrays, words):
    whole = {
        "images": np.zeros((14, 8, 8), np.uint8),
        "age": np.arange(14.0),
        "split": np.array(["train"] * 10 + ["val"] * 4),
    }
    path = save(tmp_path / "a.npz", **{**whole, **arrays})
    with pytest.raises(ExperimentError, match=words):
        open_experiment(config_of(path, data__labels=["age"], labels=None))


def test_persons_that_are_not_known_are_groups_of_their_own(pictures, small):
    config = small("folder", data__folder=str(pictures), data__csv=str(pictures / "labels.csv"))
    groups = np.concatenate([part.groups for part in open_experiment(config).folds[0]])
    assert len(set(groups.tolist())) == 40
    text = (pictures / "labels.csv").read_text().replace(",19,", ",,")
    (pictures / "labels.csv").write_text(text)
    known = with_values(config, {"data.person_column": "person"})
    (fold,) = open_experiment(known).folds
    groups = np.empty(40, dtype=int)
    for part in (fold.train, fold.test):
        groups[part.rows] = part.groups
    assert len(set(groups.tolist())) == 21
    assert groups[0] == groups[1] != groups[2]
    assert groups[38] != groups[39]


def test_the_walk_of_the_rat_is_cut_in_two_and_its_movement_is_that_of_the_config():
    config = with_values(load_config("rat"), {"data.n_train": 12, "data.n_test": 5, "data.turn": 0.01, "data.seed": 3})
    data = read_data(config.data)
    views, walk = make_rat_views(17, 3, turn=0.01)
    assert np.array_equal(np.asarray(data.source), views)
    assert data.is_test.tolist() == [False] * 12 + [True] * 5
    assert all(np.array_equal(data.labels[name], walk[name]) for name in ("x", "y", "direction"))


def test_the_rat_of_the_config_is_the_preset():
    config = load_config("rat")
    labels = [Label("x", True, None), Label("y", True, None)]
    network = make_network(config, labels, (40, 320, 3))
    assert network._planned((40, 320, 3)) == presets.rat_hisfa()._planned((40, 320, 3))
