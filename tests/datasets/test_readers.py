"""Readers, on small copies of the layouts in which the data sets come."""

from datetime import date, timedelta

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from higsfa.datasets import files
from higsfa.datasets.files import _years
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


@pytest.mark.parametrize(
    "names",
    [
        *("left_eye_x left_eye_y right_eye_x right_eye_y", "LEye_X LEye_Y REye_X REye_Y"),
        *("eye_left_x eye_left_y eye_right_x eye_right_y", "eye1_x eye1_y eye2_x eye2_y"),
        *("lx ly rx ry", "x1 y1 x2 y2", "leftEyeX leftEyeY rightEyeX rightEyeY"),
    ],
)
def test_columns_with_eyes_have_many_names(morph, names):
    root, _ = morph
    rows = ["009055_1M54.JPG,54,67,99,117,103", "009055_2M54.JPG,54,,,,"]
    table = write(root / "t.csv", "photo,age," + ",".join(names.split()), *rows)
    eyes = read_morph2(root / "Album2", table).eyes
    assert_allclose(eyes, [[[67, 99], [117, 103]], np.full((2, 2), np.nan)])
    rows[1] = "009055_2M54.JPG,54,1,2,three,4"
    with pytest.raises(ValueError, match=r"line 3: eye coordinates \('1', '2', 'three', '4'\)"):
        read_morph2(root / "Album2", write(root / "t.csv", "photo,age," + ",".join(names.split()), *rows))


def test_ages_count_birthdays_and_days_since_the_last_one():
    rng = np.random.default_rng(0)
    first = date(1930, 1, 1)
    days = [
        (first + timedelta(int(a)), int(b))
        for a, b in zip(rng.integers(0, 25_000, 300), rng.integers(0, 25_000, 300), strict=True)
    ]
    days += [(date(1960, 2, 29), n) for n in (0, 1, 365, 366, 367, 1460, 1461, 1462)]
    for born, n in days:
        taken = born + timedelta(n)
        age = _years(born, taken)
        completed = taken.year - born.year - ((taken.month, taken.day) < (born.month, born.day))
        assert int(age) == completed
        assert age - completed < 1
        assert _years(born, taken + timedelta(1)) - age == pytest.approx(1 / 365.5, abs=1e-5)
        birthday = (taken.month, taken.day) == (born.month, born.day)
        assert (age == completed) == (
            birthday or ((born.month, born.day, taken.month, taken.day) == (2, 29, 3, 1) and not leap(taken.year))
        )


def leap(year):
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


@pytest.mark.parametrize(
    ("age", "dob", "doa", "expected"),
    [
        ("54", "12/31/1899", "12/20/1954", 54.0),
        ("55", "01/01/1900", "01/01/1955", 55.0),
        ("", "01/01/1900", "01/01/2019", 119.0),
        ("", "01/01/1900", "01/01/2020", 120.0),
        ("", "01/01/1900", "07/01/2020", np.nan),
        ("", "01/01/2100", "01/01/2100", 0.0),
        ("", "01/01/2099", "01/01/2101", np.nan),
        ("", "01/02/2000", "01/01/2000", np.nan),
        ("53", "10/09/1950", "10/09/2004", 54.0),
        ("55", "10/09/1950", "10/09/2004", 54.0),
        ("52", "10/09/1950", "10/09/2004", 52.0),
        ("56", "10/09/1950", "10/09/2004", 56.0),
        ("21", "10/09/1950", "", 21.0),
        ("21", "", "10/09/1950", 21.0),
        ("", "10/09/32", "10/09/04", 72.0),
        ("", "02/29/00", "03/01/01", 1.0),
        ("", "10/09/05", "10/09/04", 99.0),
        ("x", "soon", "later", np.nan),
    ],
)
def test_dates_that_cannot_be_are_ignored(morph, age, dob, doa, expected):
    root, _ = morph
    table = write(root / "t.csv", "age,dob,doa,photo", f"{age},{dob},{doa},009055_1M54.JPG")
    assert_allclose(read_morph2(root / "Album2", table).labels["age"], [expected])


