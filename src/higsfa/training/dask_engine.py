"""The distributed engine: the same passes, on the workers of a Dask cluster.

Each task folds one block of samples: it reads the rows inside the worker, computes the layers below, and adds up the
sums of all nodes of the layer. Sums are merged in the same fixed tree as on threads, inside workers, and nodes are
solved there too; only trained nodes come back. All tasks are pure functions of what the scheduler holds, so a worker
that dies costs the time to run its tasks again, and not a bit of the result.
"""

from __future__ import annotations

import threading
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.node.frontend import Frontend
from higsfa.core.sums.accumulate import NodeSums
from higsfa.core.sums.sums import Sums, Tree, merge
from higsfa.core.sums.tile import Plan, Tile
from higsfa.training.gather import first_shifts, gather
from higsfa.training.layer import LayerPlan, Reduce, TrainedLayer, statistics_of, train_nodes
from higsfa.training.points import spread_over
from higsfa.training.runner import Runner, one_blas_thread, one_by_one
from higsfa.training.statistics import add_fields
from higsfa.training.stores import Block, Schedule, feature_major, field_of, round_block

if TYPE_CHECKING:
    from higsfa.training.checkpoints import Checkpoint

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Job:
    """One pass, as workers see it.

    Attributes
    ----------
    fit : names the fit, for what workers keep between passes.
    read : rows of the data by number; must be picklable.
    schedule : of no block; tasks get the plan of theirs.
    keep_bytes : what a worker may hold of the features below, so that later passes need not compute them again.
    """

    fit: str
    read: Callable[[NDArray[np.intp]], NDArray[Any]]
    plan: LayerPlan
    frontends: tuple[Frontend, ...]
    below: tuple[TrainedLayer, ...]
    schedule: Schedule
    channels: int
    dtype: np.dtype[Any]
    keep_bytes: int

    def features(self, tile: Tile, place: tuple[int, int]) -> Block:
        """Features of the layer below for a tile of a block, from what the worker holds or from the rows."""
        known, block = HELD.find(self.fit, place, len(self.below))
        if block is None:
            block = feature_major(self.read(tile.rows), self.channels)
        for layer in self.below[known:]:
            block = layer.encode(block, self.dtype, one_by_one)
            block = round_block(block) if self.schedule.short else block
        HELD.put(self.fit, place, len(self.below), block, self.keep_bytes)
        return block

    def start(self, p: int, shift: Floats) -> NodeSums:
        """Empty sums of node p."""
        return NodeSums(self.frontends[p if len(self.frontends) > 1 else 0], self.schedule.plan, self.dtype, shift)


class Held:
    """Features that a worker holds from one pass to the next: for each tile of a fit, those of one layer.

    Whoever trains says when a fit has ended; tasks of it that are still running leave nothing behind.
    """

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, Any], tuple[int, Block]] = {}
        self._ended: deque[str] = deque(maxlen=1000)
        self._lock = threading.Lock()  # a worker may have several threads

    @property
    def n_bytes(self) -> int:
        return sum(block.nbytes for _, block in self._blocks.values())

    def find(self, fit: str, t: Any, depth: int) -> tuple[int, Block | None]:
        """What there is of a tile that has gone through at most `depth` layers, and through how many it has."""
        with self._lock:
            found, block = self._blocks.get((fit, t), (0, None))
            return (found, block) if found <= depth else (0, None)

    def put(self, fit: str, t: Any, depth: int, block: Block, most: int) -> None:
        """Hold features that have gone through `depth` layers in place of others of the tile, in `most` bytes at most.

        If they do not fit, features that other fits have left behind are dropped, such as those of a client that died.
        """
        with self._lock:
            if fit in self._ended:
                return
            old = self._blocks.get((fit, t))
            needed = block.nbytes - (0 if old is None else old[1].nbytes)
            if self.n_bytes + needed > most:
                self._blocks = {key: held for key, held in self._blocks.items() if key[0] == fit}
            if self.n_bytes + needed <= most:
                self._blocks[fit, t] = depth, block

    def forget(self, fit: str) -> None:
        """A fit has ended."""
        with self._lock:
            self._ended.append(fit)
            self._blocks = {key: held for key, held in self._blocks.items() if key[0] != fit}


HELD = Held()
"""What this worker holds."""


def _forget(fit: str) -> None:
    HELD.forget(fit)


