"""Sources: all kinds give the rows of the array that they were made of; files are trusted in nothing."""

import io
import os
import pickle
import re
import struct
import subprocess
import sys
import threading
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from higsfa import sources
from higsfa.images import Distortion
from higsfa.sources import ImageFileError
from higsfa.training.sources import arrays, blocks, derived, evenly_spread

N = 23


def samples(dtype=np.uint8, shape=(6, 5)):
    return np.random.default_rng(0).integers(0, 256, (N, *shape)).astype(dtype)


def halve(batch):
    return batch / 2


def scale_by(batch, factor):
    return batch * factor


class Chunked(sources.Source):
    """A source that notes what is read of it."""

    def __init__(self, X):
        self.X, self.reads = X, []

    shape = property(lambda self: self.X.shape[1:])
    dtype = property(lambda self: self.X.dtype)

    def __len__(self):
        return len(self.X)

    def _take(self, rows):
        self.reads.append(rows)
        return self.X[rows]

    def _identity(self):
        return ("test",)


# --- every kind of source -----------------------------------------------------------------------


def make_array(X, folder):
    return sources.array(X)


def make_npy(X, folder):
    np.save(folder / "x.npy", X)
    return sources.npy(folder / "x.npy")


def make_fortran_npy(X, folder):
    np.save(folder / "f.npy", np.asfortranarray(X))
    return sources.npy(folder / "f.npy")


def make_memmap(X, folder):
    raw = np.memmap(folder / "raw", X.dtype, "w+", offset=16, shape=X.shape)
    raw[:] = X
    raw.flush()
    return sources.array(raw)


def make_part_of_memmap(X, folder):
    np.save(folder / "long.npy", np.concatenate([X[:5] + 1, X]))
    return sources.array(np.load(folder / "long.npy", mmap_mode="r")[5:])


def make_zarr_path(X, folder):
    return sources.zarr(write_zarr(X, folder))


def make_zarr_array(X, folder):
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    return sources.zarr(zarr.open_array(write_zarr(X, folder), mode="r"))


def write_zarr(X, folder, chunk=4):
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    path = str(folder / "x.zarr")
    stored = zarr.open_array(path, mode="w", shape=X.shape, dtype=X.dtype, chunks=(chunk, 3, *X.shape[2:]))
    stored[:] = X
    return path


def make_dask(X, folder):
    pytest.importorskip("dask", reason="dask is not installed")
    import dask.array as da

    return sources.dask(da.from_array(X, chunks=(7, 3, 5)), scheduler="synchronous")


def make_images(X, folder):
    for k, image in enumerate(X):
        Image.fromarray(image.astype(np.uint8)).save(folder / f"{k:03}.png")
    return sources.map(sources.images(folder), partial(cast_to, dtype=X.dtype))


def cast_to(batch, dtype):
    return batch.astype(dtype)


def make_map(X, folder):
    return sources.map(X * 2, halve) if X.dtype.kind == "f" else sources.map(X, np.array)


def make_subset(X, folder):
    return sources.array(np.concatenate([X, X]))[N:]


def make_cache(X, folder):
    return sources.cache(X, folder / "cache.npy")


def make_repeat(X, folder):
    return sources.repeat(X, 1)


KINDS = [
    make_array,
    make_npy,
    make_fortran_npy,
    make_memmap,
    make_part_of_memmap,
    make_zarr_path,
    make_zarr_array,
    make_dask,
    make_images,
    make_map,
    make_subset,
    make_cache,
    make_repeat,
]
ROWS = {
    "all": np.arange(N),
    "stretch": np.arange(5, 12),
    "backwards": np.arange(N)[::-1],
    "shuffled": np.random.default_rng(1).permutation(N),
    "few": np.array([22, 0, 13]),
    "duplicates": np.array([3, 3, 22, 0, 3, 21, 0]),
    "one": np.array([7]),
    "none": np.array([], dtype=int),
}


@pytest.fixture(params=KINDS, ids=[make.__name__[5:] for make in KINDS])
def make(request):
    return request.param


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_rows_are_those_of_the_array(make, dtype, tmp_path):
    X = samples(dtype)
    source = make(X, tmp_path)
    assert (len(source), source.shape, source.dtype) == (N, (6, 5), X.dtype)
    for name, rows in ROWS.items():
        read = source.take(rows)
        assert isinstance(read, np.ndarray), name
        assert read.dtype == X.dtype, name
        assert np.array_equal(read, X[rows]), name
    assert np.array_equal(source.sample_index, np.arange(N))
    assert np.array_equal(np.asarray(source), X)
    assert re.search("23 samples", repr(source))


