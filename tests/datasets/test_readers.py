"""Readers, on small copies of the layouts in which the data sets come."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from higsfa.datasets import readers
from higsfa.datasets.readers import read_fairface, read_fgnet, read_folder, read_morph2, read_utkface

MORPH_HEADER = "id_num,picture_num,dob,doa,race,gender,facial_hair,age,age_diff,glasses,photo"
MORPH_ROWS = [
    "009055,1,10/09/1950,12/20/2004,W,M,,54,0,No,Album2/009055_1M54.JPG",
    "009055,2,10/09/1950,10/08/2005,W,M,,54,292,No,Album2/009055_2M54.JPG",
    "012345,0,02/29/1980,03/01/2005,B,F,,25,0,No,Album2/012345_0F25.JPG",
]


@pytest.fixture
def morph(tmp_path):
    images = tmp_path / "Album2"
    images.mkdir()
    for name in ("009055_1M54.JPG", "009055_2M54.JPG", "012345_0F25.JPG"):
        (images / name).touch()
    return tmp_path, write(tmp_path / "MORPH_Album2.csv", MORPH_HEADER, *MORPH_ROWS)


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_morph2_has_ages_to_the_day_whose_integer_part_counts_birthdays(morph):
    faces = read_morph2(*morph)
    assert len(faces) == 3
    assert [path.name for path in faces.paths] == ["009055_1M54.JPG", "009055_2M54.JPG", "012345_0F25.JPG"]
    assert all(path.is_file() for path in faces.paths)
    assert_array_equal(np.floor(faces.labels["age"]), [54, 54, 25])
    assert_allclose(faces.labels["age"], [54 + 72 / 365, 54 + 364 / 365, 25 + 1 / 365], atol=0.004)
    assert_array_equal(faces.labels["race"], ["W", "W", "B"])
    assert_array_equal(faces.labels["gender"], ["M", "M", "F"])
    assert_array_equal(faces.labels["identity"], ["009055", "009055", "012345"])
    assert faces.eyes is None


def test_morph2_finds_images_from_the_folder_above_or_itself_in_capitals_or_not(morph):
    root, table = morph
    expected = read_morph2(root, table).paths
    assert read_morph2(root / "Album2", table).paths == expected
    lower = write(root / "lower.csv", MORPH_HEADER, *(row.replace(".JPG", ".jpg") for row in MORPH_ROWS))
    assert read_morph2(root, lower).paths == expected
    backslashes = write(root / "back.csv", MORPH_HEADER, *(row.replace("/0", "\\0") for row in MORPH_ROWS))
    assert read_morph2(root, backslashes).paths == expected


def test_morph2_understands_other_names_separators_and_byte_order_marks(morph):
    root, _ = morph
    table = root / "other.csv"
    table.write_text(
        " Photo ;AGE;Sex;Ethnicity;ID Num\n009055_1M54.JPG;54;male;White;9055\n012345_0F25.JPG;25;Female;black;12345\n",
        encoding="utf-8-sig",
    )
    faces = read_morph2(root / "Album2", table)
    assert_array_equal(faces.labels["age"], [54.0, 25.0])
    assert_array_equal(faces.labels["gender"], ["M", "F"])
    assert_array_equal(faces.labels["race"], ["W", "B"])
    assert_array_equal(faces.labels["identity"], ["9055", "12345"])


@pytest.mark.parametrize(
    ("born", "taken"),
    [
        ("1950-10-09", "2004-12-20"),
        ("1950-10-09 00:00:00", "2004-12-20T10:11:12"),
        ("19501009", "20041220"),
        ("10/09/50", "12/20/04"),
        ("09.10.1950", "20.12.2004"),
    ],
)
def test_morph2_reads_dates_in_many_formats(morph, born, taken):
    root, _ = morph
    table = write(root / "t.csv", "dob,doa,photo", f"{born},{taken},009055_1M54.JPG", ",,009055_2M54.JPG")
    assert_allclose(read_morph2(root / "Album2", table).labels["age"], [54 + 72 / 365, np.nan])


def test_morph2_reads_a_column_of_dates_in_one_format(morph):
    root, _ = morph
    rows = ["03/04/1970,01/01/2000,009055_1M54.JPG", "13/04/1970,01/01/2000,009055_2M54.JPG"]
    ages = read_morph2(root / "Album2", write(root / "t.csv", "dob,doa,photo", *rows)).labels["age"]
    assert ages[0] - ages[1] == pytest.approx(10 / 365, abs=1e-3)  # the third and the thirteenth of April


def test_morph2_reads_days_and_months_alike_in_both_columns(morph):
    root, _ = morph
    rows = ["13/04/1970,03/04/2000,009055_1M54.JPG", "05/04/1970,06/04/2000,009055_2M54.JPG"]
    ages = read_morph2(root / "Album2", write(root / "t.csv", "dob,doa,photo", *rows)).labels["age"]
    assert_allclose(ages, [30 - 10 / 366, 30 + 1 / 365])  # it is April 2000, not March and June
    rows = ["1970-04-13,03/04/2000,009055_1M54.JPG", "1970-04-05,04/28/2000,009055_2M54.JPG"]
    ages = read_morph2(root / "Album2", write(root / "t.csv", "dob,doa,photo", *rows)).labels["age"]
    assert_allclose(ages, [29 + 326 / 366, 30 + 23 / 365])


def test_morph2_prefers_the_age_column_where_dates_contradict_it(morph):
    root, _ = morph
    rows = ["30,10/09/1950,12/20/2004,009055_1M54.JPG", "54,12/20/2004,10/09/1950,009055_2M54.JPG"]
    table = write(root / "t.csv", "age,dob,doa,photo", *rows)
    assert_array_equal(read_morph2(root / "Album2", table).labels["age"], [30, 54])


def test_morph2_takes_eyes_from_columns_or_from_a_table_of_their_own(morph):
    root, table = morph
    eyes = write(root / "eyes.csv", "name,lx,ly,rx,ry", "009055_1M54,67,99,117,103", "012345_0F25.JPG,112,108,59.5,109")
    faces = read_morph2(root, table, eyes=eyes)
    assert_allclose(faces.eyes[0], [[67, 99], [117, 103]])
    assert np.isnan(faces.eyes[1]).all()
    assert_allclose(faces.eyes[2], [[59.5, 109], [112, 108]])  # left in the image first
    bare = write(root / "bare.csv", "009055_1M54,67,99,117,103")
    assert_allclose(read_morph2(root, table, eyes=bare).eyes[0], faces.eyes[0])
    columns = write(
        root / "c.csv", "photo,age,Left_Eye_X,Left_Eye_Y,Right_Eye_X,Right_Eye_Y", "009055_1M54.JPG,54,117,103,67,99"
    )
    assert_allclose(read_morph2(root / "Album2", columns).eyes, faces.eyes[:1])
    with pytest.raises(ValueError, match=r"header\.csv: the table is empty"):
        read_morph2(root, table, eyes=write(root / "header.csv", "name,lx,ly,rx,ry"))
    with pytest.raises(ValueError, match="none of its names, such as 'x'"):
        read_morph2(root, table, eyes=write(root / "wrong.csv", "x,1,2,3,4"))
    with pytest.raises(ValueError, match=r"line 2: eye coordinates .*'far'"):
        read_morph2(root, table, eyes=write(root / "text.csv", "009055_1M54,1,2,3,4", "012345_0F25,1,far,3,4"))


def test_morph2_names_what_is_missing(morph):
    root, table = morph
    (root / "Album2" / "009055_2M54.JPG").unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of 3 images are not in .*009055_2M54.JPG; on_missing='skip'"):
        read_morph2(root, table)
    faces = read_morph2(root, table, on_missing="skip")
    assert len(faces) == len(faces.labels["age"]) == 2
    assert "009055_2M54.JPG" in faces.skipped[0]
    with pytest.raises(ValueError, match=r"no column 'photo' or 'file'.*among"):
        read_morph2(root, write(root / "t.csv", "age,x", "1,2"))
    with pytest.raises(ValueError, match="no column 'age', and not both of 'dob' and 'doa'"):
        read_morph2(root, write(root / "t.csv", "photo,dob", "009055_1M54.JPG,1/1/1990"))
    with pytest.raises(ValueError, match="on_missing='ignore'"):
        read_morph2(root, table, on_missing="ignore")


def landmarks(path, left, right):
    points = np.arange(136.0).reshape(68, 2)
    points[31], points[36] = left, right
    lines = "\n".join(f"{x} {y}" for x, y in points)
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"version: 1\nn_points: 68\n{{\n{lines}\n}}\n")


def test_fgnet_names_hold_person_and_age_and_landmarks_the_eyes(tmp_path):
    touch(tmp_path, "images/001A02.JPG", "images/001A16b.JPG", "images/082A69.jpg", "images/Thumbs.db")
    landmarks(tmp_path / "points" / "001a02.pts", (100.5, 120), (160, 121))
    landmarks(tmp_path / "points" / "082a69.pts", (90, 80), (150, 79))
    for folder in (tmp_path, tmp_path / "images"):
        faces = read_fgnet(folder)
        assert [path.name for path in faces.paths] == ["001A02.JPG", "001A16b.JPG", "082A69.jpg"]
        assert_array_equal(faces.labels["age"], [2, 16, 69])
        assert_array_equal(faces.labels["identity"], ["001", "001", "082"])
        assert_allclose(faces.eyes[0], [[100.5, 120], [160, 121]])
        assert np.isnan(faces.eyes[1]).all()
        assert_allclose(faces.eyes[2], [[90, 80], [150, 79]])


def test_fgnet_reports_wrong_names_and_wrong_landmarks(tmp_path):
    touch(tmp_path, "001A02.JPG", "holiday.jpg")
    with pytest.raises(ValueError, match=r"1 images have names.*001A02.JPG.*holiday.jpg.*on_malformed='skip'"):
        read_fgnet(tmp_path)
    with pytest.warns(UserWarning, match="holiday.jpg"):
        faces = read_fgnet(tmp_path, on_malformed="skip")
    assert len(faces) == 1
    assert faces.eyes is None
    (tmp_path / "points").mkdir()
    write(tmp_path / "points" / "001a02.pts", "version: 1", "{", "1 2", "}")
    with pytest.warns(UserWarning, match="holiday"), pytest.raises(ValueError, match=r"001a02.pts: expected 68 .*2"):
        read_fgnet(tmp_path, on_malformed="skip")


def test_utkface_names_hold_age_gender_and_race(tmp_path):
    touch(
        tmp_path,
        "part1/26_0_1_20170116184751658.jpg.chip.jpg",
        "part1/116_1_3_20170112220255503.jpg",
        "9_1_4_20170103213057382.jpg",
    )
    faces = read_utkface(tmp_path)
    assert_array_equal(faces.labels["age"], [9, 116, 26])
    assert_array_equal(faces.labels["gender"], ["F", "F", "M"])
    assert_array_equal(faces.labels["race"], ["Others", "Indian", "Black"])
    assert "identity" not in faces.labels


def test_utkface_skips_and_reports_malformed_names_or_raises(tmp_path):
    touch(
        tmp_path, "26_0_1_20170116184751658.jpg", "61_1_20170109142408075.jpg.chip.jpg", "53__0_20170116184028385.jpg"
    )
    with pytest.warns(UserWarning, match=r"2 images have names.*61_1_20170109142408075"):
        faces = read_utkface(tmp_path)
    assert len(faces) == 1
    assert len(faces.skipped) == 2
    with pytest.raises(ValueError, match="2 images"):
        read_utkface(tmp_path, on_malformed="raise")
    with pytest.raises(ValueError, match="on_malformed='warn'"):
        read_utkface(tmp_path, on_malformed="warn")


def test_fairface_ages_are_the_middle_of_their_group(tmp_path):
    touch(tmp_path, *(f"val/{i}.jpg" for i in range(1, 6)))
    table = write(
        tmp_path / "fairface_label_val.csv",
        "file,age,gender,race,service_test",
        "val/1.jpg,3-9,Male,East Asian,False",
        "val/2.jpg,50-59,Female,Latino_Hispanic,True",
        "val/3.jpg,more than 70,Male,White,False",
        "val/4.jpg,0-2,Female,Middle Eastern,True",
        "val/5.jpg,,Female,,True",
    )
    faces = read_fairface(table, tmp_path)
    assert_array_equal(faces.labels["age"], [6, 54.5, 75, 1, np.nan])
    assert_array_equal(faces.labels["age_group"], ["3-9", "50-59", "more than 70", "0-2", None])
    assert_array_equal(faces.labels["gender"], ["M", "F", "M", "F", "F"])
    assert_array_equal(faces.labels["race"], ["East Asian", "Latino_Hispanic", "White", "Middle Eastern", None])
    assert_array_equal(faces.labels["service_test"], [False, True, False, True, True])
    assert read_fairface(table, tmp_path / "val").paths == faces.paths
    with pytest.raises(ValueError, match="line 2: age 'young'"):
        read_fairface(write(tmp_path / "t.csv", "file,age", "val/1.jpg,young"), tmp_path)


def test_fairface_does_not_take_images_of_another_part(tmp_path):
    touch(tmp_path, "train/1.jpg")
    table = write(tmp_path / "fairface_label_val.csv", "file,age,gender,race", "val/1.jpg,3-9,Male,White")
    with pytest.raises(FileNotFoundError, match="1 of 1 images are not in"):
        read_fairface(table, tmp_path / "train")


def test_folder_reads_numbers_and_names_with_gaps(tmp_path):
    touch(tmp_path, "a.png", "sub/b.png", "c.png")
    table = write(
        tmp_path / "t.csv",
        "path,age,count,person,note,ex,ey,fx,fy",
        "a.png,20.5,1,007,old,9,1,5,2",
        "sub/b.png,,2,008,,,,,",
        "c.png,31,-3,009,x,1,2,3,4",
    )
    faces = read_folder(tmp_path, table, path_column="Path", eye_columns=("ex", "ey", "fx", "fy"))
    assert list(faces.labels) == ["age", "count", "person", "note"]
    assert_array_equal(faces.labels["age"], [20.5, np.nan, 31])
    assert_array_equal(faces.labels["count"], [1, 2, -3])
    assert faces.labels["count"].dtype == np.int64
    assert_array_equal(faces.labels["person"], ["007", "008", "009"])
    assert_array_equal(faces.labels["note"], ["old", None, "x"])
    assert_allclose(faces.eyes[0], [[5, 2], [9, 1]])
    assert np.isnan(faces.eyes[1]).all()
    renamed = read_folder(tmp_path, table, path_column="path", label_columns={"count": "n"})
    assert list(renamed.labels) == ["n"]
    assert read_folder(tmp_path, table, path_column="path", label_columns=["age"]).eyes is None
    with pytest.raises(ValueError, match="no column 'race' among"):
        read_folder(tmp_path, table, path_column="path", label_columns=["race"])
    with pytest.raises(ValueError, match=r"eye_columns=.*four"):
        read_folder(tmp_path, table, path_column="path", eye_columns=["ex"])


@pytest.mark.parametrize(
    "names",
    [["1_11", "11_1", "3"], ["20170116184751658", "20170116184751659", "-20170116184751659"], ["01", "1", "10"]],
)
def test_names_made_of_digits_are_not_mixed_up(tmp_path, names):
    touch(tmp_path, "a.png", "b.png", "c.png")
    table = write(tmp_path / "t.csv", "file,person", *(f"{x}.png,{name}" for x, name in zip("abc", names, strict=True)))
    assert_array_equal(read_folder(tmp_path, table).labels["person"], names)


def test_folder_without_a_table_lists_all_images_in_order(tmp_path):
    touch(tmp_path, "b.png", "a.JPG", "sub/c.jpeg", "notes.txt", ".hidden.png")
    faces = read_folder(tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in faces.paths] == ["a.JPG", "b.png", "sub/c.jpeg"]
    assert faces.labels == {}
    assert faces.name == tmp_path.name


def test_subset_takes_masks_numbers_and_slices(tmp_path):
    touch(tmp_path, "a.png", "b.png", "c.png")
    table = write(tmp_path / "t.csv", "file,n,x,y,z,w", *(f"{name}.png,{i},{i},0,9,0" for i, name in enumerate("abc")))
    faces = read_folder(tmp_path, table, label_columns=["n"], eye_columns=list("xyzw"))
    for index, expected in (([2, 0], [2, 0]), ([True, False, True], [0, 2]), (slice(1, None), [1, 2]), ([], [])):
        part = faces.subset(index)
        assert_array_equal(part.labels["n"], expected)
        assert [path.stem for path in part.paths] == ["abc"[i] for i in expected]
        assert_array_equal(part.eyes[:, 0, 0], expected)


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../secret.png", "a/../../secret.png", "C:\\secret.png", "\\\\host\\x.png", "..\\x.png", "."],
)
@pytest.mark.parametrize("on_missing", ["raise", "skip"])
def test_paths_that_lead_out_of_the_folder_are_errors(tmp_path, path, on_missing):
    touch(tmp_path, "inside/a.png", "secret.png")
    table = write(tmp_path / "t.csv", "file,n", "a.png,1", f"{path},2")
    with pytest.raises(ValueError, match=r"t.csv, line 3: path .* must name a file inside the folder"):
        read_folder(tmp_path / "inside", table, on_missing=on_missing)


def test_an_empty_path_is_an_error(tmp_path):
    touch(tmp_path, "a.png")
    with pytest.raises(ValueError, match=r"line 2: path ''"):
        read_folder(tmp_path, write(tmp_path / "t.csv", "file,n", ",1"))


def test_tables_beyond_the_limits_or_out_of_shape_are_errors(tmp_path, monkeypatch):
    touch(tmp_path, "a.png")
    with pytest.raises(ValueError, match="line 3: 1 fields where the first line has 2"):
        read_folder(tmp_path, write(tmp_path / "t.csv", "file,n", "a.png,1", "a.png"))
    with pytest.raises(ValueError, match="empty"):
        read_folder(tmp_path, write(tmp_path / "t.csv", "file,n"))
    with pytest.raises(ValueError, match="empty"):
        read_folder(tmp_path, write(tmp_path / "t.csv", ""))
    (tmp_path / "t.csv").write_bytes(b"file,n\na.png,\xff\xfe\n")
    with pytest.raises(ValueError, match="UTF-8"):
        read_folder(tmp_path, tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("file,n\na.png,'" + "x" * readers.MAX_LINE)
    with pytest.raises(ValueError, match="more than 65536 characters"):
        read_folder(tmp_path, tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text('file,n\na.png,"' + "x\n" * 100_000)
    with pytest.raises(ValueError, match="not a readable CSV table"):
        read_folder(tmp_path, tmp_path / "t.csv")
    monkeypatch.setattr(readers, "MAX_ROWS", 5)
    with pytest.raises(ValueError, match="more than 5 rows"):
        read_folder(tmp_path, write(tmp_path / "t.csv", "file,n", *["a.png,1"] * 9))


def test_folders_and_tables_that_are_not_there_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"):
        read_folder(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nothing.csv"):
        read_folder(tmp_path, tmp_path / "nothing.csv")
    with pytest.raises(FileNotFoundError, match="no image with a name of the form"):
        read_utkface(tmp_path)


def test_long_lists_of_missing_images_are_cut_short(tmp_path):
    touch(tmp_path, "a.png")
    table = write(tmp_path / "t.csv", "file,n", "a.png,0", *(f"gone{i}.png,1" for i in range(50)))
    with pytest.raises(FileNotFoundError, match=r"50 of 51 .*gone0.png, .*gone4.png, \.\.\.") as caught:
        read_folder(tmp_path, table)
    assert "gone5.png" not in str(caught.value)
