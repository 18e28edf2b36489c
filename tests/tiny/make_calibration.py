#!/usr/bin/env python3
"""Writes tests/tiny/calibration.json: input statistics and AWQ folds of the tiny llama, by transformers and numpy in double.

Run by hand; the result is committed and no test needs Python. Independent of the C++: forward pass by transformers, moments by numpy,
Q4_0 rounding by the gguf package (round to nearest, the sign of the extreme).

sequences: token ids. inputs: per layer, in the order attention, o, MLP, down: mean |x|, mean x^2, corners of E[x x^T], and the same moments
with every token cut to `most_energy` medians of its sequence. folds: attention and MLP input of layer 0, error of every exponent.
"""
import json
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers

HERE = Path(__file__).parent
MOST_ENERGY = 1.5
POINTS = 20


def weights(x, most):
    energy = (x * x).sum(1)
    limit = most * np.sort(energy)[len(energy) // 2]
    return np.minimum(1.0, limit / energy) if most > 0 else np.ones(len(energy))


def moments(parts, most):
    w = [weights(x, most) for x in parts]
    total = sum(v.sum() for v in w)
    second = sum((x * v[:, None]).T @ x for x, v in zip(parts, w)) / total
    absolute = sum((np.abs(x) * v[:, None]).sum(0) for x, v in zip(parts, w)) / total
    return second, absolute


def rounded(w):
    f = w.astype(np.float32)
    return gguf.dequantize(gguf.quantize(f, gguf.GGMLQuantizationType.Q4_0), gguf.GGMLQuantizationType.Q4_0).astype(np.float64)


def fold_errors(members, second, absolute):
    w = np.concatenate(members)
    groups = np.abs(w).reshape(len(w), -1, 32)
    relative = (groups / (groups.max(2, keepdims=True) + 1e-6)).reshape(w.shape).mean(0)
    errors = [(np.trace((rounded(w) - w) @ second @ (rounded(w) - w).T))]
    for i in range(POINTS):
        a = i / POINTS
        s = np.maximum(absolute**a / (relative**(1 - a) + 1e-4), 1e-4)
        s = (s / np.sqrt(s.max() * s.min())).astype(np.float32).astype(np.float64)
        d = rounded(w * s) / s - w
        errors.append(np.trace(d @ second @ d.T))
    return errors


def main():
    model = transformers.AutoModelForCausalLM.from_pretrained(HERE / "models" / "llama", dtype=torch.float32, attn_implementation="eager").eval()
    rng = np.random.default_rng(7)
    sequences = [rng.integers(0, 262, n).tolist() for n in (24, 40, 17)]
    seen = {}
    for i, layer in enumerate(model.model.layers):
        for j, m in enumerate((layer.self_attn.q_proj, layer.self_attn.o_proj, layer.mlp.gate_proj, layer.mlp.down_proj)):
            m.register_forward_pre_hook(lambda _, args, key=(i, j): seen.setdefault(key, []).append(args[0][0].double().numpy()))
    with torch.no_grad():
        for s in sequences:
            model(torch.tensor([s]))
    inputs = []
    for i in range(len(model.model.layers)):
        for j in range(4):
            row = {"layer": i, "input": j}
            for name, most in (("plain", 0), ("capped", MOST_ENERGY)):
                second, absolute = moments(seen[i, j], most)
                row[name] = {"mean_absolute": absolute.tolist(), "mean_square": np.diag(second).tolist(), "first_row": second[0].tolist(),
                             "last_row": second[-1].tolist()}
            inputs.append(row)
    layer = model.model.layers[0]
    attention, mlp = layer.self_attn, layer.mlp
    folds = []
    for j, members in ((0, (attention.q_proj, attention.k_proj, attention.v_proj)), (2, (mlp.gate_proj, mlp.up_proj))):
        second, absolute = moments(seen[0, j], 0)
        errors = fold_errors([m.weight.detach().double().numpy() for m in members], second, absolute)
        folds.append({"input": j, "identity": errors[0], "errors": errors[1:]})
    out = {"sequences": sequences, "most_energy": MOST_ENERGY, "inputs": inputs, "folds": folds}
    (HERE / "calibration.json").write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
