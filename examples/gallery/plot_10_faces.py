"""
Age from faces, without settings
================================

``HiGSFA()`` designs itself for the size and number of pictures, and ``LabelHead()`` turns features into estimates.
The faces are drawn by the library. Estimates are statistical guesses about pictures, not facts about people.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.pipeline import make_pipeline

from higsfa import HiGSFA, LabelHead
from higsfa.datasets import make_faces

images, labels = make_faces(2500, size=32)
age = labels["age"]
train, test = np.arange(2000), np.arange(2000, 2500)
model = make_pipeline(HiGSFA(), LabelHead()).fit(images[train], age[train])
estimate = model.predict(images[test])
error = np.abs(estimate - age[test]).mean()

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), width_ratios=[1, 1.1], layout="constrained")
order = test[np.argsort(age[test])][:: len(test) // 16][:16]
grid = images[order].reshape(4, 4, 32, 32).swapaxes(1, 2).reshape(128, 128)
left.imshow(grid, cmap="gray")
left.set(title="unseen faces, by age", xticks=[], yticks=[])
right.plot([15, 80], [15, 80], color="0.7", lw=1)
right.scatter(age[test], estimate, s=8)
right.set(title=f"mean absolute error {error:.1f} years", xlabel="age", ylabel="estimate", aspect="equal")
plt.show()
