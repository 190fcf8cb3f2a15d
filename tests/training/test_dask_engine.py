"""The passes of the distributed engine, task by task and without a cluster: pure, and the same bits as on threads."""

import copy
import pickle
import threading

import numpy as np
import pytest

from higsfa import HiGSFA, HiSFA, Layer
from higsfa.graphs import ClusteredGraph, SerialGraph
from higsfa.training import dask_engine
from higsfa.training import network as driver
from higsfa.training.dask_engine import Held
from higsfa.training.sources import Source

LAYERS = [
    Layer(3, 2, 3, pca=2, expansion="identity | quadratic", n_slow=1),
    Layer(2, 1, 3, n_slow=1),
    Layer(2, n_components=4, n_slow=2),
]
SHARED = [Layer(3, 2, 3, pca=2, shared=True, n_slow=1), Layer(2, 1, 3, shared=True, n_slow=1)]


class Future:
    def __init__(self, result):
        self.result = result

    def add_done_callback(self, function):
        function(self)


class Cluster:
    """Stands for a client: runs every task at once, twice, and uses what came out the second time."""

    def __init__(self, n_workers=2):
        self.workers = [f"worker {k}" for k in range(n_workers)]
        self.tasks, self.homes, self.most_held, self.largest = [], {}, 0, None  # not measured

    def scheduler_info(self):
        return {"workers": dict.fromkeys(self.workers)}

    def submit(self, function, *args, key, workers=None, allow_other_workers=None):
        assert (workers is None) == (allow_other_workers is None)
        assert key not in self.tasks
        self.tasks.append(key)
        if workers is not None:
            assert allow_other_workers
            (block,) = [arg for arg in args if isinstance(arg, int)] or [args[0].first // args[0].block]
            self.homes.setdefault(block, set()).update(workers)
        if self.largest is not None:
            sizes = [len(pickle.dumps(arg)) for arg in args if not isinstance(arg, Future)]
            self.largest = max([self.largest, *sizes])
        args = [arg.result if isinstance(arg, Future) else arg for arg in args]
        first = function(*args)
        second = function(*args)
        if function is not dask_engine._same:  # which has nothing to do
            assert pickle.dumps(first) == pickle.dumps(second)
        self.most_held = max(self.most_held, dask_engine.HELD.n_bytes)
        return Future(second)

    def gather(self, futures):
        return [future.result for future in futures]

    def run(self, function, *args, on_error):
        function(*args)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(driver, "NETWORK_BLOCK", 50)
    monkeypatch.setattr("higsfa.training.budget.NETWORK_TILE", 20)
    monkeypatch.setattr(dask_engine, "HELD", Held())


@pytest.fixture
def cluster(monkeypatch):
    cluster = Cluster()
    monkeypatch.setattr(driver, "cluster_client", lambda client, n_jobs: _Given(cluster))
    return cluster


class _Given:
    def __init__(self, value):
        self.value = value

    def __enter__(self):
        return self.value

    def __exit__(self, *_):
        pass


def data(n=230, shape=(7,)):
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, *shape)), {"age": rng.uniform(0, 1, n), "kind": rng.integers(0, 2, n)}


def network(layers=LAYERS, **params):
    return HiGSFA(layers, graph=SerialGraph("age", n_groups=5) + ClusteredGraph("kind"), **params)


@pytest.fixture
def reads(monkeypatch):
    """The numbers of rows that a fit on the cluster read."""
    train, counts = dask_engine.train_on_dask, []

    def counting(plans, read, *args, **kwargs):
        def read_and_count(rows):
            counts.append(len(rows))
            return read(rows)

        return train(plans, read_and_count, *args, **kwargs)

    monkeypatch.setattr(driver, "train_on_dask", counting)
    return counts


