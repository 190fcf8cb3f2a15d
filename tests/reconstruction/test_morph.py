"""Morphing: the estimate follows, the picture comes closer to the same face at that age, detail stays."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from higsfa import GSFA, LabelHead
from higsfa._reconstruction_morph import class_means
from higsfa.datasets import draw_faces, with_age
from higsfa.reconstruction import morph

AGES = [20, 35, 50]


@pytest.fixture(scope="module")
def morphed(faces):
    args = {"decoder": faces.decoder, "prior": faces.prior, "age": AGES}
    return np.array([morph(faces.net, faces.head, photo, **args) for photo in faces.unseen[:12]])


def test_the_estimated_age_follows(faces, morphed):
    estimates = faces.head.predict(faces.net.transform(morphed.reshape(-1, 32, 32)))["age"].reshape(-1, len(AGES))
    assert np.mean(np.all(np.diff(estimates, axis=1) > 0, axis=1)) >= 0.9


def test_the_picture_comes_closer_to_the_same_face_at_that_age(faces, morphed):
    photos = faces.unseen[:12, None].astype(float)
    true = np.stack([draw_faces(with_age(faces.parameters, age), 32)[:12] for age in AGES], axis=1).astype(float)
    far = np.abs(faces.parameters["age"][:12, None] - AGES) > 10
    assert np.sum((morphed - true)[far] ** 2) < np.sum((photos - true)[far] ** 2)


def test_type_range_and_shape_are_those_of_the_photo(faces, morphed):
    assert morphed.dtype == np.uint8
    assert morphed.shape == (12, 3, 32, 32)
    photo = faces.unseen[0].astype(np.float32)
    frame = morph(faces.net, faces.head, photo, age=40, n_steps=0)
    assert frame.dtype == np.float32
    assert frame.shape == (1, 32, 32)


def test_no_strength_no_change(faces):
    photo = faces.unseen[0]
    assert np.array_equal(morph(faces.net, faces.head, photo, strength=0.0, age=[20, 60])[1], photo)


def test_the_own_class_changes_nothing_and_the_other_comes_as_near_as_the_class_means_are(faces):
    means = class_means(faces.head, "gender")
    for photo, y in zip(faces.unseen[:6], faces.Y_unseen[:6], strict=True):
        frames = morph(faces.net, faces.head, photo, decoder=faces.decoder, prior=faces.prior, gender=["F", "M"])
        mine = int(np.argmax(faces.head.predict_proba(y[None], "gender")))
        assert np.array_equal(frames[mine], photo)
        goal = y.copy()
        goal[:4] += means[1 - mine] - means[mine]
        found = faces.net.transform(frames[1 - mine][None].astype(float))
        expected = faces.head.predict_proba(np.array([goal, y]), "gender")[:, 1 - mine]
        assert expected[0] > expected[1]
        assert_allclose(faces.head.predict_proba(found, "gender")[0, 1 - mine], expected[0], atol=0.03)


def test_class_means_are_the_means_of_the_classes():
    rng = np.random.default_rng(0)
    kind = rng.integers(3, size=300)
    X = rng.normal(size=(300, 4)) + kind[:, None] * [1, 0, 5, 2]
    Y = np.column_stack([GSFA(3, graph="clustered").fit_transform(X, kind), np.full(300, 2.5)])
    head = LabelHead().fit(Y, {"kind": kind})
    assert_allclose(class_means(head, "kind"), [Y[kind == k].mean(axis=0) for k in range(3)], atol=1e-9)


def test_what_does_not_fit_is_refused(faces):
    photo = faces.unseen[0]
    for wrong, message in (
        ({}, "give one label"),
        ({"height": [1]}, "the labels are"),
        ({"age": [20], "gender": ["F"]}, "give one label"),
        ({"age": [np.nan]}, "finite"),
        ({"age": []}, "no values"),
        ({"gender": ["X"]}, "not one of the classes"),
    ):
        with pytest.raises(ValueError, match=message):
            morph(faces.net, faces.head, photo, **wrong)
