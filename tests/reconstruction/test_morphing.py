"""Morphing: the estimate follows, the picture comes closer to the same face at that age, detail stays."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import Ridge

from higsfa import GSFA, LabelHead
from higsfa.datasets import draw_faces, with_age
from higsfa.reconstruction import morph
from higsfa.reconstruction.morphing import class_means, feature_units

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


@pytest.mark.parametrize("strength", [1.0, 0.3])
def test_without_steps_a_photo_changes_by_the_decoded_difference_of_class_means(faces, strength):
    photo, y = faces.unseen[0].astype(float), faces.Y_unseen[:1]
    options = {"decoder": faces.decoder, "n_steps": 0, "strength": strength}
    templates = faces.decoder.components_[:4].reshape(4, 32, 32)
    means, ages = class_means(faces.head, "age"), faces.head.classes_["age"]
    own = faces.head.predict_proba(y, "age")[0] @ ages
    wanted = [18.5, ages[3], (ages[3] + ages[4]) / 2, 200.0]
    curve = [np.array([np.interp(age, ages, column) for column in means.T]) for age in (own, *wanted)]
    assert_allclose(curve[3], (means[3] + means[4]) / 2)
    frames = morph(faces.net, faces.head, photo, age=wanted, **options)
    for frame, there in zip(frames, curve[1:], strict=True):
        change = np.tensordot(strength * (there - curve[0]), templates, 1)
        assert_allclose(frame, photo + change, atol=1e-8 * np.abs(change).max())
    means = class_means(faces.head, "gender")
    mine = np.argmax(faces.head.predict_proba(y, "gender"))
    frame = morph(faces.net, faces.head, photo, gender="FM"[1 - mine], **options)
    change = np.tensordot(strength * (means[1 - mine] - means[mine]), templates, 1)
    assert_allclose(frame, [photo + change], atol=1e-8 * np.abs(change).max())


def test_the_network_itself_decodes_by_default(faces):
    photo = faces.unseen[0].astype(float)
    (frame,) = morph(faces.net, faces.head, photo, age=60, n_steps=0)
    templates = faces.net.inverse_transform(np.eye(30)[:4]) - faces.net.inverse_transform(np.zeros((1, 30)))
    shift, *_ = np.linalg.lstsq(templates.reshape(4, -1).T, (frame - photo).ravel(), rcond=None)
    assert_allclose(np.tensordot(shift, templates, 1), frame - photo, atol=1e-6)
    assert np.abs(shift).max() > 0


def test_whole_numbers_are_rounded_and_kept_in_range(faces):
    photo = faces.unseen[0]
    options = {"age": [20, 60], "decoder": faces.decoder, "strength": 16.0}
    exact = morph(faces.net, faces.head, photo.astype(float), n_steps=0, **options)
    frames = morph(faces.net, faces.head, photo, n_steps=0, **options)
    assert exact.min() < 0
    assert exact.max() > 255
    assert_allclose(frames, np.rint(np.clip(exact, 0, 255)), atol=0)
    steered = morph(faces.net, faces.head, photo.astype(np.int16) - 100, n_steps=1, **options)
    assert steered.dtype == np.int16
    assert steered.min() < -100


def test_no_strength_no_change(faces):
    photo = faces.unseen[0]
    assert np.array_equal(morph(faces.net, faces.head, photo, strength=0.0, age=[20, 60])[1], photo)


def test_the_own_class_changes_nothing_and_the_other_comes_as_near_as_the_class_means_are(faces):
    means = class_means(faces.head, "gender")
    options = {"decoder": faces.decoder, "prior": faces.prior, "n_steps": 30}
    for photo, y in zip(faces.unseen[:6].astype(float), faces.Y_unseen[:6], strict=True):
        frames = morph(faces.net, faces.head, photo, gender=["F", "M"], **options)
        mine = int(np.argmax(faces.head.predict_proba(y[None], "gender")))
        assert_allclose(frames[mine], photo, atol=1e-6)
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
    assert_allclose(feature_units(head, "kind"), [*Y[:, :3].std(axis=0), 1.0])
    with pytest.raises(ValueError, match="'size' is estimated by Ridge, which knows no class means"):
        class_means(LabelHead(regressor=Ridge()).fit(Y, {"size": Y[:, 0]}), "size")


def test_what_does_not_fit_is_refused(faces):
    photo = faces.unseen[0]
    for wrong, message in (
        ({}, "give one label"),
        ({"height": [1]}, "the labels are"),
        ({"age": [20], "gender": ["F"]}, "give one label"),
        ({"age": [np.nan, 20]}, "finite"),
        ({"age": [20, np.inf]}, "finite"),
        ({"age": []}, "no values"),
        ({"gender": ["X"]}, "not one of the classes"),
    ):
        with pytest.raises(ValueError, match=message):
            morph(faces.net, faces.head, photo, **wrong)