@pytest.mark.parametrize("layers", [LAYERS, SHARED], ids=["own weights", "shared weights"])
@pytest.mark.parametrize("memory", ["1 GiB", 1, 12_000], ids=["hold all", "hold nothing", "hold some"])
def test_tasks_are_pure_and_give_the_bits_of_threads(layers, memory, cluster, reads):
    X, labels = data()
    expected = network(layers).fit(X, labels).transform(X)
    found = network(layers, engine="dask", memory_limit=memory).fit(X, labels)
    assert np.array_equal(found.transform(X), expected)
    n_passes = sum(1 + (layer.pca is not None) for layer in layers)
    n_passes += layers is SHARED  # layers above shared weights do not know their means
    everything = 2 * n_passes * (len(X) + 20)  # tasks run twice; shifts come from the first tile
    assert max(reads) == 20  # tiles are as small as they were asked to be
    if memory == "1 GiB":
        assert sum(reads) == len(X)
    elif memory == 1:
        assert sum(reads) == everything
    else:
        assert len(X) < sum(reads) < everything
    n_workers = 2
    assert cluster.most_held * n_workers <= (2**30 if memory == "1 GiB" else memory)


@pytest.mark.parametrize("short", [False, True])
def test_a_kernel_has_the_points_that_it_has_on_threads(short, cluster, monkeypatch):
    X, labels = data()
    if short:
        monkeypatch.setattr("higsfa.training.budget.SHORT_FROM", 0)
        X = X.astype(np.float32)
    layers = [Layer(3, 2, 3, n_slow=0, expansion="identity"), Layer(3, n_components=4, expansion="kernel40")]
    weights = np.repeat([1.0, 0.0, 2.0], [100, 60, 70])  # a block without samples
    expected = network(layers).fit(X, labels, sample_weight=weights).transform(X)
    found = network(layers, engine="dask").fit(X, labels, sample_weight=weights).transform(X)
    assert np.array_equal(found, expected)


def test_a_sequence_gives_the_bits_of_threads(cluster):
    X, _ = data()
    expected = HiSFA(LAYERS).fit(X).transform(X)
    assert np.array_equal(HiSFA(LAYERS, engine="dask").fit(X).transform(X), expected)


def test_a_block_has_the_same_home_in_every_pass(cluster):
    X, labels = data()
    network(engine="dask").fit(X, labels)
    assert cluster.homes == {block: {f"worker {block % 2}"} for block in range(5)}


def test_the_client_sends_no_list_of_samples(cluster, monkeypatch):
    """The largest thing that is sent does not grow with the number of samples, nor does the client make tiles."""
    monkeypatch.setattr(dask_engine.Schedule, "blocks", property(lambda self: pytest.fail("tiles made by the client")))
    sizes = []
    for n in (250, 4000):
        cluster.largest = 0
        HiGSFA(LAYERS, graph=ClusteredGraph(), engine="dask").fit(Drawn(n), data(n)[1]["kind"])
        sizes.append(cluster.largest)
    assert sizes[1] < 1.2 * sizes[0]


class Drawn(Source):
    """Samples that workers draw themselves."""

    shape, dtype = (7,), np.dtype(np.float64)

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def _identity(self):
        return ()

    def _take(self, rows):
        return np.sin(np.outer(rows + 1, 1.5 + np.arange(7) ** 1.5))


def test_nodes_are_solved_in_a_few_tasks_for_each_worker(cluster):
    X, labels = data(shape=(41,))
    layers = [Layer(3, 2, 2, expansion="identity")]
    network(layers, engine="dask").fit(X, labels)
    n_nodes, n_workers = 20, 2
    tasks = [key for key in cluster.tasks if "_reduce" in key]
    assert n_workers < len(tasks) <= 4 * n_workers
    assert n_nodes / len(tasks) <= 3


def test_progress_counts_every_tile_of_every_node(cluster, tmp_path, monkeypatch):
    X, labels = data()
    done, totals = {}, {}

    class Progress:
        def __enter__(self):
            return self.on_layer

        def __exit__(self, *_):
            pass

        def on_layer(self, k, total):
            totals[k], done[k] = total, 0

            def step(n):
                done[k] += n

            return step

    from higsfa.estimators import network as _network

    monkeypatch.setattr(_network, "progress", lambda verbose, plans: Progress())
    for _ in range(2):  # trained, then known
        network(engine="dask").fit(X, labels, checkpoint=tmp_path)
        assert list(totals) == [0, 1, 2]
        assert done == totals


