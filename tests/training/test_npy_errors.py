"""A file that is no .npy file is refused by name, without advice to unpickle it."""

import pytest

from higsfa import sources


@pytest.mark.parametrize("content", [b"", b"# some text", b"\x93NUMPY\x01\x00"], ids=["empty", "text", "cut off"])
def test_what_is_no_npy_file_is_refused_by_name(content, tmp_path):
    path = tmp_path / "pixels.npy"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"pixels\.npy is not a \.npy file") as error:
        sources.npy(path)
    assert "pickle" not in str(error.value)
