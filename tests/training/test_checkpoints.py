"""A checkpoint resumes to the model of an uninterrupted fit, or is refused: whatever is in its files."""

import dataclasses
import errno
import json
import os
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
from safetensors.numpy import load as read_arrays

import higsfa.training.checkpoints as checkpoints
import higsfa.training.network as driver
from higsfa import HiGSFA, Layer
from higsfa.graphs import ClusteredGraph, SerialGraph
from higsfa.io.container import KEY, serialize
from higsfa.training.checkpoints import CheckpointError

N_BLOCKS = 5


class Interrupted(BaseException):
    pass


def data(seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((230, 6)), {"age": rng.uniform(0, 1, 230), "kind": rng.integers(0, 2, 230)}


def network(expansion="identity | quadratic", **params):
    layers = [
        Layer(2, 2, 3, expansion=expansion, n_slow=1),
        Layer(1, 1, 3, n_slow=1, pca=2, expansion=expansion),
        Layer(3, n_components=3, n_slow=1),
    ]
    return HiGSFA(layers, graph=SerialGraph("age", n_groups=5) + ClusteredGraph("kind"), **params)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(driver, "NETWORK_BLOCK", 50)
    monkeypatch.setattr("higsfa.training.budget.NETWORK_TILE", 20)
    monkeypatch.setattr(checkpoints, "INTERVAL", 0.0)
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # no power is cut here


def stream(monkeypatch):
    """Keep no features, and train two nodes at once."""
    make_budget = driver.make_budget

    def forced(*args, **kwargs):
        budget = make_budget(*args, **kwargs)
        layers = tuple(dataclasses.replace(layer, place="nowhere", nodes_at_once=2) for layer in budget.layers)
        return dataclasses.replace(budget, input_place="nowhere", layers=layers)

    monkeypatch.setattr(driver, "make_budget", forced)


def interrupt(monkeypatch, folder, wanted, fit):
    """Fit until a file that is wanted has been written."""
    write = checkpoints.write_atomically

    def write_and_stop(path, content):
        write(path, content)
        if wanted(path.name, content):
            raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "write_atomically", write_and_stop)
        with pytest.raises(Interrupted):
            fit(folder)