@pytest.mark.parametrize(
    ("names", "row"),
    [
        ("date_of_birth,date_of_acquisition,file", "10/09/1950,12/20/2004,009055_1M54.JPG"),
        ("Birth Date,Photo-Date,image", "10/09/1950,12/20/2004,009055_1M54.JPG"),
        ("birthdate,date of arrest,File Name", "10/09/1950,12/20/2004,009055_1M54.JPG"),
        ("acquisition date\tdob\tfilename", "12/20/2004\t10/09/1950\t009055_1M54.JPG"),
    ],
)
def test_columns_of_dates_and_photos_have_many_names(morph, names, row):
    root, _ = morph
    faces = read_morph2(root / "Album2", write(root / "t.csv", names, row))
    assert_allclose(faces.labels["age"], 54 + 72 / 365)
    assert list(faces.labels) == ["age"]


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


def test_fgnet_reports_wrong_names_and_wrong_landmarks(tmp_path, monkeypatch):
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
    (tmp_path / "holiday.jpg").unlink()
    for numbers in ([1] * 135, [1] * 137, [1] * 135 + ["nan"], [1] * 135 + ["x"]):
        write(tmp_path / "points" / "001a02.pts", "{", *map(str, numbers), "}")
        with pytest.raises(ValueError, match=r"001a02.pts: expected 68"):
            read_fgnet(tmp_path)
    monkeypatch.setattr(files, "MAX_LANDMARK_BYTES", 2 * 136 + 4)
    write(tmp_path / "points" / "001a02.pts", "{", *["1"] * 136, "}")
    assert_array_equal(read_fgnet(tmp_path).eyes, np.ones((1, 2, 2)))
    write(tmp_path / "points" / "001a02.pts", "{", *["1"] * 136, "}", "")
    with pytest.raises(ValueError, match=r"larger than 276 bytes"):
        read_fgnet(tmp_path)


def test_fgnet_finds_landmarks_beside_the_images_only(tmp_path):
    touch(tmp_path, "FGNET/Images/001A02.JPG", "other/001A02.JPG")
    landmarks(tmp_path / "FGNET" / "POINTS" / "001A02.PTS", (160, 121), (100.5, 120))
    landmarks(tmp_path / "points" / "001a02.pts", (1, 2), (3, 4))
    for folder in ("FGNET", "FGNET/Images"):
        assert_allclose(read_fgnet(tmp_path / folder).eyes, [[[100.5, 120], [160, 121]]])  # left in the image first
    assert read_fgnet(tmp_path / "other").eyes is None
    with pytest.raises(ValueError, match="on_malformed='ignore'"):
        read_fgnet(tmp_path / "other", on_malformed="ignore")


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
    for text in ("young", "29-20", "1-2-3"):
        with pytest.raises(ValueError, match=f"line 2: age '{text}'"):
            read_fairface(write(tmp_path / "t.csv", "file,age", f"val/1.jpg,{text}"), tmp_path)
    texts = {"(25; 32)": 28.5, "70+": 75, "over 80": 85, "OLDER than 60": 65, "Above 5": 10, "41": 41, "20-20": 20}
    write(tmp_path / "t.csv", "image,Age Group", *(f"val/1.jpg,{text}" for text in texts))
    faces = read_fairface(tmp_path / "t.csv", tmp_path)
    assert_array_equal(faces.labels["age"], list(texts.values()))
    assert list(faces.labels) == ["age", "age_group"]
    assert (faces.name, faces.eyes, faces.skipped) == ("FairFace", None, ())
    write(tmp_path / "t.csv", "file,age,service_test", *(f"val/1.jpg,3-9,{text}" for text in ("1", "YES", "no", "0")))
    assert_array_equal(read_fairface(tmp_path / "t.csv", tmp_path).labels["service_test"], [True, True, False, False])


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
    assert repr(faces) == f"<ImageSet {tmp_path.name}: 3 images, labels [], no eyes>"
    assert read_folder(tmp_path, name="mine").name == "mine"


