"""Hostile files, a fixed sample: what they lead to is documented, and the work and memory they take are counted.

``make soak`` tries very many more, with limits on time; see ``tests/soak_fuzz.py``.
"""

from collections import Counter

import numpy as np
import pytest

from fuzz_models import MODELS, use_model
from fuzz_pictures import PICTURES
from fuzz_settings import ARRAYS, CONFIGS, LIMIT, MAPS
from fuzzing import quietly
from higsfa import ModelFileError, load
from model_files import CALLS, MEMORY, counted

USE_MEMORY, USE_CALLS = 100 * 10**6, 3 * 10**6
"""What using a model on two small samples, and showing and saving it, may take."""


@pytest.fixture(scope="module")
def model_files(tmp_path_factory):
    return MODELS.seeds(tmp_path_factory.mktemp("seeds"))


@pytest.mark.parametrize("part", range(10))
def test_damaged_and_invented_models_are_refused_or_used_with_little_work(part, model_files, tmp_path):
    path, outcomes = tmp_path / "model", Counter()
    for seed in range(200 * part, 200 * (part + 1)):
        data = MODELS.mutate(model_files, np.random.default_rng(seed))
        path.write_bytes(data)
        loading = counted(load, path)
        assert loading.memory <= MEMORY + 2 * len(data), f"seed {seed}"
        assert loading.calls <= CALLS + 2 * min(len(data), 2**18), f"seed {seed}"
        if isinstance(loading.result, ModelFileError):
            outcomes["refused"] += 1
            continue
        thorough = seed % 20 == 0
        use = counted(quietly, lambda model=loading.result, thorough=thorough: use_model(model, path, thorough))
        assert use.memory <= USE_MEMORY, f"seed {seed}"
        assert use.calls <= USE_CALLS, f"seed {seed}"
        outcomes[use.result] += 1
    print(dict(outcomes))
    assert outcomes["refused"] > 100
    assert outcomes["used"] > 20


@pytest.mark.parametrize(
    ("kind", "count", "memory"),
    [(CONFIGS, 200, 50 * 10**6), (ARRAYS, 300, 8 * LIMIT), (MAPS, 300, LIMIT), (PICTURES, 200, np.inf)],
    ids=["configs", "npz", "npy", "pictures"],
)
def test_other_damaged_files_are_refused_or_read(kind, count, memory, tmp_path, capfd):
    seeds, outcomes = kind.seeds(tmp_path), Counter()
    path = tmp_path / f"file{kind.suffix}"
    for seed in range(count):
        path.write_bytes(kind.mutate(seeds, np.random.default_rng(seed)))
        use = counted(kind.use, path, seed % 8 == 0)
        assert use.memory <= memory, f"seed {seed}"
        outcomes[use.result] += 1
    assert set(outcomes) == {"refused", "read"}
