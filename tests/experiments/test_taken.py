"""What labels are taken for is said in one line each, and `kind` reaches graph, head and model files alike."""

import numpy as np
import pytest

from cli.commands import higsfa
from higsfa import load
from higsfa.experiments import train
from higsfa.experiments.interface import checked
from higsfa.experiments.split import open_experiment

N = 240
RNG = np.random.default_rng(0)
SEX = np.array(["m", "f"])[np.arange(N) % 2]
LABELS = {
    "age": 16 + np.arange(N) % 62,
    "decade": np.arange(N) % 9,
    "sign": np.arange(N) % 43,
    "sex": SEX,
    "height": RNG.normal(1.7, 0.1, N),
}
SAYS = {
    "age": "a number, 16 to 77 (62 values)"
    '; whole numbers, so say kind = "categorical" in [labels.age] if they name classes',
    "decade": '9 classes; whole numbers, so say kind = "numeric" in [labels.decade] if they measure something',
    "sign": '43 classes; whole numbers, so say kind = "numeric" in [labels.sign] if they measure something',
    "sex": "2 classes",
}


@pytest.fixture
def config(tmp_path):
    def make(labels, **kinds):
        images = RNG.integers(0, 255, (N, 8, 8), dtype=np.uint8)
        np.savez(tmp_path / "data.npz", images=images, **LABELS | {name: labels[name] for name in labels})
        return {
            "title": "test",
            "data": {"kind": "npz", "file": str(tmp_path / "data.npz"), "labels": list(labels)},
            "labels": {name: {"kind": kind} for name, kind in kinds.items()},
            "network": {"preset": "single", "n_components": 4, "expansion": "identity", "n_jobs": 1},
            "head": {"n_used_features": 2},
            "protocol": {"kind": "random"},
        }

    return make


def test_each_label_says_what_it_was_taken_for(config):
    found = {label.name: label.taken for label in open_experiment(checked(config(LABELS), "test")).labels}
    assert {name: found[name] for name in SAYS} == SAYS
    assert found["height"] == f"a number, {LABELS['height'].min():g} to {LABELS['height'].max():g} (240 values)"


@pytest.mark.parametrize(("kind", "says"), [("numeric", "a number, 0 to 8 (9 values)"), ("categorical", "9 classes")])
def test_the_kind_of_the_file_reaches_line_graph_and_head(config, tmp_path, kind, says):
    config = checked(config({"decade": LABELS["decade"]}, decade=kind), "test")
    assert open_experiment(config).labels[0].taken == says + ", as [labels.decade] says"
    run = train(config, tmp_path / "run")
    assert run.metrics["labels"][0]["kind"] == kind
    network, head = load(tmp_path / "run" / "model.higsfa"), load(tmp_path / "run" / "head.higsfa")
    assert network.label_kinds == head.label_kinds == {"decade": kind}
    assert type(network.graph).__name__ == {"numeric": "LabelGraph", "categorical": "ClusteredGraph"}[kind]
    assert head.is_numeric_ == {"decade": kind == "numeric"}


def test_the_command_line_says_it_before_training(config, tmp_path):
    import tomli_w

    (tmp_path / "my.toml").write_text(tomli_w.dumps(config({"age": LABELS["age"], "decade": LABELS["decade"]})))
    _, err = higsfa("train", tmp_path / "my.toml", "--out", tmp_path / "run")
    lines = err.splitlines()
    for name in ("age", "decade"):
        assert f"{name}: {SAYS[name]}" in lines
    assert lines.index(f"decade: {SAYS['decade']}") < next(i for i, line in enumerate(lines) if "train on" in line)


def test_names_that_differ_only_in_blanks_are_a_warning_of_the_run(config, tmp_path):
    config = checked(config({"sex": np.where(np.arange(N) % 10, SEX, "f ")}), "test")
    (text,) = train(config, tmp_path / "run").metrics["warnings"]
    assert text.startswith("y: 'f ' and 'f' differ only in case or in blanks, and were taken as different classes")
