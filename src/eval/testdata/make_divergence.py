#!/usr/bin/env python3
"""Writes divergence.f32 and divergence.json: logits of two made-up models over a text, and what numpy makes of them in double.

  python src/eval/testdata/make_divergence.py

divergence.f32: little-endian f32 [2][rows][vocab], the model's rows, then the base's; row r follows token r of the text. The text is
whole windows. Rows range from nearly flat to one-hot, far from zero, equal in both, with two highest logits, and with logits whose
exponential is zero. Percentiles are numpy.percentile's default (linear between order statistics); sigma is a standard error,
sqrt(var / (n - 1)) with the population variance; sigma of the root mean square to first order. Needs numpy.
"""
import json
import pathlib

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
WINDOW, WINDOWS, V = 16, 3, 61


def logits(rng):
    rows = WINDOW * WINDOWS
    base = rng.normal(0, 1, (rows, V)) * np.geomspace(0.3, 25, rows)[rng.permutation(rows), None] + rng.uniform(-1000, 1000, (rows, 1))
    model = base + rng.normal(0, 1, (rows, V)) * np.geomspace(0.01, 1.5, rows)[rng.permutation(rows), None] + rng.uniform(-3, 3, (rows, 1))
    model, base = model.astype(np.float32), base.astype(np.float32)
    model[2] = base[2]
    model[12] = base[12]
    base[13, [7, 3]] = base[13].max() + 1  # the lowest id counts
    model[13, 7], model[13, 3] = model[13].max() + 2, model[13].max() + 1
    base[29, 5:20] -= 2000
    model[30, 40:] -= 3000
    return model, base


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def estimate(x):
    return [float(x.mean()), float(np.sqrt(x.var() / (len(x) - 1)))]


def figures(model, base, targets):
    at = np.arange(len(targets))
    p, b = log_softmax(model), log_softmax(base)
    kld = (np.exp(b) * (b - p)).sum(-1)
    nll, base_nll = -p[at, targets], -b[at, targets]
    delta = np.exp(-nll) - np.exp(-base_nll)
    square = estimate(delta**2)
    rms = np.sqrt(square[0])
    percentiles = [float(np.percentile(kld, q)) for q in (50, 90, 95, 99, 99.9, 100)]
    return {"tokens": len(targets), "kld": estimate(kld), "percentiles": percentiles, "top1": estimate((model.argmax(-1) == base.argmax(-1)) * 1.0),
            "delta_p": estimate(delta), "rms_delta_p": [float(rms), float(square[1] / (2 * rms))], "nll": estimate(nll), "base_nll": estimate(base_nll),
            "dlnppl": estimate(nll - base_nll), "correlation": float(np.corrcoef(nll, base_nll)[0, 1])}


def main():
    rng = np.random.default_rng(20)
    model, base = logits(rng)
    text = rng.integers(0, V, WINDOW * WINDOWS)
    take = rng.random(len(text)) < 0.6  # as a text does: often the base's likeliest token
    text[1:] = np.where(take[1:], base.argmax(-1)[:-1], text[1:])
    rows = np.arange(len(text))
    followed = rows % WINDOW < WINDOW - 1  # a window's last row has no successor
    second = followed & (rows % WINDOW >= WINDOW // 2)
    out = {"numpy": np.__version__, "window": WINDOW, "vocab": V, "text": text.tolist()}
    for name, scored in (("gptq", followed), ("llama.cpp", second)):
        r = rows[scored]
        out[name] = figures(model[r], base[r], text[r + 1])
    np.stack([model, base]).astype("<f4").tofile(HERE / "divergence.f32")
    (HERE / "divergence.json").write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")


main()
