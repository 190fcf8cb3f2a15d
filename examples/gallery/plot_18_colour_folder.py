"""
A folder of colour pictures
===========================

Pictures in a folder, one subfolder for each class, as most people have them. ``sources.images`` reads them when they
are needed, all of one size; ``HiGSFA()`` designs itself for their shape and number, and ``LabelHead`` names the
classes. Both are steps of an ordinary pipeline.
"""

# %%
# The folder: fruit on cloths of any colour, drawn here so that the example needs no download. A lemon and a lime have
# the same form, and so have an apple and a plum.
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image, ImageDraw, ImageFilter
from sklearn.pipeline import make_pipeline

from higsfa import HiGSFA, LabelHead, sources

FRUIT = {
    "apple": ((190, 60, 50), 1.0),
    "lemon": ((225, 200, 60), 1.45),
    "lime": ((95, 160, 70), 1.45),
    "plum": ((110, 60, 130), 1.0),
}


def draw(kind, rng, size=96):
    colour, stretch = FRUIT[kind]
    picture = Image.new("RGB", (size, size), tuple(rng.integers(90, 220, 3).tolist()))
    pen, r = ImageDraw.Draw(picture), rng.uniform(20, 27)
    tint = np.clip(np.array(colour) * rng.uniform(0.75, 1.2) + rng.normal(0, 10, 3), 0, 255).astype(int)
    x, y = rng.uniform(38, 58, 2)
    pen.ellipse([x - r * stretch, y - r, x + r * stretch, y + r], fill=tuple(tint.tolist()))
    pen.ellipse([x - r * 0.6, y - r * 0.6, x - r * 0.3, y - r * 0.35], fill=(250, 245, 235))
    picture = picture.rotate(rng.uniform(-40, 40), fillcolor=picture.getpixel((0, 0)))
    picture = picture.filter(ImageFilter.GaussianBlur(1))
    noise = rng.normal(0, 12, (size, size, 3))
    return Image.fromarray(np.clip(np.asarray(picture) + noise, 0, 255).astype(np.uint8))


rng = np.random.default_rng(0)
folder = tempfile.TemporaryDirectory()
for kind in FRUIT:
    Path(folder.name, kind).mkdir()
    for i in range(100):
        draw(kind, rng).save(Path(folder.name, kind, f"{i:03}.jpg"))

# %%
# One line reads it; labels are the names of the subfolders. Every third picture is kept for testing.
images = sources.images(folder.name, shape=(32, 32), mode="auto")
label = np.array([path.parent.name for path in images.paths])
unseen = np.arange(len(images)) % 3 == 0
print(images)

right = {}
for name, seen in {"in colour": images, "grey": sources.images(folder.name, shape=(32, 32))}.items():
    model = make_pipeline(HiGSFA(), LabelHead()).fit(seen[~unseen], label[~unseen])
    estimate = model.predict(seen[unseen])
    right[name] = np.mean(estimate == label[unseen])
    if name == "in colour":
        shown = estimate
print({name: f"{rate:.1%}" for name, rate in right.items()})

# %%
# Unseen pictures with their estimates; wrong ones in red.
chosen = np.linspace(0, unseen.sum() - 1, 16).astype(int)
figure, axes = plt.subplots(2, 8, figsize=(10, 3.1), layout="constrained")
for ax, i in zip(axes.flat, chosen, strict=True):
    ax.imshow(images.take(np.flatnonzero(unseen)[[i]])[0])
    ax.set_title(shown[i], fontsize=10, color="k" if shown[i] == label[unseen][i] else "tab:red")
    ax.set(xticks=[], yticks=[])
rates = f"{right['in colour']:.1%} right in colour, {right['grey']:.1%} in grey"
figure.suptitle(f"{unseen.sum()} unseen pictures: {rates}", fontsize=11)
folder.cleanup()
plt.show()
