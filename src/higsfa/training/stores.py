"""Features between layers, tile by tile: in memory, in a file that vanishes with the fit, or computed when asked for.

A store holds one block (nodes, width, samples) for each tile. What is read from it again are the fields of single
nodes, so a file is read in a few long pieces. Where features are many they are rounded to 16 bits (``Schedule.short``),
wherever they wait, and when they are computed again.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.native.short import Grid, rounded, shorten
from higsfa.core.native.tile import Raw, Rows
from higsfa.core.sums.tile import Plan, Tile
from higsfa.training.runner import Runner

Block = NDArray[Any]
"""Features of all nodes of a layer for the samples of a tile: (nodes, width, n)."""

DISK_SHARE = 0.8
"""Of the free space of a folder, how much may be used."""
REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some of your space",
    errno.EFBIG: "lift the limit on the size of files (ulimit -f)",
}


def field_of(block: Block, index: NDArray[np.intp], grid: Grid | None = None) -> Raw:
    """Raw input (children * width, n) of the node whose field is `index`."""
    nodes, width, n = block.shape
    rows = (index[:, None] * width + np.arange(width)).ravel()
    return Rows(block.reshape(nodes * width, n), rows, grid)


def round_block(block: Block) -> Block:
    """Features as they are when they have waited in 16 bits."""
    return rounded(block.reshape(-1, block.shape[2])).reshape(block.shape)


READ_ROWS = 1024
"""Samples that are read at once."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """The tiles of a plan, cut once for all layers, block by block.

    Attributes
    ----------
    plan : blocks.
    rows : most samples in a tile.
    short : whether features are rounded to 16 bits, row by row of a tile, before the next layer reads them.
    """

    plan: Plan
    rows: int
    short: bool = False

    @cached_property
    def blocks(self) -> tuple[tuple[Tile, ...], ...]:
        """The tiles of every block, made when they are asked for: workers of a cluster make their own."""
        return tuple(tuple(self.plan.tiles(b, self.rows)) for b in range(self.plan.n_blocks))

    @cached_property
    def tiles(self) -> list[Tile]:
        return [tile for block in self.blocks for tile in block]

    @property
    def samples(self) -> list[int]:
        """Number of samples of every tile."""
        return [len(tile.rows) for tile in self.tiles]


class Store(ABC):
    """Blocks of features, one a tile.

    Parameters
    ----------
    nodes, width : of every block.
    samples : number of samples of each tile.
    dtype : of the features.
    short : whether they are kept in 16 bits, with a grid for every row.
    """

    def __init__(
        self, nodes: int, width: int, samples: list[int], dtype: np.dtype[Any], *, short: bool = False
    ) -> None:
        self.nodes, self.width, self.samples, self.dtype = nodes, width, samples, dtype
        self.kept_dtype = np.dtype(np.uint16) if short else dtype
        self._grids = np.empty((2, len(samples), nodes * width), np.float32) if short else None

    @abstractmethod
    def reserve(self) -> None:
        """Allocate all blocks; to be called before the first is written."""

    def write(self, t: int, first: int, part: Block) -> None:
        """Write the features of some nodes, from number `first` on, for a tile."""
        if self._grids is None:
            self._put(t, first, part)
            return
        codes = np.empty(part.shape, self.kept_dtype)
        self._shorten(t, first, part, codes)
        self._put(t, first, codes)

    def fill(self, t: int, node: int, put: Callable[[NDArray[Any]], Any]) -> None:
        """Have the features of a node for a tile put into an array (width, samples), all of it."""
        part = np.empty((1, self.width, self.samples[t]), self.dtype)
        put(part[0])
        self.write(t, node, part)

    def tile(self, t: int) -> Block:
        """The features of all nodes for a tile."""
        block, grid = self._block(t), self._grid(t)
        if grid is None:
            return block
        return grid.numbers(block.reshape(len(grid.step), -1)).reshape(block.shape)

    @abstractmethod
    def field(self, t: int, index: NDArray[np.intp]) -> Raw:
        """Raw input of the node whose field is `index`."""

    @abstractmethod
    def _put(self, t: int, first: int, part: Block) -> None:
        """Keep what is kept of some nodes."""

    @abstractmethod
    def _block(self, t: int) -> Block:
        """What is kept of all nodes."""

    def _grid(self, t: int, rows: Any = slice(None)) -> Grid | None:
        return None if self._grids is None else Grid(*self._grids[:, t]).some(rows)

    def _shorten(self, t: int, first: int, part: Block, codes: Block) -> None:
        assert self._grids is not None
        grid = Grid(*self._grids[:, t, first * self.width : (first + len(part)) * self.width])
        shorten(part.reshape(len(grid.step), -1), codes.reshape(len(grid.step), -1), grid)


class MemoryStore(Store):
    """Blocks in memory."""

    def reserve(self) -> None:
        self._blocks: list[Block] = [np.empty((self.nodes, self.width, n), self.kept_dtype) for n in self.samples]

    def fill(self, t: int, node: int, put: Callable[[NDArray[Any]], Any]) -> None:
        if self._grids is None:
            put(self._blocks[t][node])
        else:
            super().fill(t, node, put)

    def field(self, t: int, index: NDArray[np.intp]) -> Raw:
        return field_of(self._blocks[t], index, self._grid(t))

    def _put(self, t: int, first: int, part: Block) -> None:
        # Always a copy: the caller may use its array again for the next tile.
        self._blocks[t][first : first + len(part)] = part

    def _block(self, t: int) -> Block:
        return self._blocks[t]


class FileStore(Store):
    """Blocks in an unnamed file, which the system removes with the store, even after a crash."""

    def __init__(
        self, nodes: int, width: int, samples: list[int], dtype: np.dtype[Any], folder: Path, *, short: bool = False
    ) -> None:
        super().__init__(nodes, width, samples, dtype, short=short)
        self.folder = folder
        with self._explained():
            self._file = tempfile.TemporaryFile(dir=folder, prefix="higsfa-", buffering=0)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        sizes = np.array(samples, dtype=np.int64) * (width * self.kept_dtype.itemsize)
        self._stride = sizes  # bytes of a node in each tile
        self._start = np.concatenate([[0], np.cumsum(sizes * nodes)])

    def reserve(self) -> None:
        pass  # a file grows by itself

    def _put(self, t: int, first: int, part: Block) -> None:
        data = np.ascontiguousarray(part, dtype=self.kept_dtype).data.cast("B")
        at = self._place(t, first)
        with self._explained():
            while len(data):
                done = os.pwrite(self._file.fileno(), data, at)
                data, at = data[done:], at + done

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Explain errors of the system: what the file is for, and what to do."""
        try:
            yield
        except OSError as error:
            raise OSError(
                error.errno,
                f"spill: features that do not fit in memory are kept in {self.folder}, which cannot take them "
                f"({error.strerror}); {REMEDIES.get(error.errno or 0, 'repair it')}, name another folder by spill=, "
                "or set spill=False to compute them again in every pass",
            ) from error

    def field(self, t: int, index: NDArray[np.intp]) -> Raw:
        out = np.empty((len(index), self.width, self.samples[t]), self.kept_dtype)
        ends = np.flatnonzero(np.diff(index, append=-1) != 1) + 1
        start = 0
        for end in ends.tolist():  # runs of neighbouring nodes
            self._read_into(out[start:end], t, int(index[start]))
            start = end
        rows = (index[:, None] * self.width + np.arange(self.width)).ravel()
        return Rows(out.reshape(len(rows), -1), grid=self._grid(t, rows))

    def _block(self, t: int) -> Block:
        out = np.empty((self.nodes, self.width, self.samples[t]), self.kept_dtype)
        self._read_into(out, t, 0)
        return out

    def _place(self, t: int, first: int) -> int:
        return int(self._start[t] + first * self._stride[t])

    def _read_into(self, out: Block, t: int, first: int) -> None:
        data, at = out.data.cast("B"), self._place(t, first)
        while len(data):
            done = os.preadv(self._file.fileno(), [data], at)
            if done == 0:
                raise OSError(f"features kept in {self.folder} have vanished")
            data, at = data[done:], at + done


