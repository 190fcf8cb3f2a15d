"""
Slow signals in a noisy recording
=================================

Two slow oscillations are mixed into five channels, with noise five times as strong. The mixtures look like noise, and
their principal components are the noise. SFA asks for the directions that change least from one sample to the next.
"""

# %%
# Three recordings of 2,000 samples. No transition is made from one recording to the next.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA

from higsfa import SFA

rng = np.random.default_rng(0)
t = np.arange(6000)
slow = np.column_stack([np.sin(t / 50), np.cos(t / 23)])
X = np.hstack([slow, 5 * rng.standard_normal((6000, 3))]) @ rng.standard_normal((5, 5))
recording = np.repeat([0, 1, 2], 2000)

sfa = SFA(n_components=2).fit(X, groups=recording)
Y = sfa.transform(X)
print("Delta of the features:", sfa.delta_values_.round(4))

# %%
# Each feature is one of the oscillations. Delta is small: 0 is constant, 2 is noise.
shown = slice(0, 800)
rows = {
    "channel 1 of 5": X[shown, 0],
    "first principal component": PCA(1).fit_transform(X)[shown, 0],
    "slow feature 1": Y[shown, 0],
    "slow feature 2": Y[shown, 1],
}
figure, axes = plt.subplots(len(rows), 1, figsize=(8, 5.5), sharex=True, layout="constrained")
for ax, (name, values), colour in zip(axes, rows.items(), ["0.6", "0.6", "C0", "C1"], strict=True):
    ax.plot(t[shown], values, color=colour, lw=1)
    ax.set_title(name, loc="left", fontsize=10)
    ax.set_yticks([])
axes[-1].set_xlabel("time")
plt.show()