def _shifts(job: Job, plan: Plan, block: int) -> list[Floats]:
    """The shift of every node, from the first tile, which is that of this block."""
    with one_blas_thread():
        tile = next(plan.tiles(block, job.schedule.rows))
        first, index = job.features(tile, (block, 0)), job.plan.fields.index
        shifts = first_shifts(
            len(index), job.plan.shared, job.frontends, lambda p: field_of(first, index[p]), job.dtype
        )
        return [shifts(p) for p in range(len(index))]


def _fold(job: Job, shifts: list[Floats], plan: Plan, block: int) -> list[Sums]:
    """The sums of all nodes over one block."""
    index = job.plan.fields.index
    nodes = [job.start(p, shift) for p, shift in enumerate(shifts)]

    def fields(t: int, tile: Tile) -> Callable[[int], Any]:
        features = job.features(tile, (block, t))
        return lambda p: field_of(features, index[p])

    with one_blas_thread(), np.errstate(all="ignore"):
        tiles = plan.tiles(block, job.schedule.rows)
        gather(nodes, [(0, ((tile, fields(t, tile)) for t, tile in enumerate(tiles)))])
        return [node.tree.total() for node in nodes]


def _sizes(plan: Plan, block: int, rows: int) -> list[int]:
    """How many samples the tiles of a block have."""
    return [len(tile.rows) for tile in plan.tiles(block, rows)]


def _pick(job: Job, plan: Plan, block: int, which: NDArray[np.intp]) -> Block:
    """Features below of some samples of a block, by their places in the order of its tiles."""
    tiles = list(plan.tiles(block, job.schedule.rows))
    with one_blas_thread(), np.errstate(all="ignore"):
        every = np.concatenate([job.features(tile, (block, t)) for t, tile in enumerate(tiles)], axis=2)
    return every[:, :, which]


def _merge(a: list[Sums], b: list[Sums]) -> list[Sums]:
    """Sums of two ranges of blocks; the inputs are not changed, because a task may run again."""
    return [merge(x.copy(), y) for x, y in zip(a, b, strict=True)]


def _some(total: list[Sums], lo: int, hi: int) -> list[Sums]:
    return total[lo:hi]


