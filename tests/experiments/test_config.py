import os
import tomllib

import pytest
import tomli_w

from higsfa.experiments import ExperimentError, load_config, shipped_configs, with_paths, with_values
from higsfa.experiments.interface import checked

GOOD = """
title = "mine"
[data]
kind = "digits"
[protocol]
kind = "random"
"""


def load(tmp_path, text):
    (tmp_path / "mine.toml").write_text(text)
    return load_config(tmp_path / "mine.toml")


@pytest.mark.parametrize("name", sorted(shipped_configs()))
def test_shipped_configs_are_valid_described_and_survive_being_written(name):
    config = load_config(name)
    assert len(shipped_configs()[name]) > 10
    assert checked(tomllib.loads(tomli_w.dumps(config.plain())), name) == config


def test_texts_survive_being_written():
    tables = {"title": 'a "b" \\ \n \x7f é', "labels": {"a b.c": {"unit": "x"}}, "list": [{"k": [1, 2.5, True]}]}
    assert tomllib.loads(tomli_w.dumps(tables)) == tables


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD + "tset_share = 0.3\n", ["'tset_share'", "[protocol]", "did you mean 'test_share'"]),
        (GOOD + "[netwrok]\n", ["'netwrok'", "top of the file", "did you mean 'network'"]),
        (GOOD + "[network]\nn_component = 3\n", ["'n_component'", "[network]", "'n_components'"]),
        (GOOD + "[network]\nlayers = [{ feild = 3 }]\n", ["feild", "network.layers.1"]),
        (GOOD.replace('"digits"', '"digit"'), ["'digit'", "[data]", "did you mean 'digits'"]),
        (GOOD.replace('kind = "digits"', 'kind = "digits"\nsize = 3'), ["'size'", "[data]"]),
        (GOOD.replace('kind = "digits"', ""), ["[data]", "kind"]),
        (GOOD + "repeats = 0\n", ["repeats = 0", "[protocol]", "greater than or equal to 1"]),
        (GOOD + 'repeats = "many"\n', ["repeats = 'many'", "[protocol]", "integer"]),
        (GOOD + "test_share = 1.5\n", ["test_share = 1.5", "less than 1"]),
        (GOOD.replace('"random"', '"randon"'), ["'randon'", "[protocol]", "did you mean 'random'"]),
        (GOOD + '[comparison]\nmethods = ["pcaa"]\n', ["'pcaa'", "comparison", "did you mean 'pca'"]),
        (GOOD + '[graph]\nparts = [{ kind = "serial" }]\n', ["needs a label"]),
        (GOOD + '[test_data]\nkind = "digits"\n', ["cross_database"]),
        (GOOD.replace('title = "mine"', ""), ["'title'", "missing"]),
        ("title = \n[data]\n", ["not valid TOML", "line 1"]),
    ],
)
def test_what_is_wrong_is_named_in_one_line(tmp_path, text, words):
    with pytest.raises(ExperimentError) as caught:
        load(tmp_path, text)
    message = str(caught.value)
    assert "\n" not in message
    assert "mine.toml" in message
    for word in words:
        assert word in message


def test_missing_file_suggests_a_shipped_name():
    with pytest.raises(ExperimentError, match=r"did you mean 'digits'.*faces"):
        load_config("digit")


def test_paths_are_relative_to_the_file(tmp_path):
    config = load(tmp_path, GOOD.replace('kind = "digits"', 'kind = "utkface"\nfolder = "a/b"'))
    assert config.data.folder == tmp_path / "a" / "b"


def test_other_folder_takes_the_tables_inside_along(tmp_path):
    (tmp_path / "new").mkdir()
    config = with_values(load_config("folder"), {"data.folder": "/old", "data.csv": "/old/sub/t.csv"})
    moved = with_paths(config, tmp_path / "new").data
    assert (moved.folder, moved.csv) == (tmp_path / "new", tmp_path / "new" / "sub" / "t.csv")
    outside = with_values(config, {"data.csv": "/elsewhere/t.csv"})
    assert str(with_paths(outside, tmp_path / "new").data.csv) == "/elsewhere/t.csv"
    (tmp_path / "new" / "t.csv").touch()
    assert with_paths(outside, tmp_path / "new").data.csv == tmp_path / "new" / "t.csv"
    with pytest.raises(ExperimentError, match="not read from a folder"):
        with_paths(load_config("toy"), tmp_path)


def test_configs_cannot_be_changed_in_place():
    config = load_config("toy")
    with pytest.raises(ValueError, match="frozen"):
        config.data.n_train = 3
    assert with_values(config, {"data.n_train": 3}).data.n_train == 3


