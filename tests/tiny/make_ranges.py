#!/usr/bin/env python3
"""Writes ranges.json: activation ranges by numpy, from histograms that numpy made, and smoothing factors.

Values are not stored: both sides derive them from Mix(seed, i) (make_gptq.py). Percentile: the smallest border of bins with at most the given
share beyond it. MSE: 100 ranges from the extremes down. Entropy: 2048 bins of |x|, 128 levels, outliers added to the last bin of the
reference, as the calibrators of TensorRT and ONNX Runtime do.
Run: python3 tests/tiny/make_ranges.py > src/quant/testdata/ranges.json
"""
import json

import numpy as np
from make_gptq import mix

BINS, LEVELS = 2048, 128


def values(seed, n, kind):
    a = (mix(seed, n) % 65536 - 32768).astype(np.float64)
    b = (mix(seed + 1, n) % 65536).astype(np.float64)
    v = a * b * b / 2.0 ** 47 * 8
    if kind == "outlier":
        v[17] = 500
    if kind == "positive":
        v = np.abs(v)
    if kind == "shifted":
        v = v + 3
    return v.astype(np.float32).astype(np.float64)


def percentile(counts, borders, share, symmetric):
    """counts of [-BINS, BINS), borders len + 1"""
    n = counts.sum()
    if symmetric:
        beyond = np.array([counts[np.abs(borders[:-1] + borders[1:]) / 2 > b].sum() for b in borders[BINS + 1:]])
        return borders[BINS + 1:][np.argmax(beyond <= (100 - share) / 100 * n)]
    cut = (100 - share) / 200 * n
    high = [b for b in borders[BINS:] if counts[borders[:-1] >= b].sum() <= cut][0]
    low = [b for b in borders[:BINS + 1][::-1] if counts[borders[1:] <= b].sum() <= cut][0]
    return low, high


def mse(counts, borders, low, high, bits):
    middles = (borders[:-1] + borders[1:]) / 2
    best = None
    for i in range(100):
        share = np.float32(1) - np.float32(i) / np.float32(100)
        a, b = float(np.float32(low) * share), float(np.float32(high) * share)
        step = (b - a) / (2 ** bits - 1)
        rounded = a + np.rint((np.clip(middles, a, b) - a) / step) * step
        error = (counts * (middles - rounded) ** 2).sum() / counts.sum()
        if best is None or error < best[0]:
            best = (error, a, b)
    return best


def entropy(counts, width):
    folded = counts[BINS:] + counts[:BINS][::-1]
    last = np.nonzero(folded)[0].max() + 1
    best = None
    for n in range(last, LEVELS - 1, -1):
        kept = folded[:n].astype(np.float64)
        p = kept.copy()
        p[-1] += folded[n:].sum()
        q = np.zeros(n)
        for part in range(LEVELS):
            s = slice(part * n // LEVELS, (part + 1) * n // LEVELS)
            filled = kept[s] > 0
            if filled.any():
                q[s][filled] = kept[s].sum() / filled.sum()
        p, q = p / p.sum(), q / q.sum()
        there = p > 0
        divergence = (p[there] * np.log(p[there] / np.maximum(q[there], 1e-9))).sum()
        if best is None or divergence < best[0]:
            best = (divergence, n * width)
    return best[1]


def main():
    cases = []
    for seed, kind in ((1, "plain"), (11, "outlier"), (21, "positive"), (31, "shifted")):
        v = values(seed, 20000, kind)
        limit = 2.0 ** np.ceil(np.log2(np.abs(v).max()))
        borders = np.linspace(-limit, limit, 2 * BINS + 1)
        counts = np.histogram(v, borders)[0]
        low, high = min(v.min(), 0), max(v.max(), 0)
        case = {"seed": seed, "kind": kind, "n": 20000, "low": v.min(), "high": v.max(), "counts": int((counts * np.arange(2 * BINS)).sum())}
        for share in (99.9, 99.99, 99.999):
            case[f"percentile {share}"] = list(percentile(counts, borders, share, False))
            case[f"symmetric {share}"] = percentile(counts, borders, share, True)
        for bits in (4, 8):
            case[f"mse {bits}"] = list(mse(counts, borders, low, high, bits))
        case["entropy"] = entropy(counts, borders[1] - borders[0])
        cases.append(case)
    x, w = np.abs(values(41, 24, "plain")), np.abs(values(51, 24, "plain"))
    smooth = {str(a): list(np.clip(x ** a / w ** (1 - a), 1e-5, 1e5)) for a in (0.25, 0.5, 0.8)}
    print(json.dumps({"cases": cases, "smooth": smooth}, indent=1))


if __name__ == "__main__":
    main()
