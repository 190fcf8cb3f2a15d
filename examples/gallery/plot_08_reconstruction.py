"""
Features from which the input can be rebuilt
============================================

Slow features tell digits apart but forget what they look like. Information-preserving nodes keep nine slow features
and describe what these leave unexplained by principal components, in 20 numbers altogether.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from higsfa import GSFA, IGSFA

X, digit = load_digits(return_X_y=True)
models = {"9 slow features": GSFA(9, graph="clustered"), "9 slow, 11 others": IGSFA(20, graph="clustered", n_slow=9)}

shown = [np.flatnonzero(digit == d)[5] for d in range(10)]
rows = {"digit": X[shown]}
for name, model in models.items():
    Y = model.fit(X, digit).transform(X)
    rebuilt = model.inverse_transform(Y)
    lost = np.sum((X - rebuilt) ** 2) / np.sum((X - X.mean(axis=0)) ** 2)
    rows[f"{name}\n({lost:.0%} of variance lost)"] = rebuilt[shown]

figure, axes = plt.subplots(len(rows), 10, figsize=(10, 3.3), layout="constrained")
for line, (name, pictures) in zip(axes, rows.items(), strict=True):
    for ax, picture in zip(line, pictures, strict=True):
        ax.imshow(picture.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
        ax.set(xticks=[], yticks=[])
    line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)
plt.show()
