"""
Classes: digits in two features
===============================

A clustered graph joins all samples of the same class. The slowest features then differ little within classes, so
classes come apart; principal components know nothing of them. A quadratic expansion makes the features nonlinear.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from higsfa import GSFA

X, digit = load_digits(return_X_y=True)
seen, unseen, a, b = train_test_split(X, digit, test_size=0.5, random_state=0, stratify=digit)

models = {
    "PCA": PCA(2),
    "GSFA": GSFA(2, graph="clustered", shrinkage=0.1),
    "quadratic GSFA": make_pipeline(PCA(15), GSFA(2, graph="clustered", expansion="identity | quadratic")),
}
figure, axes = plt.subplots(1, 3, figsize=(11, 3.8), layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    Y = model.fit(seen, a).transform(unseen)
    points = ax.scatter(*Y.T, c=b, cmap="tab10", s=6, vmin=-0.5, vmax=9.5)
    ax.set(title=f"{name}, unseen digits", xticks=[], yticks=[])
figure.colorbar(points, ax=axes, ticks=range(10), label="digit", fraction=0.03)
plt.show()
