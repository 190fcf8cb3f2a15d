"""Image files as samples: decoded when they are asked for, in threads, and trusted in nothing.

A file is opened by what is in it, not by its name, and only by the decoders named here. Its size is checked before a
pixel is decoded. Whatever goes wrong is reported with the name of the file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from higsfa.training.sources import Rows, Samples, Shape, Source, _describe, _file_identity

__all__ = ["ImageFileError", "images"]

FORMATS = ("JPEG", "PNG", "BMP", "TIFF", "WEBP", "PPM", "GIF")
EXTENSIONS = frozenset(
    (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm", ".pnm", ".gif")
)
MODES = ("L", "RGB")

Sampler = Callable[[Image.Image], ArrayLike]
T = TypeVar("T")


class ImageFileError(ValueError):
    """A file that is not a usable image."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def images(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    sampler: Sampler | None = None,
    *,
    shape: tuple[int, int] | None = None,
    mode: str = "L",
    on_error: Literal["raise", "skip"] = "raise",
    max_pixels: int = 50_000_000,
    n_threads: int | None = None,
) -> ImageFiles:
    """Samples that are image files: JPEG, PNG, BMP, TIFF, WebP, PPM, and the first frame of GIF.

    Parameters
    ----------
    paths : folder, or sequence of paths
        Of a folder, all files in it and below whose names end like one of these formats, sorted; hidden files and
        links that lead out of the folder are left out.
    sampler : callable, optional
        Turns an image (a ``PIL.Image``, upright, of the mode below, with its path as text in ``image.filename``) into
        an array that has the same shape and type for every image. Called by several threads at once.
    shape : (height, width), optional
        Instead of a sampler: the largest centred part of this aspect ratio is resized, with antialiasing. Without
        either, all images must have the same size.
    mode : {"L", "RGB"}, default="L"
        Grey (height, width) or colour (height, width, 3), 8 bits. Transparency is ignored; of 16 bits the upper 8 are
        used.
    on_error : {"raise", "skip"}, default="raise"
        "raise": a bad file is an error when it is read (a missing one at once). "skip": every file is decoded once now,
        and bad ones are left out; see ``skipped`` and ``kept``.
    max_pixels : int, default=50,000,000
        Files whose header announces more are refused before they are decoded.
    n_threads : int, optional
        Threads that decode; the number of cores, at most 8, by default.

    Returns
    -------
    ImageFiles
        A source with attributes ``paths``; ``kept``, the positions of these among the paths given (so that
        ``labels[source.kept]`` goes with it); and ``skipped``, a dictionary from path to reason.
    """
    if mode not in MODES:
        raise ValueError(f"mode={mode!r} must be 'L' or 'RGB'")
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error={on_error!r} must be 'raise' or 'skip'")
    if sampler is not None and shape is not None:
        raise ValueError("sampler and shape exclude each other: a sampler decides on the shape")
    if shape is not None and (len(shape) != 2 or min(shape) < 1):
        raise ValueError(f"shape={shape!r} must be (height, width)")
    found = _listed(paths)
    size = None if shape is None else (int(shape[0]), int(shape[1]))
    decoder = Decoder(sampler, size, mode, int(max_pixels))
    threads = n_threads if n_threads is not None else min(8, _cores())
    if threads < 1:
        raise ValueError(f"n_threads={n_threads} must be at least 1")
    if on_error == "skip":
        return _usable(found, decoder, threads)
    missing = [path for path in found if not path.is_file()]
    if missing:
        names = ", ".join(str(path) for path in missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise ImageFileError(missing[0], f"{len(missing)} of {len(found)} files do not exist: {names}")
    first = decoder(found[0])
    return ImageFiles(tuple(found), decoder, first.shape, first.dtype, threads, np.arange(len(found)))


def _listed(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Path]:
    if isinstance(paths, str | os.PathLike):
        folder = Path(paths).absolute()
        if not folder.is_dir():
            raise ValueError(f"paths: {folder} is not a folder; pass files as a list")
        listed = sorted(_inside(folder))
        if not listed:
            raise ValueError(f"paths: there are no images ({', '.join(sorted(EXTENSIONS))}) in {folder}")
        return listed
    listed = [Path(path).absolute() for path in paths]
    if not listed:
        raise ValueError("paths: no files were given")
    return listed


def _inside(folder: Path) -> Iterator[Path]:
    """Images in a folder and below, by their names."""
    top = os.path.realpath(folder)
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = Path(parent, name)
            if name.startswith(".") or path.suffix.lower() not in EXTENSIONS:
                continue
            if not path.is_symlink() or Path(os.path.realpath(path)).is_relative_to(top):
                yield path


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _usable(paths: list[Path], decoder: Decoder, threads: int) -> ImageFiles:
    """A source of the files that can be decoded and agree with the first of them."""

    def probe(path: Path) -> tuple[Shape, np.dtype[Any]] | str:
        try:
            image = decoder(path)
        except ImageFileError as error:
            return error.reason
        return image.shape, image.dtype

    kept, skipped, kind = [], {}, None
    for number, (path, result) in enumerate(zip(paths, _in_threads(probe, paths, threads), strict=True)):
        if isinstance(result, str):
            skipped[path] = result
        elif kind is None or result == kind:
            kind = result
            kept.append(number)
        else:
            skipped[path] = _other_kind(*result, *kind)
    if kind is None:
        path, reason = next(iter(skipped.items()))
        raise ImageFileError(path, f"{reason} (and none of the {len(paths)} files is a usable image)")
    return ImageFiles(tuple(paths[i] for i in kept), decoder, *kind, threads, np.array(kept), skipped)


def _in_threads(work: Callable[[Path], T], paths: Sequence[Path], threads: int) -> Iterable[T]:
    if threads == 1 or len(paths) == 1:
        return (work(path) for path in paths)
    with ThreadPoolExecutor(min(threads, len(paths))) as pool:
        return list(pool.map(work, paths))


@dataclass(frozen=True, eq=False, repr=False)
class ImageFiles(Source):
    """Image files, decoded when they are asked for. Made by :func:`images`."""

    n_probes: ClassVar[int] = 4
    paths: tuple[Path, ...]
    decoder: Decoder
    sample_shape: Shape
    kind: np.dtype[Any]
    n_threads: int
    kept: NDArray[np.intp]
    skipped: dict[Path, str] = field(default_factory=dict)

    @property
    def shape(self) -> Shape:
        return self.sample_shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.kind

    def __len__(self) -> int:
        return len(self.paths)

    def _take(self, rows: Rows) -> Samples:
        wanted, back = np.unique(rows, return_inverse=True)
        out = np.empty((len(wanted), *self.shape), dtype=self.dtype)
        place = {self.paths[row]: i for i, row in enumerate(wanted)}

        def decode(path: Path) -> None:
            image = self.decoder(path)
            if image.shape != self.shape or image.dtype != self.dtype:
                raise ImageFileError(path, _other_kind(image.shape, image.dtype, self.shape, self.dtype))
            out[place[path]] = image

        for _ in _in_threads(decode, list(place), self.n_threads):
            pass
        # A path may have been given twice.
        if len(place) < len(wanted):
            out = out[[place[self.paths[row]] for row in wanted]]
        return out[back]

    def _identity(self) -> Iterable[object]:
        decoder = self.decoder
        yield from (decoder.mode, decoder.shape, decoder.sampler and _describe(decoder.sampler))
        for path in self.paths:
            yield _file_identity(path)


def _other_kind(shape: Shape, dtype: np.dtype[Any], expected: Shape, expected_dtype: np.dtype[Any]) -> str:
    return f"its shape {shape} and type {dtype} are not those of the first image, {expected} and {expected_dtype}"


@dataclass(frozen=True)
class Decoder:
    """From a path to an array; an ImageFileError whatever is wrong with the file."""

    sampler: Sampler | None
    shape: tuple[int, int] | None
    mode: str
    max_pixels: int

    def __call__(self, path: Path) -> Samples:
        if ImageFile.LOAD_TRUNCATED_IMAGES:
            raise RuntimeError(
                "PIL.ImageFile.LOAD_TRUNCATED_IMAGES is on, so that damaged files go unnoticed: unset it"
            )
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
        # Decoders fail on damaged files with errors of many kinds.
        except Exception as error:
            raise ImageFileError(path, f"{type(error).__name__}: {error}") from error

    def _decoded(self, path: Path) -> Image.Image:
        """The image upright, in 8 bits a channel."""
        with open(path, "rb", opener=_open_nonblocking) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ImageFileError(path, "is not a regular file")
            with Image.open(file, formats=FORMATS) as opened:
                width, height = opened.size
                if width * height > self.max_pixels:
                    reason = f"has {width} x {height} pixels, and max_pixels is {self.max_pixels:,}"
                    raise ImageFileError(path, reason)
                opened.load()
                image = ImageOps.exif_transpose(opened)
                sixteen_bits = opened.mode.startswith("I;16") or (
                    opened.mode == "I" and opened.format in ("PNG", "PPM")
                )
        if sixteen_bits:
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        elif image.mode in ("I", "F"):
            raise ImageFileError(path, f"has pixels of 32 bits (mode {image.mode}), whose range is not known")
        elif image.mode == "P":
            image = image.convert("RGBA")
        return image if image.mode == self.mode else image.convert(self.mode)

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


def _open_nonblocking(path: str, flags: int) -> int:
    """Open a file without waiting; a pipe in the place of a file would never answer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
