"""Small networks on synthetic faces, trained once."""

from types import SimpleNamespace

import numpy as np
import pytest

from higsfa import HGSFA, HiGSFA, LabelHead, presets
from higsfa.datasets import draw_faces, face_parameters, make_faces
from higsfa.graphs import ClusteredGraph, SerialGraph
from higsfa.reconstruction import ImagePrior, LinearReconstruction

SIZE = 32
SMOOTH = {"shrinkage": 3.0}


@pytest.fixture(scope="session")
def faces():
    """Images and features of a training set, of a second set for what is learned from features, and of unseen faces."""
    train, labels = make_faces(700, SIZE, 0)
    second, second_labels = make_faces(700, SIZE, 1)
    parameters = face_parameters(24, 4)
    labels, second_labels = ({name: each[name] for name in ("age", "gender")} for each in (labels, second_labels))
    graph = SerialGraph("age", n_groups=20) + ClusteredGraph("gender")
    net = presets.pyramid(
        (SIZE, SIZE), n_components=30, network=HiGSFA, graph=graph, front=None, layer_params=SMOOTH
    ).fit(train, labels)
    Y = net.transform(second).astype(np.float64)
    decoder = LinearReconstruction().fit(Y, second)
    unseen = draw_faces(parameters, SIZE)
    return SimpleNamespace(
        train=train,
        labels=labels,
        graph=graph,
        net=net,
        images=second,
        Y=Y,
        decoder=decoder,
        prior=ImagePrior(30).fit(Y, second, decoder),
        head=LabelHead(n_used_features={"age": 4, "gender": 4}, n_classes={"age": 20}, covariance="shared").fit(
            Y, second_labels
        ),
        parameters=parameters,
        unseen=unseen,
        Y_unseen=net.transform(unseen.astype(np.float64)),
    )


@pytest.fixture(scope="session")
def slow_only(faces):
    net = presets.pyramid(
        (SIZE, SIZE), n_components=30, network=HGSFA, graph=faces.graph, front=None, layer_params=SMOOTH
    )
    return net.fit(faces.train, faces.labels)
