"""
What a graph asks for
=====================

A graph has features that would be optimal if the input allowed any function of the samples: its free responses. They
show what a graph asks for before any data are looked at. A serial graph of 32 groups asks for steps that follow
cosines of the label's rank, a label graph for the label itself and cosines of its value, a clustered graph for
anything that tells classes apart.
"""

import matplotlib.pyplot as plt
import numpy as np

from higsfa.graphs import ClusteredGraph, LabelGraph, SerialGraph

rng = np.random.default_rng(0)
age = np.sort(16 + 61 * rng.beta(1.5, 3.0, 600))  # more young than old people

graphs = {
    "SerialGraph(n_groups=32)": SerialGraph(n_groups=32).build(age),
    "LabelGraph()": LabelGraph().build(age),
    "ClusteredGraph(), four classes": ClusteredGraph().build(np.digitize(age, [25, 35, 45])),
}
figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), sharey=True, layout="constrained")
for ax, (name, graph) in zip(axes, graphs.items(), strict=True):
    found = graph.free_responses(3)
    for j, (delta, response) in enumerate(zip(found.delta_values.round(2) + 0, found.on_samples().T, strict=True)):
        ax.plot(age, response, color=f"C{j}", label=f"{j + 1}: Delta {delta:.2f}", lw=1.5)
    ax.set(title=name, xlabel="age")
    ax.legend(fontsize=8, loc="upper left")
axes[0].set_ylabel("free response")
plt.show()
