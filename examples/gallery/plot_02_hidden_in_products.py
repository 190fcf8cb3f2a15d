"""
A slow signal hidden in a product
=================================

Both inputs look like noise: one *is* noise, n(t), the other is a slow signal times the same noise, s(t) n(t). No
linear combination is slow. With all products of two inputs as an expansion, (s n) n = s n² is slow, since n² = 1.
"""

import matplotlib.pyplot as plt
import numpy as np

from higsfa import SFA

noise = np.random.default_rng(0).choice([-1.0, 1.0], size=2000)
slow = np.sin(0.01 * np.arange(2000))
X = np.column_stack([noise, slow * noise])

linear = SFA(n_components=1).fit(X)
quadratic = SFA(n_components=1, expansion="identity | quadratic").fit(X)

figure, axes = plt.subplots(3, 1, figsize=(8, 4.5), sharex=True, layout="constrained")
shown = {
    "input 2: slow signal times noise": (X[:, 1], "0.6"),
    f"linear SFA, Delta {linear.delta_values_[0]:.2f}": (linear.transform(X)[:, 0], "C3"),
    f"quadratic SFA, Delta {quadratic.delta_values_[0]:.4f}": (quadratic.transform(X)[:, 0], "C0"),
}
for ax, (name, (values, colour)) in zip(axes, shown.items(), strict=True):
    ax.plot(values, color=colour, lw=0.8)
    ax.set_title(name, loc="left", fontsize=10)
    ax.set_yticks([])
axes[-1].set_xlabel("time")
plt.show()
