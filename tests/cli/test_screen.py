"""What commands show and draw: tables, JSON, progress, sheets of pictures."""

import io
import json

import numpy as np
import pytest
from PIL import Image, ImageSequence
from rich.console import Console
from rich.progress import Progress

from higsfa.cli import sheet as sheets
from higsfa.cli import terminal as screen


def test_json_has_no_nan_and_only_plain_values(capsys, tmp_path):
    value = {"a": np.array([1.5, np.nan]), 3: (np.float32(0.5), float("inf")), "p": tmp_path, "t": [True, None, "x"]}
    screen.answer(True, value, "")
    assert json.loads(capsys.readouterr().out) == {
        "a": [1.5, None],
        "3": [0.5, None],
        "p": str(tmp_path),
        "t": [True, None, "x"],
    }


def test_lines_keep_brackets_and_lose_halves_of_characters(capsys):
    screen.say("[red]a[/] \udcff " + "long " * 100)
    screen.say("to the other stream", stderr=True)
    out, err = capsys.readouterr()
    assert out == "[red]a[/] ? " + "long " * 100 + "\n"
    assert err == "to the other stream\n"


def test_tables_align_texts_left_and_numbers_right_and_cut_nothing(capsys):
    name = "n" * 300
    screen.table(["name", "number"], [[name, "1"], ["b\x1b", "20"]], title="A title")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "A title"
    assert lines[1].rstrip() == "name" + " " * 298 + "number"
    assert lines[2].rstrip() == name + " " * 7 + "1"
    assert lines[3].rstrip() == "b?" + " " * 304 + "20"


@pytest.mark.parametrize(
    ("labels", "told"), [(["Age"], True), (["digit", "race"], True), (["digit"], False), ([], False)]
)
def test_labels_of_people_carry_a_note(labels, told, capsys):
    screen.note_about_faces(labels)
    out, err = capsys.readouterr()
    assert out == ""
    assert ("statistical guesses" in err) == told


def test_progress_is_a_line_for_each_stage_where_there_is_no_terminal(capsys):
    with screen.stages() as progress:
        progress.stage("first\nstage", 10)
        progress.advance(3)
        progress.stage("second", None)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "first stage\nsecond\n"


def test_progress_is_a_bar_with_one_task_on_a_terminal(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(screen, "console", lambda stderr=False: Console(file=stream, force_terminal=True, width=100))
    with screen.stages() as progress:
        bar = progress._bar
        progress.advance(1)  # before any stage: nothing happens
        progress.stage("first", 200)
        progress.advance(50)
        assert [(task.description, task.completed, task.total) for task in bar.tasks] == [("first", 50, 200)]
        column = next(c for c in bar.columns if isinstance(c, screen._ShareAndTimeLeft))
        assert column.render(bar.tasks[0]).plain.startswith("25%, left")
        progress.stage("second [b]", None)
        assert [task.description for task in bar.tasks] == ["second [b]"]
        assert column.render(bar.tasks[0]).plain == ""
    shown, gone = stream.getvalue().rsplit("second [b]", 1)
    assert shown
    assert "\x1b[2K" in gone  # the line is erased in the end


def test_a_remark_stays_on_the_terminal_and_is_no_task(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(screen, "console", lambda stderr=False: Console(file=stream, force_terminal=True, width=60))
    with screen.stages() as progress:
        progress.remark("age: " + 90 * "x" + " [b]")
        assert progress._bar.tasks == []
    assert "age: " + 90 * "x" + " [b]\n" in stream.getvalue()


def test_a_console_is_wide_unless_it_is_a_terminal():
    assert screen.console().width == 10_000
    assert isinstance(screen.Stages(None)._bar, type(None))
    assert not isinstance(screen.Stages(None)._bar, Progress)


# ---------------------------------------------------------------------- sheets


def test_grey_values_become_bytes():
    assert sheets.as_bytes([-3, -1, 0, 1, 4], (-1.0, 1.0)).tolist() == [0, 0, 128, 255, 255]
    assert sheets.as_bytes([0, 100.4, 100.6, 300], (0.0, 255.0)).tolist() == [0, 100, 101, 255]
    assert sheets.as_bytes([1.0], (0.0, 255.0)).dtype == np.uint8


@pytest.mark.parametrize(("side", "shown"), [(12, 132), (64, 128), (100, 100), (90, 90), (85, 170), (300, 300)])
def test_small_pictures_are_enlarged_by_a_whole_factor(side, shown):
    assert sheets.enlarged(np.zeros((side, side), np.uint8)).size == (shown, shown)
    assert sheets.enlarged(np.zeros((side // 2, side), np.uint8)).size == (shown, shown // side * (side // 2))


def dark(sheet, x, y):
    """Whether there is anything but white in a part of a sheet."""
    return bool((np.asarray(sheet)[y, x] < 128).any())


def test_a_sheet_has_names_at_the_left_and_captions_above():
    picture = np.full((128, 128), 200, np.uint8)
    rows = [[picture, picture], [picture]]
    plain = sheets.sheet(rows)
    assert plain.size == (8 + 2 * 136, 8 + 2 * 136)
    assert not dark(plain, slice(None), slice(None))
    assert np.asarray(plain)[8:136, 8:136].max() == 200
    assert np.asarray(plain)[144:272, 144:272].min() == 255  # the second row has one picture
    named = sheets.sheet(rows, ["first", "second"])
    left = named.width - 2 * 136
    assert left > 30
    for y in (8, 144):
        assert dark(named, slice(0, left), slice(y + 50, y + 80))
        assert not dark(named, slice(0, left), slice(y, y + 40))
    titled = sheets.sheet(rows, captions=["a", "b" * 100])
    assert titled.size == (8 + 2 * 136, 8 + 22 + 2 * 136)
    for x in (8, 144):
        assert dark(titled, slice(x + 50, x + 78), slice(0, 30))
    assert not dark(titled, slice(8, 40), slice(0, 30))
    assert np.asarray(titled)[30:158, 8:136].max() == 200


def test_an_animation_goes_there_and_back(tmp_path):
    frames = [np.full((64, 64), grey, np.uint8) for grey in (10, 90, 170, 250)]
    for name in ("a.gif", "a.WebP"):
        sheets.write_animation(tmp_path / name, frames)
        with Image.open(tmp_path / name) as found:
            assert found.format == ("GIF" if name == "a.gif" else "WEBP")
            assert found.info.get("loop", 0) == 0
            shown = [np.asarray(f.convert("L"))[64, 64] for f in ImageSequence.Iterator(found)]
            assert found.info.get("duration") in (120, None)
        np.testing.assert_allclose(shown, [10, 90, 170, 250, 170, 90], atol=4)
    sheets.write_animation(tmp_path / "two.gif", frames[:2])
    with Image.open(tmp_path / "two.gif") as found:
        assert found.n_frames == 2
