"""What the tests of commands share: a trained run and pictures."""

import pytest

from real_run import QUICK


@pytest.fixture(scope="session")
def run(real):
    """The folder of a trained run; tests do not write into it."""
    return real.folder


@pytest.fixture(scope="session")
def photos(real):
    """A folder with three pictures that the run has not seen, of the size that its network takes."""
    return real.photos


@pytest.fixture(scope="session")
def quickly(tmp_path_factory, real):
    """A config that trains in half a second."""
    import tomli_w

    from higsfa.experiments import load_config, with_values

    path = tmp_path_factory.mktemp("config") / "quick.toml"
    path.write_text(tomli_w.dumps(with_values(load_config(real.config), QUICK).plain()), encoding="utf-8")
    return path