def test_tables_may_have_blank_lines_quotes_and_empty_ends(tmp_path):
    touch(tmp_path, "a.png", "b, c.png")
    (tmp_path / "t.csv").write_text('\n  \nfile;n;n\n;;\n"a.png"; 1 ;9;;\n\n"b, c.png";2;9')
    faces = read_folder(tmp_path, tmp_path / "t.csv")
    assert [path.name for path in faces.paths] == ["a.png", "b, c.png"]
    assert_array_equal(faces.labels["n"], [1, 2])  # of two columns of one name the first counts
    (tmp_path / "t.csv").write_text("\n \nfile;n;m\n\na.png;1;2;x\n")
    with pytest.raises(ValueError, match="line 5: 4 fields where the first line has 3"):
        read_folder(tmp_path, tmp_path / "t.csv")


def test_paths_may_begin_with_the_names_of_the_folders_above(tmp_path):
    touch(tmp_path, "set/photos/a.png", "set/photos/SUB/B.png", "a.png")
    for path, found in (
        ("a.png", "set/photos/a.png"),
        ("photos/a.png", "set/photos/a.png"),
        ("Set/Photos/a.PNG", "set/photos/a.png"),
        ("./sub//b.png", "set/photos/SUB/B.png"),
        ("other/a.png", None),
        ("set/a.png", None),
        ("sub", None),
        ("a.png/b", None),
    ):
        table = write(tmp_path / "t.csv", "file,n", f"{path},1", "a.png,2")
        faces = read_folder(tmp_path / "set" / "photos", table, on_missing="skip")
        assert len(faces) == (1 if found is None else 2), path
        assert found is None or faces.paths[0] == tmp_path / found
        assert len(faces.skipped) == (1 if found is None else 0)
    # Images of MORPH-II have unique names, whatever folder the table says.
    table = write(tmp_path / "t.csv", "photo,age", "any/where/a.png,1")
    assert read_morph2(tmp_path / "set" / "photos", table).paths == (tmp_path / "set" / "photos" / "a.png",)


def test_of_names_that_differ_in_capitals_the_exact_one_is_found(tmp_path):
    touch(tmp_path, "a.png", "A.png")
    table = write(tmp_path / "t.csv", "file,n", "A.png,1", "a.png,2")
    assert [path.name for path in read_folder(tmp_path, table).paths] == ["A.png", "a.png"]


def test_subset_takes_masks_numbers_and_slices(tmp_path):
    touch(tmp_path, "a.png", "b.png", "c.png")
    table = write(tmp_path / "t.csv", "file,n,x,y,z,w", *(f"{name}.png,{i},{i},0,9,0" for i, name in enumerate("abc")))
    faces = read_folder(tmp_path, table, label_columns=["n"], eye_columns=list("xyzw"))
    for index, expected in (([2, 0], [2, 0]), ([True, False, True], [0, 2]), (slice(1, None), [1, 2]), ([], [])):
        part = faces.subset(index)
        assert_array_equal(part.labels["n"], expected)
        assert [path.stem for path in part.paths] == ["abc"[i] for i in expected]
        assert_array_equal(part.eyes[:, 0, 0], expected)
    assert repr(faces).endswith("3 images, labels ['n'], eyes>")
    assert read_folder(tmp_path, table, label_columns=["n"]).subset([1]).eyes is None


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
    (tmp_path / "t.csv").write_text("file,n\na.png,'" + "x" * files.MAX_LINE)
    with pytest.raises(ValueError, match="more than 65536 characters"):
        read_folder(tmp_path, tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("file,n\na.png," + "x" * (files.MAX_LINE - 7) + "\n")
    assert len(read_folder(tmp_path, tmp_path / "t.csv").labels["n"][0]) == files.MAX_LINE - 7
    (tmp_path / "t.csv").write_text('file,n\na.png,"' + "x\n" * 100_000)
    with pytest.raises(ValueError, match="not a readable CSV table"):
        read_folder(tmp_path, tmp_path / "t.csv")
    monkeypatch.setattr(files, "MAX_ROWS", 5)
    with pytest.raises(ValueError, match="more than 5 rows"):
        read_folder(tmp_path, write(tmp_path / "t.csv", "file,n", *["a.png,1"] * 5))
    assert len(read_folder(tmp_path, write(tmp_path / "t.csv", "file,n", *["a.png,1"] * 4))) == 4


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