HOSTILE = {
    "a key of 100,000 parts": ".".join("a" * 100_000) + "=1",
    "a header of 100,000 parts": "[" + ".".join("a" * 100_000) + "]",
    "quoted parts": ".".join(['"a.b"'] * 20_000) + "=1",
    "a key after a text of many lines": "t={s='''\n\" ''', " + ".".join("a" * 50_000) + '=1, z=" "}',
    "many keys of 300 parts": "\n".join(f"k{i}." + ".".join("a" * 300) + "=1" for i in range(100)),
    "nested lists": "a=" + "[" * 100_000,
    "nested tables": "a=" + "{a=" * 50_000,
    "a huge number": "a=" + "9" * 100_000,
    "a huge hexadecimal number": "title=0x" + "f" * 100_000,
    "no text": "a=\xff\ud800",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=list(HOSTILE))
def test_hostile_files_are_refused_without_work(tmp_path, text, monkeypatch):
    """What takes the parser longer than the file is long never reaches it."""
    work = []
    parse = tomllib.loads

    def counted(text):
        work.append(sum(line.count(".") ** 2 for line in text.splitlines()))
        return parse(text)

    monkeypatch.setattr(tomllib, "loads", counted)
    (tmp_path / "mine.toml").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ExperimentError, match=r"mine\.toml") as caught:
        load_config(tmp_path / "mine.toml")
    assert len(str(caught.value)) < 1000
    assert sum(work) < 10_000_000


def test_lists_of_numbers_and_texts_with_dots_are_no_deep_keys(tmp_path):
    text = GOOD.replace("[data]", f'description = "{"wait ... " * 100}"\n[data]')
    config = load(tmp_path, text + f"[comparison]\nsensitivity = [{', '.join(['1.5'] * 100)}]\n")
    assert len(config.comparison.sensitivity) == 100


def test_a_file_that_is_none_is_not_read(tmp_path, alarm):
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "large.toml").write_bytes(b"#" * 1_000_001)
    (tmp_path / "digits").mkdir()
    for name, words in (("pipe.toml", "not a regular file"), ("large.toml", "larger than 1,000,000 bytes")):
        with pytest.raises(ExperimentError, match=words):
            load_config(tmp_path / name)
    with pytest.raises(ExperimentError, match="no file or shipped experiment"):
        load_config(tmp_path / "digits")


def test_paths_may_begin_with_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    config = load(tmp_path, GOOD.replace('kind = "digits"', 'kind = "utkface"\nfolder = "~/b"'))
    assert config.data.folder == tmp_path / "b"


def test_an_npz_file_is_found_in_another_folder_or_given_itself(tmp_path):
    config = with_values(load_config("fairface_npz"), {"data.file": "/old/a.npz"})
    assert with_paths(config, tmp_path).data.file == tmp_path / "a.npz"
    assert with_paths(config, tmp_path / "b.npz").data.file == tmp_path / "b.npz"


def test_values_are_set_and_taken_out():
    config = load_config("digits")
    assert with_values(config, {"distortion": None}).distortion is None
    assert with_values(config, {"labels.digit.unit": "x"}).labels["digit"].unit == "x"
    with pytest.raises(ExperimentError, match="'title' is a value and holds no keys"):
        with_values(config, {"title.a": 1})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data.n_train": 101, "data.images_per_person": 2}, "multiple"),
        ({"data.n_train": 10_000_000, "data.size": 512}, "pixels of faces"),
        ({"comparison.methods": ["higsfa_hgsfa_parameters"]}, "higsfa_g3"),
        ({"network.kind": "HGSFA"}, "HGSFA already"),
        ({"network.preset": "hgsfa_g3"}, "HGSFA already"),
        (
            {"graph.parts": [{"kind": "sequence", "label": "age"}]},
            r"\[graph.parts.1\]: label is for parts of kind .*, not 'sequence'; leave it out",
        ),
        ({"graph.parts": [{"kind": "clustered", "label": "age", "n_groups": 3}]}, "n_groups is for"),
        ({"graph.parts": [{"kind": "serial", "label": "age", "half_width": 3}]}, "half_width is for"),
        ({"network.memory_limit": "lots"}, "memory_limit"),
        ({"title": ""}, "title"),
        ({"data.size": 15}, "size = 15"),
        ({"data.n_train": 0}, "n_train = 0"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(change, words):
    with pytest.raises(ExperimentError, match=words):
        with_values(load_config("faces"), change)


@pytest.mark.parametrize(
    "change",
    [
        {"data.n_train": 100, "data.n_test": 33, "data.images_per_person": 2},
        {"data.n_train": 2**34 // 512**2 - 500, "data.n_test": 500, "data.size": 512},
        {"network.preset": "higsfa_g3", "comparison.methods": ["higsfa_hgsfa_parameters", "hgsfa"]},
        {"network.kind": "HGSFA", "comparison.methods": ["pca"]},
        {"graph.parts": [{"kind": "window", "label": "age", "half_width": 3}, {"kind": "sequence"}]},
        {"graph.parts": [{"kind": "mixed", "label": "age", "n_groups": 2, "weight": 0.5}]},
        {"network.memory_limit": "1.5 GiB"},
    ],
)
def test_settings_that_go_together_are_taken(change):
    with_values(load_config("faces"), change)
