"""Model files for the fuzzer: small models of every kind, damaged; and networks invented with the right sizes."""

import copy
import re
from math import prod

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline

from fuzzing import NUMBERS, REALS, Kind, compact, mutate_bytes, mutate_json, pick, quietly
from higsfa import (
    GSFA,
    HGSFA,
    HSFA,
    IGSFA,
    ISFA,
    SFA,
    HiGSFA,
    HiSFA,
    LabelHead,
    Layer,
    ModelFileError,
    load,
    save,
)
from higsfa.core.expansion.expansion import parse_expansion
from higsfa.core.node.solve import NodeOptions
from higsfa.graphs import (
    ClusteredGraph,
    CodeGraph,
    EdgeGraph,
    GraphSum,
    LabelGraph,
    MixedGraph,
    SequenceGraph,
    SerialGraph,
    UniformGraph,
    WindowGraph,
)
from higsfa.training.statistics import Statistics
from model_files import taken_apart, with_header

POOL = [None, True, False, *NUMBERS, 0.5, -1.5, 1e308, "", "a" * 5000, "polynomial8", "identity", "quadratic"]
POOL += ["quadratic[:3] | max2", "identity|" * 400, "power1e300", "SFA", "HiGSFA", "Pipeline", "LabelHead", "auto"]
POOL += ["F32", "F64", "I64", "U8", "EdgeGraph", "GraphSum", "WindowGraph", "\0", "é😀", "\ud800", "cv", "U9999", "O"]
POOL += ["i8", "b1", "f2", "frame", "vector", "dict", [], {}, [1] * 9, [[[[]]]], [2**20, 2**20], [4096, 4096], [1]]
POOL += [[1, 1], [1, 1, 1], [0], ["a"], [["a", 1]], {"recipe": "AutoGraph"}, {"text": "identity"}]
EXPANSIONS = ["identity", "quadratic", "polynomial3", "polynomial8", "identity | power0.8", "normalized_quadratic"]
EXPANSIONS += ["max2", "identity[:1] | signed_power0.3", "power2 | quadratic[0]", " | ".join(["polynomial2"] * 30)]
ITEMS = {"F64": 8, "I64": 8, "U8": 1}
MAX_BYTES = 200_000


# ---------------------------------------------------------------------- seeds


def data():
    rng = np.random.default_rng(0)
    X = np.cumsum(rng.standard_normal((60, 6)), axis=0) / 5 + rng.standard_normal((60, 6))
    return X, np.arange(60) % 3, rng.standard_normal((60, 6, 6))


def models():
    X, y, images = data()
    edges = EdgeGraph(np.column_stack([np.arange(59), np.arange(1, 60), np.linspace(1, 2, 59)]), np.linspace(1, 2, 60))
    recipes = GraphSum([SerialGraph(n_groups=5), 0.5 * ClusteredGraph(), MixedGraph(), WindowGraph(False), edges])
    frame = pd.DataFrame(X, columns=["a", "b", "", "ü", "😀", "f"])
    labels = pd.DataFrame({"age": X[:, 0], "class": y.astype(str), "old": X[:, 1] > 0, "kind": y})
    return {
        "SFA": SFA(expansion="identity | quadratic", center=np.arange(6)).fit(X),
        "SFA without clipping": SFA(3, clip_range=False, expansion="signed_power0.3 | max2").fit(X),
        "ISFA": ISFA(4, n_slow=0, expansion="normalized_quadratic").fit(X),
        "GSFA": GSFA(2, graph=EdgeGraph(sp.diags_array([np.ones(59)] * 2, offsets=[-1, 1]))).fit(frame, y),
        "IGSFA": IGSFA(5, graph=recipes, scaling="qr", expansion="identity | power0.8").fit(X, y),
        "HSFA": HSFA([Layer(2, n_components=2), Layer(3, n_components=3)], lag=2).fit(X),
        "HiSFA": HiSFA([Layer((3, 3), (1, 1), 4, pca=3), Layer((4, 4), n_components=5)]).fit(images),
        "HGSFA": HGSFA([Layer((3, 3), (1, 1), 3, shared=True, pca=4), Layer((2, 2), (2, 2), 3)], n_jobs=2).fit(
            images, y
        ),
        "HiGSFA": HiGSFA([Layer((5, 4), (2, 1), 6, pad=True)], graph=SequenceGraph() + SerialGraph()).fit(images, y),
        "3d": HiSFA([Layer((2, 3, 1), None, 3), Layer((1, 1, 6), n_components=4)], input_shape=(2, 3, 6)).fit(
            images.reshape(60, 36)
        ),
        "LabelHead": LabelHead("cv", {"age": 4}, integer={"age": True}, cv=2).fit(X, labels),
        "LabelHead of a vector": LabelHead(2).fit(frame, X[:, 0]),
        "label graph": GSFA(2, graph=LabelGraph(n_harmonics=2, label_range=(0, 5)) + 0.5 * UniformGraph()).fit(X, y),
        "sums of labels": GSFA(graph=LabelGraph(n_harmonics=2, label_range=(0, 5))).fit(X, y).statistics_,
        "sums of classes": GSFA(graph=CodeGraph()).fit(X, y.astype(str)).statistics_,
        "sums in time": SFA(expansion="identity | quadratic[:2]", center=np.arange(6)).fit(X).statistics_,
        "Pipeline": make_pipeline(
            HiGSFA([Layer((3, 3), n_components=2)], graph="clustered"), IGSFA(3), LabelHead()
        ).fit(images, y),
    }


