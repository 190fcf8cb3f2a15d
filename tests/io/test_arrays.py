"""Arrays in .npy and .npz files: what numpy writes is read, and nothing else, whatever a header announces."""

import io
import os
import struct
import zipfile
import zlib

import numpy as np
import pytest

from higsfa import datasets, sources
from higsfa.io.arrays import read_npz
from model_files import CALLS, counted

LIMIT = 10**6
ARRAYS = {
    "numbers": np.arange(24.0).reshape(2, 3, 4),
    "fortran": np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3)),
    "one": np.float32([1.5]),
    "scalar": np.array(7),
    "none": np.zeros((0, 3), np.uint8),
    "truth": np.array([True, False]),
    "texts": np.array(["a", "süß 😀", ""]),
    "bytes": np.array([b"a", b"bc"]),
    "half": np.float16([[1, 2]]),
    "long": np.longdouble([1, 2, 3]),
    "reversed": np.array(["naïve", "日本"], dtype=">U5"),
}


def header_of(shape, descr="<f8", order=False, version=(1, 0)):
    file = io.BytesIO()
    write = np.lib.format.write_array_header_1_0 if version == (1, 0) else np.lib.format.write_array_header_2_0
    write(file, {"descr": descr, "fortran_order": order, "shape": shape})
    return file.getvalue()


def archive(path, packing=zipfile.ZIP_DEFLATED, **members):
    with zipfile.ZipFile(path, "w", packing) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


def refusal(path, names=None):
    """The message with which a file is refused, without much memory or work."""

    def read():
        with pytest.raises(ValueError, match=" ") as error:
            read_npz(path, names, limit=LIMIT)
        return str(error.value)

    count = counted(read)
    assert count.memory < 4 * LIMIT
    assert count.calls < CALLS
    return count.result


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_numpy_writes_is_read_to_the_bit(save, tmp_path):
    save(tmp_path / "a.npz", **ARRAYS)
    found = read_npz(tmp_path / "a.npz", limit=LIMIT)
    with np.load(tmp_path / "a.npz") as file:
        expected = dict(file)
    assert list(found) == list(expected)
    for name, array in found.items():
        assert array.dtype == expected[name].dtype
        assert array.shape == expected[name].shape
        assert array.tobytes() == expected[name].tobytes()
        assert array.flags.f_contiguous or name != "fortran"
    some = read_npz(tmp_path / "a.npz", ["texts", "scalar", "texts"], limit=LIMIT)
    assert list(some) == ["texts", "scalar"]
    assert "no array 'more'; it has 'numbers', 'fortran'" in refusal(tmp_path / "a.npz", ["texts", "more"])


def test_the_limit_is_that_of_all_arrays_together(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.zeros(10), b=np.zeros(5))
    assert len(read_npz(tmp_path / "a.npz", limit=120)) == 2
    with pytest.raises(ValueError, match="take 120 bytes, more than the 119 allowed"):
        read_npz(tmp_path / "a.npz", limit=119)
    assert len(read_npz(tmp_path / "a.npz", ["a"], limit=80)) == 1


ZEROS = bytes(80)
HEADERS = {
    "negative": (header_of((-1, 10)), "header"),
    "two negatives": (header_of((-5, -2)), "header"),
    "version 2": (header_of((10,), version=(2, 0)), "np.save"),
    "version 3": (b"\x93NUMPY\x03\x00" + header_of((10,))[8:], "np.save"),
    "objects": (header_of((10,), "|O"), "Python objects"),
    "records": (header_of((10,), [("a", "<f8")]), "records"),
    "dates": (header_of((10,), "<M8[ns]"), "dates"),
    "complex numbers": (header_of((5,), "<c16"), "header"),
    "numbers of no size": (header_of((10,), "<U0"), "header"),
    "numbers of odd size": (header_of((10,), "<f3"), "unknown type, <f3"),
    "too few": (header_of((11,)), "do not match its shape"),
    "too many": (header_of((9,)), "do not match its shape"),
    "too large": (header_of((10**17, 10**17)), "more than the 1,000,000 allowed"),
    "many dimensions": (header_of((1,) * 33), "33 dimensions"),
    "more dimensions than fit": (header_of((0,) + (10**18,) * 20), "cannot be read"),
    "long": (header_of((10,)).replace(b"\n", b" " * 9_990 + b"\n"), "np.save"),
    "another order": (header_of((10,)).replace(b"False", b"1    "), "header"),
    "calls": (header_of((10,)).replace(b"(10,)", b"exit()"), "header"),
    "deep": (b"\x93NUMPY\x01\x00" + struct.pack("<H", 9_000) + b"-" * 8_999 + b"1", "header"),
    "no magic": (b"\x93NUMPI\x01\x00" + header_of((10,))[8:], "np.save"),
    "cut off": (header_of((10,))[:30], "header"),
    "empty": (b"", "np.save"),
}
HEADERS["long"] = (
    b"\x93NUMPY\x01\x00" + struct.pack("<H", 10_128) + header_of((10,))[10:-1] + b" " * 10_010 + b"\n",
    "np.save",
)


