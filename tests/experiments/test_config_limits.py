"""Every key of a config has the default and the limits that docs/experiments.md and common sense give it."""

import pytest

from higsfa.experiments import ExperimentError, with_values
from higsfa.experiments.interface import checked

FILES = {"kind": "folder", "folder": "f", "csv": "t.csv"}
BASES = {
    "faces": {"kind": "faces"},
    "toy": {"kind": "toy"},
    "rat": {"kind": "rat"},
    "digits": {"kind": "digits"},
    "npz": {"kind": "npz", "file": "a.npz"},
    "folder": FILES,
}
LAYER = {"field": 2}


def config(kind="faces"):
    return checked({"title": "t", "data": BASES[kind]}, "test")


@pytest.mark.parametrize(
    ("kind", "defaults"),
    [
        ("faces", {"n_train": 2000, "n_test": 500, "size": 64, "seed": 0, "images_per_person": 1, "races": ["B", "W"]}),
        ("toy", {"n_train": 10_000, "n_test": 5000, "seed": 0}),
        ("rat", {"n_train": 10_000, "n_test": 5000, "seed": 0, "speed": 0.06, "turn": 0.5}),
        ("rat", {"persistence": 10.0, "turn_persistence": 2.0}),
        ("npz", {"images": "images", "train": "train", "test": "test", "split": None, "pixel_range": None}),
        ("folder", {"size": 96, "normalise_contrast": True, "on_bad_file": "raise", "path_column": "file"}),
        (
            "folder",
            {"split_column": None, "person_column": None, "eye_columns": None, "train": "train", "test": "test"},
        ),
        ("digits", {"labels": None, "max_samples": None}),
    ],
)
def test_defaults_of_data_are_those_of_the_manual(kind, defaults):
    found = config(kind).data.model_dump()
    assert {key: found[key] for key in defaults} == defaults


def test_defaults_of_other_tables_are_those_of_the_manual():
    found = with_values(config(), {"distortion": {}, "labels.age": {}, "network.layers": [LAYER]})
    tables = found.model_dump()
    assert tables["distortion"] == {
        **{"copies": 1, "supervised_copies": 1, "shift": 1.4, "rotation": 2.0, "scale": 0.04, "seed": 0},
        **{"mirror": False, "brightness": 0, "contrast": 0, "noise": 0, "interpolation": "cubic"},
        **{"identity_first": False},
    }
    assert config().distortion is None
    assert tables["labels"]["age"] == {"kind": "auto", "unit": None, "names": None}
    assert tables["graph"] == {"parts": "auto"}
    assert {
        key: tables["network"][key] for key in ("preset", "kind", "n_components", "n_jobs", "memory_limit", "dtype")
    } == {
        **{
            "preset": "pyramid",
            "kind": "HiGSFA",
            "n_components": 60,
            "n_jobs": -1,
            "memory_limit": None,
            "dtype": None,
        },
    }
    assert tables["network"]["delta_threshold"] is None
    layer = tables["network"]["layers"][0]
    assert {key: layer[key] for key in ("stride", "n_components", "pca", "n_slow", "shared", "pad")} == {
        **{"stride": None, "n_components": 20, "pca": None, "n_slow": None, "shared": False, "pad": False},
    }
    assert tables["head"] == {
        **{"n_used_features": "cv", "n_classes": {}, "integer": [], "covariance": "auto", "cv": 5, "candidates": None},
        "mirror": "auto",
        "views": "auto",
    }
    assert tables["protocol"] == {
        **{"kind": "split", "test_share": 0.2, "repeats": 1, "by_person": False, "n_persons": 2000, "sizes": None},
        **{"ages": [16, 77], "binary_race": False, "seed": 0},
    }
    assert tables["comparison"] == {"methods": ["chance"], "n_used_features": {}, "sensitivity": []}
    assert tables["output"] == {"examples": 16}
    assert with_values(config(), {"graph.parts": [{"kind": "sequence"}]}).graph.parts[0].weight == 1


