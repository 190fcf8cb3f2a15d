"""How much shrinkage: the default pyramid with fixed values in all layers, and with "auto", on four data sets.

    python benchmarks/shrinkage.py
    python benchmarks/shrinkage.py --data digits,fashion --sizes 50,200 --values 0,0.1,auto
    python benchmarks/shrinkage.py --table             what is there already

`presets.pyramid(shape)` (60 features, what `HiGSFA()` takes, too) on images as they are stored, then `LabelHead()` on
all its features; also on the first 5, 10 and 20. Ages of synthetic faces and of FairFace: mean absolute error. Digits,
Fashion-MNIST, gender of FairFace: percent right. Each draw is another random training set, the same for all values.
Results are kept in results/shrinkage.json one by one; what is there is not measured again without --again. One core:
a quarter of an hour without FairFace and the largest sizes, over an hour for all. Absent data are skipped.
"""

import argparse
import time
import warnings

import numpy as np
from _records import Records, choose_cases, fill, mean_and_error
from _timing import print_table
from threadpoolctl import threadpool_limits

from higsfa import LabelHead, presets

VALUES = ("0", "0.003", "0.01", "0.03", "0.1", "0.3", "1", "3", "auto")
DATA = ("digits", "fashion", "faces-age", "fairface-age", "fairface-gender")
FEATURES = {"all": None, "5": 5, "10": 10, "20": 20}


def network(name, shape, value):
    """A network with this shrinkage in all layers."""
    net = presets.pyramid(shape, front=None) if name == "pyramid" else presets.photographs(shape)
    shrinkage = value if value == "auto" else float(value)
    return net.set_params(layers=[layer.set_params(shrinkage=shrinkage) for layer in net.layers])


def measure(images, name, value):
    """Scores of label heads on all and on the first features, time, and what was warned of."""
    X, X_new = images.X, images.X_new
    with warnings.catch_warnings(record=True) as caught, threadpool_limits(1):
        warnings.simplefilter("always")
        start = time.process_time()
        net = network(name, images.X.shape[1:], value).fit(X, images.y)
        seconds = time.process_time() - start
        Y, Y_new = net.transform(X), net.transform(X_new)
        heads = {k: LabelHead(covariance="separate", n_used_features=n).fit(Y, images.y) for k, n in FEATURES.items()}
        row = {k: round(images.score(head.predict(Y_new)), 4) for k, head in heads.items()}
    messages = sorted({f"{w.category.__name__}: {w.message}"[:200] for w in caught})
    return (
        row | {"score": images.score_name, "seconds": round(seconds, 2)} | ({"warnings": messages} if messages else {})
    )


def verdict(records, start, values, draws, k):
    """Best fixed value, and how far auto is from it and from none, with the standard errors of these differences."""
    found = {v: {d: records.rows.get(f"{start}/{v}/{d}") for d in range(draws)} for v in values}
    found = {v: {d: row[k] for d, row in rows.items() if row} for v, rows in found.items()}
    fixed = {v: np.mean(list(rows.values())) for v, rows in found.items() if rows and v != "auto"}
    if not fixed:
        return ["-"] * 3
    some = next(row for name, row in records.rows.items() if name.startswith(start + "/"))
    best = (min if some["score"] == "MAE" else max)(fixed, key=fixed.get)
    cells = [best]
    for other in (best, "0"):
        both = [d for d in found.get("auto", {}) if d in found.get(other, {})]
        cells.append(mean_and_error([found["auto"][d] - found[other][d] for d in both], draws))
    return cells


def table(records, cases, values, draws, name, k):
    rows = []
    for data, size in cases:
        start = f"{data}/{size}/{name}"
        cells = [[row[k] for row in records.of(f"{start}/{value}", draws)] for value in values]
        if any(cells):
            cells = [mean_and_error(found, draws) for found in cells]
            rows.append([f"{data} {size:,}", *cells, *verdict(records, start, values, draws, k)])
    header = ["training set", *values, "best fixed", "auto - best", "auto - 0"]
    print_table(f"{name}, label head on {k} features: mean ± standard error of {draws} draws", header, rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(DATA), help="names or their beginnings")
    parser.add_argument("--sizes", help="those of the benchmark by default; of digits and fashion, for each class")
    parser.add_argument("--values", default=",".join(VALUES))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--network", choices=["pyramid", "photographs"], default="pyramid")
    parser.add_argument("--again", action="store_true", help="measure anew what is there")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    parser.add_argument("--features", choices=list(FEATURES), default="all", help="which features the table is about")
    args = parser.parse_args()
    cases, values, records = choose_cases(args, DATA), args.values.split(","), Records("shrinkage")
    if args.network == "photographs":
        cases = [(data, size) for data, size in cases if data.startswith("fairface")]

    def keys_of(data, size, number):
        return {value: f"{data}/{size}/{args.network}/{value}/{number}" for value in values}

    def measured(data, images, value):
        return measure(images, args.network, value)

    fill(records, [] if args.table else cases, args.draws, keys_of, measured, args.again)
    table(records, cases, values, args.draws, args.network, args.features)


if __name__ == "__main__":
    main()