def make_store(
    place: str,
    nodes: int,
    width: int,
    samples: list[int],
    dtype: np.dtype[Any],
    folder: Path | None,
    *,
    short: bool = False,
) -> Store | None:
    """A store in "memory", on "disk", or none if features are to be computed again ("nowhere")."""
    if place == "memory":
        return MemoryStore(nodes, width, samples, dtype, short=short)
    if place == "disk" and folder is not None:
        return FileStore(nodes, width, samples, dtype, folder, short=short)
    return None


def spill_folder(spill: Any) -> Path | None:
    """The folder for features that do not fit in memory; None if they shall not be written anywhere.

    None means the folder for temporary files, unless that is in memory itself.
    """
    if spill is False or not hasattr(os, "preadv"):
        return None
    if spill is None or spill is True:
        folder = Path(tempfile.gettempdir())
        return None if spill is None and _lies_in_memory(folder) else folder
    folder = Path(spill)
    if not folder.is_dir():
        raise ValueError(f"spill={os.fspath(spill)!r} is not a folder: make it, or leave spill to its default")
    return folder


def free_bytes(folder: Path | None) -> int:
    """What may be written to the folder."""
    return 0 if folder is None else int(DISK_SHARE * shutil.disk_usage(folder).free)


def _lies_in_memory(folder: Path) -> bool:
    """Whether the folder is on a file system that is kept in memory; False where that cannot be found out."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    mounts = {fields[1]: fields[2] for fields in (line.split() for line in lines) if len(fields) > 2}
    here = folder.resolve()
    for place in (here, *here.parents):
        if str(place) in mounts:
            return mounts[str(place)] in ("tmpfs", "ramfs")
    return False


class Features:
    """Features of a layer, tile by tile: all in a store, or computed each time they are asked for.

    Parameters
    ----------
    compute : the block of a tile; None if all of them are in the store.
    store : where blocks wait; None to compute them every time.
    put_all : puts all blocks in the store; by default they are computed one after the other.

    Attributes
    ----------
    kept : whether every block is in the store.
    """

    def __init__(
        self,
        compute: Callable[[int], Block] | None,
        store: Store | None,
        put_all: Callable[[Store], None] | None = None,
    ) -> None:
        self._compute: Any = compute
        self.store, self._put_all, self.kept = store, put_all, compute is None

    def fill(self) -> None:
        """Put all blocks in the store, if there is one. Nothing is trained in a store that is half full."""
        if self.store is None or self.kept:
            return
        self.store.reserve()
        if self._put_all is not None:
            self._put_all(self.store)
        else:
            for t in range(len(self.store.samples)):
                self.store.write(t, 0, self._compute(t))
        self.kept = True
        self._compute, self._put_all = None, None  # what they were made of is not needed any more

    def tile(self, t: int) -> Block:
        """The block of a tile."""
        self.fill()
        return self._compute(t) if self.store is None else self.store.tile(t)

    def field(self, t: int, index: NDArray[np.intp]) -> Raw:
        """Raw input (children * width, n) of the node whose field is `index`, from the store."""
        assert self.store is not None
        return self.store.field(t, index)


def feature_major(samples: NDArray[Any], channels: int) -> Block:
    """Samples (n, ...) as a block (pixels, channels, n), always a copy: a source may use its array again."""
    flat = samples.reshape(len(samples), -1)
    return np.array(flat.T, order="C").reshape(-1, channels, len(samples))


def raw_features(
    read: Callable[[NDArray[np.intp]], NDArray[Any]],
    schedule: Schedule,
    channels: int,
    store: Store | None,
    run: Runner,
    *,
    by_blocks: bool,
) -> Features:
    """Raw input, read and laid out feature-major.

    The rows of a tile lie scattered over its block; read one tile after the other, a chunked file would be decoded
    many times. So they go to the store block by block, in the order in which the data hold them, unless blocks are too
    large for that.
    """

    def compute(t: int) -> Block:
        return feature_major(read(schedule.tiles[t].rows), channels)

    def put_all(store: Store) -> None:
        t = 0
        for tiles in schedule.blocks:
            if tiles:
                _put_block(store, t, tiles, read, channels, run)
            t += len(tiles)

    return Features(compute, store, put_all if by_blocks else None)


def _put_block(
    store: Store,
    first: int,
    tiles: tuple[Tile, ...],
    read: Callable[[NDArray[np.intp]], NDArray[Any]],
    channels: int,
    run: Runner,
) -> None:
    rows = np.unique(np.concatenate([tile.rows for tile in tiles]))
    samples = np.empty((len(rows), store.nodes * store.width), store.dtype)

    def read_some(i: int) -> None:
        some = read(rows[i * READ_ROWS : (i + 1) * READ_ROWS])
        samples[i * READ_ROWS : (i + 1) * READ_ROWS] = some.reshape(len(some), -1)

    def put(i: int) -> None:
        store.write(first + i, 0, feature_major(samples[np.searchsorted(rows, tiles[i].rows)], channels))

    run(read_some, -(-len(rows) // READ_ROWS))
    run(put, len(tiles))
