"""
Where is the rat?
=================

A rat walks about in a box and sees nothing but its walls. What it sees changes with every turn of its head, its place
changes slowly. So the slowest functions of the views are functions of place, found without any label: the beginning of
place cells. The page :doc:`/rat` has the whole experiment; this is a small one.
"""

# %%
# 1,000 views along a walk, and 1,500 of another walk in the same box to test on. Blocks of 4 x 4 pixels are averaged to
# make it quick.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

from higsfa import HiSFA, Layer
from higsfa.datasets import make_rat_views


def seen(n, seed):
    views, walk = make_rat_views(n, random_state=seed)
    small = views.reshape(n, 10, 4, 80, 4, 3).mean(axis=(2, 4)).astype(np.float32)
    return small, np.column_stack([walk["x"], walk["y"]])


(views, place), (unseen, there) = seen(1000, 0), seen(1500, 1)

# %%
# Nodes of the first two layers share their weights: the walls look alike wherever the head points.
quadratic = "identity | quadratic"
layers = [
    Layer((4, 8), (2, 4), 16, shared=True, n_slow=4),
    Layer((4, 7), (4, 4), 20, shared=True, n_slow=4),
    Layer((1, 4), None, 24, n_slow=4),
    Layer((1, 1), (1, 1), 12, expansion=quadratic, n_slow=12, shrinkage=0.03),
]
net = HiSFA(layers, input_shape=views.shape[1:]).fit(views)
print(net)
read = LinearRegression().fit(net.transform(views), place)
Y = net.transform(unseen)
print(
    "place read out on the other walk, R² of x and y:",
    r2_score(there, read.predict(Y), multioutput="raw_values").round(2),
)

# %%
# The first features over the places of the other walk: waves along the box and across it, whatever the direction of the
# head. White is where it never was.
bins = [np.linspace(there[:, k].min(), there[:, k].max(), n) for k, n in ((0, 13), (1, 9))]
visits = np.histogram2d(*there.T, bins)[0]
figure = plt.figure(figsize=(9, 4.2), layout="constrained")
above, below = figure.subfigures(2, 1, height_ratios=[1, 1.7])
view = above.subplots()
view.imshow(make_rat_views(1, random_state=1)[0][0])
view.set(title="a view, 320 degrees wide", xticks=[], yticks=[])
for k, ax in enumerate(below.subplots(1, 4)):
    mean = np.histogram2d(*there.T, bins, weights=Y[:, k] / Y[:, k].std())[0] / np.maximum(visits, 1)
    ax.imshow(np.where(visits > 0, mean, np.nan).T, cmap="RdBu_r", origin="lower", vmin=-2, vmax=2)
    ax.set(title=f"feature {k + 1}", xlabel="x", xticks=[], yticks=[])
plt.show()