MILLIONS = 10_000_000
LIMITS = [
    # kind of data, key, values that are taken, values that are refused
    ("toy", "data.n_train", [1, MILLIONS], [0, MILLIONS + 1]),
    ("toy", "data.seed", [0, 2**31 - 1], [-1, 2**31]),
    ("toy", "data.max_samples", [1], [0]),
    ("toy", "network.width", [0.1, 10], [0, -1, 10.5, float("nan")]),
    ("toy", "head.mirror", ["auto", True, False], ["both", 2]),
    ("toy", "data.labels", [["a"], ["a"] * 100, ["x" * 200]], [[], ["a"] * 101, [""], ["x" * 201]]),
    ("rat", "data.n_train", [1, 1_000_000], [0, 1_000_001]),
    ("rat", "data.speed", [0, 1000], [-0.1, 1000.1]),
    ("rat", "data.turn", [0, 1000], [-0.1, 1000.1]),
    ("faces", "data.size", [16, 512], [15, 513]),
    ("faces", "data.images_per_person", [1, 1000], [0, 1001]),
    ("faces", "data.races", [["B"], ["B", "W", "A", "H"]], [[], ["B", "W", "A", "H", "B"], ["X"]]),
    ("folder", "data.size", [4, 1024], [3, 1025]),
    ("folder", "data.eye_columns", [["a", "b", "c", "d"]], [["a", "b", "c"], ["a"] * 5]),
    ("npz", "data.pixel_range", [[0, 1], [-1e9, 1e9]], [[0], [1, 0], [0, 0], [0, 1, 2], [-2e9, 0], [0, 2e9]]),
    ("faces", "title", ["x", "x" * 200], ["", "x" * 201]),
    ("faces", "description", ["", "x" * 2000], ["x" * 2001]),
    ("faces", "labels.age.unit", ["", "x" * 50], ["x" * 51]),
    ("faces", "labels.age.names", [["a"], ["a"] * 1000], [[], ["a"] * 1001]),
    ("faces", "distortion.copies", [1, 1000], [0, 1001]),
    ("faces", "distortion.supervised_copies", [1, 1000], [0, 1001]),
    ("faces", "distortion.shift", [0, 100], [-0.1, 100.1]),
    ("faces", "distortion.rotation", [0, 180], [-0.1, 180.1]),
    ("faces", "distortion.scale", [0, 0.9], [-0.1, 0.91]),
    ("faces", "distortion.brightness", [0, 1], [-0.1, 1.1]),
    ("faces", "distortion.contrast", [0, 1], [-0.1, 1.1]),
    ("faces", "distortion.noise", [0, 1], [-0.1, 1.1]),
    ("faces", "network.n_components", [1, 10_000], [0, 10_001]),
    ("faces", "network.expansion", ["x" * 1000], ["x" * 1001]),
    ("faces", "network.delta_threshold", [0.1, 4], [0, 4.1]),
    ("faces", "network.n_jobs", [-1024, 1024], [-1025, 1025]),
    ("faces", "network.layers", [[LAYER], [LAYER] * 100], [[], [LAYER] * 101]),
    ("faces", "head.n_classes", [{"a": 2}, {"a": 10_000}], [{"a": 1}, {"a": 10_001}]),
    ("faces", "head.n_used_features", [1, "cv", {"a": "cv"}, {"a": 3}], [0, "all", {"a": 0}]),
    ("faces", "protocol.test_share", [0.01, 0.99], [0, 1]),
    ("faces", "protocol.repeats", [1, 1000], [0, 1001]),
    ("faces", "protocol.n_persons", [1], [0]),
    ("faces", "protocol.ages", [[0, 150]], [[-1, 5], [0, 151], [1], [1, 2, 3]]),
    ("faces", "protocol.sizes", [{"MB": 1}], [{"MB": 0}, {"XX": 1}]),
    ("faces", "comparison.sensitivity", [[0.1, 4], [1.0] * 100], [[0], [4.1], [1.0] * 101]),
    ("faces", "output.examples", [0, 16], [-1, 17]),
]
PART_LIMITS = [
    ("n_groups", "serial", [2, 100_000], [1, 100_001]),
    ("half_width", "window", [1, 100_000], [0, 100_001]),
    ("weight", "clustered", [0.1, 1e6], [0, 1e6 + 1]),
]
LAYER_LIMITS = [
    ("field", [1, 4096, [1, 4096]], [0, 4097, [0], [4097]]),
    ("stride", [1, 4096, [2, 3]], [0, 4097, [0]]),
    ("n_components", [1, 10_000], [0, 10_001]),
    ("expansion", ["x" * 1000], ["x" * 1001]),
    ("pca", [1, 10_000], [0, 10_001]),
    ("n_slow", [0, 10_000], [-1, 10_001]),
]


@pytest.mark.parametrize(("kind", "key", "taken", "refused"), LIMITS, ids=[key for _, key, _, _ in LIMITS])
def test_limits_of_keys(kind, key, taken, refused):
    for value in taken:
        with_values(config(kind), {key: value})
    for value in refused:
        with pytest.raises(ExperimentError, match=key.split(".")[-1]):
            with_values(config(kind), {key: value})


@pytest.mark.parametrize(("key", "kind", "taken", "refused"), PART_LIMITS, ids=[row[0] for row in PART_LIMITS])
def test_limits_of_parts_of_a_graph(key, kind, taken, refused):
    def parts(value):
        return {"graph.parts": [{"kind": kind, "label": "age", key: value}]}

    for value in taken:
        with_values(config(), parts(value))
    for value in refused:
        with pytest.raises(ExperimentError, match=key):
            with_values(config(), parts(value))
    with_values(config(), {"graph.parts": [{"kind": "sequence"}] * 100})
    with pytest.raises(ExperimentError, match="parts"):
        with_values(config(), {"graph.parts": [{"kind": "sequence"}] * 101})


@pytest.mark.parametrize(("key", "taken", "refused"), LAYER_LIMITS, ids=[row[0] for row in LAYER_LIMITS])
def test_limits_of_layers(key, taken, refused):
    for value in taken:
        with_values(config(), {"network.layers": [{**LAYER, key: value}]})
    for value in refused:
        with pytest.raises(ExperimentError, match=key):
            with_values(config(), {"network.layers": [{**LAYER, key: value}]})
