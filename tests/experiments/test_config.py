import tomllib

import pytest

from higsfa.experiments import ExperimentError, load_config, shipped_configs, with_paths, with_values
from higsfa.experiments._toml import to_toml
from higsfa.experiments.reading import checked

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
    assert checked(tomllib.loads(to_toml(config.plain())), name) == config


def test_texts_survive_being_written():
    tables = {"title": 'a "b" \\ \n \x7f é', "labels": {"a b.c": {"unit": "x"}}, "list": [{"k": [1, 2.5, True]}]}
    assert tomllib.loads(to_toml(tables)) == tables


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
