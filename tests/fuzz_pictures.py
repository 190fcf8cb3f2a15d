"""Pictures for the fuzzer: all formats that are read, damaged in their bytes and in their structure."""

import io
import struct
import zlib

import numpy as np
from PIL import Image

from fuzzing import NUMBERS, Kind, mutate_bytes, pick, quietly
from higsfa import sources

SHAPE = (16, 12)
SIZES = [0, 1, 2, 23, 25, 255, 4096, 6000, 7100, 32767, 65535, 2**24, 2**31 - 1, 2**32 - 1]


def seeds(folder):
    """Bytes of good pictures."""
    rng = np.random.default_rng(0)
    grey = (np.add.outer(np.arange(24), np.arange(20)) * 5 + rng.integers(0, 9, (24, 20))).astype(np.uint8)
    colour = Image.fromarray(np.stack([grey, grey.T[:20, :24].T, 255 - grey], axis=2))
    exif = Image.Exif()
    exif[0x0112] = 6
    made = {}

    def add(name, image, kind, **options):
        buffer = io.BytesIO()
        image.save(buffer, kind, **options)
        made[f"{name} {kind}"] = buffer.getvalue()

    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        image = Image.fromarray(grey.astype(np.uint16) * 256) if mode == "I;16" else colour.convert(mode)
        add(mode, image, "PNG")
        if mode != "LA":
            add(mode, image, "TIFF", compression="tiff_adobe_deflate")
    for compression in ("raw", "tiff_lzw", "packbits", "jpeg"):
        add(compression, colour, "TIFF", compression=compression)
    add("CMYK", colour.convert("CMYK"), "JPEG")
    add("L", colour.convert("L"), "JPEG", progressive=True)
    add("RGB", colour, "JPEG", exif=exif, comment=b"a picture")
    for mode in ("1", "L", "P", "RGB"):
        add(mode, colour.convert(mode), "BMP")
    for mode in ("1", "L", "RGB"):
        add(mode, colour.convert(mode), "PPM")
    add("frames", colour.convert("P"), "GIF", save_all=True, append_images=[colour.convert("P").rotate(90)])
    add("RGB", colour, "WEBP")
    add("lossless", colour.convert("RGBA"), "WEBP", lossless=True)
    return made


def mutate(files, rng):
    """One damaged picture."""
    name = pick(rng, list(files))
    data, kind = files[name], name.split()[-1]
    change = rng.integers(6)
    if change == 0:
        return mutate_bytes(data, rng)
    if change == 1:  # where headers are
        return mutate_bytes(data, rng, 80)
    if change == 2:
        return data[: int(rng.integers(len(data)))] + pick(rng, list(files.values()))[int(rng.integers(60)) :]
    return STRUCTURES[kind](data, rng)


def mutate_png(data, rng):
    """Chunks changed, repeated, left out, or with other sizes of the picture, with the right checksums."""
    chunks, at = [], 8
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        chunks.append([data[at + 4 : at + 8], data[at + 8 : at + 8 + length]])
        at += 12 + length
    change, k = rng.integers(6), int(rng.integers(len(chunks)))
    if change == 0:
        width, height = (pick(rng, [20, 24, *SIZES]) for _ in range(2))
        chunks[0][1] = struct.pack(">II", width, height) + chunks[0][1][8:]
    elif change == 1:
        chunks[0][1] = chunks[0][1][:8] + bytes(int(rng.choice([0, 1, 2, 3, 4, 6, 8, 16, 255])) for _ in range(5))
    elif change == 2:
        chunks[k][1] = mutate_bytes(chunks[k][1], rng)
    elif change == 3:
        chunks[k : k + 1] = [chunks[k]] * int(rng.choice([0, 2, 300]))
    elif change == 4:
        unpacked = zlib.decompress(b"".join(c for name, c in chunks if name == b"IDAT"))
        pixels = pick(rng, [mutate_bytes(unpacked, rng), unpacked * 200, b"", bytes(10**6)])
        chunks = [c for c in chunks if c[0] != b"IDAT"]
        chunks.insert(-1, [b"IDAT", zlib.compress(pixels)])
    else:
        text = zlib.compress(bytes(pick(rng, [10, 10**6, 2 * 10**7])))
        extra = [[b"zTXt", b"a\0\0" + text], [b"iCCP", b"a\0\0" + text], [b"tEXt", b"a\0" + bytes(10**5)]]
        extra += [[b"eXIf", rng.bytes(40)], [b"acTL", struct.pack(">II", 2**31, 0)], [b"tRNS", rng.bytes(7)]]
        chunks.insert(1, pick(rng, extra))
    return data[:8] + b"".join(
        struct.pack(">I", len(c)) + name + c + struct.pack(">I", zlib.crc32(name + c)) for name, c in chunks
    )


