"""
Few samples: shrinkage chosen by itself
=======================================

With few samples slow directions are found in noise: Delta is near 0 on the training samples and near 2 on others.
With ``shrinkage="auto"`` the library leaves samples out, measures Delta on them, and chooses. It all comes from one
pass over the data, since sums of samples add.
"""

import matplotlib.pyplot as plt
import numpy as np

from higsfa import GSFA

rng = np.random.default_rng(0)
mixing = rng.standard_normal((4, 60))


def draw(n):
    """60 variables that are mixtures of four, with noise."""
    hidden = rng.standard_normal((n, 4))
    return hidden @ mixing + rng.standard_normal((n, 60)), hidden[:, 0]


X, y = draw(100)
y = y + 0.5 * rng.standard_normal(100)
unseen, truth = draw(5000)

values, follows = np.logspace(-3, 1.5, 13), []
for value in values:
    feature = GSFA(1, shrinkage=value).fit(X, y).transform(unseen)[:, 0]
    follows.append(abs(np.corrcoef(feature, truth)[0, 1]))
plain, chosen = GSFA(1).fit(X, y), GSFA(1, shrinkage="auto").fit(X, y)
print(f"Delta: {plain.delta_values_[0]:.2f} in training without shrinkage;")
print(f"chosen shrinkage {chosen.shrinkage_:g}, held-out Delta {chosen.held_out_delta_values_[0]:.2f}")

# %%
# How well the feature of unseen samples follows what lies behind the label.
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(values, follows, "o-", label="fixed value")
ax.axhline(abs(np.corrcoef(plain.transform(unseen)[:, 0], truth)[0, 1]), color="0.6", ls=":", label="none")
found = abs(np.corrcoef(chosen.transform(unseen)[:, 0], truth)[0, 1])
ax.plot(chosen.shrinkage_, found, "*", color="C3", ms=16, label="auto")
ax.set(xscale="log", xlabel="shrinkage", ylabel="correlation on unseen samples")
ax.legend()
plt.show()
