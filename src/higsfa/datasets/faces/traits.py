"""Traits of the synthetic people: their distributions, random draws, and the effect of age."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

# Lengths are in half image widths: the photograph spans -1 ... 1 in both directions, y points down.
# For each trait: mean, standard deviation between persons, half of the difference between women and men.
PERSON: dict[str, tuple[float, float, float]] = {
    "skin": (0.605, 0.045, 0.006),  # as displayed; the reflectance is its square
    "face_width": (0.640, 0.020, -0.013),
    "chin": (0.925, 0.022, -0.022),
    "jaw": (0.30, 0.12, -0.15),  # 0: elliptic, 1: square
    "taper": (0.13, 0.035, 0.020),
    "cheek": (0.060, 0.020, 0.004),
    "chin_size": (0.060, 0.018, -0.008),
    "asymmetry": (0.0, 0.012, 0.0),
    "eye_y": (-0.120, 0.010, 0.0),
    "eye_distance": (0.295, 0.011, 0.0),
    "eye_width": (0.130, 0.007, 0.003),
    "eye_open": (0.050, 0.006, 0.004),
    "eye_slant": (0.06, 0.05, 0.015),
    "eye_depth": (0.100, 0.022, -0.012),
    "iris": (0.09, 0.045, 0.0),
    "brow_height": (0.150, 0.015, 0.013),
    "brow_thickness": (0.038, 0.005, -0.009),
    "brow_arch": (0.40, 0.18, 0.12),
    "brow_dark": (0.62, 0.13, -0.02),
    "brow_ridge": (0.035, 0.012, -0.018),
    "nose_y": (0.270, 0.018, -0.008),
    "nose_width": (0.112, 0.008, -0.004),
    "nose_height": (0.170, 0.022, -0.010),
    "nose_bridge": (0.085, 0.012, -0.004),
    "mouth_y": (0.505, 0.015, -0.006),
    "mouth_width": (0.200, 0.014, -0.004),
    "lip_upper": (0.040, 0.006, 0.003),
    "lip_lower": (0.056, 0.007, 0.004),
    "lip_dark": (0.26, 0.07, 0.07),
    "ear": (0.055, 0.018, -0.010),
    "hairline": (-0.755, 0.055, 0.0),
    "hairline_curve": (0.50, 0.20, -0.05),
    "parting": (0.0, 0.12, 0.0),
    "temple": (0.44, 0.030, 0.010),
    "hair_volume": (0.11, 0.040, 0.030),
    "hair_length": (0.25, 0.38, 0.55),
    "hair_tone": (0.28, 0.07, 0.01),
    "hair_contrast": (0.34, 0.09, 0.03),
    "beard": (0.10, 0.18, -0.20),
    # How this person ages: factors of the effects of age.
    "years_ahead": (0.0, 1.2, 0.0),
    "forehead": (1.0, 0.28, 0.0),
    "crow": (1.0, 0.28, 0.0),
    "fold": (1.0, 0.25, 0.0),
    "bag": (1.0, 0.28, 0.0),
    "frown": (1.0, 0.35, -0.1),
    "marionette": (1.0, 0.30, 0.0),
    "roughness": (1.0, 0.08, -0.03),
    "spots": (1.0, 0.30, 0.0),
    "freckles": (0.20, 0.20, 0.0),
    "sag": (1.0, 0.3, 0.0),
    "grey_onset": (38.0, 7.0, 0.0),
    "recession": (0.8, 0.5, -0.5),
    # Positions of the lines; standard normal.
    **{f"line{k}": (0.0, 1.0, 0.0) for k in range(12)},
}

# Differences from the means above. Tones overlap. Nothing here says anything about real people.
RACES: dict[str, dict[str, float]] = {
    "B": {"skin": -0.085, "nose_width": 0.013, "lip_upper": 0.007, "lip_lower": 0.007, "hair_tone": -0.07,
          "lip_dark": -0.06, "nose_height": -0.015},
    "W": {"skin": 0.085, "nose_width": -0.010, "lip_upper": -0.005, "lip_lower": -0.005, "hair_tone": 0.07,
          "nose_height": 0.012},
    "A": {"skin": 0.060, "nose_height": -0.030, "nose_bridge": 0.01, "eye_open": -0.006, "hair_tone": -0.06},
    "H": {"skin": 0.010, "hair_tone": -0.03},
}  # fmt: skip

# Mean and standard deviation of what differs between photographs of the same person.
SHOT: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("shift_x", "shift_y"), (0.0, 0.016)),
    "rotation": (0.0, 0.028),
    "zoom": (1.0, 0.022),
    "yaw": (0.0, 0.030),
    "pitch": (0.0, 0.022),
    "light_x": (0.0, 0.28),
    "light_y": (-0.42, 0.16),
    "ambient": (0.34, 0.06),
    "gain": (1.0, 0.07),
    "brightness": (0.0, 0.020),
    "gloss": (0.10, 0.05),
    "smile": (0.25, 0.30),
    "brow_raise": (0.15, 0.28),
    "mouth_open": (-0.35, 0.45),
    "lids": (0.0, 0.09),
    "gaze": (0.0, 0.012),
    "background": (0.66, 0.10),
    **dict.fromkeys(("background_x", "background_y"), (0.0, 0.035)),
    "clothes": (0.38, 0.16),
    "collar": (0.30, 0.10),
    "noise": (0.0055, 0.0015),
}

_NON_NEGATIVE = {
    *("forehead", "crow", "fold", "bag", "frown", "marionette", "roughness", "spots", "sag", "recession"),
    *("freckles", "beard", "gloss", "noise", "mouth_open", "smile"),
}

# Cumulative distribution of ages, similar to MORPH-II: one in seven below 20, seven in ten below 40, few above 55.
_AGE_SHARES = (0.0, 0.135, 0.43, 0.71, 0.92, 0.985, 1.0)
_AGES = (16.0, 20.0, 30.0, 40.0, 50.0, 60.0, 77.0)
_SAME_PERSON_YEARS = 10.0
_CUT = 2.5  # largest deviation of a trait, in standard deviations


def face_table(key: int, n: int, images_per_person: int, races: Sequence[str]) -> dict[str, np.ndarray]:
    """Parameters of n photographs. Row i depends only on (key, i), and the traits of a person on (key, person)."""
    person = np.arange(n) // images_per_person
    uniform, normal = _draw(key, 1, -(-n // images_per_person), 5, len(PERSON) + 1)
    female = uniform[:, 0] < 0.5
    race = (uniform[:, 1] * len(races)).astype(int)
    age = np.interp(uniform[:, 2], _AGE_SHARES, _AGES)[person]
    femininity = np.where(female, 1.0, -1.0) + 0.35 * normal[:, -1]  # genders overlap
    traits = {"texture_x": 8 + 4 * uniform[:, 3], "texture_y": 8 + 4 * uniform[:, 4]}
    for k, (name, (mean, deviation, shift)) in enumerate(PERSON.items()):
        by_race = np.array([RACES[r].get(name, 0.0) for r in races])
        traits[name] = mean + deviation * normal[:, k] + shift * femininity + by_race[race]
    traits = {name: values[person] for name, values in traits.items()}

    own_uniform, own_normal = _draw(key, 2, n, 2, len(SHOT))
    for k, (name, (mean, deviation)) in enumerate(SHOT.items()):
        traits[name] = mean + deviation * own_normal[:, k]
    for name in _NON_NEGATIVE:
        np.maximum(traits[name], 0, out=traits[name])
    if images_per_person > 1:
        age = np.clip(age + _SAME_PERSON_YEARS * (own_uniform[:, 0] - 0.5), _AGES[0], _AGES[-1])
    return {
        "age": age,
        "gender": np.where(female, "F", "M")[person],
        "race": np.array(races)[race][person],
        "identity": person,
        "seed": (own_uniform[:, 1] * 2**62).astype(np.int64),
        **{name: values.astype(np.float32) for name, values in traits.items()},
    }


def _draw(key: int, stream: int, n: int, n_uniform: int, n_normal: int) -> tuple[np.ndarray, np.ndarray]:
    """Random numbers of each row from a counter-based generator; normal ones are clipped at `_CUT`."""
    uniform, normal = np.empty((n, n_uniform)), np.empty((n, n_normal))
    for row in range(n):
        rng = np.random.Generator(np.random.Philox(key=[key, (stream << 56) + row]))
        rng.random(out=uniform[row])
        rng.standard_normal(out=normal[row])
    return uniform, np.clip(normal, -_CUT, _CUT, out=normal)


def ageing(p: Mapping[str, Any]) -> SimpleNamespace:
    """Effects of age on each face: depths of lines, roughness, grey hair. The expression also deepens some lines."""

    def since(start: float, end: float) -> Any:
        """0 up to the age `start`, 1 at `end`, at most 1.3 beyond."""
        return np.clip((age - start) / (end - start), 0, 1.3)

    age = p["age"] + p["years_ahead"]
    worn = since(14, 64)
    man = p["gender"] == "M"
    smile, raised = p["smile"], np.maximum(p["brow_raise"], 0)
    return SimpleNamespace(
        forehead=p["forehead"] * (0.05 + 0.95 * since(18, 62)) * (1 + 0.6 * raised),
        crow=p["crow"] * (0.95 * since(20, 62) + 0.16 * smile),
        fold=p["fold"] * (0.10 + 0.90 * since(16, 62)) * (1 + 0.45 * smile),
        bag=p["bag"] * (0.06 + 0.94 * since(18, 64)),
        frown=p["frown"] * since(22, 64) * (1 - 0.5 * raised),
        marionette=p["marionette"] * since(24, 66) * (1 - 0.4 * smile),
        lips=since(30, 75),
        roughness=p["roughness"] * (0.08 + 1.15 * worn - 0.35 * worn * worn),
        coarseness=since(20, 75),
        spots=p["spots"] * since(25, 72),
        sag=p["sag"] * since(28, 75),
        grey=np.clip((age - p["grey_onset"]) / 32, 0, 0.9),
        recession=p["recession"] * np.where(man, 1.0, 0.15) * since(22, 70),
        beard=p["beard"] * np.where(man, 0.6 + 0.4 * np.minimum(since(15, 22), 1), 0.0),
    )
