"""What shrinkage layers ask for: by the share of samples that they are trained on, and by what layers below have.

    python benchmarks/judging.py --data faces-age --sizes 500
    python benchmarks/judging.py --data faces-age,fashion --sizes 50,500 --folds 2,3,5 --below 0.01,0.1,1 --draws 2

The network of benchmarks/shrinkage.py. All folds but the first train, the first one judges. Printed for each draw: the
value at the highest point of the sum over layers, what it brings on unseen samples of that fold (part of the
information without shrinkage), and the score of the fixed value of results/shrinkage.json that is next to it.
"""

import argparse
import warnings
from contextlib import suppress

import numpy as np
from _data import draw
from _records import Records, choose_cases
from _timing import print_table
from shrinkage import DATA, network
from threadpoolctl import threadpool_limits

import higsfa.estimators.network as estimator
import higsfa.training.choice as training
from higsfa.core.node.held_out import peak
from higsfa.estimators.choice import copies_together, divide, graph_of


class Judged(Exception):
    """Raised where the whole network would be trained."""


def parts_of(n_folds):
    def find_parts(source, recipe, y, w, groups):
        fold = divide(recipe, y, w, copies_together(source, groups), n_folds)
        rows = [np.flatnonzero(fold > 0), np.flatnonzero(fold == 0)]
        return tuple(training.Part(source[own], graph_of(recipe, y, w, groups, own), 2 / 3) for own in rows)

    return find_parts


def curves(images, n_folds, below):
    """Slowness and information of every value of the shrinkage, sums over layers."""
    judged = []

    def stop(found, *rest):
        judged.extend(found)
        raise Judged

    estimator.find_parts, training.WHILE_JUDGED, training._best = parts_of(n_folds), below, stop
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        with suppress(Judged):
            network("pyramid", images.X.shape[1:], "auto").fit(images.X, images.y)
    return [sum(getattr(one, name).mean(axis=1) for one in judged) for name in ("slowness", "information")]


def cell(records, data, size, number, found):
    slowness, information = found
    value = peak(np.array(training.LADDER), slowness)
    near = min(training.LADDER, key=lambda one: abs(np.log((one + 1e-3) / (value + 1e-3))))
    row = records.rows.get(f"{data}/{size}/pyramid/{near:g}/{number}")
    gain = information.max() / information[0] - 1
    return f"{value:g}, {100 * gain:+.1f} %" + (f", {row['all']:.2f}" if row else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(DATA), help="names or their beginnings")
    parser.add_argument("--sizes", help="those of the benchmark by default; of digits and fashion, for each class")
    parser.add_argument("--folds", default="3")
    parser.add_argument("--below", default="0.1", help="values of the ladder")
    parser.add_argument("--draws", type=int, default=5)
    args = parser.parse_args()
    records, rows = Records("shrinkage"), []
    for data, size in choose_cases(args, DATA):
        drawn = [draw(data, size, number) for number in range(args.draws)]
        for n_folds in map(int, args.folds.split(",")):
            for below in map(float, args.below.split(",")):
                found = [cell(records, data, size, k, curves(images, n_folds, below)) for k, images in enumerate(drawn)]
                rows.append([f"{data} {size:,}", f"{n_folds - 1}/{n_folds}", f"{below:g}", *found])
                print(*rows[-1], sep=" | ", flush=True)
    header = ["training set", "trained on", "below", *(f"draw {k}" for k in range(args.draws))]
    print_table("value, gain of information, score", header, rows)


if __name__ == "__main__":
    main()