# --- what workers hold -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [False, True])
def test_workers_hold_nothing_after_a_fit(fails, cluster):
    X, labels = data()
    if fails:
        X[7, 3] = np.nan
        with pytest.raises(ValueError, match="NaN"):
            network(engine="dask").fit(X, labels)
    else:
        network(engine="dask").fit(X, labels)
    assert cluster.most_held > 0
    assert dask_engine.HELD.n_bytes == 0


def test_a_task_that_outlives_its_fit_leaves_nothing_behind():
    held = Held()
    held.put("a", 0, 0, np.zeros(10), 1000)
    held.forget("a")
    held.put("a", 1, 0, np.zeros(10), 1000)
    assert held.n_bytes == 0
    held.put("b", 1, 0, np.zeros(10), 1000)
    assert held.n_bytes == 80


def test_fits_at_the_same_time_do_not_see_each_others_features():
    held = Held()
    held.put("a", 0, 1, np.full(3, 1.0), 1000)
    held.put("b", 0, 2, np.full(3, 2.0), 1000)
    assert held.find("a", 0, 5)[0] == 1
    assert held.find("b", 0, 5)[1][0] == 2.0
    assert held.find("a", 1, 5) == (0, None)
    held.forget("b")
    assert held.find("b", 0, 5) == (0, None)
    assert held.find("a", 0, 5)[1][0] == 1.0


def test_features_that_have_gone_further_than_asked_for_are_no_use():
    held = Held()
    held.put("a", 0, 2, np.zeros(3), 1000)
    assert held.find("a", 0, 1) == (0, None)
    assert held.find("a", 0, 2)[0] == 2
    assert held.find("a", 0, 3)[0] == 2


def test_what_is_held_takes_the_place_of_what_it_was_made_of_and_stays_within_its_bytes():
    held = Held()
    held.put("a", 0, 0, np.zeros(10), 100)
    held.put("a", 0, 1, np.zeros(12), 100)
    assert held.n_bytes == 96
    held.put("a", 0, 2, np.zeros(13), 100)  # too large: what is there stays
    assert held.find("a", 0, 2)[0] == 1
    held.put("a", 1, 0, np.zeros(1, np.uint8), 96)
    assert held.find("a", 1, 0) == (0, None)
    held.put("b", 1, 0, np.zeros(5), 100)  # what others have left goes
    assert held.n_bytes == 40
    assert held.find("a", 0, 2) == (0, None)


def test_threads_of_a_worker_share_what_it_holds():
    held, start = Held(), threading.Barrier(4)

    def work(k):
        start.wait(60)
        for t in range(200):
            held.put("a", t, k, np.full(2, float(t)), 10**6)
            assert held.find("a", t, 9)[1][0] == t
            held.put(f"other {k}", t, k, np.zeros(2), 10**6)
        held.forget(f"other {k}")

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert held.n_bytes == 200 * 16


def test_a_worker_keeps_features_of_its_own(monkeypatch):
    """Not an array that whoever reads fills again for the next tile."""
    X = np.arange(8.0)[:, None]
    buffer = np.empty((4, 1))

    def read(rows):
        buffer[: len(rows)] = X[rows]
        return buffer[: len(rows)]

    tiles = [type("Tile", (), {"rows": np.arange(lo, lo + 4)}) for lo in (0, 4)]
    job = dask_engine.Job("fit", read, None, (), (), None, 1, np.dtype(float), 10**6)
    first = job.features(tiles[0], (0, 0))
    expected = copy.deepcopy(first)
    job.features(tiles[1], (0, 1))
    assert np.array_equal(first, expected)
    assert np.array_equal(job.features(tiles[0], (0, 0)), expected)
