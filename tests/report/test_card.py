"""The model card: figures of metrics.json, the note on people, and names that are no Markdown."""

import json

import pytest

from higsfa.report import write_card

GROUPS = {"group": ["yes", "n|o"], "score": [0.9, 0.5], "se": [0.1, 0.2], "count": [80, 20]}
METRICS = {
    "format": 1,
    "title": "Faces | of <b>people</b>",
    "data": {"name": "folder", "n_train": 900, "n_test": 100},
    "labels": [
        {"name": "age", "kind": "numeric", "unit": "years"},
        {"name": "hat`s", "kind": "categorical", "classes": ["yes", "no"]},
    ],
    "methods": [
        {
            "name": "HiGSFA",
            "role": "main",
            "labels": {
                "age": {"mae": {"mean": 3.21, "se": 0.1}},
                "hat`s": {
                    "rate": {"mean": 0.913, "se": 0.01},
                    "by_group": {"hat`s": GROUPS},
                },
            },
        }
    ],
}


@pytest.fixture
def run(tmp_path):
    (tmp_path / "metrics.json").write_text(json.dumps(METRICS))
    return tmp_path


def test_card_holds_figures_groups_limits_and_the_note_on_people(run):
    text = write_card(run).read_text()
    assert "3.2" in text
    assert "91.3" in text
    assert "| hat\\`s: n\\|o | 20 | 50.0 ± 20.0 |" in text
    assert "## Limits" in text
    assert "not facts about people" in text.split("## Limits")[1]


def test_card_without_people_has_no_note_on_them(run):
    other = {**METRICS, "labels": METRICS["labels"][1:]}
    (run / "metrics.json").write_text(json.dumps(other))
    assert "no basis for decisions" not in write_card(run).read_text().split("## Limits")[1]


def test_names_are_shown_as_they_are(run):
    first = write_card(run, run / "card.md").read_text().splitlines()[0]
    assert first == r"# Faces \| of \<b\>people\</b\>"


def test_every_row_of_a_table_has_as_many_cells_as_its_head(run):
    lines = write_card(run).read_text().replace(r"\|", "").splitlines()
    tables, current = [], []
    for line in [*lines, ""]:
        if line.startswith("|"):
            current.append(line.count("|"))
        elif current:
            tables, current = [*tables, current], []
    assert len(tables) >= 2
    assert all(len(set(counts)) == 1 for counts in tables)
