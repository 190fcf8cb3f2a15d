"""
Three parties, one model, no shared samples
===========================================

Hospitals that may not show their patients exchange sums instead: covariances and sums over classes. Added up they are
the sums of all samples, so every party gets the model that would have been trained on all data.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from higsfa import GSFA

X, cultivar = load_wine(return_X_y=True)
X = StandardScaler().fit_transform(X)
party = np.random.default_rng(0).integers(3, size=len(X))
parts = [GSFA(2, graph="clustered").fit(X[party == k], cultivar[party == k]) for k in range(3)]

total = parts[0].statistics_ + parts[1].statistics_ + parts[2].statistics_
shared = GSFA(2, graph="clustered").fit_from_statistics(total)
everyone = GSFA(2, graph="clustered").fit(X, cultivar)
print("largest difference from a fit on all samples:", np.abs(shared.transform(X) - everyone.transform(X)).max())

figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for ax, model, title in zip(axes, (parts[0], shared), ("one party alone", "from the sums of three"), strict=True):
    ax.scatter(*model.transform(X).T, c=cultivar, cmap="brg", s=14)
    ax.set(title=title, xlabel="feature 1", ylabel="feature 2")
plt.show()
