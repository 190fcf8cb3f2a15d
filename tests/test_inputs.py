"""Samples as people have them: lists of arrays, pictures, paths; tensors; tables of pixels; none at all."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from higsfa import GSFA, IGSFA, SFA, HiGSFA, HiSFA, Layer, sources

RNG = np.random.default_rng(0)
N = 24
GREY = RNG.integers(0, 256, (N, 4, 6), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (N, 4, 6, 3), dtype=np.uint8)
Y = RNG.normal(size=N)


class Tensor:
    """Of another library, that shares its memory by DLPack alone."""

    def __init__(self, values):
        self._values = values

    def __dlpack__(self, **options):
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._values.__dlpack_device__()


class OnAnotherDevice(Tensor):
    def __dlpack__(self, **options):
        raise BufferError("this memory is on a graphics card")


class Convertible:
    def __init__(self, values):
        self._values, self.shape, self.ndim = values, values.shape, values.ndim

    def __len__(self):
        return len(self._values)

    def __array__(self, dtype=None, copy=None):
        return np.array(self._values, dtype=dtype)


@pytest.fixture
def files(tmp_path):
    def write(pictures, ending=".png"):
        names = []
        for i, picture in enumerate(pictures):
            names.append(tmp_path / f"{i:03}{ending}")
            (picture if isinstance(picture, Image.Image) else Image.fromarray(picture)).save(names[-1])
        return names

    return write


def network():
    return HiGSFA([Layer((2, 3), n_components=4), Layer((2, 2), n_components=3)], graph="serial")


def pictures(arrays):
    return [Image.fromarray(array) for array in arrays]


FORMS = {
    "list of arrays": list,
    "tuple of arrays": tuple,
    "list of tensors": lambda X: [Tensor(x) for x in X],
    "list of convertibles": lambda X: [Convertible(x) for x in X],
    "nested lists": lambda X: X.tolist(),
    "tensor": Tensor,
    "convertible": Convertible,
    "pictures": lambda X: pictures(X),
    "array of pictures": lambda X: pd.Series(pictures(X)).to_numpy(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("X", [GREY, COLOUR], ids=["grey", "colour"])
def test_a_network_takes_pictures_in_any_form(X, form):
    expected = network().fit(X, Y)
    given = FORMS[form](X)
    found = network().fit(given, Y)
    assert found.input_shape_ == X.shape[1:]
    np.testing.assert_allclose(found.transform(given), expected.transform(X), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", [form for form in FORMS if form not in ("nested lists", "tensor", "convertible")])
def test_a_single_node_takes_them_as_rows(form):
    rows = GREY.reshape(N, -1)
    expected = GSFA(3, graph="serial").fit(rows, Y).transform(rows)
    np.testing.assert_array_equal(
        GSFA(3, graph="serial").fit(FORMS[form](GREY), Y).transform(FORMS[form](GREY)), expected
    )


@pytest.mark.parametrize("form", ["list of arrays", "tensor", "convertible", "nested lists"])
def test_rows_come_in_any_form_too(form):
    rows = RNG.normal(size=(30, 4))
    expected = SFA().fit(rows).transform(rows)
    np.testing.assert_array_equal(SFA().fit(FORMS[form](rows)).transform(FORMS[form](rows)), expected)


@pytest.mark.parametrize("as_given", [list, lambda paths: [str(path) for path in paths], pd.Series, np.array])
def test_paths_are_decoded(files, as_given):
    paths = as_given(files(GREY))
    expected, rows = network().fit(GREY, Y).transform(GREY), GREY.reshape(N, -1)
    np.testing.assert_array_equal(network().fit(paths, Y).transform(paths), expected)
    np.testing.assert_array_equal(IGSFA(3).fit(paths, Y).transform(paths), IGSFA(3).fit(rows, Y).transform(rows))
    np.testing.assert_array_equal(SFA().fit(paths).transform(paths), SFA().fit(rows).transform(rows))


def mixed():
    """Half of them grey, in several ways, and what they are in colour."""
    modes = ["RGB", "L", "P", "1", "LA", "RGBA"]
    given = [Image.fromarray(array).convert(modes[i % 6]) for i, array in enumerate(COLOUR)]
    return given, np.stack([np.asarray(one.convert("RGBA").convert("RGB")) for one in given])


def test_grey_beside_colour_becomes_colour(files):
    given, colours = mixed()
    expected = network().fit(colours, Y).transform(colours)
    np.testing.assert_array_equal(network().fit(given, Y).transform(given), expected)
    paths = files(given)
    np.testing.assert_array_equal(network().fit(paths, Y).transform(paths), expected)
    np.testing.assert_array_equal(np.asarray(sources.images(paths[0].parent, mode="auto")), colours)
    assert sources.images(paths[0].parent, mode="L").shape == (4, 6)


def test_grey_pictures_in_several_modes_stay_grey(files):
    given = [one.convert(mode) for one, mode in zip(pictures(GREY), ["L", "LA", "1"] * 8, strict=True)]
    assert network().fit(given, Y).input_shape_ == (4, 6)
    assert sources.images(files(given), mode="auto").shape == (4, 6)


def test_files_that_are_no_pictures_are_told_when_they_are_decoded(files, tmp_path):
    paths = files(COLOUR)
    paths[3].write_bytes(b"no picture")
    with pytest.raises(sources.ImageFileError, match=r"003.png: is not an image"):
        network().fit(paths, Y)
    assert sources.images(paths, mode="auto", on_error="skip").skipped.keys() == {paths[3]}


def test_a_table_of_pixels_is_a_set_of_pictures():
    X = GREY.reshape(N, -1)
    frame = pd.DataFrame(X, columns=[f"pixel{i}" for i in range(24)])
    made = network().set_params(input_shape=(4, 6)).fit(frame, Y)
    np.testing.assert_array_equal(made.transform(frame), network().fit(GREY, Y).transform(GREY))
    assert made.feature_names_in_[1] == "pixel1"


MISTAKES = {
    "texts": (
        ["a cat", "a dog"],
        ValueError,
        r"texts such as 'a cat', no numbers; if they are picture files, pass sources.images",
    ),
    "missing files": (["nowhere/a.png", "nowhere/b.png"], ValueError, "2 of 2 files do not exist"),
    "a path": ("pictures", TypeError, r"X is a path, 'pictures': pass sources.images\(folder\)"),
    "one picture": (Image.fromarray(GREY[0]), TypeError, r"one picture: pass a list of pictures"),
    "pictures and arrays": (
        [Image.fromarray(GREY[0]), GREY[1]],
        TypeError,
        r"a Image \(item 0\) and a ndarray \(item 1\)",
    ),
    "sizes of arrays": (
        [GREY[0], GREY[1, :3]],
        ValueError,
        r"item 1 of the list has shape \(3, 6\) and item 0 has \(4, 6\)",
    ),
    "sizes of pictures": (
        pictures([GREY[0], GREY[1, :3]]),
        ValueError,
        r"picture 1 of the list has \(6, 3\) pixels .* pass sources.images\(paths, shape=\(height, width\)\)",
    ),
    "another device": (OnAnotherDevice(GREY), TypeError, "on a graphics card.; move it to the processor first"),
    "32 bits": ([Image.fromarray(GREY[0].astype(np.int32))] * 2, ValueError, "picture 0: has pixels of 32 bits"),
    "nothing": ([], ValueError, "0 sample"),
}


@pytest.mark.parametrize("make", [network, GSFA, SFA], ids=["HiGSFA", "GSFA", "SFA"])
@pytest.mark.parametrize(("X", "error", "text"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_told(make, X, error, text):
    if make is SFA and "item 1 of the list" in text:
        pytest.skip("recordings have any length")
    with pytest.raises(error, match=text):
        make().fit(X, Y[:2])


def test_files_of_several_sizes_are_told_the_way(files):
    paths = files([*GREY[:-1], GREY[0, :3]])
    with pytest.raises(sources.ImageFileError, match=r"023.png: its shape \(3, 6\) .* sources.images\(paths, shape="):
        network().fit(paths, Y)


def test_pictures_too_large_are_not_decoded(monkeypatch):
    monkeypatch.setattr("higsfa.training.sources.lists.MAX_PIXELS", 20)
    with pytest.raises(sources.ImageFileError, match="picture 0: has 6 x 4 pixels, and max_pixels is 20"):
        network().fit(pictures(GREY), Y)


def test_a_list_of_arrays_is_recordings_for_sfa_and_pictures_for_networks():
    assert SFA().fit([RNG.normal(size=(30, 4)), RNG.normal(size=(20, 4))]).n_features_in_ == 4
    assert HiSFA([Layer((2, 3), n_components=2)]).fit(list(GREY)).input_shape_ == (4, 6)


@pytest.mark.parametrize("nothing", [[], (), np.empty((0, 4, 6)), np.empty((0, 24)), pd.DataFrame(np.empty((0, 24)))])
def test_no_samples_have_no_features(nothing):
    assert network().set_params(input_shape=(4, 6)).fit(GREY, Y).transform(nothing).shape == (0, 3)
    if np.ndim(nothing) < 3:
        assert GSFA(2, graph="serial").fit(GREY.reshape(N, -1), Y).transform(nothing).shape == (0, 2)
