"""What the tests of commands share: a config, a trained run, and pictures."""

import pytest
from PIL import Image

from cli.commands import CONFIG, higsfa
from higsfa.datasets import make_faces


@pytest.fixture(scope="session")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "small.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="session")
def run(config, tmp_path_factory):
    """A trained run; tests do not write into it, except for the decoder that commands keep there."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    higsfa("train", config, "--out", folder)
    return folder


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """A folder with three faces that no run has seen, of the size that its network takes."""
    folder = tmp_path_factory.mktemp("photos")
    images, _ = make_faces(3, 24, random_state=99)
    for number, image in enumerate(images):
        Image.fromarray(image).save(folder / f"face{number}.png")
    return folder
