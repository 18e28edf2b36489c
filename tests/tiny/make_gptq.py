#!/usr/bin/env python3
"""Writes gptq.json: codes that GPTQ gives in its published form, by numpy in float64, and what they cost.

Weights and inputs are not stored: both sides derive them from Mix(seed, i). The published form (arXiv 2210.17323) works with the Cholesky
factor of the inverse, column by column, each error taken off the columns that follow; the C++ uses neither the inverse nor that update.
Grids are static: rounding to the range of the original group. Order: groups by their largest diagonal, columns in them by theirs.
Run: python3 tests/tiny/make_gptq.py > src/quant/testdata/gptq.json
"""
import json

import numpy as np
from mix import mix

ROWS, TOKENS, GROUP, DAMPING = 6, 300, 32, 0.01


def problem(seed, k, case):
    w = ((mix(seed, ROWS * k) % (1 << 20) - (1 << 19)).astype(np.float32) / np.float32(1 << 23)).reshape(ROWS, k)
    a = (mix(seed + 1, TOKENS * k) % 101 - 50).reshape(TOKENS, k)
    x = a + np.roll(a, 1, axis=1) + 2 * np.roll(a, 7, axis=1)  # neighbours in common: correlated channels
    x = x * (1 + np.arange(k) % 5)
    if case == "massive":
        x[:, 5] *= 200
        x[:2, 40] *= 300
    if case == "dead":
        x[:, 9] = 0
        x[:, 33] = 0
    if case == "alike":  # rank far below the width
        x = x[:, np.arange(k) % 11]
    return w, (x.T @ x).astype(np.float64).astype(np.float32)


def grids(w, scheme):
    """Scale and zero of a group of each row, in float32."""
    low, high = np.minimum(w.min(axis=1), 0), np.maximum(w.max(axis=1), 0)
    if scheme == "symmetric":
        return np.abs(w).max(axis=1) / np.float32(7), np.full(len(w), 8)
    scale = (high - low) / np.float32(15)
    return scale, np.clip(np.rint(-low / scale), 0, 15)


def gptq(w, h, scheme):
    n, k = w.shape
    h = h.astype(np.float64)
    diagonal = h.diagonal().copy()
    mean = diagonal.mean()
    damped = h.copy()
    damped[diagonal == 0, diagonal == 0] = mean
    damped += DAMPING * mean * np.eye(k)
    blocks = sorted(range(k // GROUP), key=lambda b: -diagonal[b * GROUP:(b + 1) * GROUP].max())
    order = [c for b in blocks for c in sorted(range(b * GROUP, (b + 1) * GROUP), key=lambda c: -diagonal[c])]
    upper = np.linalg.cholesky(np.linalg.inv(damped[np.ix_(order, order)])).T
    left, codes, values = w.astype(np.float64)[:, order], np.zeros((n, k), int), np.zeros((n, k))
    for j, c in enumerate(order):
        scale, zero = grids(w[:, c // GROUP * GROUP:(c // GROUP + 1) * GROUP], scheme)
        codes[:, c] = np.clip(np.rint(left[:, j] / scale.astype(np.float64)) + zero, 0, 15)
        values[:, c] = scale.astype(np.float64) * (codes[:, c] - zero)
        left[:, j:] -= np.outer((left[:, j] - values[:, c]) / upper[j, j], upper[j, j:])
    d = w - values
    return codes, float(np.einsum("ni,ij,nj->", d, h, d))


def main():
    cases = []
    for seed, (k, case, scheme) in enumerate([(64, "plain", "symmetric"), (96, "plain", "integer zero"), (160, "massive", "integer zero"),
                                              (96, "dead", "symmetric"), (128, "alike", "integer zero"), (320, "plain", "symmetric")]):
        w, h = problem(7 * seed, k, case)
        codes, error = gptq(w, h, scheme)
        cases.append({"seed": 7 * seed, "k": k, "case": case, "scheme": scheme, "error": error,
                      "codes": ["".join("0123456789abcdef"[q] for q in row) for row in codes]})
    print(json.dumps({"rows": ROWS, "tokens": TOKENS, "group": GROUP, "damping": DAMPING, "cases": cases}, indent=1))


if __name__ == "__main__":
    main()
