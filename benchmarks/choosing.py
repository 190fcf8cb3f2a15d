"""What choosing the shrinkage costs: the paper's ten-layer network with and without `shrinkage="auto"`.

    python benchmarks/choosing.py --samples 20000
    python benchmarks/choosing.py --samples 200000 --memory "4 GiB"

Random pictures of 96 x 96 pixels, three labels. Processor seconds of all threads, one fit each. At 20,000 pictures ten
minutes on two cores; 200,000 need 2 GiB for the pictures, what --memory allows for a fit, and more than an hour. The
memory of the process at its highest is printed at the end.
"""

import argparse
import resource
import time

from _data import pictures
from _timing import print_table

from higsfa import presets


def seconds(shrinkage, images, labels, n_jobs, memory):
    net = presets.higsfa_g3(n_jobs=n_jobs, memory_limit=memory)
    net.set_params(layers=[layer.set_params(shrinkage=shrinkage) for layer in net.layers])
    start, processor = time.perf_counter(), time.process_time()
    net.fit(images, labels)
    return time.perf_counter() - start, time.process_time() - processor, net.shrinkage_


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--memory", default="4 GiB", help="memory_limit of a fit")
    options = parser.parse_args()
    images, labels = pictures(options.samples)
    found = {value: seconds(value, images, labels, options.jobs, options.memory) for value in (0.0, "auto")}
    rows = [[str(value), f"{wall:.0f}", f"{cpu:.0f}", str(chosen)] for value, (wall, cpu, chosen) in found.items()]
    ratio = [found["auto"][i] / found[0.0][i] for i in (0, 1)]
    rows.append(["ratio", f"{ratio[0]:.2f}", f"{ratio[1]:.2f}", ""])
    print_table(f"{options.samples:,} pictures", ["shrinkage", "seconds", "processor seconds", "chosen"], rows)
    print(f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB of memory in use")


if __name__ == "__main__":
    main()
