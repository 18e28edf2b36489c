#!/usr/bin/env python3
"""Writes sampler_cases.json: what transformers' logits processors keep, with which probability, for fixed random logits.

Needs torch and transformers (version written into the file). Order as in transformers' generate(): repetition penalty,
temperature, top-k, top-p, min-p, softmax. Presence and frequency penalties follow the formula of OpenAI's API reference:
mu[j] -> mu[j] - c[j] * frequency - (c[j] > 0) * presence, with c[j] the times token j was sampled before.
"""
import json
import pathlib

import torch
import transformers
from transformers import (MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, SequenceBiasLogitsProcessor,
                          TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)

V = 96


def logits_of(seed, scale):
    g = torch.Generator().manual_seed(seed)
    return torch.round(torch.randn(V, generator=g) * scale * 4096) / 4096  # short decimals, exact in f32


def kept(logits, o, prompt, answer):
    ids = torch.tensor([prompt + answer])
    x = logits.clone()[None]
    if o.get("logit_bias"):
        x = SequenceBiasLogitsProcessor({(i,): b for i, b in o["logit_bias"]})(ids, x)
    if "repetition_penalty" in o:
        x = RepetitionPenaltyLogitsProcessor(o["repetition_penalty"])(ids, x)
    for j in set(answer):
        c = answer.count(j)
        x[0, j] -= c * o.get("frequency_penalty", 0.0) + (1 if c else 0) * o.get("presence_penalty", 0.0)
    x = TemperatureLogitsWarper(float(o["temperature"]))(ids, x)
    if "top_k" in o:
        x = TopKLogitsWarper(o["top_k"])(ids, x)
    if "top_p" in o:
        x = TopPLogitsWarper(o["top_p"])(ids, x)
    if "min_p" in o:
        x = MinPLogitsWarper(o["min_p"])(ids, x)
    p = torch.softmax(x[0].double(), -1)
    return [[i, float(f"{p[i].item():.9g}")] for i in range(V) if p[i] > 0]


OPTIONS = [
    {"temperature": 1.0},
    {"temperature": 0.7},
    {"temperature": 1.8, "top_k": 5},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 1.0, "top_k": 500},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 1.3, "top_p": 0.5},
    {"temperature": 1.0, "top_p": 0.01},
    {"temperature": 1.0, "min_p": 0.1},
    {"temperature": 2.0, "min_p": 0.02},
    {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
    {"temperature": 1.2, "top_k": 20, "top_p": 0.8},
    {"temperature": 1.0, "repetition_penalty": 1.3},
    {"temperature": 1.0, "repetition_penalty": 0.8, "top_k": 10},
    {"temperature": 1.0, "presence_penalty": 1.5},
    {"temperature": 1.0, "frequency_penalty": 0.75},
    {"temperature": 0.9, "presence_penalty": -0.5, "frequency_penalty": 1.25, "top_p": 0.9},
    {"temperature": 1.0, "logit_bias": [[3, 4.5], [17, -6.0], [40, -100.0]]},
    {"temperature": 0.6, "logit_bias": [[8, 2.0]], "repetition_penalty": 1.2, "presence_penalty": 0.3,
     "frequency_penalty": 0.2, "top_k": 30, "top_p": 0.9, "min_p": 0.02},
]

rows = [[round(v, 12) for v in logits_of(seed, scale).tolist()] for seed, scale in [(1, 1.0), (2, 3.0)]]
prompt = [5, 8, 8, 60, 17]
answer = [3, 40, 3, 8, 3, 90]
cases = []
for r, row in enumerate(rows):
    for o in OPTIONS:
        cases.append({"row": r, "options": o, "kept": kept(torch.tensor(row), o, prompt, answer)})
out = {"transformers": transformers.__version__, "torch": torch.__version__, "vocab": V, "prompt": prompt, "answer": answer,
       "rows": rows, "cases": cases}
path = pathlib.Path(__file__).with_name("sampler_cases.json")
path.write_text(json.dumps(out, separators=(",", ":")).replace('{"row"', '\n{"row"') + "\n")
print(path.stat().st_size, "bytes,", len(cases), "cases")
