"""
A stream: batches, and samples taken out again
==============================================

Training needs sums over samples only. So a model can be fitted batch by batch, with the result of one fit on all
samples, for numbers as labels, too. And samples that went in can be taken out.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from higsfa import GSFA
from higsfa.graphs import LabelGraph

X, progress = load_diabetes(return_X_y=True)
graph = LabelGraph(label_range=(0, 400))
whole = GSFA(n_components=1, graph=graph).fit(X, progress)

stream, history = GSFA(n_components=1, graph=graph), []
batches = np.array_split(np.arange(len(X)), 17)
for rows in batches:
    stream.partial_fit(X[rows], progress[rows])
    history.append(stream.delta_values_[0])
print("largest difference from one fit:", np.abs(stream.transform(X) - whole.transform(X)).max())

without = [stream.delta_values_[0]]
for rows in batches[:8]:
    stream.unlearn(X[rows], progress[rows])
    without.append(stream.delta_values_[0])

# %%
# Few samples look too good: their Delta is optimistic, and rises as more come in.
n = np.cumsum([len(rows) for rows in batches])
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(n, history, "o-", label="learning, batch by batch")
ax.plot(n[-1] - np.concatenate([[0], n[:8]]), without, "s--", color="C3", label="unlearning the first eight batches")
ax.axhline(whole.delta_values_[0], color="0.7", lw=1, zorder=0, label="one fit on all samples")
ax.set(xlabel="samples in the sums", ylabel="Delta of the first feature")
ax.legend()
plt.show()
