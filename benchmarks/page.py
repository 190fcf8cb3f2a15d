"""Makes docs/performance.md and its pictures from benchmarks/results.json; measures nothing.

python benchmarks/page.py
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from _plots import draw
from _timing import NOISY

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
DOCS = HERE.parent / "docs"

Row = dict[str, Any]


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, numbers to the right."""
    lines = ["| " + " | ".join(header) + " |", "| --- |" + " ---: |" * (len(header) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def number(value: float | None) -> str:
    """Three digits."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def both_precisions(rows: list[Row]) -> str:
    """Float64 and float32 side by side."""
    pairs: dict[str, dict[str, Row]] = {}
    for row in rows:
        pairs.setdefault(row["name"].replace("|", "\\|"), {})[row["dtype"]] = row
    kinds, fields = ("float64", "float32"), ("ms", "ratio", "cpu_ratio", "peak_mib")
    header = [title for kind in kinds for title in (f"{kind}: ms", "x bare", "x, processor", "MiB")]
    return table(
        ["", *header],
        [[name, *(number(pair[kind][field]) for kind in kinds for field in fields)] for name, pair in pairs.items()],
    )


def contests(rows: list[Row]) -> str:
    """Competitors, work by work."""
    return table(
        ["work", "type", "", "ms", "x ours", "MiB", "agreement"],
        [
            [
                row["work"],
                row["dtype"],
                row["name"],
                number(row["ms"]),
                number(row["ratio"]),
                number(row["peak_mib"]),
                f"{row['agreement']:.3f}",
            ]
            for row in rows
        ],
    ).replace("| --- | ---: | ---: |", "| --- | --- | --- |", 1)


def slower_than(rows: list[Row]) -> str:
    """Where somebody else needs less time for the same work."""
    faster = [row for row in rows if row["ratio"] < 1]
    if not faster:
        return "In this run nobody else was faster.\n"
    return "".join(
        f"- {row['name']}, {row['work']}, {row['dtype']}: {number(row['ratio'])} times our time.\n"
        for row in sorted(faster, key=lambda row: row["ratio"])
    )


def layers(rows: list[Row]) -> str:
    header = ["layer", "nodes", "variables T", "bare, us", "sums, us", "features, us", "sums, x bare"]
    header += ["features, x bare", "together, x bare", "solving, ms", "sums, MiB"]
    fields = ("bare_us", "sums_us", "features_us", "sums_ratio", "features_ratio", "ratio", "solve_ms", "sums_mib")
    return table(
        header,
        [
            [str(row["layer"]), str(row["nodes"]), str(row["expanded"]), *(number(row[field]) for field in fields)]
            for row in rows
        ],
    )


def network(found: Row) -> str:
    few, many = found["images"]
    lines = [
        ["one more image, ms of one core", number(found["marginal_core_ms"])],
        ["the same, authors' own code, float64 (quoted, not rerun)", number(found["authors_core_ms"])],
        ["bare products of sums and features of all nodes, ms of one core per image", number(found["bare_core_ms"])],
        ["one more image over bare products", number(found["ratio"])],
        [f"solving all {found['nodes']:,} nodes, seconds of one core", number(found["solving_core_seconds"])],
        [f"fit of {few:,} images on one thread, s", number(found["one_thread_seconds"][0])],
        [f"fit of {many:,} images on one thread, s", number(found["one_thread_seconds"][1])],
        [f"fit of {few:,} images on {found['threads']} threads, s", number(found["fit_seconds"])],
        [f"{found['threads']} threads are faster than one, times", number(found["speedup"])],
        ["the same for the bare products alone, times", number(found["bare_speedup"])],
        ["the first over the second", number(found["gained"])],
        [f"peak memory beyond {number(found['image_mib'])} MiB of images, MiB", number(found["peak_mib"])],
    ]
    if "solving" in found:
        lines.append(["solving over LAPACK's drivers for the same eigenpairs", number(found["solving"]["ratio"])])
    if "one_image" in found:
        lines.append(["transform of a single image, ms", number(found["one_image"]["ms"])])
        lines.append(["the same over reading all weights from memory", number(found["one_image"]["ratio"])])
    for row in found["there_and_back"]:
        lines.append([f"{row['name']}, images per second on one core", number(row["images_per_second"])])
        lines.append([f"{row['name']} over bare products with the nodes' matrices", number(row["ratio"])])
    return table(["", ""], lines)


def growth(size: Row, parallel: Row) -> str:
    curves = [
        (f"samples ({size['samples']['inputs']} inputs)", size["samples"]),
        (f"inputs ({size['inputs']['samples']:,} samples)", size["inputs"]),
    ]
    where = f"{parallel['samples']:,} images of {parallel['shape'][0]} x {parallel['shape'][1]}"
    kinds = [kind for kind in ("threads", "bare products", "workers") if kind in parallel]
    curves += [(f"{kind} ({where})", parallel[kind]) for kind in kinds]
    gained = number(parallel["gained"])
    said = f"Two threads gain {gained} of what they gain on the bare products of that network.\n\n"
    return said + table(
        ["", "sizes", "seconds", "exponent"],
        [
            [
                name,
                ", ".join(f"{x:,}" for x in curve["x"]),
                ", ".join(number(s) for s in curve["seconds"]),
                f"{curve['exponent']:.2f}",
            ]
            for name, curve in curves
        ],
    )


def starting(found: Row) -> str:
    lines = [
        ["`import sklearn.base, scipy.linalg`, s", number(found["without_seconds"])],
        ["`from higsfa import SFA`, s", number(found["import_seconds"])],
        ["the second over the first", number(found["import_ratio"])],
        ["`higsfa --help`, s", number(found["help_seconds"])],
    ]
    return table(["", ""], lines)


def files(rows: list[Row]) -> str:
    return table(
        ["", "samples", "variables", "file, MiB", "peak, MiB"],
        [
            [r["name"], f"{r['samples']:,}", str(r["variables"]), number(r["file_mib"]), number(r["peak_mib"])]
            for r in rows
        ],
    )


RATIOS = ("ratio", "cpu_ratio", "sums_ratio", "features_ratio", "speedup", "gained", "exponent")


def ratios(content: Any, name: str = "") -> dict[str, float]:
    """All figures that do not depend on how fast the machine is, by what they are of."""
    found: dict[str, float] = {}
    if isinstance(content, list):
        for item in content:
            found |= ratios(item, name)
    if isinstance(content, dict):
        own = [str(content[key]) for key in ("name", "layer", "work", "dtype") if key in content]
        name = ", ".join([name, *own]) if own else name
        for key, value in content.items():
            if key in RATIOS and value is not None:
                found[f"{name}: {key.replace('_', ' ')}"] = value
            found |= ratios(value, f"{name}, {key}" if isinstance(value, dict) else name)
    return found


def last_time(results: Row) -> str:
    """Every ratio beside the one of the run before, and their quotient."""
    before = results.get("before") or {}
    now = {
        figure: value
        for section, content in results["sections"].items()
        for figure, value in ratios(content, section).items()
    }
    both = {
        figure: (value, before["ratios"][figure]) for figure, value in now.items() if figure in before.get("ratios", {})
    }
    if not both:
        return "There is no earlier run.\n"
    rows = [
        [figure, number(new), number(old), f"{new / old:.2f}" if old else ""] for figure, (new, old) in both.items()
    ]
    return f"Before: higsfa {before['version']} on {before['processor']}.\n\n" + table(
        ["", "now", "before", "now / before"], rows
    )


def surroundings(results: Row) -> str:
    where = results["environment"]
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items() if version)
    text = f"{where['processor']}, {where['cores']} cores, Python {where['python']}, {', '.join(where['blas'])}; "
    text += versions
    if results.get("mdp_versions"):
        text += (
            f"; in its own environment MDP {results['mdp_versions']['mdp']} on numpy {results['mdp_versions']['numpy']}"
        )
    text += f". Load at the start {where['load_average_at_start']}.\n"
    missing = [reason for reasons in results["left_out"].values() for reason in reasons]
    if missing:
        text += "\nLeft out: " + "; ".join(missing) + ".\n"
    if results["noise"] > NOISY:
        text += (
            f"\n**The machine was busy**: the median round of a bare product took up to {results['noise']:.2f} times "
            "the best. Do not rely on these figures.\n"
        )
    if results["quick"]:
        text += "\n**Tiny sizes**, made to try the program out. Do not rely on these figures.\n"
    return text


INTRODUCTION = """# Performance

How fast the library is: against the least that the arithmetic allows, and against what else you could take. This page
is made by a program from `benchmarks/results.json`; do not edit it.

```
make bench                       measures everything (about 12 minutes on two cores) and writes this page
python benchmarks/page.py        only writes the page again
```

**How it is measured.** Every comparison is a ratio of two times from the same run: competitors take turns, round after
round, and the best round of each counts, so that other work on the machine disturbs both alike. BLAS runs on one
thread unless said otherwise. *Processor time* adds up all threads. *MiB* is the peak of memory that Python and numpy
held beyond the data, in a run of its own.

**Where.** """

FLOOR = """
## Against the bare matrix product

Training needs second moments of the (expanded) data, so no method can be faster than one product `Z.T @ Z` in the same
precision: that is 1 in the tables, and every number says how many such products a fit costs. Slow features of a time
series need two of them, one of the data and one of their differences. Data: 120 variables.

{pictures}### Estimators

SFA and ISFA see the samples as a time series, GSFA and IGSFA with a serial graph of 32 groups. {samples:,} samples.

{estimators}
### Graphs

GSFA. {graph_samples:,} samples.

{graphs}
### Expansions

Expanding the input and adding it up, without solving, against the product of what the expansion makes: about 120
variables each. {graph_samples:,} samples.

{expansions}
### From a file

Peak memory of fits whose data are memory-mapped; it does not grow with the file but for a few numbers per sample.

{from_file}"""

STARTING = """
## Starting

A new Python process each time, the best of several in turn.

{starting}"""

LAYERS = """
## One node of every layer of the paper's network

`presets.higsfa_g3`, float32, microseconds per sample of one node: gathering its field, expanding and adding up
(*sums*), then computing its features for the layer above (*features*). T is the number of variables that the sums are
over. Solving happens once per node, however many samples there are.

{pictures}{layers}"""

NETWORK = """
## The paper's network as a whole

Float32, uint8 images of 96 x 96. The cost of one more image is the difference between fits of two sizes, without the
time for solving; the bare products are those of sums and features of all nodes, in tiles of the same size, in turn with
the fits. LAPACK's drivers (`scipy.linalg.eigh`) find the eigenpairs that nodes need: slow features, components of the
residual, and directions without variance, of matrices that were made regular beforehand.

{network}
The figure for the authors' own code is quoted. It was not run here, and it is for float64: compare the order of
magnitude only.
"""

RIVALS = """
## Against other libraries, on the same work

Times in units of ours: more than 1 means that they take longer. *Agreement* is the smallest canonical correlation
between their leading features and ours; 1.000 means that both found the same. (IncrementalPCA is an approximation.)
An IGSFA without slow features is a PCA, a GSFA whose clustered graph has self-loops is a linear discriminant analysis.
{samples:,} samples; time series of 100 variables, the others of 120.

{pictures}{libraries}
### MDP 3.6

The authors published GSFA and iGSFA as nodes of MDP, which is older than today's numpy. It runs in a process of its
own with its own numpy and BLAS, on the same arrays, in turn with ours: {mdp_samples:,} samples, sizes as above.

{mdp}"""

SCALING = """
## How time grows

Time goes with a power of the size; the exponent is fitted to the points. Samples and inputs: 1 is linear (less means
that solving, which does not depend on the number of samples, still takes part of the time). Threads and Dask workers:
-1 would be twice as fast on two. Dashed: these slopes.

{pictures}{growth}"""

SLOWER = """
## Where we are slower, and why

{slower}
What costs time beyond the products:

- *Tiles.* We never hold more than a few hundred expanded samples, where others multiply all data at once: more calls,
  some copying, but memory that does not grow with the data. Up to 256 variables have products of our own, which are
  faster than those of BLAS where the processor has AVX-512; so a whole fit may take less than the bare product.
- *Order.* Samples are fetched group by group, so memory is not read straight on. A bare product hides the time that
  reading takes behind its arithmetic, fetching does not.
- *float32.* Products take half the time, but fetching, sorting by label and solving do not, so the ratio to the bare
  product is larger; the time itself is smaller.
- *Windows and sequences* need a second product, of differences; a window in label order has to fetch samples in that
  order, too.
- *`partial_fit`* looks at every batch and adds its sums to those before, class by class. Small batches wait for others.
- *The first layer of a network* has small nodes: gathering pixels, projecting and expanding cost more, compared with
  their products.
- *Two threads* are less than twice as fast where nodes are small: the steps of solving them are short, and threads take
  turns in the interpreter between them.
- *Fresh memory.* On the virtual machine of these figures, memory that the system has taken back comes back slowly:
  writing one number into each page of a new array of 1 GiB ran at 0.4 GB/s the first time, and at 10 GB/s right after
  it had been freed. Features of a layer are such arrays: a fit of 8,192 images spends 2.4 of 47 s in the system.
- *Small data.* Cutting into tiles, checking and solving take some milliseconds whatever the size.
- *Without a C compiler* at installation, everything is done by numpy, and networks take two to three times as long.
"""


def write(results: Row, docs: Path) -> None:
    """Write the page and its pictures."""
    found, arguments = results["sections"], results["arguments"]
    try:
        pictures = draw(found, docs / "images")
    except ImportError:
        pictures = []
        print("matplotlib is not installed (pip install 'higsfa[plots]'): the page has no pictures")

    def picture(name: str, text: str) -> str:
        file = f"performance_{name}.png"
        return f"![{text}](images/{file})\n\n" if file in pictures else ""

    parts = [INTRODUCTION + surroundings(results)]
    if all(found.get(name) for name in ("estimators", "graphs", "expansions", "from_file")):
        tables = {name: both_precisions(found[name]) for name in ("estimators", "graphs", "expansions")}
        shown = picture("floor", "Fits in units of the bare product")
        parts.append(
            FLOOR.format(
                samples=arguments["estimators"][0],
                graph_samples=arguments["graphs"][0],
                pictures=shown,
                **tables,
                from_file=files(found["from_file"]),
            )
        )
    if found.get("starting"):
        parts.append(STARTING.format(starting=starting(found["starting"])))
    if found.get("layers"):
        shown = picture("layers", "One node of every layer in units of its bare product")
        parts.append(LAYERS.format(pictures=shown, layers=layers(found["layers"])))
    if found.get("network"):
        parts.append(NETWORK.format(network=network(found["network"])))
    rivals = found.get("libraries", []) + found.get("mdp", [])
    if "libraries" in found and "mdp" in found:
        shown = picture("rivals", "Other libraries in units of our time")
        mdp = contests(found["mdp"]) if found["mdp"] else "Left out of this run.\n"
        sizes = {"samples": arguments["libraries"][0], "mdp_samples": arguments["mdp"][0]}
        parts.append(RIVALS.format(pictures=shown, libraries=contests(found["libraries"]), mdp=mdp, **sizes))
    if found.get("size") and found.get("parallel"):
        shown = picture("scaling", "Seconds to fit against samples, inputs, threads and workers")
        parts.append(SCALING.format(pictures=shown, growth=growth(found["size"], found["parallel"])))
    parts.append(SLOWER.format(slower=slower_than(rivals)))
    parts.append(f"\n## Beside the run before\n\n{last_time(results)}")
    docs.mkdir(parents=True, exist_ok=True)
    (docs / "performance.md").write_text("".join(parts))
    print(f"Written: {docs / 'performance.md'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=DOCS)
    options = parser.parse_args()
    if not options.results.exists():
        parser.error(f"{options.results} does not exist; run benchmarks/suite.py first")
    write(json.loads(options.results.read_text()), options.docs)


if __name__ == "__main__":
    main()
