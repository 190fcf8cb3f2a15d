"""Which graph for a label: serial, label functions and ranks ("auto") for numbers, clustered and codes for classes.

    python benchmarks/graphs.py
    python benchmarks/graphs.py --data digits,fashion --sizes 50,200 --draws 3
    python benchmarks/graphs.py --shrinkage 0.1        in all layers
    python benchmarks/graphs.py --table                what is there already

`presets.pyramid(shape)` for each graph, on images as they are stored, then `LabelHead` on its first features. Numbers:
ages of synthetic faces and of FairFace, mean absolute error. Classes: digits, Fashion-MNIST, race of FairFace, percent
right. Each draw is another random training set, the same for both graphs. Results are kept in results/graphs.json one
by one; what is there is not measured again without --again. Absent data are skipped.
"""

import argparse
import time

from _records import Records, choose_cases, fill, mean_and_error
from _timing import print_table
from threadpoolctl import threadpool_limits

from higsfa import LabelHead, presets
from higsfa.graphs import ClusteredGraph, CodeGraph, LabelGraph, SerialGraph

FEATURES = (3, 5, 10, 20)
DATA = ("digits", "fashion", "faces-age", "fairface-age", "fairface-race")
NUMBERS = {"serial": SerialGraph(), "label": LabelGraph(), "auto": "auto"}
CLASSES = {"clustered": ClusteredGraph(), "code": CodeGraph()}


def graphs(data):
    return NUMBERS if data.endswith("age") else CLASSES


def measure(images, graph, shrinkage):
    """Scores of label heads on the first features, and time."""
    value = shrinkage if shrinkage == "auto" else float(shrinkage)
    net = presets.pyramid(images.X.shape[1:], front=None, graph=graph, layer_params={"shrinkage": value})
    with threadpool_limits(1):
        start = time.process_time()
        net.fit(images.X, images.y)
        seconds = time.process_time() - start
        Y, Y_new = net.transform(images.X), net.transform(images.X_new)
        heads = {k: LabelHead(covariance="separate", n_used_features=k).fit(Y, images.y) for k in FEATURES}
        row = {str(k): round(images.score(head.predict(Y_new)), 4) for k, head in heads.items()}
    return row | {"score": images.score_name, "seconds": round(seconds, 2)}


def table(records, cases, draws, shrinkage):
    """For each case all graphs, and the others minus the first with the standard error of the difference."""
    rows = []
    for data, size in cases:
        first = {}
        for graph in graphs(data):
            keys = {d: f"{data}/{size}/{graph}/{shrinkage}/{d}" for d in range(draws)}
            found = {d: records.rows[key] for d, key in keys.items() if key in records}
            cells = [mean_and_error([row[str(k)] for row in found.values()], draws) for k in FEATURES]
            rows.append([f"{data} {size:,}", graph, *cells])
            both = [d for d in first if d in found]
            differences = [[found[d][str(k)] - first[d][str(k)] for d in both] for k in FEATURES]
            if both:
                cells = (mean_and_error(values, draws) for values in differences)
                rows.append([f"{data} {size:,}", f"{graph} - {next(iter(graphs(data)))}", *cells])
            first = first or found
    rows = [row for row in rows if set(row[2:]) != {"-"}]
    title = f"Label estimates from the first features, shrinkage {shrinkage}: mean ± standard error of {draws} draws"
    print_table(title, ["training set", "graph", *map(str, FEATURES)], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(DATA), help="names or their beginnings")
    parser.add_argument("--sizes", help="those of the benchmark by default; of digits and fashion, for each class")
    parser.add_argument("--shrinkage", default="0")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--again", action="store_true", help="measure anew what is there")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    args = parser.parse_args()
    cases, records = choose_cases(args, DATA), Records("graphs")

    def keys_of(data, size, number):
        return {graph: f"{data}/{size}/{graph}/{args.shrinkage}/{number}" for graph in graphs(data)}

    def measured(data, images, graph):
        return measure(images, graphs(data)[graph], args.shrinkage)

    fill(records, [] if args.table else cases, args.draws, keys_of, measured, args.again)
    table(records, cases, args.draws, args.shrinkage)


if __name__ == "__main__":
    main()