def _reduce(job: Job, sums: list[Sums], lo: int, shifts: list[Floats], reduce: Reduce) -> list[Any]:
    results = []
    with one_blas_thread(), np.errstate(all="ignore"):
        for p, own in enumerate(sums, lo):
            node = job.start(p, shifts[p])
            node.tree.add(0, own)
            results.append(reduce(statistics_of(node, job.plan.precision(job.dtype))))
    return results


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, eq=False)
class DaskGathering:
    """A pass on the workers of a cluster.

    Attributes
    ----------
    blocks : the plan of every block that has samples, on its worker, by its number.
    """

    client: Any
    plan: LayerPlan
    schedule: Schedule
    blocks: dict[int, Any]
    dtype: np.dtype[Any]
    read: Callable[[NDArray[np.intp]], NDArray[Any]]
    below: tuple[TrainedLayer, ...]
    channels: int
    keep_bytes: int
    fit: str
    on_node: Callable[[int], None] = lambda _: None
    run: Runner = field(default=one_by_one)

    def some(self, n: int) -> Block:
        rows = self.schedule.rows
        sizes = self.client.gather([self._submit(_sizes, own, block, rows) for block, own in self.blocks.items()])
        places = spread_over([sum(own) for own in sizes], n)
        held = self._send(self._job(self.plan, ()))
        parts = zip(self.blocks.items(), places, strict=True)
        picked = [self._submit(_pick, held, own, block, which) for (block, own), which in parts if len(which)]
        return np.concatenate(self.client.gather(picked), axis=2)

    def _job(self, plan: LayerPlan, frontends: tuple[Frontend, ...]) -> Job:
        given = self.below, self.schedule, self.channels, self.dtype, self.keep_bytes
        return Job(self.fit, self.read, plan, frontends, *given)

    def _send(self, value: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            return self._submit(_same, value)

    def __call__(
        self, plan: LayerPlan, frontends: tuple[Frontend, ...], reduce: Reduce, fold: bool = False
    ) -> list[Any]:
        n = plan.fields.n_nodes
        held, work = self._send(self._job(plan, frontends)), self._send(reduce)
        begin = min(self.blocks)
        shifts = self._submit(_shifts, held, self.blocks[begin], begin)
        workers = workers_of(self.client)
        tree = Tree(lambda a, b: self._submit(_merge, a, b))
        for block, own in self.blocks.items():
            leaf = self._submit(_fold, held, shifts, own, block, **home_of(block, workers))
            steps = n if plan is self.plan else 0  # passes before it are not shown
            leaf.add_done_callback(lambda _, steps=steps: self.on_node(steps))
            tree.add(block, leaf)
        total = tree.total()
        step = max(1, -(-n // (4 * max(1, len(workers)))))
        parts = []
        for lo in range(0, n, step):
            some = self._submit(_some, total, lo, min(lo + step, n))
            parts.append(self._submit(_reduce, held, some, lo, shifts, work))
        results = [result for part in self.client.gather(parts) for result in part]
        return [add_fields(results)] if fold else results

    def _submit(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return submit(self.client, function, *args, **options)


def submit(client: Any, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return client.submit(function, *args, key=f"higsfa-{function.__name__}-{uuid.uuid4().hex}", **options)


def workers_of(client: Any) -> list[str]:
    return sorted(client.scheduler_info()["workers"])


def home_of(block: int, workers: list[str]) -> dict[str, Any]:
    """The same worker sees the same block in every pass, if it lives: it holds its plan, and may hold its features."""
    return {"workers": [workers[block % len(workers)]], "allow_other_workers": True} if workers else {}


def send_blocks(client: Any, schedule: Schedule) -> dict[int, Any]:
    """What workers need to know of the samples of each block, to make its tiles; the client need not hold any."""
    workers, plan = workers_of(client), schedule.plan
    sent: dict[int, Any] = {}
    whole: Any = None  # of graphs along an order, all blocks have the same
    for block in range(plan.n_blocks):
        own = plan.only(range(block, block + 1))
        if next(own.tiles(block, schedule.rows), None) is None:
            continue
        if own is plan:
            whole = submit(client, _same, plan) if whole is None else whole
        sent[block] = whole if own is plan else submit(client, _same, own, **home_of(block, workers))
    return sent


@contextmanager
def cluster_client(client: Any, n_jobs: int) -> Iterator[Any]:
    """The client given, the one that is active, or one of a cluster of processes on this machine."""
    try:
        import distributed
    except ImportError as error:
        raise ImportError("engine='dask' needs Dask: pip install higsfa[dask]") from error
    library: Any = distributed
    if client is None:
        try:
            client = library.default_client()
        except ValueError:
            client = None
    if client is not None:
        yield client
        return
    with (
        library.LocalCluster(n_workers=n_jobs, threads_per_worker=1, dashboard_address=None) as cluster,
        library.Client(cluster) as own,
    ):
        yield own


def train_on_dask(
    plans: list[LayerPlan],
    read: Callable[[NDArray[np.intp]], NDArray[Any]],
    schedule: Schedule,
    dtype: np.dtype[Any],
    client: Any,
    *,
    limit: int,
    on_layer: Callable[[int, int], Callable[[int], None]],
    checkpoint: Checkpoint | None = None,
) -> list[TrainedLayer]:
    """Train all layers, bottom up, on a cluster, whose workers hold nothing of it afterwards."""
    fit = uuid.uuid4().hex
    try:
        return _train_layers(plans, read, schedule, dtype, client, fit, limit, on_layer, checkpoint)
    finally:
        client.run(_forget, fit, on_error="ignore")


def _train_layers(
    plans: list[LayerPlan],
    read: Callable[[NDArray[np.intp]], NDArray[Any]],
    schedule: Schedule,
    dtype: np.dtype[Any],
    client: Any,
    fit: str,
    limit: int,
    on_layer: Callable[[int, int], Callable[[int], None]],
    checkpoint: Checkpoint | None,
) -> list[TrainedLayer]:
    layers: list[TrainedLayer] = []
    means = None
    n_workers = max(1, len(workers_of(client)))
    blocks = send_blocks(client, schedule)
    schedule = replace(schedule, plan=schedule.plan.only(range(0)))
    for k, plan in enumerate(plans):
        on_node = on_layer(k, plan.n_trained * len(blocks))
        layer = None if checkpoint is None else checkpoint.load_layer(k, plan)
        if layer is None:
            below, keep = tuple(layers), limit // n_workers
            given = dtype, read, below, plans[0].width, keep, fit, on_node
            gather = DaskGathering(client, plan, schedule, blocks, *given)
            layer = train_nodes(gather, means)
            if checkpoint is not None:
                checkpoint.save_layer(k, layer)
        else:
            on_node(plan.n_trained * len(blocks))
        layers.append(layer)
        means = layer.output_means
    return layers