def seeds(folder):
    """Bytes of good files."""
    made = {}
    for name, model in quietly(models).items():
        save(model, folder / "seed")
        made[name] = (folder / "seed").read_bytes()
    return made


# ---------------------------------------------------------------------- files taken apart and put together


def opened(data):
    """Header and arrays of a good file; an array is [dtype, shape, bytes]."""
    header, listing, payload = taken_apart(data)
    return header, {
        name: [entry["dtype"], entry["shape"], payload[slice(*entry["data_offsets"])]]
        for name, entry in listing.items()
    }


def closed(header, arrays):
    """A file in which every array lies where its entry says."""
    listing, payload = {}, []
    at = 0
    for name, (dtype, shape, raw) in arrays.items():
        listing[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(raw)]}
        payload.append(raw)
        at += len(raw)
    return with_header(compact({"__metadata__": {"higsfa": compact(header)}} | listing), b"".join(payload))


def mutate(files, rng):
    """One damaged or invented file."""
    data = pick(rng, list(files.values()))
    length = int.from_bytes(data[:8], "little")
    kind = rng.integers(12)
    if kind == 0:
        return mutate_bytes(data, rng)
    if kind == 1:
        return with_header(mutate_bytes(data[8 : 8 + length], rng), data[8 + length :])
    if kind == 2:
        wrong = pick(rng, [0, 1, 8, length - 1, length + 1, len(data), len(data) - 8, 2**20, 2**32, 2**63])
        return wrong.to_bytes(8, "little") + data[8:]
    if kind in (3, 4):
        return invented(files, rng)
    header, arrays = opened(data)
    if kind == 5:
        arrays = mix(files, header, arrays, rng)
    elif kind in (6, 7):
        resize(arrays, rng)
    elif kind == 8:
        overwrite(arrays, rng)
    elif kind == 9:
        _, listing, payload = taken_apart(data)
        mutate_json(listing, rng, POOL)
        return with_header(compact({"__metadata__": {"higsfa": compact(header)}} | listing), payload)
    else:
        for _ in range(int(rng.integers(1, 4))):
            mutate_json(header, rng, POOL)
        if rng.integers(4) == 0:
            resize(arrays, rng)
    return closed(header, arrays)


def mix(files, header, arrays, rng):
    """Arrays of two files, or renamed, exchanged or taken out; in the header, a part of another one."""
    other_header, other = opened(pick(rng, list(files.values())))
    names = list(arrays)
    a, b = pick(rng, names), pick(rng, names)
    change = rng.integers(5)
    if change == 0:
        key = pick(rng, list(header))
        header[key] = other_header.get(key, other_header)
    elif change == 1:
        return other
    elif change == 2:
        arrays[a], arrays[b] = arrays[b], arrays[a]
    elif change == 3:
        arrays[pick(rng, ["x", "", a + "x", "__metadata__ ", "node.slow"])] = arrays.pop(a)
    else:
        arrays |= {name: other[name] for name in other if rng.integers(2)}
    return arrays


