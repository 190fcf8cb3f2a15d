"""
Several labels at once
======================

Graphs add. One set of features serves an age, a number, and a gender, two classes; weights say how much each label
counts.
"""

import matplotlib.pyplot as plt
import numpy as np

from higsfa import GSFA
from higsfa.graphs import ClusteredGraph, SerialGraph

rng = np.random.default_rng(0)
age = rng.uniform(16, 77, 2000)
gender = rng.choice(["f", "m"], 2000)
X = np.column_stack([age / 20, gender == "f", rng.standard_normal((2000, 6))]) @ rng.standard_normal((8, 8))

graph = SerialGraph("age", n_groups=16) + 0.5 * ClusteredGraph("gender")
model = GSFA(n_components=2, graph=graph).fit(X, {"age": age, "gender": gender})
Y = model.transform(X)

figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
points = axes[0].scatter(*Y.T, c=age, s=5, cmap="viridis")
figure.colorbar(points, ax=axes[0], label="age")
for name, colour in (("f", "C1"), ("m", "C0")):
    axes[1].scatter(*Y[gender == name].T, s=5, color=colour, label=name)
axes[1].legend(title="gender", markerscale=3)
for ax, title in zip(axes, ("feature 1 is age", "feature 2 is gender"), strict=True):
    ax.set(title=title, xlabel="feature 1")
axes[0].set_ylabel("feature 2")
plt.show()