def mutate_jpeg(data, rng):
    """Segments changed, repeated or left out, or other sizes of the picture."""
    start = data.index(b"\xff\xda")
    segments, at = [], 2
    while at < start:
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        segments.append(data[at : at + 2 + length])
        at += 2 + length
    k = int(rng.integers(len(segments)))
    frame = next(i for i, s in enumerate(segments) if s[1] in (0xC0, 0xC2))
    change = rng.integers(4)
    if change == 0:
        height, width = (pick(rng, [20, 24, *SIZES]) % 2**16 for _ in range(2))
        segments[frame] = segments[frame][:5] + struct.pack(">HH", height, width) + segments[frame][9:]
    elif change == 1:
        body = mutate_bytes(segments[k][4:], rng)[:65000]
        segments[k] = segments[k][:2] + struct.pack(">H", len(body) + 2) + body
    elif change == 2:
        segments[k : k + 1] = [segments[k]] * int(rng.choice([0, 2, 500]))
    else:
        return data[:2] + b"".join(segments) + mutate_bytes(data[start:], rng)
    return data[:2] + b"".join(segments) + data[start:] * (1 + int(rng.integers(2)))


def mutate_tiff(data, rng):
    """Values, types and counts of tags."""
    raw, order = bytearray(data), "<" if data[:2] == b"II" else ">"
    (directory,) = struct.unpack_from(order + "I", raw, 4)
    (n,) = struct.unpack_from(order + "H", raw, directory)
    for _ in range(int(rng.integers(1, 4))):
        entry = directory + 2 + 12 * int(rng.integers(n))
        tag, kind, count, value = struct.unpack_from(order + "HHII", raw, entry)
        change = rng.integers(5)
        if change == 0:
            value = pick(rng, [*SIZES, directory, entry])
        elif change == 1:
            count = pick(rng, SIZES)
        elif change == 2:
            kind = int(rng.integers(20))
        elif change == 3:
            tag = pick(rng, [254, 256, 257, 258, 259, 262, 273, 277, 278, 279, 322, 323, 324, 325, 330, 34665, 700])
        else:
            struct.pack_into(order + "H", raw, directory, pick(rng, [0, 1, n + 1, 4000, 65535]))
        struct.pack_into(order + "HHII", raw, entry, tag, kind, count % 2**32, value % 2**32)
    return bytes(raw)


def mutate_fields(places):
    """A function that writes sizes at some places: {offset: number of bytes}."""

    def mutated(data, rng):
        raw = bytearray(data)
        for at, size in places.items():
            if rng.integers(3) == 0:
                raw[at : at + size] = (pick(rng, NUMBERS + SIZES) % 256**size).to_bytes(size, "little")
        return bytes(raw)

    return mutated


def mutate_ppm(data, rng):
    """Numbers in the header."""
    parts = data.split(maxsplit=4)
    change = int(rng.integers(len(parts)))
    parts[change] = pick(
        rng, [b"P1", b"P3", b"P6", b"P7", b"Pf", b"-3", b"0", b"#", b"1e9", *(b"%d" % n for n in SIZES)]
    )
    return b"\n".join(parts)


STRUCTURES = {
    "PNG": mutate_png,
    "JPEG": mutate_jpeg,
    "TIFF": mutate_tiff,
    "BMP": mutate_fields({2: 4, 10: 4, 14: 4, 18: 4, 22: 4, 26: 2, 28: 2, 30: 4, 34: 4, 46: 4}),
    "GIF": mutate_fields({6: 2, 8: 2, 10: 1, 12: 1, 13: 2}),
    "WEBP": mutate_fields({4: 4, 12: 2, 16: 4, 20: 1, 24: 3, 26: 2, 28: 2}),
    "PPM": mutate_ppm,
}


def use(path, thorough):
    """Read a picture as a sample."""
    try:
        quietly(lambda: read(path, "RGB" if thorough else "L"))
    except sources.ImageFileError as error:
        return "refused" if str(path) in str(error) else "refused without a name"
    return "read"


def read(path, mode):
    source = sources.images([path], shape=SHAPE, mode=mode, n_threads=1)
    assert source.take([0]).shape == ((1, *SHAPE) if mode == "L" else (1, *SHAPE, 3))


PICTURES = Kind(seeds, mutate, use)