def resize(arrays, rng):
    """Give an array another shape or type, and the bytes that go with it."""
    name = pick(rng, list(arrays))
    dtype, shape, raw = arrays[name]
    shape = list(shape)
    change = rng.integers(5)
    if change == 0 or not shape:
        dtype = pick(rng, list(ITEMS))
    elif change == 1:
        shape[int(rng.integers(len(shape)))] = int(rng.integers(8))
    elif change == 2:
        shape[int(rng.integers(len(shape)))] = 0
        shape[int(rng.integers(len(shape)))] = int(pick(rng, [0, 1, 2**20, 2**40, 2**47]))
    elif change == 3:
        shape[int(rng.integers(len(shape)))] *= int(rng.integers(1, 30))
    else:
        shape = shape[::-1]
    n_bytes = prod(shape) * ITEMS[dtype]
    if n_bytes <= MAX_BYTES:
        arrays[name] = [dtype, shape, (raw * (n_bytes // max(1, len(raw)) + 1))[:n_bytes].ljust(n_bytes, b"\0")]


def overwrite(arrays, rng):
    """Replace some numbers of an array, of tables more often."""
    filled = [name for name, (_, _, raw) in arrays.items() if raw]
    whole = [name for name in filled if arrays[name][0] == "I64"]
    name = pick(rng, whole if whole and rng.integers(2) else filled)
    dtype, shape, raw = arrays[name]
    if dtype == "U8":
        arrays[name] = [dtype, shape, mutate_bytes(raw, rng).ljust(len(raw), b"x")[: len(raw)]]
        return
    values = np.frombuffer(raw, "<i8" if dtype == "I64" else "<f8").copy()
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(values)))
        if dtype == "I64":
            values[at] = values[at] + int(rng.integers(-2, 3)) if rng.integers(2) else pick(rng, NUMBERS)
        else:
            values[at] = pick(rng, REALS)
    arrays[name] = [dtype, shape, values.tobytes()]


# ---------------------------------------------------------------------- invented models


def invented(files, rng):
    """A model whose sizes fit together, however odd they are."""
    if rng.integers(3) == 0:
        return invented_node(files, rng)
    header, _ = opened(files[pick(rng, ["HSFA", "HiSFA", "HGSFA", "HiGSFA", "3d"])])
    n_dimensions = int(rng.integers(1, 4))
    longest = [4000, 90, 25][n_dimensions - 1]
    grid = [int(rng.integers(1, pick(rng, [4, 12, longest]) + 1)) for _ in range(n_dimensions)]
    width = int(pick(rng, [1, 1, 1, 2, 5]))
    header["input_shape"] = grid + ([width] if width > 1 or rng.integers(3) == 0 else [])
    arrays, trained = {}, []
    for k in range(int(pick(rng, [1, 1, 2, 3, 40]))):
        layer, grid, width = invented_layer(header, arrays, f"layers.{k}.", grid, width, rng)
        trained.append(layer)
        if sum(len(raw) for _, _, raw in arrays.values()) > MAX_BYTES:
            break
    header["trained"] = trained
    return closed(header, arrays)


def invented_layer(header, arrays, prefix, grid, width, rng):
    layer = copy.deepcopy(header["trained"][0])
    field = [int(rng.integers(1, pick(rng, [1, min(3, n), n]) + 1)) for n in grid]
    stride = [int(rng.integers(1, max(1, pick(rng, [1, f])) + 1)) for f in field]
    pad = bool(rng.integers(2)) or any((n - f) % s for n, f, s in zip(grid, field, stride, strict=True))
    n_raw, pca = prod(field) * width, pick(rng, [None, None, 1, 2, 2**40])
    n_inputs = n_raw if pca is None else min(pca, n_raw)
    n_components = int(pick(rng, [1, 2, 5, 30, 1000, 2**16, 2**24]))
    expansion = pick(rng, EXPANSIONS)
    shape = [(n - f) // s + 1 + bool((n - f) % s) for n, f, s in zip(grid, field, stride, strict=True)]
    shared = bool(rng.integers(2)) or prod(shape) * n_raw > 2000
    clipped = bool(rng.integers(2))
    children = prod(field) if pca is None else 1
    layer |= {"field": field, "stride": stride, "pad": pad, "expansion": expansion, "pca": pca, "shared": shared}
    layer |= {"clipped": clipped}
    layer["options"]["n_components"] = n_components
    n_raw = n_raw if pca is not None else None
    n_nodes = 1 if shared else prod(shape)
    nodes(arrays, prefix, n_nodes, n_inputs, expansion, children, min(n_components, 40), n_raw, clipped, rng)
    return layer, shape, n_components


def invented_node(files, rng):
    header, arrays = opened(files[pick(rng, ["SFA", "SFA without clipping", "ISFA", "IGSFA"])])
    for name in [name for name in arrays if name.startswith("node.")]:
        del arrays[name]
    n_inputs = int(pick(rng, [1, 2, 3, 10, 50, 500, 5041]))
    clipped, expansion = bool(rng.integers(2)), pick(rng, EXPANSIONS)
    header |= {"expansion": expansion, "n_inputs": n_inputs, "clipped": clipped}
    nodes(arrays, "node.", 1, n_inputs, expansion, 1, 40, None, clipped, rng)
    return closed(header, arrays)


def nodes(arrays, prefix, n, n_inputs, expansion, children, most, n_raw, clipped, rng):
    """Arrays of nodes with any sizes that may go together, as long as they are not large."""
    try:
        size = min(parse_expansion(expansion).size(n_inputs // children, children), 2**47)
    except ValueError:  # it does not fit the inputs, which the reader has to find out
        size = 1
    J = rng.integers(0, min(size, most, pick(rng, [1, 1, 3, 40])) + 1, n) * bool(rng.integers(4))
    if int(J.sum()) * size * 8 > MAX_BYTES:
        J[:] = 0
        J[0] = size * 8 < MAX_BYTES and rng.integers(2)
    D = np.minimum(J + rng.integers(0, min(n_inputs, 5) + 1, n) * bool(rng.integers(3)), np.maximum(most, J))
    rank, deltas = np.minimum(J + rng.integers(0, 3, n), size), np.minimum(J + rng.integers(0, 3, n), size)
    layout = rng.integers(0, 16 if n_raw is None else 32, n)
    table = np.column_stack([J, D, rank, deltas, layout]).astype("<i8")
    arrays[f"{prefix}nodes"] = ["I64", [n, 5], table.tobytes()]
    longest = int(deltas.max(initial=0))
    filled = np.where(np.arange(longest) < deltas[:, None], 1.0, np.nan)
    arrays[f"{prefix}delta_values"] = ["F64", [n, longest], filled.tobytes()]
    shapes = {
        "center": [n, n_inputs],
        "slow": [int(J.sum()), size],
        "slow_offset": [int(J.sum())],
        "rest_inputs": [int((D - J).sum()), n_inputs],
        "rest_slow": [int(((D - J) * J).sum())],
        "rest_offset": [int((D - J).sum())],
        "decoder": [int(D.sum()) * n_inputs],
        "decode_offset": [n, n_inputs],
        "output_mean": [int(D.sum())],
    }
    if clipped:
        shapes |= {"low": [n, n_inputs], "high": [n, n_inputs]}
    if n_raw is not None:
        shapes |= {"axes": [n, n_raw, n_inputs], "axes_mean": [n, n_raw]}
    for name, shape in shapes.items():
        value = {"low": -1.0, "high": 1.0}.get(name, pick(rng, [0.0, 1.0, 0.5, -1e300]))
        arrays[prefix + name] = ["F64", shape, np.full(min(prod(shape), MAX_BYTES // 8), value).tobytes()]


# ---------------------------------------------------------------------- use


def use(path, thorough):
    """Load a file, use it on a small input and show it; if `thorough`, do all that can be done with it."""
    try:
        model = load(path)
    except ModelFileError:
        return "refused"
    return quietly(lambda: use_model(model, path, thorough))


def use_statistics(statistics, path, thorough):
    """Add, take away, solve: whatever the numbers, a result or a ValueError."""
    outcome = "used"
    try:
        str(statistics)
        (statistics + statistics) - statistics
        node = statistics.solve(NodeOptions(n_components=2))
        node.encode(np.zeros((node.frontend.n_inputs, 3)))
    except (ValueError, FloatingPointError):
        outcome = "used, with a ValueError about its numbers"
    if thorough:
        save(statistics, path)
        load(path)
    return outcome


def use_model(model, path, thorough):
    if isinstance(model, Statistics):
        return use_statistics(model, path, thorough)
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    first, last = steps[0], steps[-1]
    if first.n_features_in_ > 10**5 or getattr(last, "n_components_", 0) > 2 * 10**6:
        return "too large to be tried"
    X = np.full((2, first.n_features_in_), 0.5)
    X[1] = np.arange(X.shape[1])
    outcome = "used"
    try:
        extract(model, last, X)
    except ValueError as error:
        # Numbers that grow beyond all bounds from one step to the next, and reconstructions from no features.
        if not re.search(r"contains (NaN|infinity)|0 feature\(s\)", str(error)):
            raise
        outcome = "used, with a ValueError about its numbers"
    for step in steps:
        str(step)
        if thorough and hasattr(step, "layers_"):
            step._repr_html_()
            repr(step.layers_)
        if thorough and hasattr(step, "get_feature_names_out"):
            assert len(step.get_feature_names_out()) == step.n_components_
    if thorough:
        clone(model).get_params()
        repr(model)
        save(model, path)
        load(path)
    return outcome


def extract(model, last, X):
    if isinstance(last, LabelHead):
        model.predict(X)
        model.predict_proba(X, label=last.label_names_[-1])
        return
    assert model.transform(X).shape == (2, last.n_components_)
    assert len(model.inverse_transform(np.zeros((2, last.n_components_), np.float32))) == 2


MODELS = Kind(seeds, mutate, use)