def parts_of(path):
    """Header and arrays of a file."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"][KEY])
    return header, {name: array.copy() for name, array in read_arrays(content).items()}


def tamper(path, change):
    header, arrays = parts_of(path)
    change(header, arrays)
    path.write_bytes(serialize(header, arrays))


def expected():
    X, labels = data()
    return network().fit(X, labels).transform(X)


def resumed(folder):
    X, labels = data()
    return network().fit(X, labels, checkpoint=folder).transform(X)


def sums_of_layer_2(monkeypatch, folder, next_block):
    stream(monkeypatch)

    def wanted(name, content):
        return name == "layer2-sums.safetensors" and read_arrays(content)["place"][:2].tolist() == [0, next_block]

    interrupt(monkeypatch, folder, wanted, resumed)
    return folder / "layer2-sums.safetensors"


# --- sums ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("next_block", range(1, N_BLOCKS + 1))
def test_sums_are_gone_on_with(next_block, monkeypatch, tmp_path):
    whole = expected()
    sums_of_layer_2(monkeypatch, tmp_path, next_block)
    added = []
    add = checkpoints.LayerProgress.after_block

    def noted(self, first_node, block, gatherings):
        added.append((self._k, first_node, block))
        add(self, first_node, block, gatherings)

    monkeypatch.setattr(checkpoints.LayerProgress, "after_block", noted)
    assert np.array_equal(resumed(tmp_path), whole)
    later = [(1, 0, block) for block in range(next_block + 1, N_BLOCKS + 1)]
    assert added == later + [(k, p, block) for k, p in ((1, 2), (2, 0)) for block in range(1, N_BLOCKS + 1)]


def other_place(index, value):
    def change(header, arrays):
        arrays["place"][index] = value

    return change


def other_blocks(next_block, knots):
    def change(header, arrays):
        arrays["place"][1], arrays["keys"] = next_block, np.array(knots)

    return change


def other_header(name, value):
    def change(header, arrays):
        header[name] = value

    return change


def without(name):
    def change(header, arrays):
        del arrays[name]

    return change


def more(header, arrays):
    arrays["more"] = np.zeros(3)


def cut(name):
    def change(header, arrays):
        arrays[name] = arrays[name][..., :-1].copy()

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *((other_place(1, block), "blocks") for block in (-(2**62), -1, 0, 1, 3, 4, 5, 6, 99, 2**62)),
        (other_blocks(1, [[0, 0]]), "weights"),
        (other_blocks(4, [[2, 0]]), "weights"),
        (other_blocks(2, [[0, 0]]), "blocks"),
        (other_blocks(2, [[1, 1]]), "blocks"),
        (other_blocks(2, [[-1, 0]]), "blocks"),
        (other_blocks(2, np.zeros((0, 2), dtype=int)), "blocks|unknown arrays"),
        (other_header("fit", "0123456789abcdef"), "another fit"),
        (other_header("layer", 3), "another layer"),
        (other_header("format", "higsfa"), "another"),
        (without("place"), "place is missing"),
        (without("0.second"), "second is missing"),
        (more, "unknown arrays: 'more'"),
        (cut("0.second"), "second must be"),
        (cut("0.first"), "first must be"),
        (cut("0.low"), "low must be"),
        (cut("place"), "place must be"),
    ],
)
def test_sums_that_do_not_fit_are_refused(change, message, monkeypatch, tmp_path):
    tamper(sums_of_layer_2(monkeypatch, tmp_path, 2), change)
    with pytest.raises(
        CheckpointError, match=f"layer2-sums.safetensors cannot be read: .*({message}).*remove this file"
    ):
        resumed(tmp_path)


@pytest.mark.parametrize("change", [other_place(0, 2), other_place(0, -1), other_place(2, 1), other_place(2, 2**40)])
def test_sums_of_other_nodes_are_passed_over(change, monkeypatch, tmp_path):
    whole = expected()
    tamper(sums_of_layer_2(monkeypatch, tmp_path, 2), change)
    assert np.array_equal(resumed(tmp_path), whole)


def test_sums_over_inputs_that_have_changed_are_gathered_again(monkeypatch, tmp_path):
    """As where a fit goes on upon another processor, whose principal components differ in their last bits."""
    whole = expected()
    path = sums_of_layer_2(monkeypatch, tmp_path, 2)

    def change(header, arrays):
        header["inputs"] = "0123456789abcdef"
        arrays["0.second"] += 1

    tamper(path, change)
    with pytest.warns(UserWarning, match=r"layer2-sums\.safetensors were gathered over other inputs.*gathered again"):
        assert np.array_equal(resumed(tmp_path), whole)


def test_every_number_of_the_inputs_counts(monkeypatch):
    class Record:
        def __init__(self, **values):
            vars(self).update(values)

    def gathering(center=1.0, shift=2.0, matrix=3.0, mean=4.0):
        projection = Record(matrix=np.full((1, 2), matrix), mean=np.full(2, mean))
        frontend = Record(center=np.array([center]), projection=projection, n_inputs=1, n_variables=1)
        return Record(frontend=frontend, shift=np.array([shift]), empty=lambda: None)

    plan = Record(n_channels=1, n_atoms=0, has_edges=False)
    schedule = Record(plan=plan, blocks=())
    places = [
        checkpoints.SumsPlace.of(0, gatherings, schedule).inputs
        for gatherings in (
            [gathering(), gathering()],
            [gathering()],
            [gathering(), gathering(center=5.0)],
            [gathering(), gathering(shift=5.0)],
            [gathering(), gathering(matrix=5.0)],
            [gathering(mean=5.0), gathering()],
        )
    ]
    assert len(set(places)) == len(places)
    assert checkpoints.SumsPlace.of(3, [gathering(), gathering()], schedule).inputs == places[0]


# --- nodes -----------------------------------------------------------------------------------------------------------


def numbered(numbers):
    def change(header, arrays):
        arrays["numbers"] = np.array(numbers)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (numbered([1, 0, 2]), "ascending"),
        (numbered([0, 0, 1]), "ascending"),
        (numbered([-1, 0, 1]), "ascending"),
        (numbered([0, 1, 3]), "ascending"),
        (numbered([0, 1]), "numbers must be"),
        (other_header("layer", 2), "another layer"),
        (other_header("fit", ""), "another fit"),
        (without("low"), "low is missing"),
        (more, "unknown"),
    ],
)
def test_layers_that_do_not_fit_are_refused(change, message, tmp_path):
    resumed(tmp_path)
    tamper(tmp_path / "layer1.safetensors", change)
    with pytest.raises(CheckpointError, match=f"layer1.safetensors cannot be read: .*({message}).*remove this file"):
        resumed(tmp_path)


@pytest.mark.parametrize(
    ("numbers", "refused"), [([1, 0], True), ([1, 1], True), ([-1, 1], True), ([1, 3], True), ([0, 1], False)]
)
def test_nodes_that_do_not_fit_are_refused(numbers, refused, monkeypatch, tmp_path):
    whole = expected()
    save = checkpoints.Checkpoint.save_nodes
    waiting = {}

    def save_two(self, k, nodes):
        waiting.update(nodes)
        if len(waiting) == 2:
            save(self, k, waiting)
            waiting.clear()
            raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints.Checkpoint, "save_nodes", save_two)
        with pytest.raises(Interrupted):
            resumed(tmp_path)
    (path,) = tmp_path.glob("layer1-nodes-*")
    assert path.name == "layer1-nodes-000000-2.safetensors"
    tamper(path, numbered(numbers))
    if refused:
        with pytest.raises(CheckpointError, match="ascending"):
            resumed(tmp_path)
    else:
        assert np.array_equal(resumed(tmp_path), whole)
    path.unlink(missing_ok=True)
    assert np.array_equal(resumed(tmp_path), whole)


def test_finished_nodes_are_not_solved_again(monkeypatch, tmp_path):
    """Whether features are kept or streamed; those of the layer below are found again in either case."""
    whole = expected()
    import higsfa.training.statistics as training

    solve, solved = training.solve_node, []
    monkeypatch.setattr(training, "solve_node", lambda *args: solved.append(1) or solve(*args))
    for streaming in (False, True):
        if streaming:
            stream(monkeypatch)
        folder = tmp_path / str(streaming)
        interrupt(monkeypatch, folder, lambda name, _: name.startswith("layer2-nodes-000001"), resumed)
        solved.clear()
        assert np.array_equal(resumed(folder), whole)
        assert len(solved) == 2


def test_a_finished_layer_takes_the_place_of_its_parts(monkeypatch, tmp_path):
    stream(monkeypatch)
    interrupt(monkeypatch, tmp_path, lambda name, _: name.startswith("layer2-nodes-000002"), resumed)
    there = {path.name for path in tmp_path.iterdir()}
    assert {name for name in there if name.startswith("layer1")} == {"layer1.safetensors"}
    assert {"layer2-sums.safetensors", "layer2-nodes-000000-1.safetensors"} <= there
    resumed(tmp_path)
    layers = {f"layer{number}.safetensors" for number in (1, 2, 3)}
    assert {path.name for path in tmp_path.iterdir()} == {"manifest.json", *layers}


@pytest.mark.parametrize("name", ["layer1.safetensors", "layer2-sums.safetensors"])
def test_files_of_another_fit_are_refused(name, monkeypatch, tmp_path):
    mine, other = tmp_path / "mine", tmp_path / "other"
    sums_of_layer_2(monkeypatch, mine, 2)
    X, labels = data(1)
    interrupt(
        monkeypatch,
        other,
        lambda name, content: "layer2-sums" in name and read_arrays(content)["place"][1] == 2,
        lambda folder: network().fit(X, labels, checkpoint=folder),
    )
    shutil.copy(other / name, mine / name)
    with pytest.raises(CheckpointError, match=f"{name} cannot be read: it is of another fit"):
        resumed(mine)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("interval", [0.0, 6.0, 1e9])
def test_a_pass_is_saved_when_it_is_time(streaming, interval, monkeypatch, tmp_path):
    """The clock stands still but for three ticks in the second layer."""
    monkeypatch.setattr(checkpoints, "INTERVAL", interval)
    clock, written = [100.0], []
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: clock[0])
    write = checkpoints.write_atomically
    monkeypatch.setattr(checkpoints, "write_atomically", lambda path, c: (written.append(path.name), write(path, c)))
    if streaming:
        stream(monkeypatch)
    add, after = checkpoints.LayerProgress.add, checkpoints.LayerProgress.after_block

    def tick(self, *args):
        clock[0] += 2.0 if self._k == 1 else 0.0

    monkeypatch.setattr(checkpoints.LayerProgress, "add", lambda self, *args: (tick(self), add(self, *args)))
    monkeypatch.setattr(checkpoints.LayerProgress, "after_block", lambda self, *args: (tick(self), after(self, *args)))
    resumed(tmp_path)
    parts = [name for name in written if name.startswith("layer") and "-" in name]
    if interval == 1e9:
        assert parts == []
    elif interval == 6.0:  # every third tick
        assert all(name.startswith("layer2") for name in parts)
        n_ticks = 2 * N_BLOCKS + 3 if streaming else 3
        assert len(parts) == n_ticks // 3
        if not streaming:
            assert parts == ["layer2-nodes-000000-3.safetensors"]
    else:
        assert len(parts) == ((2 + 2 + 1) * N_BLOCKS if streaming else 0) + 3 + 3 + 1


# --- the folder ------------------------------------------------------------------------------------------------------


def test_layers_without_a_manifest_are_refused(tmp_path):
    resumed(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match="holds layers but no manifest; use another folder"):
        resumed(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read"),
        (b"[]", "cannot be read"),
        (b"{}", "cannot be read"),
        (b'{"format": "higsfa-checkpoint", "protocol": 1, "key": {}}', "another kind or version"),
        (b'{"format": "higsfa", "protocol": 2, "key": {}}', "another kind or version"),
        (b'{"format": "higsfa-checkpoint", "protocol": 2, "key": []}', "another kind or version"),
        (b'{"format": "higsfa-checkpoint", "protocol": 2, "key": {}}', "version was None there"),
        (b" " * (2**20 + 1), "larger than"),
    ],
)
def test_manifests_of_another_kind_are_refused(content, message, tmp_path):
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        resumed(tmp_path)


def test_a_key_with_more_in_it_is_of_another_fit(tmp_path):
    resumed(tmp_path)
    manifest = tmp_path / "manifest.json"
    record = json.loads(manifest.read_text())
    record["key"]["weather"] = "fine"
    manifest.write_text(json.dumps(record))
    with pytest.raises(CheckpointError, match="weather was fine there and is None now"):
        resumed(tmp_path)


def test_pipes_and_folders_in_the_place_of_files_are_refused(tmp_path):
    resumed(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    code = f"""
