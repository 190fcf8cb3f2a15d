"""FairFace with 1, 2 and 4 times the processor time: the default network and the small convolutional one.

    python benchmarks/fairface_curve.py --cnn-python PYTHON
    python benchmarks/fairface_curve.py --table            what is there already

HiGSFA is `higsfa train fairface_npz` with nothing set but the file, and with twice and four times as many distorted
copies. The convolutional network of fairface_cnn.py learns from as many copies, for as many processor seconds as HiGSFA
took for everything; PYTHON is that of an environment with torch. One thread each. Results are kept one by one in
results/fairface_curve.json. Needs ../shared/data/fairface64.npz, and is skipped without it.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

from _records import Records
from _timing import print_table
from fairface import DATA, convolutional, load

COPIES = {1: 5, 2: 10, 4: 20}


def default_network(file, copies):
    """Errors on the test part and processor seconds, of the command that a user types."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        options = {"data.file": f'"{file}"', "distortion.copies": copies, "comparison.methods": "[]"}
        command = [sys.executable, "-m", "higsfa", "train", "fairface_npz", "-o", f"{folder}/run", "-j", "1", "--json"]
        for name, value in options.items():
            command += ["--set", f"{name}={value}"]
        subprocess.run(command, check=True, capture_output=True, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
        found = json.loads((pathlib.Path(folder) / "run" / "metrics.json").read_text())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    labels = found["methods"][0]["labels"]
    return {
        "age_mae": labels["age"]["mae"]["mean"],
        "gender_rate": labels["gender"]["rate"]["mean"],
        "race_rate": labels["race"]["rate"]["mean"],
        "cpu_seconds": round(seconds, 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, default=DATA)
    parser.add_argument("--times", type=int, nargs="+", default=list(COPIES), choices=list(COPIES))
    parser.add_argument("--cnn-python", help="Python of an environment with torch; without it no convolutional network")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    args = parser.parse_args()
    if not args.data.exists():
        print(f"skipped: {args.data} is not there")
        return
    for times in () if args.table else args.times:
        ours, theirs = f"higsfa/{times}", f"cnn/{times}"
        if ours not in Records("fairface_curve"):
            Records("fairface_curve").add(ours, default_network(args.data.resolve(), COPIES[times]))
        if args.cnn_python and theirs not in Records("fairface_curve"):
            seconds = Records("fairface_curve").rows[ours]["cpu_seconds"]
            (train, test) = load(args.data, holdout=False, quick=False)
            row = convolutional(args.cnn_python, seconds, *train, *test, COPIES[times])
            Records("fairface_curve").add(theirs, row)
    lines = []
    for name, row in sorted(Records("fairface_curve").rows.items()):
        rates = [f"{100 * row[label]:.1f}" for label in ("gender_rate", "race_rate")]
        lines.append([name, f"{row['age_mae']:.2f}", *rates, f"{row['cpu_seconds']:.0f}"])
    header = ["method, time", "age: MAE, years", "gender: %", "race: %", "processor s"]
    print_table("FairFace, test part", header, lines)


if __name__ == "__main__":
    main()
