"""Wherever samples come from and wherever sums are gathered, the model is the same."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import higsfa.training.network as driver
from higsfa import GSFA, HiGSFA, HiSFA, Layer, sources
from higsfa.graphs import ClusteredGraph, SerialGraph

distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
zarr = pytest.importorskip("zarr")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).integers(0, 256, (900, 12, 12), dtype=np.uint8)


@pytest.fixture(scope="module")
def labels(images):
    rng = np.random.default_rng(1)
    return {"age": images[:, 4, 4] + rng.uniform(0, 50, len(images)), "group": rng.integers(0, 3, len(images))}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(driver, "NETWORK_BLOCK", 128)


def network(**params):
    layers = [
        Layer((4, 4), (2, 2), 6, pca=10, n_slow=2),
        Layer((3, 3), (2, 2), 8, expansion="identity | quadratic[:2]"),
        Layer((2, 2), n_components=10),
    ]
    return HiGSFA(layers, graph=SerialGraph("age", n_groups=8) + ClusteredGraph("group"), **params)


@pytest.fixture(scope="module")
def reference(images, labels):
    block, driver.NETWORK_BLOCK = driver.NETWORK_BLOCK, 128
    try:
        return network(n_jobs=2).fit(images, labels).transform(images)
    finally:
        driver.NETWORK_BLOCK = block


def save_pngs(images, folder):
    from PIL import Image

    folder.mkdir()
    for number, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{number:05d}.png")
    return folder


PLACES = {
    "memmap": lambda images, path: (np.save(path / "x.npy", images), np.load(path / "x.npy", mmap_mode="r"))[1],
    "npy": lambda images, path: (np.save(path / "x.npy", images), sources.npy(path / "x.npy"))[1],
    "zarr": lambda images, path: zarr.array(images, chunks=(100, 12, 12)),
    "dask": lambda images, path: da.from_array(images, chunks=(250, 12, 12)),
    "image files": lambda images, path: sources.images(save_pngs(images, path / "images")),
}


@pytest.mark.parametrize("place", PLACES)
def test_every_source_gives_the_same_bits(place, images, labels, reference, tmp_path):
    X = PLACES[place](images, tmp_path)
    fitted = network(n_jobs=2).fit(X, labels)
    assert np.array_equal(fitted.transform(images), reference)
    np.testing.assert_allclose(np.asarray(fitted.transform(X)), reference, rtol=0, atol=1e-3 * np.abs(reference).max())


@pytest.mark.parametrize("place", PLACES)
def test_single_estimators_fit_from_every_source(place, images, labels, tmp_path):
    flat = images.reshape(len(images), -1)
    X = PLACES[place](flat if place == "memmap" else images, tmp_path)
    expected = GSFA(3, graph="clustered").fit(flat, labels["group"])
    fitted = GSFA(3, graph="clustered").fit(X, labels["group"])
    assert np.array_equal(fitted.delta_values_, expected.delta_values_)


def test_distorted_copies_are_labelled_through_their_sample_index(images, labels):
    from higsfa.images import Distortion

    copies = sources.repeat(images, copies=2, distortion=Distortion(seed=3))
    repeated = {name: values[copies.sample_index] for name, values in labels.items()}
    a = network().fit(copies, repeated).transform(images)
    b = network().fit(np.asarray(copies), repeated).transform(images)
    assert np.array_equal(a, b)


def test_transform_streams_into_a_memmap(images, labels, reference, tmp_path):
    fitted = network().fit(images, labels)
    out = np.lib.format.open_memmap(tmp_path / "y.npy", mode="w+", dtype=np.float32, shape=reference.shape)
    assert fitted.transform(sources.array(images), out=out) is out
    assert np.array_equal(np.load(tmp_path / "y.npy"), fitted.transform(images))
    with pytest.raises(ValueError, match="out must be an array of shape"):
        fitted.transform(images, out=out[:5])


@pytest.fixture(params=[1, 2])
def client(request):
    options = {"n_workers": request.param, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


def test_distributed_fit_gives_the_same_bits(client, images, labels, reference, tmp_path):
    np.save(tmp_path / "x.npy", images)
    fitted = network(engine="dask").fit(sources.npy(tmp_path / "x.npy"), labels)
    assert np.array_equal(fitted.transform(images), reference)

    def held():  # runs in the workers
        from higsfa.training import dask_engine

        return dask_engine.HELD.n_bytes

    assert set(client.run(held).values()) == {0}


def test_distributed_features_in_16_bits_have_the_same_bits(client, images, labels, reference, tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", images)
    monkeypatch.setattr("higsfa.training.budget.SHORT_FROM", 0)
    expected = network().fit(images, labels).transform(images)
    assert not np.array_equal(expected, reference)
    fitted = network(engine="dask").fit(sources.npy(tmp_path / "x.npy"), labels)
    assert np.array_equal(fitted.transform(images), expected)


def test_distributed_sequence_and_shared_layers_give_the_same_bits(client, images):
    layers = [Layer((4, 4), (4, 4), 5, shared=True), Layer((3, 3), n_components=6)]
    expected = HiSFA(layers).fit(images).transform(images)
    assert np.array_equal(HiSFA(layers, engine="dask").fit(images).transform(images), expected)


@pytest.mark.parametrize("delay", [0.05, 0.4, 0.9, 1.6])
def test_a_killed_worker_costs_time_but_not_the_fit(delay, images, labels, reference, tmp_path):
    np.save(tmp_path / "x.npy", images)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        victim = next(iter(client.run(os.getpid).values()))

        def kill():
            time.sleep(delay)
            os.kill(victim, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        fitted = network(engine="dask").fit(sources.npy(tmp_path / "x.npy"), labels)
        killer.join()
        assert np.array_equal(fitted.transform(images), reference)
