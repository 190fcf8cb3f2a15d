"""Trains nodes of MDP 3.6 on request; run by rivals.py in an environment of its own (Python 3.11, numpy 1.23.5).

    python benchmarks/mdp_nodes.py FOLDER

FOLDER holds the arrays as .npy files. Each line read is a JSON object: {"task": NAME} trains a node and answers {},
{"task": NAME, "peak": true} answers its peak memory, {"task": NAME, "features": ROWS} its features of the first rows.
"""

import contextlib
import json
import sys
import tracemalloc
import warnings
from pathlib import Path

import numpy as np

warnings.simplefilter("ignore")

import mdp  # noqa: E402

N_GROUPS = 32


def trained(node, X, **how):
    node.train(X, **how)
    if node.is_training():
        node.stop_training()
    return node


def tasks(folder):
    """Nodes by name, and the data that each is trained on."""
    X, series, age, digit, gender, race = (
        np.load(folder / f"{name}.npy") for name in ("x", "series", "age", "digit", "gender", "race")
    )
    serial = (f"serial_regression{len(X) // N_GROUPS}", age, 1.0)
    three = [serial, ("classification", gender, 1.0), ("classification", race, 1.0)]
    igsfa = {
        "output_dim": 20,
        "reconstruct_with_sfa": True,
        "slow_feature_scaling_method": "sensitivity_based",
        "delta_threshold": 1.96,
    }
    return {
        "SFANode": (series, lambda: trained(mdp.nodes.SFANode(), series)),
        "GSFANode, clustered": (X, lambda: trained(mdp.nodes.GSFANode(), X, train_mode=("classification", digit, 1.0))),
        "GSFANode, serial": (X, lambda: trained(mdp.nodes.GSFANode(), X, train_mode=serial)),
        "GSFANode, three labels": (X, lambda: trained(mdp.nodes.GSFANode(), X, train_mode=three)),
        "iGSFANode, serial": (X, lambda: trained(mdp.nodes.iGSFANode(**igsfa), X, train_mode=serial)),
    }


def answer(request, known):
    data, task = known[request["task"]]
    if request.get("peak"):
        tracemalloc.start()
        task()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return {"peak_bytes": peak}
    node = task()
    if "features" in request:
        return {"features": node.execute(data[: request["features"]]).tolist()}
    return {}


def main():
    known = tasks(Path(sys.argv[1]))
    print(json.dumps({"mdp": mdp.__version__, "numpy": np.__version__}), flush=True)
    for line in sys.stdin:
        with contextlib.redirect_stdout(sys.stderr):  # MDP prints while it trains
            reply = answer(json.loads(line), known)
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
