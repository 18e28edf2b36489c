"""Random blocks of every storage type with the values that the `gguf` package's numpy reference gives them.

  python tests/tiny/make_dequant.py

Writes tests/tiny/dequant/<TYPE>.bin: the blocks, then the values as f32. The number of values is in the file's size: a
block of b bytes holds n values, so the file has k * (b + 4 n) bytes. Random bits reach every code point; scales are drawn apart,
because random bits would mostly be huge or NaN, and a few blocks carry the special values (zero, subnormal, largest, infinite).
Needs numpy and gguf.
"""
import pathlib

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

OUT = pathlib.Path(__file__).resolve().parent / "dequant"
# Byte offsets of the half-precision scales in a block.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2],
          "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [], "TQ1_0": [52], "TQ2_0": [64], "BF16": [], "F16": [], "F32": []}
SPECIAL = np.array([0x0000, 0x8000, 0x0001, 0x83ff, 0x7bff, 0xfbff, 0x0400, 0x3c00], np.uint16)  # halves: ±0, subnormal, max, min, 1


def blocks_of(name, size, values, rng):
    n = 8 if values >= 256 else 24 if values > 1 else 512
    raw = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for at in SCALES[name]:
        scales = (rng.standard_normal(n) * 2.0 ** rng.integers(-12, 3, n)).astype(np.float16).view(np.uint16)
        scales[: len(SPECIAL) // 2] = rng.permutation(SPECIAL)[: len(SPECIAL) // 2]
        raw[:, at : at + 2] = scales.view(np.uint8).reshape(n, 2)
    if name == "MXFP4":
        raw[:, 0] = np.concatenate([[0, 1, 2, 127, 128, 255], rng.integers(90, 140, n - 6)]).astype(np.uint8)
    if name in ("BF16", "F16"):
        words = raw.view(np.uint16).reshape(n)
        nan = (words & 0x7fff) > (0x7f80 if name == "BF16" else 0x7c00)
        words[nan] = 0x7f80 if name == "BF16" else 0x7c00  # infinity: NaNs have no single bit pattern across machines
    if name == "F32":
        words = raw.view(np.uint32).reshape(n)
        words[(words & 0x7fffffff) > 0x7f800000] = 0x7f800000
    return raw


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    total = 0
    for name in SCALES:
        values, size = GGML_QUANT_SIZES[Type[name]]
        raw = blocks_of(name, size, values, np.random.default_rng(sum(name.encode())))
        with np.errstate(all="ignore"):
            want = dequantize(raw.reshape(1, -1), Type[name]).astype("<f4").reshape(-1)
        assert want.size == raw.shape[0] * values
        data = raw.tobytes() + want.tobytes()
        (OUT / f"{name}.bin").write_bytes(data)
        total += len(data)
        print(f"{name}: {raw.shape[0]} blocks, {want.size} values")
    print(total, "bytes")


main()
