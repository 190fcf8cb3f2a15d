"""Experiment files and files of arrays for the fuzzer."""

import io
import json
import struct
import tomllib
import zipfile
from importlib import resources

import numpy as np
import tomli_w

from fuzzing import NUMBERS, Kind, mutate_bytes, mutate_json, pick, quietly
from higsfa import sources
from higsfa.experiments import ExperimentError, load_config
from higsfa.io.arrays import read_npz

# ---------------------------------------------------------------------- experiments


VALUES = [
    0,
    1,
    -1,
    2**63 - 1,
    10**30,
    0.5,
    -0.0,
    1e308,
    "",
    "a",
    "a" * 3000,
    "../../etc",
    "/",
    "\0",
    "é😀",
    True,
    False,
]
VALUES += [[], {}, [1, 2], ["a"], [[]], {"a": 1}, [[[[[[1]]]]]], "faces", "HiGSFA", "polynomial8", "quadratic" * 50]
LINES = ["[data]", "[[data]]", "[a.b.c]", "a = nan", "a = inf", "a = 1979-05-27", 'a = """', "a = '''", "\ufeff", "= 1"]
LINES += ["a = " + "[" * 300, "a = " + "{a=" * 100, ".".join(["a"] * 800) + " = 1", "[" + ".".join("abc" * 200) + "]"]
LINES += [
    "x = " + "1" * 5000,
    "'' = 1",
    '"\\uD800" = 1',
    "a = 0x" + "f" * 4000,
    "a.b = 1\na = 1",
    "\x00",
    "title = 1e999",
]


def config_seeds(folder):
    """Texts of the experiments that come with the library."""
    shipped = resources.files("higsfa.experiments") / "configs"
    return {
        entry.name: entry.read_text(encoding="utf-8") for entry in shipped.iterdir() if entry.name.endswith(".toml")
    }


def mutate_config(files, rng):
    text = pick(rng, list(files.values()))
    change = rng.integers(5)
    if change == 0:
        return mutate_bytes(text.encode(), rng)
    lines = text.splitlines()
    k = int(rng.integers(len(lines)))
    if change == 1:
        lines[k:k] = [pick(rng, LINES)] * int(rng.choice([1, 1, 30]))
    elif change == 2:
        other = pick(rng, list(files.values())).splitlines()
        lines[k : k + int(rng.integers(4))] = other[int(rng.integers(len(other))) :][:5]
    else:
        tables = tomllib.loads(text)
        for _ in range(int(rng.integers(1, 4))):
            mutate_json(tables, rng, VALUES)
        return tomli_w.dumps({str(key): value for key, value in json.loads(json.dumps(tables)).items()}).encode(
            "utf-8", "surrogatepass"
        )
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def use_config(path, thorough):
    """Read the description of an experiment."""
    try:
        config = quietly(lambda: load_config(path))
    except ExperimentError as error:
        return "refused" if "\n" not in str(error) else "refused in several lines"
    repr(config)
    if thorough:
        assert quietly(lambda: load_config(_rewritten(path, config))).plain() == config.plain()
    return "read"


def _rewritten(path, config):
    path.write_text(tomli_w.dumps(config.plain()), encoding="utf-8")
    return path


CONFIGS = Kind(config_seeds, mutate_config, use_config, ".toml")


# ---------------------------------------------------------------------- arrays


LIMIT = 10**6
SHAPES = [(), (1,), (3, 4), (0,), (-1,), (-1, -1), (10**9,), (2**63,), (0, 2**62, 2**62), (1,) * 40, (10**18, 10**18)]
TYPES = [
    "<f8",
    ">f8",
    "|b1",
    "|u1",
    "<i8",
    "<U3",
    ">U2",
    "|S5",
    "<U0",
    "|O",
    "|V8",
    "<M8[ns]",
    "<c16",
    "<f3",
    "<U999999999",
]
TEXTS = ["(2", "f()", "__import__('os')", "[('a', '<f8')]", "'<f8'", "-" * 3000 + "1", "(" * 150, "(3L,)", "{", "\0"]


