"""
A network, layer by layer
=========================

Nodes see small fields of the layer below. ``print`` shows the architecture, and the Delta values of each layer tell
where features become slow: fields that see more of the picture know more of the label.
"""

import matplotlib.pyplot as plt

from higsfa import HiGSFA, Layer
from higsfa.datasets import make_faces
from higsfa.graphs import SerialGraph
from higsfa.plots import plot_delta_values

images, labels = make_faces(1500, size=32)
net = HiGSFA(
    [
        Layer((8, 8), (4, 4), pca=20, n_components=12, n_slow=3, shrinkage=0.1),
        Layer((3, 3), (2, 2), n_components=20, n_slow=5, shrinkage=0.1),
        Layer((3, 3), n_components=20, n_slow=8, shrinkage=0.3),
    ],
    graph=SerialGraph("age"),
    front=None,
)
net.fit(images, {"age": labels["age"]})
print(net)

# %%
plot_delta_values(net, n_features=8)
plt.show()
