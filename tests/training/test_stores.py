"""Features that wait for the next pass come back as they were put, whoever uses the arrays again meanwhile."""

import errno
import os
import resource

import numpy as np
import pytest

from higsfa import HiGSFA, Layer
from higsfa.training import stores
from higsfa.training.stores import Features, FileStore, MemoryStore, field_of

SAMPLES = [5, 3, 1, 4]
KINDS = {"memory": MemoryStore, "disk": FileStore}


def make_shelf(kind, folder, nodes=6, width=2, dtype=np.float32):
    where = (folder,) if kind == "disk" else ()
    return KINDS[kind](nodes, width, SAMPLES, np.dtype(dtype), *where)


def blocks(nodes=6, width=2, dtype=np.float32):
    rng = np.random.default_rng(0)
    return [rng.normal(size=(nodes, width, n)).astype(dtype) for n in SAMPLES]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("nodes", [1, 6])
def test_what_was_written_does_not_change_when_the_writer_uses_its_array_again(kind, dtype, nodes, tmp_path):
    shelf, expected = make_shelf(kind, tmp_path, nodes, dtype=dtype), blocks(nodes, dtype=dtype)
    shelf.reserve()
    for t, n in enumerate(SAMPLES):
        scratch = np.empty((nodes, 2, n), dtype)
        scratch[:] = expected[t]
        shelf.write(t, 0, scratch)
        scratch[:] = 77
    for t in range(len(SAMPLES)):
        assert shelf.tile(t).dtype == dtype
        np.testing.assert_array_equal(shelf.tile(t), expected[t])


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_may_be_written_in_any_order_and_parts_and_read_field_by_field(kind, tmp_path):
    shelf, expected = make_shelf(kind, tmp_path), blocks()
    shelf.reserve()
    for first, last in ((4, 6), (0, 1), (1, 4)):
        for t in (3, 0, 2, 1):
            # not contiguous, and of another type
            part = np.asfortranarray(expected[t][first:last]).astype(np.float64)
            shelf.write(t, first, part)
    for t in range(len(SAMPLES)):
        np.testing.assert_array_equal(shelf.tile(t), expected[t])
        for index in ([2], [0, 1, 2], [1, 2, 4, 5], [5, 0, 3], [3, 3, 2, 1]):
            raw = shelf.field(t, np.array(index))
            rows = raw.source if raw.which is None else raw.source[raw.which]
            np.testing.assert_array_equal(rows, expected[t][index].reshape(2 * len(index), -1))
            again = field_of(expected[t], np.array(index))
            np.testing.assert_array_equal(again.source[again.which], rows)


def test_a_file_takes_the_bytes_of_the_features_and_has_no_name(tmp_path):
    shelf = make_shelf("disk", tmp_path)
    for t, block in enumerate(blocks()):
        shelf.write(t, 0, block)
    assert os.fstat(shelf._file.fileno()).st_size == 6 * 2 * 4 * sum(SAMPLES)
    assert list(tmp_path.iterdir()) == []
    handle = shelf._file
    del shelf
    assert handle.closed


def test_a_file_that_was_cut_off_is_noticed(tmp_path):
    shelf = make_shelf("disk", tmp_path)
    for t, block in enumerate(blocks()):
        shelf.write(t, 0, block)
    os.ftruncate(shelf._file.fileno(), 100)
    with pytest.raises(OSError, match="have vanished"):
        shelf.tile(3)


@pytest.mark.parametrize("kind", KINDS)
def test_features_are_computed_once_and_then_come_from_the_shelf(kind, tmp_path):
    computed, expected = [], blocks()

    def compute(t):
        computed.append(t)
        return expected[t]

    features = Features(compute, make_shelf(kind, tmp_path))
    assert not features.kept
    for t in (2, 0, 3, 1, 0):
        np.testing.assert_array_equal(features.tile(t), expected[t])
        raw = features.field(t, np.array([4, 1]))
        rows = raw.source if raw.which is None else raw.source[raw.which]
        np.testing.assert_array_equal(rows, expected[t][[4, 1]].reshape(4, -1))
    assert features.kept
    assert computed == [0, 1, 2, 3]


def test_features_without_a_shelf_are_computed_each_time():
    computed, expected = [], blocks()
    features = Features(lambda t: computed.append(t) or expected[t], None)
    features.fill()
    for t in (2, 0, 2):
        assert features.tile(t) is expected[t]
    assert computed == [2, 0, 2]
    assert not features.kept


