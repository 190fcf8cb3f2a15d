"""
What has changed between two pictures
=====================================

Two pictures of one place from above, years apart. Light and season change every channel of every pixel, so the plain
difference is large everywhere. What has *not* changed keeps its relation: join each pixel to itself at the other time,
and GSFA finds the functions of the channels that vary least along these edges. Where they differ all the same,
something was built.
"""

# %%
# Eight channels, six kinds of ground. The second picture has another gain and offset in each channel, and light from
# elsewhere; three fields became something else.
import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter

from higsfa import GSFA
from higsfa.graphs import EdgeGraph

rng = np.random.default_rng(3)
side, n_channels = 120, 8
ground = np.argmax([gaussian_filter(rng.normal(size=(side, side)), 7) for _ in range(6)], axis=0)
colours = rng.uniform(0.2, 1.0, size=(6, n_channels))
later, changed = ground.copy(), np.zeros((side, side), dtype=bool)
for row, column, height, width in [(15, 20, 14, 9), (60, 85, 10, 18), (95, 30, 9, 9)]:
    field = slice(row, row + height), slice(column, column + width)
    later[field] = (ground[field] + 2) % 6
    changed[field] = True
light = 1 + 0.15 * gaussian_filter(rng.normal(size=(side, side)), 15)[..., None] / 0.02
first = colours[ground] * light + 0.05 * rng.normal(size=(side, side, n_channels))
second = colours[later] * rng.uniform(0.6, 1.4, n_channels) + rng.uniform(-0.2, 0.2, n_channels)
second = second / light + 0.05 * rng.normal(size=second.shape)

# %%
# Each picture is standardised. A sample is a pixel at one time, an edge joins both times of a pixel.
A, B = ((X.reshape(-1, n_channels) - X.mean((0, 1))) / X.std((0, 1)) for X in (first, second))
pixels = np.arange(side * side)
edges = np.column_stack([pixels, pixels + side * side, np.ones(side * side)])
gsfa = GSFA(n_components=4).fit(np.vstack([A, B]), graph=EdgeGraph(edges))
print("Delta of the features:", gsfa.delta_values_.round(2))
stable = (gsfa.transform(A) - gsfa.transform(B)) ** 2 / gsfa.delta_values_
maps = {"difference of the channels": ((A - B) ** 2).sum(axis=1), "difference of slow features": stable.sum(axis=1)}

# %%
# As many pixels are marked as have changed (outlined): how many of them are the right ones?
figure, axes = plt.subplots(1, 4, figsize=(10, 3.0), layout="constrained")
for ax, picture, title in zip(axes, (first, second), ("before", "after"), strict=False):
    ax.imshow(np.clip(picture[..., [0, 3, 5]], 0, 1.2) / 1.2)
    ax.set_title(title, fontsize=10)
for ax, (title, values) in zip(axes[2:], maps.items(), strict=True):
    smooth = gaussian_filter(values.reshape(side, side), 1)
    marked = smooth >= np.sort(smooth, axis=None)[-changed.sum()]
    ax.imshow(smooth, cmap="magma", vmax=np.quantile(smooth, 0.995))
    ax.contour(changed, [0.5], colors="w", linewidths=0.8)
    ax.set_title(f"{title}\n{(marked & changed).sum() / changed.sum():.0%} of the changes found", fontsize=10)
for ax in axes:
    ax.set(xticks=[], yticks=[])
plt.show()