def test_pickles_give_the_same_rows(make, tmp_path):
    X = samples()
    source = make(X, tmp_path)
    source.take(np.arange(3))
    again = pickle.loads(pickle.dumps(source))
    assert np.array_equal(again.take(ROWS["shuffled"]), X[ROWS["shuffled"]])
    assert again.fingerprint() == source.fingerprint()


@pytest.mark.parametrize("make_file", [make_npy, make_memmap, make_zarr_path, make_cache])
def test_pickles_of_files_hold_names_not_data(make_file, tmp_path):
    X = np.zeros((N, 100, 100), np.uint8)
    assert len(pickle.dumps(make_file(X, tmp_path))) < 2000


def test_many_threads_read_the_same_rows(make, tmp_path):
    X = samples()
    source = pickle.loads(pickle.dumps(make(X, tmp_path)))
    requests = [np.random.default_rng(k).integers(0, N, 9) for k in range(40)]
    with ThreadPoolExecutor(8) as pool:
        for rows, read in zip(requests, pool.map(source.take, requests), strict=True):
            assert np.array_equal(read, X[rows])


def test_fingerprint_is_the_same_again_and_another_for_other_data(make, tmp_path):
    X = samples()
    first, second, third = (tmp_path / name for name in ("a", "b", "c"))
    for folder in (first, second, third):
        folder.mkdir()
    source = make(X, first)
    changed = X.copy()
    changed[0, 0, 0] ^= 1
    assert source.fingerprint() == source.fingerprint()
    assert re.fullmatch("[0-9a-f]{16}", source.fingerprint())
    assert make(changed, second).fingerprint() != source.fingerprint()
    assert make(X[:-1] if make is not make_subset else X[::-1], third).fingerprint() != source.fingerprint()


@pytest.mark.parametrize("rows", [[N], [-1], [0, 100]])
def test_rows_that_do_not_exist_are_an_error(make, rows, tmp_path):
    with pytest.raises(IndexError, match="is not a row of 23 samples"):
        make(samples(), tmp_path).take(rows)


def test_rows_must_be_integers():
    source = sources.array(samples())
    for rows in ([0.5], [[0]], [True], 3):
        with pytest.raises(TypeError, match="integers"):
            source.take(rows)


def test_reading_cannot_change_the_data(make, tmp_path):
    X = samples()
    source = make(X, tmp_path)
    for rows in (np.arange(N), np.array([3, 1])):
        read = source.take(rows)
        if read.flags.writeable:
            read[...] = 0
    assert np.array_equal(source.take(np.arange(N)), samples())
    assert np.array_equal(X, samples())


# --- arrays and files ---------------------------------------------------------------------------


def test_anything_with_samples_becomes_a_source(tmp_path):
    X = samples()
    source = sources.array(X)
    assert sources.as_source(source) is source
    assert np.array_equal(sources.as_source(X).take([3]), X[[3]])
    for X_ in (make_zarr_array(X, tmp_path).X, make_dask(X, tmp_path).X):
        assert np.array_equal(sources.as_source(X_).take([3]), X[[3]])


@pytest.mark.parametrize("thing", [[[1, 2]], 3, None, {"a": 1}])
def test_other_things_do_not(thing):
    with pytest.raises(TypeError, match=f"not from {type(thing).__name__}"):
        sources.as_source(thing)


def test_a_path_gets_a_hint():
    with pytest.raises(TypeError, match=r"sources\.npy"):
        sources.as_source("x.npy")


def test_arrays_without_numbers_or_samples_are_refused():
    with pytest.raises(TypeError, match="object"):
        sources.array(np.array([[None, 1]]))
    with pytest.raises(ValueError, match="two dimensions"):
        sources.array(np.arange(3))
    with pytest.raises(TypeError, match="masked"):
        sources.array(np.ma.zeros((3, 2)))


def test_npy_files_with_pickles_or_several_arrays_are_refused(tmp_path):
    np.save(tmp_path / "o.npy", np.array([[{}]]), allow_pickle=True)
    np.savez(tmp_path / "z.npz", a=np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"[Oo]bject"):
        sources.npy(tmp_path / "o.npy")
    with pytest.raises(ValueError, match=r"not a \.npy file"):
        sources.npy(tmp_path / "z.npz")


def test_a_changed_private_map_is_not_read_from_the_file_again(tmp_path):
    np.save(tmp_path / "x.npy", samples())
    X = np.load(tmp_path / "x.npy", mmap_mode="c")
    X[0] = 7
    assert np.all(pickle.loads(pickle.dumps(sources.array(X))).take([0]) == 7)


