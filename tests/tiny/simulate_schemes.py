#!/usr/bin/env python3
"""Prints the signal to noise ratio (dB) of weight schemes, simulated by numpy in float64: the table in src/quant/schemes_test.cc.

Gaussian and Student-t (5 degrees) samples, 2^20 each. Every value is tried against every code of its group's grid; nothing is shared with
the C++. Definitions: round-to-nearest as in AWQ (symmetric: amax / (2^(b-1) - 1); asymmetric: range with 0, whole zero point), the sign of
the extreme (full range), LPBQ as AIMET defines it (channel scale = largest block scale / 16, block scale = that times 1 to 16), MXFP4 of the
OCP microscaling formats 1.0, NVFP4 with E4M3 scales under one f32 scale.
"""
import numpy as np

N = 1 << 20
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6])
CHANNEL = 2048


def ratio(w, v):
    return 10 * np.log10((w ** 2).sum() / ((w - v) ** 2).sum())


def even(w, scale, zero, bits):
    safe = np.where(scale == 0, 1, scale)
    return (np.clip(np.rint(w / safe) + zero, 0, 2 ** bits - 1) - zero) * scale


def symmetric(w, bits):
    return even(w, np.abs(w).max(1, keepdims=True) / (2 ** (bits - 1) - 1), 2 ** (bits - 1), bits)


def signed(w, bits):
    extreme = np.take_along_axis(w, np.abs(w).argmax(1)[:, None], 1)
    return even(w, extreme / -(2 ** (bits - 1)), 2 ** (bits - 1), bits)


def asymmetric(w, bits):
    low, high = np.minimum(w.min(1, keepdims=True), 0), np.maximum(w.max(1, keepdims=True), 0)
    scale = (high - low) / (2 ** bits - 1)
    return even(w, scale, np.clip(np.rint(-low / scale), 0, 2 ** bits - 1), bits)


def lpbq(w, group, offsets):
    blocks = w.reshape(-1, CHANNEL // group, group)
    block_scale = 2 * np.abs(blocks).max(2, keepdims=True) / 15
    channel = block_scale.max(1, keepdims=True) / 16
    near, best, least = np.rint(block_scale / channel), None, None
    for offset in offsets:
        v = even(blocks, np.clip(near + offset, 1, 16) * channel, 8, 4)
        error = ((blocks - v) ** 2).sum(2, keepdims=True)
        best = v if best is None else np.where(error < least, v, best)
        least = error if least is None else np.minimum(error, least)
    return best.reshape(w.shape)


def fp4(w, scale):
    grid = np.concatenate([-E2M1[:0:-1], E2M1])
    middles = (grid[1:] + grid[:-1]) / 2
    return grid[np.searchsorted(middles, w / scale)] * scale


def mxfp4(w):
    return fp4(w, 2.0 ** (np.floor(np.log2(np.abs(w).max(1, keepdims=True))) - 2))


def e4m3(x):
    exponent = np.maximum(np.floor(np.log2(x)), -6)
    return np.minimum(np.rint(x / 2.0 ** (exponent - 3)) * 2.0 ** (exponent - 3), 448)


def nvfp4(w):
    shared = np.abs(w).max() / (6 * 448)
    return fp4(w, e4m3(np.abs(w).max(1, keepdims=True) / 6 / shared) * shared)


def main():
    rng = np.random.default_rng(3)
    for name, w in (("gaussian", rng.normal(size=N)), ("student", rng.standard_t(5, size=N))):
        print(name)
        for bits in (2, 3, 4, 8):
            for scheme in (symmetric, signed, asymmetric):
                row = [ratio(g, scheme(g, bits)) for g in (w.reshape(-1, size) for size in (16, 32, 64, 128, 256, CHANNEL))]
                print(f"  {scheme.__name__:10} {bits} bits", " ".join(f"{x:6.2f}" for x in row))
        for title, offsets in (("lpbq", [0]), ("lpbq searched", [0, -1, -2, -3, 1])):
            print(f"  {title:17}", " ".join(f"{ratio(w, lpbq(w, g, offsets)):6.2f}" for g in (16, 32, 64)))
        print(f"  mxfp4 {ratio(w.reshape(-1, 32), mxfp4(w.reshape(-1, 32))):.2f}  nvfp4 {ratio(w.reshape(-1, 16), nvfp4(w.reshape(-1, 16))):.2f}")


if __name__ == "__main__":
    main()
