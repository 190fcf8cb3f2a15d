"""
The front end of networks on pictures
=====================================

Networks on pictures begin with their edges: the strength of brightness steps in 12 directions, cell by cell, relative
to the surroundings. Nothing in it is learned, and pictures can be rebuilt from it.
"""

import matplotlib.pyplot as plt
import numpy as np

from higsfa import OrientedEdges
from higsfa.datasets import make_faces

images, _ = make_faces(200, size=64)
edges = OrientedEdges(cell=4).fit(images)
cells = edges.transform(images).reshape(len(images), 16, 16, 13)
rebuilt = edges.inverse_transform(edges.transform(images)).reshape(images.shape)

directions = np.arange(12) * 2 * np.pi / 12
strength, strongest = cells[0, :, :, :12].max(axis=-1), directions[cells[0, :, :, :12].argmax(axis=-1)]
figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
axes[0].imshow(images[0], cmap="gray")
at = 4 * np.arange(16) + 1.5
axes[1].imshow(np.full((64, 64), 255), cmap="gray", vmin=0, vmax=255)
arrows = axes[1].quiver(*np.meshgrid(at, at), strength * np.cos(strongest), strength * np.sin(strongest), strongest,
                        cmap="twilight", angles="xy", pivot="mid", headwidth=4)  # fmt: skip
axes[2].imshow(rebuilt[0], cmap="gray")
for ax, title in zip(axes, ("picture", "strongest edge of each cell", "rebuilt from edges"), strict=True):
    ax.set(title=title, xticks=[], yticks=[])
plt.show()
