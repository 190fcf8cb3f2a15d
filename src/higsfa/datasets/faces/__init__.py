"""Synthetic passport photographs with known age, gender and ethnicity.

A face is a row of parameters: :func:`face_parameters` draws rows at random, :func:`with_age` changes their age, and
:func:`draw_faces` renders them. Age shows in fine structure (lines, skin grain, grey hair), hardly in brightness or
proportions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from higsfa.datasets.faces import parts
from higsfa.datasets.faces.parts import Canvas, bell, step, texels, textures
from higsfa.datasets.faces.traits import RACES, ageing, face_table

__all__ = ["draw_faces", "face_parameters", "make_faces", "with_age"]

Parameters = Mapping[str, np.ndarray]

_BATCH_PIXELS = 16 * 96 * 96  # a map of a batch fits into the cache of a core
_SMALLEST = 16


def make_faces(
    n_samples: int,
    size: int = 96,
    random_state: Any = 0,
    *,
    images_per_person: int = 1,
    races: Sequence[str] = ("B", "W"),
    return_parameters: bool = False,
    n_jobs: int | None = None,
) -> Any:
    """Draw synthetic photographs of faces with their labels.

    Image i depends only on `random_state`, i and the keywords, so a small set is the start of a larger one.

    Parameters
    ----------
    n_samples : int
    size : int, default=96
        Height and width of the images; 32 to 256 look right.
    random_state : int, RandomState or None, default=0
    images_per_person : int, default=1
        Consecutive images of the same person, within ten years of age and with different pose, light and expression.
    races : sequence of str, default=("B", "W")
        Equally frequent classes out of "B", "W", "A" and "H", as in MORPH-II: crude, overlapping tones and proportions.
    return_parameters : bool, default=False
        Also return the parameters, for :func:`with_age` and :func:`draw_faces`.
    n_jobs : int or None, default=None
        Threads, as in scikit-learn; they do not change the images.

    Returns
    -------
    images : array of shape (n_samples, size, size), uint8
    labels : dict of arrays
        ``age`` in years (16 to 77, most below 50), ``gender`` ("M" or "F"), ``race`` and ``identity`` (a number).
    parameters : dict of arrays
        Only with ``return_parameters=True``.

    Examples
    --------
    >>> images, labels = make_faces(4, size=48)
    >>> images.shape, images.dtype, sorted(labels)
    ((4, 48, 48), dtype('uint8'), ['age', 'gender', 'identity', 'race'])
    """
    parameters = face_parameters(n_samples, random_state, images_per_person=images_per_person, races=races)
    images = draw_faces(parameters, size, n_jobs=n_jobs)
    labels = {name: parameters[name] for name in ("age", "gender", "race", "identity")}
    return (images, labels, parameters) if return_parameters else (images, labels)


def face_parameters(
    n_samples: int, random_state: Any = 0, *, images_per_person: int = 1, races: Sequence[str] = ("B", "W")
) -> dict[str, np.ndarray]:
    """Draw the parameters of faces, with arguments as in :func:`make_faces`.

    Returns
    -------
    parameters : dict of arrays of length n_samples
        The labels, ``seed`` (of the camera noise) and the traits of :mod:`higsfa.datasets.faces.traits`: those of the
        person, pose, light and expression.

    Examples
    --------
    >>> from higsfa.datasets import face_parameters
    >>> parameters = face_parameters(6, images_per_person=3)
    >>> parameters["identity"].tolist()
    [0, 0, 0, 1, 1, 1]
    """
    for name, value, least in (("n_samples", n_samples, 0), ("images_per_person", images_per_person, 1)):
        if value < least:
            raise ValueError(f"{name}={value} must be at least {least}")
    if not len(races) or not set(races) <= set(RACES):
        raise ValueError(f"races={tuple(races)!r} must be one or more of {', '.join(RACES)}")
    return face_table(check_random_state(random_state).randint(2**31 - 1), n_samples, images_per_person, races)


def with_age(parameters: Parameters, age: ArrayLike) -> dict[str, np.ndarray]:
    """The same people and poses at another age: lines get deeper, but nothing moves.

    Parameters
    ----------
    parameters : dict of arrays
        From :func:`face_parameters`.
    age : float or array of shape (n_samples,)
        In years.

    Examples
    --------
    >>> young = face_parameters(3)
    >>> old = draw_faces(with_age(young, 70), size=48)
    >>> old.shape
    (3, 48, 48)
    """
    years = np.array(np.broadcast_to(np.asarray(age, dtype=float), parameters["age"].shape))
    return {**parameters, "age": years}


def draw_faces(
    parameters: Parameters, size: int = 96, *, batch_size: int | None = None, n_jobs: int | None = None
) -> np.ndarray:
    """Draw faces from their parameters.

    Parameters
    ----------
    parameters : dict of arrays
        From :func:`face_parameters` or :func:`with_age`. Rows may be selected, repeated and changed.
    size, n_jobs
        As in :func:`make_faces`.
    batch_size : int or None, default=None
        Images drawn at once; by default as many as fit into the cache. It does not change the images.

    Returns
    -------
    images : array of shape (n_samples, size, size), uint8

    Examples
    --------
    >>> from higsfa.datasets import draw_faces, face_parameters, with_age
    >>> person = face_parameters(1)
    >>> young, old = (draw_faces(with_age(person, years), size=48) for years in (20, 70))
    >>> young.shape, bool((young != old).any())
    ((1, 48, 48), True)
    """
    if size < _SMALLEST:
        raise ValueError(f"size={size} is too small for a face; use at least {_SMALLEST} pixels")
    n, batch = len(parameters["age"]), max(1, _BATCH_PIXELS // size**2) if batch_size is None else batch_size
    if batch < 1:
        raise ValueError(f"batch_size={batch_size} must be at least 1, or None")
    images = np.empty((n, size, size), dtype=np.uint8)
    textures(size)  # cached for all threads

    def draw(start: int) -> None:
        rows = slice(start, start + batch)
        images[rows] = _draw_batch({name: np.asarray(values)[rows] for name, values in parameters.items()}, size)

    Parallel(n_jobs=n_jobs, require="sharedmem")(delayed(draw)(start) for start in range(0, n, batch))
    return images


def _draw_batch(parameters: Parameters, size: int) -> np.ndarray:
    p = _broadcastable({name: values for name, values in parameters.items() if values.dtype.kind == "f"})
    p.line = [getattr(p, f"line{k}") for k in range(12)]
    a = _broadcastable(vars(ageing(parameters)))
    pixel, (n_texels, fields) = 2.0 / size, textures(size)

    # Positions on the head, and on its front, which moves more than the outline when the head turns.
    axis = (np.arange(size, dtype=np.float32) + 0.5) * pixel - 1
    u, v = (axis - p.shift_x) / p.zoom, (axis[:, None] - p.shift_y) / p.zoom
    head_x, head_y = u + p.rotation * v, v - p.rotation * u
    inside = parts.outline(head_x, head_y, p, a)
    near = bell(0.7 * inside)
    x, y = head_x - p.yaw * near, head_y - p.pitch * near
    side, texel = np.abs(x) + p.asymmetry * x, texels(x, y, p, n_texels)
    face = Canvas(x, y, side, height=np.zeros_like(x), albedo=np.empty_like(x), texel=texel, pixel=pixel)
    dark = p.hair_tone**2
    greying = dark + a.grey * (0.40 - dark)
    parts.skin(face, p, a, fields["pores"], fields["mottle"])
    parts.freckles(face, p, fields["pores"])
    parts.skull(face, inside, p)
    parts.nose(face, p)
    parts.forehead_lines(face, p, a)
    parts.eye_lines(face, p, a)
    parts.mouth_lines(face, p, a)
    parts.beard(face, p, a, 0.7 * dark + 0.3 * greying, fields["pores"])
    parts.mouth(face, p, a)
    parts.brows(face, p, 0.5 * dark + 0.5 * greying, fields["pores"])
    parts.eyes(face, p, a)

    # Strands fan out from a point above the head.
    strands = fields["strands"].take(texels(head_x / (0.6 + 0.23 * head_y), head_y, p, n_texels))
    hair = parts.hair_light(head_x, head_y, p, a, greying, strands)
    behind, above = parts.hair_masks(head_x, head_y, p, a, strands)
    image = parts.backdrop(u, v, p)
    parts.cover(image, behind, 0.7 * hair)
    parts.body(image, head_x, head_y, p)
    parts.cover(image, step(1 - inside, 1.2 * pixel + 0.01), parts.lit(face.height, face.albedo, p, pixel))
    parts.cover(image, above, hair)
    return parts.photographed(image, p, parameters["seed"])


def _broadcastable(columns: Mapping[str, np.ndarray]) -> SimpleNamespace:
    """Columns as float32 of shape (images, 1, 1), by attribute."""
    return SimpleNamespace(**{name: values.astype(np.float32)[:, None, None] for name, values in columns.items()})
