"""What the tests of commands share: a trained run and pictures."""

import pytest

from real_run import QUICK


@pytest.fixture(scope="session")
def run(real):
    """The folder of a trained run; tests do not write into it, except for the decoder that commands keep there."""
    return real.folder


@pytest.fixture(scope="session")
def photos(real):
    """A folder with three pictures that the run has not seen, of the size that its network takes."""
    return real.photos


@pytest.fixture(scope="session")
def quickly(tmp_path_factory, real):
    """A config that trains in half a second."""
    from higsfa.experiments import load_config, with_values
    from higsfa.experiments._toml import to_toml

    path = tmp_path_factory.mktemp("config") / "quick.toml"
    path.write_text(to_toml(with_values(load_config(real.config), QUICK).plain()), encoding="utf-8")
    return path