# --- a system that gives no more -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "free some of your space"),
        (errno.EFBIG, "ulimit -f"),
        (errno.EIO, "repair it"),
    ],
)
def test_a_file_that_cannot_grow_says_what_it_is_for_and_what_to_do(number, remedy, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(number, os.strerror(number))

    shelf = make_shelf("disk", tmp_path)
    monkeypatch.setattr(stores.os, "pwrite", fail)
    with pytest.raises(OSError, match=f"{tmp_path}.*{os.strerror(number)}.*{remedy}.*spill=False") as caught:
        shelf.write(0, 0, blocks()[0])
    assert caught.value.errno == number


def test_a_limit_on_the_size_of_files_is_named_as_such(tmp_path):
    shelf = make_shelf("disk", tmp_path, nodes=1000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match="ulimit -f") as caught:
            shelf.write(0, 0, blocks(nodes=1000)[0])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG


def test_a_folder_that_takes_no_files_is_named_with_the_parameter(tmp_path):
    with pytest.raises(OSError, match=r"spill: .*gone.*No such file.*spill=False"):
        make_shelf("disk", tmp_path / "gone")


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_system_without_memory_is_told_from_a_small_budget(n_jobs, monkeypatch):
    def reserve(self):
        raise MemoryError("Unable to allocate 7.0 TiB")

    X = np.random.default_rng(0).normal(size=(50, 4))
    network = HiGSFA([Layer(2, n_components=2), Layer(2, n_components=2)], memory_limit="8 MB", n_jobs=n_jobs)
    expected = network.fit(X, X[:, 0]).transform(X)
    monkeypatch.setattr(MemoryStore, "reserve", reserve)
    with pytest.raises(MemoryError, match=r"memory_limit: 8 MiB were allowed.* 7\.0 TiB.*memory_limit='4 MiB'"):
        network.fit(X, X[:, 0])
    assert np.array_equal(network.transform(X), expected)


# --- where to ----------------------------------------------------------------------------------------------------


def test_features_go_to_the_folder_that_was_named_and_nowhere_if_told_so(tmp_path, monkeypatch):
    assert stores.spill_folder(tmp_path) == tmp_path
    assert stores.spill_folder(str(tmp_path)) == tmp_path
    assert stores.spill_folder(False) is None
    with pytest.raises(ValueError, match=r"spill='.*nothing' is not a folder"):
        stores.spill_folder(tmp_path / "nothing")
    monkeypatch.setattr(stores.tempfile, "gettempdir", lambda: str(tmp_path))
    for in_memory in (False, True):
        monkeypatch.setattr(stores, "_lies_in_memory", lambda folder, answer=in_memory: answer)
        assert stores.spill_folder(True) == tmp_path
        assert stores.spill_folder(None) == (None if in_memory else tmp_path)
    monkeypatch.delattr(stores.os, "preadv")
    assert stores.spill_folder(tmp_path) is None


def test_a_folder_lies_in_memory_if_the_nearest_mount_above_it_does(tmp_path, monkeypatch):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(inner)
    mounts = tmp_path / "mounts"
    real = stores.Path

    def path(name):
        return mounts if name == "/proc/self/mounts" else real(name)

    monkeypatch.setattr(stores, "Path", path)
    for kind, above, expected in (("tmpfs", "ext4", True), ("ramfs", "ext4", True), ("ext4", "tmpfs", False)):
        mounts.write_text(f"x / {above} rw 0 0\nshort\nx {tmp_path / 'a'} {kind} rw 0 0\n")
        assert stores._lies_in_memory(inner) is expected
        assert stores._lies_in_memory(link) is expected
        assert stores._lies_in_memory(tmp_path) is (above == "tmpfs")
    mounts.write_text("")
    assert not stores._lies_in_memory(inner)
    mounts.unlink()
    assert not stores._lies_in_memory(inner)


def test_a_fifth_of_the_free_space_is_left_alone(tmp_path, monkeypatch):
    usage = type("Usage", (), {"total": 5000, "used": 4000, "free": 1000})
    monkeypatch.setattr(stores.shutil, "disk_usage", lambda folder: usage)
    assert stores.free_bytes(tmp_path) == 800
    assert stores.free_bytes(None) == 0