def array_seeds(folder):
    """Bytes of good .npz files."""
    rng = np.random.default_rng(0)
    arrays = {"images": rng.integers(0, 255, (5, 4, 3), np.uint8), "age": rng.standard_normal(5)}
    arrays |= {"name": np.array(["a", "süß", "c", "", "😀"]), "half": np.asfortranarray(np.ones((2, 5), np.float16))}
    made = {}
    for name, save in (("plain", np.savez), ("packed", np.savez_compressed)):
        save(folder / "seed.npz", **arrays)
        made[name] = (folder / "seed.npz").read_bytes()
    return made


def npy(rng, raw):
    """An array as bytes, with a header that may say anything."""
    header = {
        "descr": pick(rng, TYPES),
        "fortran_order": bool(rng.integers(2)),
        "shape": pick(rng, SHAPES),
    }
    text = repr(header)[:-1] + ", }"
    if rng.integers(4) == 0:
        text = text.replace(repr(header[key := pick(rng, list(header))]), pick(rng, TEXTS)) + key[:0]
    text = text.ljust(pick(rng, [0, 118, 9_000, 70_000])) + "\n"
    version = int(pick(rng, [1, 1, 1, 1, 2, 3, 0, 255]))
    length = pick(rng, [len(text)] * 4 + [0, 1, len(text) + 7, 2**16 - 1, 2**31, 2**32 - 1])
    size = 2 if version == 1 else 4
    return b"\x93NUMPY" + bytes([version, 0]) + (length % 256**size).to_bytes(size, "little") + text.encode() + raw


def mutate_arrays(files, rng):
    data = pick(rng, list(files.values()))
    change = rng.integers(4)
    if change == 0:
        return mutate_bytes(data, rng)
    if change == 1:  # the list of members, at the end
        end = len(data) - 350
        return data[:end] + mutate_bytes(data[end:], rng)
    buffer = io.BytesIO()
    packing = pick(rng, [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w", packing) as new:
        for name in old.namelist():
            content = old.read(name)
            if rng.integers(3) == 0:
                content = pick(rng, [npy(rng, content[128:]), npy(rng, bytes(10**6)), mutate_bytes(content, rng, 140)])
            new.writestr(pick(rng, [name] * 8 + ["x", "../a.npy", "/", "age.npy"]), content)
    data = bytearray(buffer.getvalue())
    if change == 3:  # sizes in the list of members
        at = data.find(b"PK\x01\x02") + pick(rng, [8, 10, 16, 20, 24, 28, 30, 42])
        struct.pack_into("<I", data, at, pick(rng, NUMBERS) % 2**32)
    return bytes(data)


def use_arrays(path, thorough):
    """Read all arrays, and use them as texts or numbers."""
    try:
        arrays = quietly(lambda: read_npz(path, limit=LIMIT))
    except (ValueError, OSError):
        return "refused"
    for array in arrays.values():
        assert array.nbytes <= LIMIT
        array.tolist()
        str(array)
    return "read"


ARRAYS = Kind(array_seeds, lambda files, rng: quietly(lambda: mutate_arrays(files, rng)), use_arrays, ".npz")


def map_seeds(folder):
    made = {}
    for name, array in {"C": np.arange(12.0).reshape(3, 4), "F": np.asfortranarray(np.ones((3, 2, 2), "u1"))}.items():
        np.save(folder / "seed.npy", array)
        made[name] = (folder / "seed.npy").read_bytes()
    return made


def mutate_map(files, rng):
    data = pick(rng, list(files.values()))
    return mutate_bytes(data, rng, 140) if rng.integers(2) else npy(rng, rng.bytes(200))


def use_map(path, thorough):
    """Map an array file into memory, and read its first and last sample."""
    try:
        source = sources.npy(path)
    except (ValueError, TypeError, OSError):
        return "refused"
    if len(source):
        assert len(source.take([0, len(source) - 1])) == 2
    source.fingerprint()
    return "read"


MAPS = Kind(map_seeds, mutate_map, use_map, ".npy")
