"""
On a Dask cluster
=================

The passes over the data run on the workers of a cluster, here one on this machine. Blocks of samples are added up in
a fixed tree, so the number of workers makes no difference to the result.
"""

import matplotlib.pyplot as plt
import numpy as np
from distributed import Client
from sklearn.datasets import load_digits

from higsfa import HiGSFA, Layer

X, digit = load_digits(return_X_y=True)
images = np.tile(X.reshape(-1, 8, 8), (20, 1, 1)).astype(np.float32)  # 35,940 samples: three blocks
labels = np.tile(digit, 20)
layers = [Layer((4, 4), (2, 2), n_components=8, n_slow=3), Layer((3, 3), n_components=9, n_slow=9)]

here = HiGSFA(layers, graph="clustered", front=None).fit(images, labels)
with Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as client:
    there = HiGSFA(layers, graph="clustered", front=None, engine="dask").fit(images, labels)

Y, Z = here.transform(images[:1797]), there.transform(images[:1797])
print("same features on threads and on the cluster:", bool(np.array_equal(Y, Z)))

figure, ax = plt.subplots(figsize=(5.5, 4.4), layout="constrained")
points = ax.scatter(*Z[:, :2].T, c=digit, cmap="tab10", s=6, vmin=-0.5, vmax=9.5)
figure.colorbar(points, ticks=range(10), label="digit")
ax.set(title="two features of a network trained on workers", xlabel="feature 1", ylabel="feature 2")
plt.show()