import faulthandler
faulthandler.dump_traceback_later(120, exit=True)
import sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
import pathlib
import higsfa.training.budget
import test_checkpoints as tests
for folder in map(pathlib.Path, sys.argv[1:]):
    try:
        tests.driver.NETWORK_BLOCK, higsfa.training.budget.NETWORK_TILE = 50, 20
        tests.resumed(folder)
    except tests.CheckpointError as error:
        print(error)
"""
    for path in (tmp_path / "a" / "manifest.json", tmp_path / "b" / "layer2.safetensors"):
        path.unlink()
        os.mkfifo(path)
    found = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "a", tmp_path / "b"], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    a, b = found.stdout.splitlines()
    assert "manifest.json is not a regular file" in a
    assert "layer2.safetensors is not a regular file" in b


def test_a_full_disk_leaves_what_is_finished(monkeypatch, tmp_path):
    whole = expected()
    write = checkpoints.write_atomically

    def full(path, content):
        if path.name == "layer2.safetensors":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content)

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "write_atomically", full)
        with pytest.raises(OSError, match="No space left"):
            resumed(tmp_path)
    assert (tmp_path / "layer1.safetensors").exists()
    assert np.array_equal(resumed(tmp_path), whole)


# --- functions as expansions -----------------------------------------------------------------------------------------


def fit_function(function, folder):
    X, labels = data()
    return network(function).fit(X, labels, checkpoint=folder).transform(X)


def times(factor):
    return lambda X: np.column_stack([X, np.tanh(factor * X)])


def test_functions_that_differ_are_not_taken_for_each_other(tmp_path):
    X, labels = data()
    first = fit_function(times(1.0), tmp_path)
    with pytest.raises(CheckpointError, match=r"layer 1 was .*expansion <function <lambda>> .*times.*lambda"):
        fit_function(times(2.0), tmp_path)
    assert np.array_equal(fit_function(times(1.0), tmp_path), first)
    assert np.array_equal(network(times(1.0)).fit(X, labels).transform(X), first)


def test_a_function_beside_other_terms_counts(tmp_path):
    fit_function(["identity", times(1.0)], tmp_path)
    for other in (["identity", times(2.0)], ["power0.8", times(1.0)], times(1.0)):
        with pytest.raises(CheckpointError, match="layer 1 was"):
            fit_function(other, tmp_path)


def test_a_function_that_cannot_be_known_again_is_refused_before_anything_is_done(tmp_path):
    lock = threading.Lock()

    def guarded(X):
        with lock:
            return np.tanh(X)

    with pytest.raises(CheckpointError, match=r"<function guarded> of layer 1 .*_thread\.lock.*without checkpoint"):
        fit_function(guarded, tmp_path / "c")
    assert not (tmp_path / "c").exists()
    assert fit_function(guarded, None).shape == (230, 3)