def test_relative_paths_survive_a_change_of_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X = samples()
    made = [make_npy(X, Path()), sources.cache(X, "c.npy"), sources.zarr(os.path.relpath(write_zarr(X, tmp_path)))]
    monkeypatch.chdir("/")
    for source in made:
        assert np.array_equal(pickle.loads(pickle.dumps(source)).take([4]), X[[4]])


def test_another_process_can_use_a_source(tmp_path):
    X = samples()
    source = sources.repeat(make_npy(X, tmp_path), 3, Distortion(seed=5, noise=0.01))
    expected = source.take(np.arange(3 * N)).tobytes()
    script = (
        "import pickle, sys; source = pickle.load(sys.stdin.buffer); "
        "sys.stdout.buffer.write(source.take(range(len(source))).tobytes())"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], input=pickle.dumps(source), capture_output=True, env=environment, check=True
    )
    assert done.stdout == expected


# --- zarr and dask ------------------------------------------------------------------------------


class CountingArray:
    """A zarr array that notes the slices read of it."""

    def __init__(self, X, chunk):
        self.X, self.chunks, self.slices = X, (chunk, *X.shape[1:]), []
        self.shape, self.dtype = X.shape, X.dtype

    def __getitem__(self, rows):
        self.slices.append((rows.start, rows.stop))
        return self.X[rows]


