"""
Missing labels
==============

Each sample has an age and a gender, but often only one of them was written down. A sample without one label still
serves the other; leaving out all samples that lack any label wastes most of the data.
"""

import matplotlib.pyplot as plt
import numpy as np

from higsfa import GSFA
from higsfa.graphs import ClusteredGraph, SerialGraph

rng = np.random.default_rng(0)
mixing = rng.standard_normal((42, 42))
graph = SerialGraph("age") + ClusteredGraph("gender")


def draw(n):
    age, gender = rng.uniform(16, 77, n), rng.choice(["f", "m"], n)
    hidden = np.column_stack([age / 18, gender == "f", rng.standard_normal((n, 40))])
    return hidden @ mixing, age, gender


def follows(X, labels):
    """How well two features of unseen samples tell age and gender: mean of the multiple correlations."""
    Y = GSFA(2, graph=graph).fit(X, labels).transform(unseen)
    A = np.column_stack([Y, np.ones(len(Y))])
    truth = np.column_stack([age_unseen, gender_unseen == "f"])
    rest = truth - A @ np.linalg.lstsq(A, truth, rcond=None)[0]
    return float(np.mean(np.sqrt(1 - rest.var(axis=0) / truth.var(axis=0))))


unseen, age_unseen, gender_unseen = draw(5000)
X, age, gender = draw(600)
shares, kept, left_out = [0.0, 0.3, 0.5, 0.6, 0.7, 0.75], [], []
for share in shares:
    known_age, known_gender = rng.uniform(size=600) >= share, rng.uniform(size=600) >= share
    both = known_age & known_gender
    kept.append(follows(X, {"age": np.where(known_age, age, np.nan), "gender": np.where(known_gender, gender, None)}))
    left_out.append(follows(X[both], {"age": age[both], "gender": gender[both]}))

figure, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
ax.plot(shares, kept, "o-", color="C0", label="all samples, some without a label")
ax.plot(shares, left_out, "o-", color="0.5", label="only samples with both labels")
ax.set(xlabel="share of labels that are missing", ylabel="correlation on unseen samples")
ax.legend()
plt.show()
