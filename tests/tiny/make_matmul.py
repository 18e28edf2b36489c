#!/usr/bin/env python3
"""Writes matmul.json: expected values of the packed layout and of the matmul kernels, computed by numpy in float64.

Inputs are not stored: both sides derive them from Mix(seed, i), so the file holds only what numpy says. Per kind:
  crc32  of the packed bytes, built here by reshaping and transposing whole arrays (not position by position as the C++ does)
  out    [m][n] dequantized weights times activations, float64
  size   [m][n] sum of |weight * activation|, the norm that error bounds are computed from
Run: python3 tests/tiny/make_matmul.py > tests/tiny/matmul.json
"""
import json
import zlib

import numpy as np
from mix import mix

N, K, M = 37, 172, 3
KP = 192  # K padded to 64
NB = -(-K // 32)


def pad(a, rows, cols, value):
    out = np.full((rows, cols), value, dtype=a.dtype)
    out[: a.shape[0], : a.shape[1]] = a
    return out


def code_lines(codes):
    """[64 rows, KP] u8 -> [panel, block, group of 4 K, row group, 64]"""
    c = codes.reshape(2, 2, 16, KP // 32, 8, 4)  # panel, row group, row, block, K group, K
    return c.transpose(0, 3, 4, 1, 2, 5).reshape(2, KP // 32, 8, 2, 64)


def half_line(values):
    """[64 rows, blocks] -> [panel, block, 64 bytes]"""
    v = pad(values.astype(np.float16), 64, KP // 32, 0).reshape(2, 32, KP // 32).transpose(0, 2, 1)
    return np.ascontiguousarray(v).view(np.uint8).reshape(2, KP // 32, 64)


def high_lines(codes, bits):
    """[64 rows, KP] of the bits above the nibble -> [panel, block, line, row group, 64]: K group c in bits c * bits % 8 .."""
    lines = code_lines(codes)
    per = 8 // bits
    grouped = lines.reshape(2, KP // 32, 8 // per, per, 2, 64).astype(np.int64)
    shifted = grouped << (np.arange(per) * bits)[None, None, None, :, None, None]
    return shifted.sum(axis=3).astype(np.uint8)


def byte_line(values):
    """[rows, blocks] of 8-bit numbers -> [panel, block, 32 bytes]"""
    v = pad(values.astype(np.int64) & 255, 64, KP // 32, 0).astype(np.uint8)
    return v.reshape(2, 32, KP // 32).transpose(0, 2, 1)


def pack_planes(bits, zero, codes, scale_lines, factors):
    """`scale_lines`: arrays [panel, block, bytes] of a block; `factors`: arrays [rows, super-blocks] in front of eight blocks."""
    codes = pad(codes.astype(np.uint8), 64, KP, zero)
    lines = code_lines(codes & 15)
    parts = [(lines[:, :, 0::2] | (lines[:, :, 1::2] << 4)).reshape(2, KP // 32, -1)]
    if bits > 4:
        parts.append(high_lines(codes >> 4, bits - 4).reshape(2, KP // 32, -1))
    blocks = np.concatenate(parts + scale_lines, axis=2)
    out = []
    for panel in range(2):
        for b in range(KP // 32):
            if b % 8 == 0:
                for f in factors:
                    out.append(pad(f.astype(np.float16), 64, f.shape[1], 0)[panel * 32 : panel * 32 + 32, b // 8].tobytes())
            out.append(blocks[panel, b].tobytes())
    return b"".join(out)


def pack_quantized(bits, codes, scale, minimum):
    zero = {4: 8 if minimum is None else 0, 8: 128}[bits]
    lines = code_lines(pad(codes.astype(np.uint8), 64, KP, zero))
    if bits == 4:
        lines = lines[:, :, 0::2] | (lines[:, :, 1::2] << 4)
    parts = [lines.reshape(2, KP // 32, -1), half_line(scale)]
    if minimum is not None:
        parts.append(half_line(minimum))
    return np.concatenate(parts, axis=2).tobytes()


def result(packed, weights, x):
    # Padded K contribute nothing; minimum applies to real K only because a is zero past K.
    return {
        "crc32": zlib.crc32(packed),
        "out": (x @ weights.T).ravel().tolist(),
        "size": (np.abs(x) @ np.abs(weights).T).ravel().tolist(),
    }


def main():
    scale = (1 + mix(1, N * NB) % 1023).reshape(N, NB) / 2.0**14
    minimum = -(mix(2, N * NB) % 1024).reshape(N, NB) / 2.0**12
    a = (mix(3, M * K) % 255 - 127).reshape(M, K)
    a_scale = (1 + mix(4, M * KP // 32) % 65535).reshape(M, KP // 32) / 2.0**20
    x8 = a * np.repeat(a_scale, 32, axis=1)[:, :K]
    # Residual blocks: of four tokens the third has all, the fourth none, else one in three; their step is 1/256 of the block's.
    token, some = np.arange(M)[:, None], mix(9, M * KP // 32).reshape(M, KP // 32) % 3 == 0
    flagged = np.where(token % 4 == 3, False, np.where(token % 4 == 2, True, some))
    x8 = x8 + (mix(10, M * K) % 255 - 127).reshape(M, K) * np.repeat(a_scale / 256 * flagged, 32, axis=1)[:, :K]
    x32 = (mix(5, M * K) % 20001 - 10000).reshape(M, K) / 2.0**10
    spread = np.repeat(scale, 32, axis=1)[:, :K]
    low = np.repeat(minimum, 32, axis=1)[:, :K]
    q4 = (mix(6, N * K) % 16).reshape(N, K)
    q8 = (mix(7, N * K) % 256).reshape(N, K)
    w = (mix(8, N * K) % 127 - 63).reshape(N, K) / 64.0
    kinds = {
        "q4": result(pack_quantized(4, q4, scale, None), spread * (q4 - 8), x8),
        "q4min": result(pack_quantized(4, q4, scale, minimum), spread * q4 + low, x8),
        "q8": result(pack_quantized(8, q8, scale, None), spread * (q8 - 128), x8),
        "q8min": result(pack_quantized(8, q8, scale, minimum), spread * (q8 - 128) + low, x8),
    }
    q5 = (mix(13, N * K) % 32).reshape(N, K)
    q6 = (mix(14, N * K) % 64).reshape(N, K)
    kinds["q5"] = result(pack_planes(5, 16, q5, [half_line(scale)], []), spread * (q5 - 16), x8)
    kinds["q5min"] = result(pack_planes(5, 0, q5, [half_line(scale), half_line(minimum)], []), spread * q5 + low, x8)
    # K-quants: factors of a super-block of 256 K, integer scales of 32 (q6k: 16) K.
    ns = -(-K // 256)
    d = (1 + mix(1, N * ns) % 1023).reshape(N, ns) / 2.0**14
    dmin = -(mix(2, N * ns) % 1024).reshape(N, ns) / 2.0**12
    s6 = (mix(11, N * NB) % 64).reshape(N, NB)
    m6 = (mix(12, N * NB) % 64).reshape(N, NB)
    s8 = ((mix(11, N * NB * 2) % 256 + 128) % 256 - 128).reshape(N, NB * 2)
    factor, low_factor = np.repeat(d, 256, axis=1)[:, :K], np.repeat(dmin, 256, axis=1)[:, :K]
    spread_k = factor * np.repeat(s6, 32, axis=1)[:, :K]
    low_k = low_factor * np.repeat(m6, 32, axis=1)[:, :K]
    sub = [np.concatenate([byte_line(s6), byte_line(m6)], axis=2)]
    kinds["q4k"] = result(pack_planes(4, 0, q4, sub, [d, dmin]), spread_k * q4 + low_k, x8)
    kinds["q5k"] = result(pack_planes(5, 0, q5, sub, [d, dmin]), spread_k * q5 + low_k, x8)
    halves = [np.concatenate([byte_line(s8[:, 0::2]), byte_line(s8[:, 1::2])], axis=2)]
    kinds["q6k"] = result(pack_planes(6, 32, q6, halves, [d]), factor * np.repeat(s8, 16, axis=1)[:, :K] * (q6 - 32), x8)
    for name, dtype in (("f16", np.float16), ("bf16", None), ("f32", np.float32)):
        p = pad(w, 64, KP, 0).reshape(2, 32, KP).transpose(0, 2, 1)
        if dtype is None:  # the upper half of the f32 bits: exact for these values
            data = (np.ascontiguousarray(p.astype(np.float32)).view(np.uint32) >> 16).astype(np.uint16)
        else:
            data = np.ascontiguousarray(p.astype(dtype))
        kinds[name] = result(data.tobytes(), w, x32)
    print(json.dumps({"n": N, "k": K, "m": M, "kinds": kinds}))


main()