@given(st.lists(st.integers(0, N - 1), min_size=1, max_size=60), st.integers(1, 30), st.sampled_from([1, 100, 2**26]))
@settings(max_examples=100)
def test_every_zarr_chunk_is_read_once_in_ascending_order(rows, chunk, span):
    X = samples()
    counting = CountingArray(X, chunk)
    arrays.SPAN_BYTES, before = span, arrays.SPAN_BYTES
    try:
        assert np.array_equal(sources.zarr(counting).take(rows), X[rows])
    finally:
        arrays.SPAN_BYTES = before
    read = [k for start, stop in counting.slices for k in range(start // chunk, (stop - 1) // chunk + 1)]
    assert read == sorted({row // chunk for row in rows})


def test_other_things_are_not_zarr_or_dask(tmp_path):
    with pytest.raises(TypeError, match="zarr array"):
        sources.zarr(samples())
    with pytest.raises(TypeError, match="dask array"):
        sources.dask(samples())


def test_dask_computes_only_the_blocks_that_are_needed():
    pytest.importorskip("dask", reason="dask is not installed")
    import dask.array as da

    computed = []

    def block(x, block_info=None):
        computed.append(block_info[0]["chunk-location"][0])
        return x

    X = samples()
    lazy = da.from_array(X, chunks=(5, 6, 5)).map_blocks(block, dtype=X.dtype, meta=np.empty((0, 0, 0), X.dtype))
    source = sources.dask(lazy, scheduler="synchronous")
    computed.clear()
    assert np.array_equal(source.take([22, 1, 3, 1]), X[[22, 1, 3, 1]])
    assert sorted(computed) == [0, 4]


def test_dask_arrays_of_unknown_length_are_refused():
    pytest.importorskip("dask", reason="dask is not installed")
    import dask.array as da

    X = da.from_array(samples(), chunks=5)
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        sources.dask(X[X[:, 0, 0] > 3])


# --- on top of a source -------------------------------------------------------------------------


def test_map_finds_shape_and_type_by_trying():
    mapped = sources.map(samples(), lambda batch: batch.reshape(len(batch), -1).mean(axis=1, keepdims=True))
    assert (mapped.shape, mapped.dtype) == ((1,), np.float64)
    assert mapped.take([2])[0, 0] == pytest.approx(samples()[2].mean())


def test_map_refuses_functions_that_do_not_keep_their_word():
    with pytest.raises(ValueError, match=r"\(1, \.\.\.\) was expected"):
        sources.map(samples(), np.sum)
    moody = sources.map(samples(), lambda batch: batch.astype(np.float32) if len(batch) == 1 else batch)
    with pytest.raises(ValueError, match=r"uint8, but .* float32 was expected"):
        moody.take([0, 1])
    with pytest.raises(ValueError, match="no samples"):
        sources.map(np.zeros((0, 3)), halve)


def test_fingerprints_tell_functions_and_their_arguments_apart():
    X = np.zeros((4, 2))
    functions = [halve, partial(scale_by, factor=2.0), partial(scale_by, factor=3.0)]
    assert len({sources.map(X, function).fingerprint() for function in functions}) == 3
    distorted = [sources.repeat(np.zeros((4, 5, 5)), 2, Distortion(seed=seed)) for seed in (0, 1)]
    assert distorted[0].fingerprint() != distorted[1].fingerprint()


@given(st.lists(st.integers(0, 4 * N - 1), max_size=40))
@settings(max_examples=40)
def test_copies_stand_next_to_each_other_and_do_not_depend_on_what_else_is_read(rows):
    X, distortion = samples(), Distortion(seed=2, noise=0.02, mirror=True)
    repeated = sources.repeat(X, 4, distortion)
    whole = distortion.apply(np.repeat(X, 4, axis=0), np.arange(4 * N) // 4, np.arange(4 * N) % 4)
    assert len(repeated) == 4 * N
    assert np.array_equal(repeated.take(rows), whole[rows])
    assert np.array_equal(repeated.sample_index, np.repeat(np.arange(N), 4))


def test_repeat_reads_every_sample_once():
    parent = Chunked(samples())
    repeated = sources.repeat(parent, 5)
    repeated.take([20, 3, 4, 0, 21, 23, 0])
    assert [list(rows) for rows in parent.reads] == [[0, 4]]


def test_sample_index_follows_through_everything_on_top(tmp_path):
    X = samples()
    labels = np.arange(100, 100 + N)
    repeated = sources.repeat(X, 3)
    rows = np.array([50, 2, 2, 9])
    derived = sources.map(sources.cache(repeated[rows], tmp_path / "c.npy"), halve)
    assert np.array_equal(derived.sample_index, rows // 3)
    assert np.array_equal(derived.take(np.arange(4)), X[derived.sample_index] / 2)
    assert np.array_equal(labels[derived.sample_index], 100 + rows // 3)
    assert np.array_equal(sources.repeat(repeated, 2).sample_index, np.repeat(np.arange(N), 6))
    # Part of a plain source is a data set of its own.
    assert np.array_equal(sources.array(X)[5:9].sample_index, np.arange(4))
    assert np.array_equal(sources.repeat(sources.array(X)[5:9], 2).sample_index, [0, 0, 1, 1, 2, 2, 3, 3])


def test_repeat_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match="copies=0"):
        sources.repeat(samples(), 0)
    with pytest.raises(ValueError, match="height, width"):
        sources.repeat(np.zeros((3, 25)), 2, Distortion())


@pytest.mark.parametrize(
    "index", [slice(3, 20, 4), slice(None, None, -1), [5, 2, 2], [-1, 0], np.arange(N) % 3 == 0, np.array([], int), []]
)
def test_subsets_are_those_of_the_array(index):
    X = samples()
    expected = X[np.asarray(index, dtype=int) if isinstance(index, list) else index]
    part = sources.array(X)[index]
    assert len(part) == len(expected)
    assert np.array_equal(np.asarray(part), expected)


def test_impossible_subsets_are_refused():
    source = sources.array(samples())
    for index, error in (([N], IndexError), (np.ones(4, bool), IndexError), ([0.5], TypeError), (3, TypeError)):
        with pytest.raises(error):
            source[index]


@settings(deadline=None)
@given(st.integers(1, 10_000), st.integers(2, 200))
def test_evenly_spread_rows_go_from_the_first_to_the_last_in_equal_steps(n, k):
    rows = evenly_spread(n, k)
    assert len(rows) == min(n, k)
    assert (rows[0], rows[-1]) == (0, n - 1)
    steps = np.diff(rows)
    assert not len(steps) or (steps.min() >= 1 and steps.max() - steps.min() <= 1)


def test_no_rows_are_spread_over_no_samples():
    assert len(evenly_spread(0, 5)) == 0


@pytest.mark.parametrize("max_values", [1, 7, 30, 31, 10**6])
def test_blocks_are_the_samples_in_order(max_values):
    X = samples()
    parts = list(blocks(sources.array(X), max_values))
    assert np.array_equal(np.concatenate([part for _, part in parts]), X)
    assert all(np.array_equal(X[rows], part) for rows, part in parts)
    assert all(part.size <= max_values or len(part) == 1 for _, part in parts)
    assert list(blocks(sources.array(X[:0]), max_values)) == []


# --- cache --------------------------------------------------------------------------------------


def test_a_cache_is_filled_once(tmp_path):
    parent = Chunked(samples())
    first = sources.cache(parent, tmp_path / "deep" / "c.npy")
    parent.reads.clear()
    second = sources.cache(parent, tmp_path / "deep" / "c.npy")
    assert np.array_equal(second.take(np.arange(N)), parent.X)
    assert first.fingerprint() == second.fingerprint()
    assert sum(len(rows) for rows in parent.reads) <= parent.n_probes
    assert sorted(os.listdir(tmp_path / "deep")) == ["c.npy", "c.npy.json"]
    assert np.array_equal(np.load(tmp_path / "deep" / "c.npy"), parent.X)


def test_a_cache_of_other_data_is_refused_or_written_anew(tmp_path):
    path = tmp_path / "c.npy"
    sources.cache(samples(), path)
    with pytest.raises(ValueError, match=r"made from other data.*rebuild=True"):
        sources.cache(samples() + 1, path)
    assert np.array_equal(np.load(path), samples())
    rebuilt = sources.cache(samples() + 1, path, rebuild=True)
    assert np.array_equal(np.asarray(rebuilt), samples() + 1)
    assert np.array_equal(np.asarray(sources.cache(samples() + 1, path)), samples() + 1)


@pytest.mark.parametrize("note", [None, "", "[]", "{}", "nonsense"])
def test_a_file_that_is_not_known_to_be_whole_is_refused(tmp_path, note):
    path = tmp_path / "c.npy"
    np.save(path, samples())
    if note is not None:
        (tmp_path / "c.npy.json").write_text(note)
    with pytest.raises(ValueError, match="rebuild=True"):
        sources.cache(samples(), path)
    assert np.array_equal(np.asarray(sources.cache(samples(), path, rebuild=True)), samples())


class Broken(Chunked):
    """Fails half way."""

    def _take(self, rows):
        if len(rows) > self.n_probes or rows[0] > 10:
            raise RuntimeError("the disk is on fire")
        return super()._take(rows)

    def fingerprint(self):
        return "0" * 16


@pytest.mark.parametrize("rows_at_once", [3, 1000])
def test_a_failed_filling_leaves_nothing_behind(tmp_path, monkeypatch, rows_at_once):
    monkeypatch.setattr(derived, "FILL_BYTES", 30 * rows_at_once)
    path = tmp_path / "c.npy"
    with pytest.raises(RuntimeError, match="fire"):
        sources.cache(Broken(samples()), path)
    assert os.listdir(tmp_path) == []
    sources.cache(samples(), path)
    with pytest.raises(RuntimeError, match="fire"):
        sources.cache(Broken(samples()), path, rebuild=True)
    assert np.array_equal(np.asarray(sources.cache(samples(), path)), samples())


@pytest.mark.parametrize("dies_at", ["fsync", "replace", "after the data"])
def test_a_crash_at_any_point_never_leaves_a_cache_that_looks_whole_but_is_not(tmp_path, monkeypatch, dies_at):
    path = tmp_path / "c.npy"
    sources.cache(samples(), path)

    class Crash(BaseException):
        pass

    calls = []

    def crash(*args):
        calls.append(args)
        if dies_at != "after the data" or len(calls) == 2:
            raise Crash
        return replace(*args)

    replace = os.replace
    monkeypatch.setattr(os, "fsync" if dies_at == "fsync" else "replace", crash)
    with pytest.raises(Crash):
        sources.cache(samples() + 1, path, rebuild=True)
    monkeypatch.undo()
    for X in (samples(), samples() + 1):
        try:
            found = np.asarray(sources.cache(X, path))
        except ValueError:
            continue
        assert np.array_equal(found, X)


def test_many_writers_of_the_same_cache_do_not_disturb_each_other(tmp_path):
    barrier = threading.Barrier(4)

    def write(_):
        barrier.wait()
        return np.asarray(sources.cache(samples(), tmp_path / "c.npy", rebuild=True))

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(write, range(4)):
            assert np.array_equal(found, samples())
    assert sorted(os.listdir(tmp_path)) == ["c.npy", "c.npy.json"]


def test_a_truncated_cache_is_refused(tmp_path):
    path = tmp_path / "c.npy"
    sources.cache(samples(), path)
    os.truncate(path, path.stat().st_size - 10)
    with pytest.raises(ValueError, match="too few for its shape"):
        sources.cache(samples(), path)


def test_a_cache_is_a_npy_file(tmp_path):
    with pytest.raises(ValueError, match=r"\.npy"):
        sources.cache(samples(), tmp_path / "c.dat")


# --- image files --------------------------------------------------------------------------------

FORMATS = ["JPEG", "PNG", "BMP", "TIFF", "WEBP", "PPM", "GIF"]


def smooth(height=24, width=32):
    rows, columns = np.mgrid[:height, :width]
    return (8 * rows + columns).clip(0, 255).astype(np.uint8)


def write_image(path, image=None, **options):
    (Image.fromarray(smooth()) if image is None else image).save(path, **options)
    return path


@pytest.mark.parametrize("format_", FORMATS)
def test_formats_are_recognised_by_content(tmp_path, format_):
    path = write_image(tmp_path / "x.png", format=format_, **({"quality": 100} if format_ in ("JPEG", "WEBP") else {}))
    source = sources.images([path])
    assert (source.shape, source.dtype) == ((24, 32), np.uint8)
    assert np.abs(source.take([0])[0].astype(int) - smooth()).max() <= (6 if format_ in ("JPEG", "WEBP") else 0)


def test_colour_and_grey_follow_mode(tmp_path):
    path = write_image(tmp_path / "x.png", Image.new("RGB", (3, 2), (255, 0, 0)))
    colour = sources.images([path], mode="RGB").take([0])
    assert colour.shape == (1, 2, 3, 3)
    assert np.all(colour == [255, 0, 0])
    assert np.all(sources.images([path]).take([0]) == 76)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "CMYK"])
def test_all_common_kinds_of_pixels_become_eight_bits(tmp_path, mode):
    if mode == "I;16":
        image = Image.fromarray(smooth().astype(np.uint16) * 257)
    else:
        image = Image.fromarray(smooth()).convert(mode)
    path = write_image(tmp_path / ("x.tif" if mode == "CMYK" else "x.png"), image)
    source = sources.images([path])
    tolerance = {"1": 255, "P": 3}.get(mode, 1)
    assert np.abs(source.take([0])[0].astype(int) - smooth()).max() <= tolerance


def test_palettes_with_transparency_are_read_without_a_warning(tmp_path):
    image = Image.fromarray(smooth()).convert("P")
    path = write_image(tmp_path / "x.png", image, transparency=bytes(range(256)))
    assert sources.images([path]).shape == (24, 32)


def test_pixels_of_unknown_range_are_refused(tmp_path):
    path = write_image(tmp_path / "x.tif", Image.fromarray(np.ones((3, 3), np.float32)))
    with pytest.raises(ImageFileError, match="range is not known"):
        sources.images([path])


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied(tmp_path, orientation):
    turned = {
        1: smooth(),
        2: np.fliplr(smooth()),
        3: np.rot90(smooth(), 2),
        4: np.flipud(smooth()),
        5: smooth().T,
        6: np.rot90(smooth(), -1),
        7: np.rot90(smooth(), 2).T,
        8: np.rot90(smooth()),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = write_image(tmp_path / "x.png", exif=exif)
    assert np.array_equal(sources.images([path]).take([0])[0], turned)


def test_first_frame_of_an_animation_is_used(tmp_path):
    frames = [Image.new("L", (4, 4), grey) for grey in (10, 200, 100)]
    path = write_image(tmp_path / "x.gif", frames[0], save_all=True, append_images=frames[1:])
    assert np.all(sources.images([path]).take([0]) == 10)


def test_shape_crops_the_centre_and_resizes_with_antialiasing(tmp_path):
    stripes = np.zeros((40, 100), np.uint8)
    stripes[:, ::2] = 255
    stripes[:, :30] = stripes[:, 70:] = 0
    path = write_image(tmp_path / "x.png", Image.fromarray(stripes))
    read = sources.images([path], shape=(10, 10)).take([0])[0]
    assert read.shape == (10, 10)
    # 4 x 4 pixels of stripes have a mean of 127; sampling without antialiasing would give 0 or 255.
    assert np.all(np.abs(read[:, 1:-1].astype(int) - 127) < 40)


def test_sampler_sees_an_image_and_its_path(tmp_path):
    paths = [write_image(tmp_path / f"{k}.png") for k in range(3)]
    order = {str(path): k for k, path in enumerate(paths)}

    def sampler(image):
        assert isinstance(image, Image.Image)
        assert image.mode == "RGB"
        return np.full(3, order[image.filename], dtype=np.float32)

    source = sources.images(paths, sampler, mode="RGB")
    assert (source.shape, source.dtype) == ((3,), np.float32)
    assert source.take([2, 0, 2]).tolist() == [[2.0] * 3, [0.0] * 3, [2.0] * 3]


def test_trouble_in_a_sampler_names_the_file(tmp_path):
    paths = [write_image(tmp_path / f"{k}.png") for k in range(3)]

    def sampler(image):
        if image.filename.endswith("1.png"):
            raise LookupError("no face")
        return np.zeros(2)

    with pytest.raises(ImageFileError, match=r"1\.png: LookupError: no face"):
        sources.images(paths, sampler).take([0, 1])
    assert sources.images(paths, sampler, on_error="skip").kept.tolist() == [0, 2]


def test_a_path_given_twice_is_decoded_once(tmp_path):
    a, b = write_image(tmp_path / "a.png"), write_image(tmp_path / "b.png", Image.new("L", (32, 24), 9))
    decoded = []

    def sampler(image):
        decoded.append(image.filename)
        return np.asarray(image)

    source = sources.images([a, b, a, b], sampler)
    decoded.clear()
    read = source.take([3, 2, 0, 0, 1])
    assert sorted(decoded) == [str(a), str(b)]
    assert np.array_equal(read, np.stack([np.full((24, 32), 9), smooth(), smooth(), smooth(), np.full((24, 32), 9)]))


# --- folders ------------------------------------------------------------------------------------


def test_folders_are_read_sorted_and_recursively(tmp_path):
    for name in ("b/2.png", "b/1.JPG", "a.png", "c/d/3.tiff", "b/.hidden.png", ".git/x.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_image(path)
    (tmp_path / "notes.txt").write_text("not an image")
    names = [path.relative_to(tmp_path).as_posix() for path in sources.images(tmp_path).paths]
    assert names == ["a.png", "b/1.JPG", "b/2.png", "c/d/3.tiff"]


def test_links_out_of_a_folder_are_not_followed(tmp_path):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    secret = write_image(outside / "secret.png")
    write_image(inside / "own.png")
    (inside / "alias.png").symlink_to("own.png")
    (inside / "link.png").symlink_to(secret)
    (inside / "dots.png").symlink_to("../outside/secret.png")
    (inside / "folder").symlink_to(outside)
    (inside / "loop").symlink_to(inside)
    (inside / "self.png").symlink_to("self.png")
    (inside / "prefix.png").symlink_to(str(inside) + "-evil.png")
    source = sources.images(inside, on_error="skip")
    assert [path.name for path in source.paths] == ["alias.png", "own.png"]
    assert {path.name for path in source.skipped} <= {"self.png"}


def test_empty_and_missing_folders_are_clear_errors(tmp_path):
    with pytest.raises(ValueError, match="there are no images"):
        sources.images(tmp_path)
    with pytest.raises(ValueError, match="is not a folder"):
        sources.images(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="no files were given"):
        sources.images([])


def test_missing_files_are_named_at_once(tmp_path):
    good = write_image(tmp_path / "good.png")
    paths = [good, tmp_path / "gone.png", tmp_path / "lost.png"]
    with pytest.raises(ImageFileError, match=r"2 of 3 files do not exist: .*gone\.png, .*lost\.png"):
        sources.images(paths)
    source = sources.images(paths, on_error="skip")
    assert source.kept.tolist() == [0]
    assert list(source.skipped.values()) == ["does not exist"] * 2
    for n, more in ((5, False), (6, True)):
        gone = [tmp_path / f"{k}.png" for k in range(n)]
        with pytest.raises(ImageFileError) as error:
            sources.images([good, *gone])
        assert str(error.value).endswith(", ".join(map(str, gone[:5])) + (", ..." if more else ""))


# --- hostile files ------------------------------------------------------------------------------


def png_chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_of_size(width, height, data=b""):
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", header)
        + png_chunk(b"IDAT", zlib.compress(data))
        + png_chunk(b"IEND", b"")
    )


def zip_bytes():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.txt", "text")
    return buffer.getvalue()


def encoded(format_):
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)).save(buffer, format_)
    return buffer.getvalue()


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(x) run showpage\n"
HOSTILE = {
    "zero bytes": (b"", "is not an image"),
    "text": (b"hello", "is not an image"),
    "zip": (zip_bytes(), "is not an image"),
    "eps": (EPS, "is not an image"),
    "pdf": (b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n", "is not an image"),
    "svg": (b"<?xml version='1.0'?><svg xmlns='http://www.w3.org/2000/svg'/>", "is not an image"),
    "icon": (b"\x00\x00\x01\x00\x01\x00" + b"\x00" * 30, "is not an image"),
    "bomb": (png_of_size(60_000, 60_000), "larger than Pillow allows|60000 x 60000 pixels"),
    "large": (png_of_size(8_000, 7_000), "8000 x 7000 pixels, and max_pixels is 50,000,000"),
    "bomb with a warning": (png_of_size(10_000, 10_000), "larger than Pillow allows|10000 x 10000 pixels"),
    "no pixels": (png_of_size(64, 64), ""),
    "negative bitmap": (b"BM" + struct.pack("<IHHIIiiHHIIIIII", 70, 0, 0, 54, 40, -5, -5, 1, 8, 0, 0, 0, 0, 0, 0), ""),
} | {f"truncated {name}": (encoded(name)[: len(encoded(name)) // 2], "") for name in FORMATS}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_by_name_and_skipped_on_request(tmp_path, name):
    content, reason = HOSTILE[name]
    bad = tmp_path / "holiday.jpg"
    bad.write_bytes(content)
    good = write_image(tmp_path / "good.png", Image.new("L", (64, 64)))
    with pytest.raises(ImageFileError, match=rf"holiday\.jpg: .*({reason})"):
        sources.images([good, bad, good]).take([0, 1, 2])
    source = sources.images([bad, good, good], on_error="skip")
    assert source.kept.tolist() == [1, 2]
    assert list(source.skipped) == [bad]
    assert np.array_equal(source.take([0, 1]), np.zeros((2, 64, 64)))
    with pytest.raises(ImageFileError, match="none of the 1 files"):
        sources.images([bad], on_error="skip")


@given(st.sampled_from(FORMATS), st.data())
@settings(max_examples=60)
def test_damaged_files_are_read_or_refused_but_never_anything_else(tmp_path_factory, format_, data):
    content = bytearray(encoded(format_))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, min(len(content) - 1, 200)))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.png"
    path.write_bytes(content)
    try:
        read = sources.images([path], max_pixels=10**6).take([0])
    except ImageFileError:
        return
    assert read.dtype == np.uint8


def test_size_is_checked_before_anything_is_decoded(tmp_path, monkeypatch):
    (tmp_path / "x.png").write_bytes(png_of_size(8_000, 7_000))
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda self: pytest.fail("decoded"))
    with pytest.raises(ImageFileError, match="max_pixels"):
        sources.images([tmp_path / "x.png"])


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_bombs_are_refused_whatever_becomes_of_warnings(tmp_path):
    (tmp_path / "x.png").write_bytes(png_of_size(10_000, 10_000))
    with pytest.raises(ImageFileError, match="10000 x 10000 pixels"):
        sources.images([tmp_path / "x.png"])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_pipe_does_not_make_us_wait(tmp_path, on_error):
    os.mkfifo(tmp_path / "x.png")
    with pytest.raises(ImageFileError, match=r"not a regular file|do not exist"):
        sources.images([tmp_path / "x.png"], on_error=on_error)


def test_truncated_files_are_not_let_through_by_a_global_switch(tmp_path, monkeypatch):
    monkeypatch.setattr("PIL.ImageFile.LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(RuntimeError, match="LOAD_TRUNCATED_IMAGES"):
        sources.images([write_image(tmp_path / "x.png")])


def test_images_of_another_size_are_named(tmp_path):
    paths = [write_image(tmp_path / "a.png"), write_image(tmp_path / "b.png", Image.new("L", (5, 5)))]
    with pytest.raises(ImageFileError, match=r"b\.png: its shape \(5, 5\)"):
        sources.images(paths).take([0, 1])
    assert sources.images(paths, on_error="skip").kept.tolist() == [0]
    assert sources.images(paths, shape=(8, 8)).take([0, 1]).shape == (2, 8, 8)


def test_a_file_that_changes_is_noticed_in_the_fingerprint(tmp_path):
    paths = [write_image(tmp_path / f"{k}.png") for k in range(9)]
    source = sources.images(paths)
    before = source.fingerprint()
    os.utime(paths[4], ns=(0, 0))
    assert source.fingerprint() != before


def test_errors_can_be_pickled():
    error = pickle.loads(pickle.dumps(ImageFileError(Path("a.png"), "is bad")))
    assert str(error) == f"{Path('a.png')}: is bad"
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "CMYK"}, "mode="),
        ({"on_error": "ignore"}, "on_error="),
        ({"shape": (5,)}, "shape="),
        ({"shape": (5, 5), "sampler": np.asarray}, "either sampler or shape"),
        ({"n_threads": 0}, "n_threads=0"),
    ],
)
def test_impossible_options_are_named(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        sources.images([write_image(tmp_path / "x.png")], **options)


def test_a_relative_folder_of_images_survives_a_change_of_folder(tmp_path, monkeypatch):
    (tmp_path / "pictures").mkdir()
    Image.fromarray(np.full((4, 4), 7, np.uint8)).save(tmp_path / "pictures" / "a.png")
    monkeypatch.chdir(tmp_path)
    source = sources.images("pictures")
    monkeypatch.chdir("/")
    assert np.all(source.take(np.arange(1)) == 7)


@pytest.mark.parametrize(("bytes_at_once", "n_reads"), [(10**9, 1), (400, 5), (1, 10)])
def test_neighbouring_zarr_chunks_are_read_together_up_to_a_size(bytes_at_once, n_reads, monkeypatch):
    class Store:
        shape, dtype, chunks = (100, 5), np.dtype(np.float32), (10, 5)
        reads = 0

        def __getitem__(self, key):
            self.reads += 1
            return np.zeros((100, 5), np.float32)[key]

    monkeypatch.setattr(arrays, "SPAN_BYTES", bytes_at_once)
    store = Store()
    sources.zarr(store).take(np.arange(100))
    assert store.reads == n_reads
