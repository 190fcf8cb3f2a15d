"""
The same face, older
====================

A network that preserves information can be run backwards: change what the features say about the age, and rebuild the
picture.
"""

import matplotlib.pyplot as plt
import numpy as np

from higsfa import LabelHead, presets
from higsfa.datasets import make_faces
from higsfa.graphs import SerialGraph
from higsfa.reconstruction import LinearReconstruction, morph

images, labels = make_faces(3000, size=48)
images, age = images.astype(np.float32) / 255, labels["age"]
net = presets.pyramid((48, 48), front=None, graph=SerialGraph("age"), layer_params={"shrinkage": 3.0}, n_jobs=2)
Y = net.fit(images, {"age": age}).transform(images)
head = LabelHead(n_used_features=10, covariance="shared").fit(Y, {"age": age})
decoder = LinearReconstruction().fit(Y, images)

ages = (20, 35, 50, 65)
shown = make_faces(3, size=48, random_state=7)[0].astype(np.float32) / 255
figure, axes = plt.subplots(3, 5, figsize=(7.5, 4.8), layout="constrained")
for line, face in zip(axes, shown, strict=True):
    row = [face, *morph(net, head, face, decoder=decoder, age=ages)]
    for ax, picture in zip(line, row, strict=True):
        ax.imshow(np.clip(picture, 0, 1), cmap="gray", vmin=0, vmax=1)
        ax.set(xticks=[], yticks=[])
for ax, title in zip(axes[0], ["picture", *(f"{wanted} years" for wanted in ages)], strict=True):
    ax.set_title(title, fontsize=10)
plt.show()