@pytest.mark.parametrize("name", HEADERS)
def test_headers_that_numpy_would_not_write_are_refused(name, tmp_path):
    header, message = HEADERS[name]
    content = header if name in ("cut off", "empty") else header + ZEROS
    assert message in refusal(archive(tmp_path / "a.npz", x=content))
    (tmp_path / "x.npy").write_bytes(content)
    if name not in ("too many", "more dimensions than fit"):
        with pytest.raises((ValueError, TypeError), match=r"x\.npy"):
            sources.npy(tmp_path / "x.npy")


def test_a_header_of_gigabytes_is_not_unpacked(tmp_path):
    header = b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + b" " * (2 * 10**7)
    assert "np.save" in refusal(archive(tmp_path / "a.npz", x=header))


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    assert "do not match its shape" in refusal(archive(tmp_path / "a.npz", x=header_of((10,)) + bytes(2 * 10**7)))
    assert "more than the 1,000,000" in refusal(archive(tmp_path / "a.npz", x=header_of((10**6,)) + bytes(8 * 10**6)))


def test_characters_that_do_not_exist_are_refused(tmp_path):
    good = np.array(["\U0010ffff"])
    for byte_order in "<>":
        kind = f"{byte_order}U1"
        found = read_npz(
            archive(tmp_path / "a.npz", x=header_of((1,), kind) + good.astype(kind).tobytes()), limit=LIMIT
        )
        assert found["x"].tolist() == good.tolist()
        wrong = np.array([0x110000], f"{byte_order}u4").tobytes()
        assert "characters" in refusal(archive(tmp_path / "a.npz", x=header_of((1,), kind) + wrong))


@pytest.mark.parametrize("packing", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_only_numpys_own_ways_of_packing_are_read(packing, tmp_path):
    assert "numpy does not write" in refusal(archive(tmp_path / "a.npz", packing, x=header_of((10,)) + ZEROS))


def test_damaged_archives_are_refused(tmp_path):
    path = archive(tmp_path / "a.npz", x=header_of((10,)) + bytes(range(80)))
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        refusal(path)
    for at in (80, 120, len(whole) - 22):
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        path.write_bytes(damaged)
        refusal(path)


def test_an_array_that_ends_early_is_refused_even_if_its_checksum_is_right(tmp_path):
    header = header_of((10,))
    path = archive(tmp_path / "a.npz", x=header + bytes(40))
    data = path.read_bytes()
    sizes = struct.pack("<I", len(header) + 40)
    assert data.count(sizes) >= 2
    path.write_bytes(data.replace(sizes, struct.pack("<I", len(header) + 80)))
    assert zlib.crc32(header + bytes(40)).to_bytes(4, "little") in data
    assert "fewer bytes" in refusal(path)


def test_a_long_list_of_arrays_is_not_read(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as file:
        for k in range(12_000):
            file.writestr(f"{k:050d}.npy", b"")
    assert "list of arrays takes more than" in refusal(path)
    data = archive(path, x=header_of((10,)) + ZEROS).read_bytes()
    end = data.rindex(b"PK\x05\x06")
    path.write_bytes(data[: end + 12] + struct.pack("<I", 2**32 - 2) + data[end + 16 :])
    refusal(path)


def test_a_pipe_or_a_folder_in_the_place_of_a_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(ValueError, match="not a regular file"):
        read_npz(tmp_path / "pipe.npz", limit=LIMIT)
    with pytest.raises(ValueError, match="not a regular file"):
        sources.npy(tmp_path / "pipe.npz")
    for read in (lambda path: read_npz(path, limit=LIMIT), sources.npy):
        with pytest.raises(IsADirectoryError):
            read(tmp_path)
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "missing")


def test_a_pipe_or_a_flood_among_landmarks_is_not_read(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "points").mkdir()
    (tmp_path / "images" / "001A02.jpg").touch()
    os.mkfifo(tmp_path / "points" / "001a02.pts")
    with pytest.raises(ValueError, match=r"001a02\.pts is not a regular file"):
        datasets.read_fgnet(tmp_path)
    (tmp_path / "points" / "001a02.pts").unlink()
    (tmp_path / "points" / "001a02.pts").write_bytes(bytes(100_001))
    with pytest.raises(ValueError, match=r"001a02\.pts is larger than 100,000 bytes"):
        datasets.read_fgnet(tmp_path)


def test_a_link_to_a_file_is_a_file(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(3, 2))
    os.symlink(tmp_path / "x.npy", tmp_path / "link.npy")
    assert np.array_equal(sources.npy(tmp_path / "link.npy").take([2]), [[4, 5]])


def test_mapped_files_are_those_that_numpy_maps(tmp_path):
    for array in (np.arange(24.0).reshape(2, 3, 4), np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3))):
        np.save(tmp_path / "x.npy", array)
        source = sources.npy(tmp_path / "x.npy")
        assert np.array_equal(np.asarray(source), np.load(tmp_path / "x.npy"))
        assert source.dtype == array.dtype
        assert repr(source) == repr(sources.array(np.load(tmp_path / "x.npy", mmap_mode="r")))
    np.save(tmp_path / "x.npy", np.arange(6.0))
    with pytest.raises(ValueError, match="at least two dimensions"):
        sources.npy(tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", np.array([["a"]]))
    with pytest.raises(TypeError, match="numbers"):
        sources.npy(tmp_path / "x.npy")
