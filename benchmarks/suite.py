"""Where the library stands: all measurements, about 12 minutes on two cores.

    python benchmarks/suite.py                      everything; writes benchmarks/results.json and docs/performance.md
    python benchmarks/suite.py --only layers        one section again; the others stay as they are in results.json
    python benchmarks/suite.py --quick --results /tmp/quick.json --docs /tmp    tiny sizes, to see that it works

Every section runs in a process of its own, one after the other, with BLAS at one thread. Within a section competitors
take turns, and the best of several rounds counts. Use an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import floor
import nodes
import page
import paper_network
import rivals
import scaling
from _timing import NOISY, Task, environment, rounded, take_turns, write_json

PACKAGES = ("higsfa", "numpy", "scipy", "scikit-learn", "deeptime", "sklearn-sfa", "distributed")


def sections(quick: bool, mdp_python: str | None) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """What is measured: name, function, arguments; sizes as in the page."""
    if quick:
        return {
            "starting": (starting, (1,)),
            "estimators": (floor.estimators, (5000, 2)),
            "graphs": (floor.graphs, (5000, 2)),
            "expansions": (floor.expansions, (5000, 2)),
            "from_file": (floor.from_file, (((5000, 30),),)),
            "layers": (nodes.layers, (2048, 1)),
            "libraries": (rivals.libraries, (6000, 1)),
            "mdp": (rivals.mdp, (6400, 1, mdp_python)),
            "network": (paper_network.measure, (400, 1, 24, paper_network.small_network)),
            "size": (scaling.by_samples_and_inputs, ([500, 1000], [64, 128], 64, 500, 1)),
            "parallel": (scaling.by_threads_and_workers, (500, 16, 1)),
        }
    return {
        "starting": (starting, (9,)),
        "estimators": (floor.estimators, (400_000, 5)),
        "graphs": (floor.graphs, (100_000, 7)),
        "expansions": (floor.expansions, (100_000, 7)),
        "from_file": (floor.from_file, (((100_000, 120), (1_000_000, 30)),)),
        "layers": (nodes.layers, (16_384, 5)),
        "libraries": (rivals.libraries, (48_000, 3)),
        "mdp": (rivals.mdp, (96_000, 3, mdp_python)),
        "network": (paper_network.measure, (8192, 2, 96, paper_network.paper_network)),
        "size": (scaling.by_samples_and_inputs, ([4000, 8000, 16_000, 32_000], [256, 512, 1024, 2048], 512, 8000, 3)),
        "parallel": (scaling.by_threads_and_workers, (32_768, 32, 1)),
    }


def starting(rounds: int) -> dict[str, float]:
    """Until something can be done: importing us beside what we need anyway, and the help of the command."""

    def run(*arguments: str) -> Task:
        return lambda: subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)

    found = take_turns(
        {
            "without": run("-c", "import sklearn.base, scipy.linalg"),
            "import": run("-c", "from higsfa import SFA"),
            "help": run("-m", "higsfa", "--help"),
        },
        rounds,
    )
    seconds = {f"{name}_seconds": timing.best for name, timing in found.items()}
    return seconds | {"import_ratio": found["import"].over(found["without"])}


def apart(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call a function in a fresh process, so that peak memory and leftovers of others do not count."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_quiet) as pool:
        return pool.submit(function, *arguments).result()


def _quiet() -> None:
    warnings.filterwarnings("ignore", category=UserWarning)


def spreads(content: Any) -> list[float]:
    """All figures that tell how much the rounds of a bare product differed."""
    if isinstance(content, dict):
        own = [content["spread"]] if content.get("name") == floor.BARE or "bare_us" in content else []
        return own + [value for item in content.values() for value in spreads(item)]
    return [value for item in content for value in spreads(item)] if isinstance(content, list) else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes; needs --results")
    parser.add_argument("--only", nargs="+", metavar="SECTION", choices=list(sections(True, None)))
    parser.add_argument("--mdp-python", help="an interpreter that has MDP 3.6; $HIGSFA_MDP_PYTHON otherwise")
    parser.add_argument("--results", type=Path, default=page.RESULTS)
    parser.add_argument("--docs", type=Path, default=page.DOCS, help="folder for performance.md and images/")
    options = parser.parse_args()
    if options.quick and page.RESULTS in (options.results, options.results.resolve()):
        parser.error("--quick measures nothing worth keeping: name another file by --results")
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

    started = time.perf_counter()
    results: dict[str, Any] = {"sections": {}, "arguments": {}, "seconds": {}, "left_out": {}}
    where = environment(PACKAGES, 1)
    earlier = json.loads(options.results.read_text()) if options.results.exists() else {}
    if options.only and earlier:
        results = earlier
    elif earlier:
        figures = (page.ratios(content, section) for section, content in earlier["sections"].items())
        ratios = {name: value for some in figures for name, value in some.items()}
        there = earlier["environment"]
        results["before"] = {"version": there["versions"]["higsfa"], "processor": there["processor"], "ratios": ratios}
    results |= {"quick": options.quick, "environment": where}
    for name, (function, arguments) in sections(options.quick, options.mdp_python).items():
        if options.only and name not in options.only:
            continue
        print(f"== {name}: {(function.__doc__ or '').partition(chr(10))[0]}", flush=True)
        begin = time.perf_counter()
        found = apart(function, arguments)
        left_out: list[str] = []
        if name == "mdp":
            found, left_out, results["mdp_versions"] = found
        elif name in ("libraries", "parallel"):
            found, left_out = found
        results["sections"][name] = rounded(found)
        results["arguments"][name] = [given for given in arguments if isinstance(given, int | list | tuple)]
        results["left_out"][name] = left_out
        results["seconds"][name] = round(time.perf_counter() - begin, 1)
        print(f"   {results['seconds'][name]:.0f} s" + "".join(f"; left out: {text}" for text in left_out), flush=True)
        write_json(options.results, results)
    results["noise"] = rounded(max(spreads(results["sections"]), default=1.0))
    write_json(options.results, results)
    page.write(results, options.docs)
    print(f"{time.perf_counter() - started:.0f} s")
    if results["noise"] > NOISY:
        print(f"The machine was busy (median over best round up to {results['noise']:.2f}): measure again.")


if __name__ == "__main__":
    main()
