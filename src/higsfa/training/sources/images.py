"""Image files as samples, decoded in threads when they are asked for.

Files are not trusted. A file is opened by its contents, not by its name, and only by the decoders named here. Its size
is checked before a pixel is decoded. Every error names the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import joblib
import numpy as np
from numpy.typing import ArrayLike
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from higsfa.io import open_regular
from higsfa.training.sources.base import Described, Rows, Samples, Shape, describe, distinct, file_identity

__all__ = ["ImageFileError", "ImageFiles", "images"]

FORMATS = ("JPEG", "PNG", "BMP", "TIFF", "WEBP", "PPM", "GIF")
MAX_PIXELS = 50_000_000
EXTENSIONS = frozenset(
    (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm", ".pnm", ".gif")
)

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
Sampler = Callable[[Image.Image], ArrayLike]
T = TypeVar("T")


class ImageFileError(ValueError):
    """A file that is not a usable image.

    Examples
    --------
    >>> import os, tempfile
    >>> from pathlib import Path
    >>> from higsfa import sources
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "broken.png").write_bytes(b"no picture")
    ...     try:
    ...         sources.images(folder)
    ...     except sources.ImageFileError as error:
    ...         print(error.path.name, error.reason)  # doctest: +ELLIPSIS
    broken.png is not an image of the formats JPEG, ...
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def images(
    paths: Paths,
    sampler: Sampler | None = None,
    *,
    shape: tuple[int, int] | None = None,
    mode: str = "L",
    on_error: Literal["raise", "skip"] = "raise",
    max_pixels: int = MAX_PIXELS,
    n_threads: int | None = None,
) -> ImageFiles:
    """Samples that are image files: JPEG, PNG, BMP, TIFF, WebP, PPM, and the first frame of GIF.

    Parameters
    ----------
    paths : folder, or sequence of paths
        A folder stands for all files in it and its subfolders that have the extension of one of these formats, sorted.
        Hidden files and links that lead out of the folder are left out.
    sampler : callable, optional
        Turns an image (a ``PIL.Image``, upright, of the mode below, with its path as text in ``image.filename``) into
        an array that has the same shape and dtype for every image. Called by several threads at once.
    shape : (height, width), optional
        Instead of a sampler: the largest centred part of this aspect ratio is resized, with antialiasing. Without
        either, all images must have the same size.
    mode : {"L", "RGB", "auto"}, default="L"
        Grey (height, width) or colour (height, width, 3), 8 bits; "auto" is colour if any of the files is, by their
        headers. Transparency is ignored. Of 16 bits, the upper 8 are used.
    on_error : {"raise", "skip"}, default="raise"
        "raise": a bad file is an error when it is read (a missing one at once). "skip": every file is decoded once now,
        and bad ones are left out; see ``skipped`` and ``kept``.
    max_pixels : int, default=50,000,000
        Files whose header announces more are refused before they are decoded.
    n_threads : int, optional
        Threads that decode; by default the number of processors, at most 8.

    Returns
    -------
    ImageFiles
        A source with attributes ``paths``; ``kept``, the positions of these among the paths given (so that
        ``labels[source.kept]`` are their labels); and ``skipped``, a dictionary from path to reason.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from PIL import Image
    >>> from higsfa import sources
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for i in range(3):
    ...         Image.fromarray(np.full((40, 60, 3), 50 * i, np.uint8)).save(f"{folder}/{i}.png")
    ...     sources.images(folder, shape=(32, 32), mode="RGB")
    <ImageFiles: 3 samples of shape (32, 32, 3), uint8>
    """
    for name, value, choices in (("mode", mode, ("L", "RGB", "auto")), ("on_error", on_error, ("raise", "skip"))):
        if value not in choices:
            raise ValueError(f"{name}={value!r} must be {' or '.join(map(repr, choices))}")
    if sampler is not None and shape is not None:
        raise ValueError("give either sampler or shape: a sampler decides on the shape itself")
    if shape is not None and (len(shape) != 2 or min(shape) < 1):
        raise ValueError(f"shape={shape!r} must be (height, width)")
    threads = min(8, joblib.cpu_count()) if n_threads is None else n_threads
    if threads < 1:
        raise ValueError(f"n_threads={n_threads} must be at least 1")
    found = _listed(paths)
    size = None if shape is None else (int(shape[0]), int(shape[1]))
    if mode == "auto":
        mode = "RGB" if any(_in_threads(_has_colour, found, threads)) else "L"
    decoder = Decoder(sampler, size, mode, int(max_pixels))
    if on_error == "skip":
        return _usable(found, decoder, threads)
    missing = [path for path in found if not path.is_file()]
    if missing:
        names = ", ".join(str(path) for path in missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise ImageFileError(missing[0], f"{len(missing)} of {len(found)} files do not exist: {names}")
    first = decoder(found[0])
    return ImageFiles(first.shape, first.dtype, tuple(found), decoder, threads, np.arange(len(found)))


def _has_colour(path: Path) -> bool:
    """Whether a file is a colour picture, by its header; if it is none at all, that shows when it is decoded."""
    try:
        with open_regular(path) as file, Image.open(file, formats=FORMATS) as opened:
            return is_colour(opened)
    except Exception:  # decoders raise many types of errors on damaged files
        return False


def is_colour(image: Image.Image) -> bool:
    """Whether a picture has colours, or a palette of them."""
    return not image.mode.startswith(("1", "L", "I", "F"))


def _listed(paths: Paths) -> list[Path]:
    if not isinstance(paths, str | os.PathLike):
        listed = [Path(path).absolute() for path in paths]
        if not listed:
            raise ValueError("paths: no files were given")
        return listed
    folder = Path(paths).absolute()
    if not folder.is_dir():
        raise ValueError(f"paths: {folder} is not a folder; pass files as a list")
    listed = sorted(_inside(folder))
    if not listed:
        raise ValueError(f"paths: there are no images ({', '.join(sorted(EXTENSIONS))}) in {folder}")
    return listed


def _inside(folder: Path) -> Iterator[Path]:
    """Files in a folder and its subfolders that have the extension of an image."""
    top = os.path.realpath(folder)
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = Path(parent, name)
            if name.startswith(".") or path.suffix.lower() not in EXTENSIONS:
                continue
            if not path.is_symlink() or Path(os.path.realpath(path)).is_relative_to(top):
                yield path


def _usable(paths: list[Path], decoder: Decoder, threads: int) -> ImageFiles:
    """A source of the files that can be decoded and have the shape and dtype of the first of them."""

    def probe(path: Path) -> tuple[Shape, np.dtype[Any]] | str:
        try:
            image = decoder(path)
        except ImageFileError as error:
            return error.reason
        return image.shape, image.dtype

    kept, skipped, first = [], {}, None
    for i, (path, result) in enumerate(zip(paths, _in_threads(probe, paths, threads), strict=True)):
        if isinstance(result, str):
            skipped[path] = result
        elif first is None or result == first:
            first = result
            kept.append(i)
        else:
            skipped[path] = _differs(*result, *first)
    if first is None:
        path, reason = next(iter(skipped.items()))
        raise ImageFileError(path, f"{reason} (and none of the {len(paths)} files is a usable image)")
    return ImageFiles(*first, tuple(paths[i] for i in kept), decoder, threads, np.array(kept), skipped)


def _in_threads(work: Callable[[Path], T], paths: Sequence[Path], threads: int) -> Iterable[T]:
    if threads == 1 or len(paths) == 1:
        return (work(path) for path in paths)
    with ThreadPoolExecutor(min(threads, len(paths))) as pool:
        return list(pool.map(work, paths))


@dataclass(frozen=True, eq=False, repr=False)
class ImageFiles(Described):
    """Image files, decoded when they are asked for. Made by :func:`images`.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from PIL import Image
    >>> from higsfa import sources
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.fromarray(np.zeros((8, 8), np.uint8)).save(f"{folder}/good.png")
    ...     _ = open(f"{folder}/bad.png", "wb").close()
    ...     found = sources.images(folder, on_error="skip")  # ImageFiles
    >>> found.kept.tolist(), [path.name for path in found.skipped]
    ([1], ['bad.png'])
    """

    paths: tuple[Path, ...]
    decoder: Decoder
    n_threads: int
    kept: Rows
    skipped: dict[Path, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.paths)

    def _take(self, rows: Rows) -> Samples:
        wanted, back = distinct(rows)
        out = np.empty((len(wanted), *self.shape), dtype=self.dtype)
        place = {self.paths[row]: i for i, row in enumerate(wanted)}

        def decode(path: Path) -> None:
            image = self.decoder(path)
            if image.shape != self.shape or image.dtype != self.dtype:
                raise ImageFileError(path, _differs(image.shape, image.dtype, self.shape, self.dtype))
            out[place[path]] = image

        for _ in _in_threads(decode, list(place), self.n_threads):
            pass
        # A path may have been given twice.
        if len(place) < len(wanted):
            out = out[[place[self.paths[row]] for row in wanted]]
        return out[back]

    def _identity(self) -> Iterable[object]:
        decoder = self.decoder
        yield from (decoder.mode, decoder.shape, decoder.sampler and describe(decoder.sampler))
        for path in self.paths:
            yield file_identity(path)


def _differs(shape: Shape, dtype: np.dtype[Any], expected: Shape, expected_dtype: np.dtype[Any]) -> str:
    way = "; sources.images(paths, shape=(height, width)) makes all of one size" if shape != expected else ""
    return f"its shape {shape} and dtype {dtype} are not those of the first image, {expected} and {expected_dtype}{way}"


def upright(opened: Image.Image, mode: str, max_pixels: int, path: Path) -> Image.Image:
    """A picture in a mode of 8 bits a channel, turned as its file says; it is decoded if it is not too large."""
    width, height = opened.size
    if width * height > max_pixels:
        raise ImageFileError(path, f"has {width} x {height} pixels, and max_pixels is {max_pixels:,}")
    opened.load()
    image = ImageOps.exif_transpose(opened)
    has_16_bits = opened.mode.startswith("I;16") or (opened.mode == "I" and opened.format in ("PNG", "PPM"))
    if has_16_bits:
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise ImageFileError(path, f"has pixels of 32 bits (mode {image.mode}), whose range is not known")
    elif image.mode == "P":
        image = image.convert("RGBA")
    return image if image.mode == mode else image.convert(mode)


@dataclass(frozen=True)
class Decoder:
    """From a path to an array. Whatever is wrong with the file is an ImageFileError."""

    sampler: Sampler | None
    shape: tuple[int, int] | None
    mode: str
    max_pixels: int

    def __call__(self, path: Path) -> Samples:
        if ImageFile.LOAD_TRUNCATED_IMAGES:
            raise RuntimeError("PIL.ImageFile.LOAD_TRUNCATED_IMAGES is on and would hide damaged files: turn it off")
        try:
            return self._sampled(self._decoded(path), path)
        except (ImageFileError, MemoryError):
            raise
        except FileNotFoundError:
            raise ImageFileError(path, "does not exist") from None
        except UnidentifiedImageError:
            raise ImageFileError(path, f"is not an image of the formats {', '.join(FORMATS)}") from None
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise ImageFileError(path, f"is larger than Pillow allows: {error}") from None
        # Decoders raise many types of errors on damaged files.
        except Exception as error:
            raise ImageFileError(path, f"{type(error).__name__}: {error}") from error

    def _decoded(self, path: Path) -> Image.Image:
        """The image upright, in 8 bits a channel."""
        with open_regular(path) as file, Image.open(file, formats=FORMATS) as opened:
            return upright(opened, self.mode, self.max_pixels, path)

    def _sampled(self, image: Image.Image, path: Path) -> Samples:
        if self.sampler is not None:
            vars(image)["filename"] = str(path)
            sampled = np.asarray(self.sampler(image))
            if sampled.dtype.kind not in "fiub" or sampled.ndim == 0:
                raise ImageFileError(path, f"sampler returned {sampled.ndim}-dimensional {sampled.dtype}")
            return sampled
        if self.shape is not None:
            height, width = self.shape
            image = ImageOps.fit(image, (width, height), method=Image.Resampling.BILINEAR)
        return np.asarray(image)
