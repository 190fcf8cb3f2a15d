"""
More samples than memory
========================

Images lie in a file and are read where they lie; distorted copies are made on the way, the same pixels in every pass.
The features of a layer wait in memory, or on disk beyond ``memory_limit``. The model is the same, to the bit.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from higsfa import HiGSFA, Layer, sources
from higsfa.datasets import make_faces
from higsfa.images import Distortion

images, labels = make_faces(1000, size=32)
layers = [
    Layer((8, 8), (4, 4), pca=16, n_components=12, n_slow=3),
    Layer((3, 3), (2, 2), n_components=20, n_slow=5),
    Layer((3, 3), n_components=10, n_slow=8),
]
with tempfile.TemporaryDirectory() as folder:
    np.save(Path(folder) / "faces.npy", images)
    distortion = Distortion(seed=0, shift=1.5, rotation=4, scale=0.05)
    copies = sources.repeat(sources.npy(Path(folder) / "faces.npy"), 4, distortion)
    age = labels["age"][copies.sample_index]
    nets = [HiGSFA(layers, graph="serial", front=None, memory_limit=limit) for limit in ("1 GiB", "64 MiB")]
    Y = [net.fit(copies, age).transform(images) for net in nets]
    shown = copies.take(np.arange(24))
print("4,000 samples, same features with much and with little memory:", bool(np.array_equal(*Y)))

figure, axes = plt.subplots(3, 8, figsize=(9, 3.6), layout="constrained")
for ax, picture in zip(axes.flat, shown, strict=True):
    ax.imshow(picture, cmap="gray")
    ax.set(xticks=[], yticks=[])
figure.suptitle("six faces, four distorted copies of each", fontsize=11)
plt.show()
