"""Exported models beside ours: largest difference on unseen samples, and time.

    python benchmarks/export.py          about four minutes; needs higsfa[onnx]

Models are trained on synthetic faces and toy signals. The difference is the largest one of all samples and features,
in standard deviations of the feature, from ours for samples in float64. Speed is the time of ours divided by that of
the exported model, one thread each, taking turns: above 1 the exported model is quicker.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from _timing import environment, print_table, rounded, take_turns, write_json
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from higsfa import IGSFA, SFA, LabelHead, LabelRegressor, presets
from higsfa.datasets import make_faces
from higsfa.export import to_onnx

RESULTS = Path(__file__).resolve().parent / "results" / "export.json"
BATCHES = (1, 64)


class Case(NamedTuple):
    name: str
    model: Any
    seen: np.ndarray
    unseen: np.ndarray


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="cases whose name begins so")
    args = parser.parse_args()
    rows = [measure(case, args.rounds) for case in cases() if case.name.startswith(args.only)]
    header = [
        "model",
        "MB",
        "operations",
        "ours, float32",
        "float32",
        "float64",
        *(f"speed, {n} at a time" for n in BATCHES),
    ]
    lines = [
        [
            row["name"],
            f"{row['megabytes']:.1f}",
            f"{row['operations']}",
            f"{row['ours']:.1e}",
            f"{row['float32']:.1e}",
            f"{row['float64']:.1e}",
            *(f"{row['speed'][str(n)]:.2f}" for n in BATCHES),
        ]
        for row in rows
    ]
    print_table("Difference in standard deviations, and speed in units of ours", header, lines)
    if not args.only:
        about = environment(("higsfa", "numpy", "onnx", "onnxruntime"), 1)
        write_json(RESULTS, rounded({"environment": about, "rows": rows}))


def cases() -> Iterator[Case]:
    """Models, trained, with samples that they have and have not seen."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 20)).astype(np.float32)
    y = X[:, 0] + X[:, 1] * X[:, 2]
    unseen = (1.3 * rng.normal(size=(2000, 20))).astype(np.float32)
    node = IGSFA(n_components=12, graph="serial", expansion="identity | power0.8 | quadratic[:10]").fit(X, y)
    yield Case("IGSFA, 95 expanded", node, X, unseen)
    slow = np.cumsum(rng.normal(size=(4000, 20)), axis=0).astype(np.float32)
    yield Case(
        "SFA, polynomial3[:8]", SFA(n_components=5, expansion="polynomial3[:8]").fit(slow), slow, slow[::2] + 0.5
    )
    pipeline = make_pipeline(StandardScaler(), IGSFA(n_components=12, graph="serial"), LabelRegressor()).fit(X, y)
    yield Case("Pipeline: scaler, IGSFA, head", pipeline, X, unseen)

    faces, labels = make_faces(600, size=96, random_state=0)
    test = make_faces(200, size=96, random_state=1)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few samples for so many variables
        net = presets.higsfa_g3().fit(faces, labels)
        yield Case("higsfa_g3, 96 x 96", net, faces, test)
        faces, test = faces[:, ::2, ::2], test[:, ::2, ::2]
        net = presets.photographs((48, 48)).fit(faces, labels)
        head = LabelHead().fit(net.transform(faces), labels)
    yield Case("photographs, 48 x 48", net, faces, test)
    yield Case("photographs with head", make_pipeline(net, head), faces, test)


def measure(case: Case, rounds: int) -> dict[str, Any]:
    found: dict[str, Any] = {"name": case.name, "ours": difference(case, ours_in_single(case))}
    for dtype in ("float32", "float64"):
        graph = to_onnx(case.model, dtype=dtype)
        session = session_of(graph)
        found[dtype] = difference(case, outputs(session, case.unseen.astype(dtype)))
        if dtype == "float32":
            found |= {"megabytes": graph.ByteSize() / 1e6, "operations": len(graph.graph.node)}
            found["speed"] = {str(n): speed(case, session, n, rounds) for n in BATCHES}
    return found


def session_of(graph: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])


def difference(case: Case, found: dict[str, np.ndarray]) -> float:
    """Largest difference of features, or of the numbers of a head, from ours in float64, in standard deviations."""
    X = case.unseen.astype(np.float64)
    if "features" in found:
        deviation = np.std(case.model.transform(case.seen.astype(np.float64)), axis=0)
        return float(np.max(np.abs(found["features"] - case.model.transform(X)) / deviation))
    exact = by_label(case.model.predict(X))
    worst = 0.0
    for name, ours in exact.items():
        if ours.dtype.kind == "f":
            worst = max(worst, float(np.max(np.abs(found[name] - ours)) / ours.std()))
        else:
            assert np.all(found[name] == ours), f"another class of {name}"
    return worst


def outputs(session: Any, X: np.ndarray) -> dict[str, np.ndarray]:
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"X": X}), strict=True))


def by_label(estimates: Any) -> dict[str, np.ndarray]:
    if isinstance(estimates, np.ndarray):
        return {"label": estimates}
    return {name: np.asarray(estimates[name]) for name in estimates}


def ours_in_single(case: Case) -> dict[str, np.ndarray]:
    X = case.unseen.astype(np.float32)
    if hasattr(case.model, "transform"):
        return {"features": case.model.transform(X)}
    return by_label(case.model.predict(X))


def speed(case: Case, session: Any, n: int, rounds: int) -> float:
    """Time of ours over that of the session, for batches of n."""
    X = case.unseen[:n].astype(np.float32)
    ours = case.model.transform if hasattr(case.model, "transform") else case.model.predict
    repeats = max(1, 64 // n // 4)

    def mine() -> None:
        for _ in range(repeats):
            ours(X)

    def exported() -> None:
        for _ in range(repeats):
            session.run(None, {"X": X})

    timings = take_turns({"ours": mine, "exported": exported}, rounds)
    return timings["ours"].over(timings["exported"])


if __name__ == "__main__":
    main()
