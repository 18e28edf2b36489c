#!/usr/bin/env python3
"""Writes tests/tiny/grouped: a tiny Llama in the packed layouts of AWQ, GPTQ and compressed-tensors, with logits of transformers.

Run by hand when a layout is added; the results are committed and no test needs Python. Needs torch, transformers, safetensors, numpy.
Codes, zero points and scales are random; the f32 values that follow from the formats' formulas go into a float model, whose logits
are recorded in expected.json (fields: make_models.py). Packing is written here from the formats' descriptions, bit by bit.
"""
import json
import shutil
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

ROWS, OUT = 8, Path(__file__).parent / "grouped"
CONFIG = dict(vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
              max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=True)


def stream(codes, bits):
    """Along axis 0: codes one after another from the lowest bit of the first 32-bit word up, across words."""
    words = np.zeros((codes.shape[0] * bits // 32, *codes.shape[1:]), np.uint32)
    for i in range(codes.shape[0]):
        for b in range(bits):
            at = i * bits + b
            words[at // 32] |= ((codes[i].astype(np.uint32) >> np.uint32(b)) & np.uint32(1)) << np.uint32(at % 32)
    return words.view(np.int32)


def awq_words(codes):
    """Along axis 1: eight columns a word, nibble i holds column [0, 2, 4, 6, 1, 3, 5, 7][i]."""
    words = np.zeros((codes.shape[0], codes.shape[1] // 8), np.uint32)
    for i, column in enumerate([0, 2, 4, 6, 1, 3, 5, 7]):
        words |= codes[:, column::8].astype(np.uint32) << np.uint32(4 * i)
    return words.view(np.int32)


def tensor(array, dtype=None):
    t = torch.from_numpy(np.ascontiguousarray(array))
    return t.to(dtype) if dtype else t


def gptq(rng, bits, v1, act_order=False, sym=False, bias=False):
    def pack(name, n, k, group, out):
        codes, groups = rng.integers(0, 1 << bits, (n, k)), k // group
        zeros = np.full((n, groups), 1 << (bits - 1)) if sym else rng.integers(1, 1 << bits, (n, groups))
        scales = (rng.uniform(0.5, 1.5, (n, groups)) / (1 << bits) / 4).astype(np.float16)
        of = np.arange(k) // group
        if act_order:
            rng.shuffle(of)
        out[name + ".qweight"] = tensor(stream(codes.T, bits))
        out[name + ".qzeros"] = tensor(stream(zeros - v1, bits).T)
        out[name + ".scales"] = tensor(scales.T)
        out[name + ".g_idx"] = tensor(of.astype(np.int32))
        if bias:
            out[name + ".bias"] = torch.zeros(n, dtype=torch.float16)
        return scales.astype(np.float32)[:, of] * (codes - zeros[:, of]).astype(np.float32)
    return pack


def awq(rng):
    def pack(name, n, k, group, out):
        codes, zeros = rng.integers(0, 16, (n, k)), rng.integers(0, 16, (n, k // group))
        scales = (rng.uniform(0.5, 1.5, (n, k // group)) / 64).astype(np.float16)
        out[name + ".qweight"], out[name + ".qzeros"] = tensor(awq_words(codes.T)), tensor(awq_words(zeros.T))
        out[name + ".scales"] = tensor(scales.T)
        of = np.arange(k) // group
        return scales.astype(np.float32)[:, of] * (codes - zeros[:, of]).astype(np.float32)
    return pack


def compressed(rng, bits, sym, scale_type=torch.bfloat16, packed=True):
    def pack(name, n, k, group, out):
        half, groups = 1 << (bits - 1), k // group
        codes = rng.integers(-half, half, (n, k))
        zeros = np.zeros((n, groups), int) if sym else rng.integers(-half, half, (n, groups))
        scales = tensor((rng.uniform(0.5, 1.5, (n, groups)) / half / 8).astype(np.float32)).to(scale_type)
        out[name + ".weight_scale"] = scales
        if packed:
            out[name + ".weight_packed"] = tensor(stream((codes + half).T, bits).T)
            out[name + ".weight_shape"] = torch.tensor([n, k])
        else:
            out[name + ".weight"] = tensor(codes.astype(np.int8))
        if not sym:
            out[name + ".weight_zero_point"] = tensor(stream(zeros + half, bits)) if packed else tensor(zeros.astype(np.int8))
        of = np.arange(k) // group
        return scales.float().numpy()[:, of] * (codes - zeros[:, of]).astype(np.float32)
    return pack


def group_config(bits, sym, group, fmt="pack-quantized"):
    weights = dict(num_bits=bits, type="int", symmetric=sym, strategy="group" if group else "channel", group_size=group)
    return dict(quant_method="compressed-tensors", format=fmt, ignore=["lm_head"],
                config_groups=dict(group_0=dict(targets=["Linear"], weights=weights, input_activations=None)))


def cases():
    """name -> (packer, group or None for one a row, quantization_config)."""
    def rng(seed):
        return np.random.default_rng(seed)

    def gptq_config(bits, group, v1, **more):
        return dict(quant_method="gptq", bits=bits, group_size=group, checkpoint_format="gptq" if v1 else "gptq_v2", **more)
    yield "awq", awq(rng(1)), 32, dict(quant_method="awq", bits=4, group_size=32, zero_point=True, version="gemm")
    yield "gptq", gptq(rng(2), 4, True, bias=True), 32, gptq_config(4, 32, True, desc_act=False, sym=False)
    yield "gptq_act", gptq(rng(3), 4, False, act_order=True), 16, gptq_config(4, 16, False, desc_act=True, sym=False)
    yield "gptq3", gptq(rng(4), 3, True), 32, gptq_config(3, 32, True, desc_act=False, sym=False)
    yield "gptq2", gptq(rng(5), 2, False), 16, gptq_config(2, 16, False, desc_act=False, sym=False)
    yield "gptq8", gptq(rng(6), 8, False), None, gptq_config(8, -1, False, desc_act=False, sym=False)
    yield "ct4", compressed(rng(7), 4, True), 32, group_config(4, True, 32)
    yield "ct4_zero", compressed(rng(8), 4, False, torch.float32), 32, group_config(4, False, 32)
    yield "ct8", compressed(rng(9), 8, True, packed=False), None, group_config(8, True, None, "int-quantized")


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    entries = []
    for seed, (name, pack, group, quantization) in enumerate(cases()):
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**CONFIG)).eval()
        out = {}
        with torch.no_grad():
            for key, p in model.named_parameters():
                if p.ndim == 1 or "embed" in key:
                    p.copy_((torch.randint(-100, 100, p.shape) / 64).abs() if p.ndim == 1 else torch.randint(-127, 127, p.shape) / 64)
                    out[key] = p.detach().clone().to(torch.float16)
                else:
                    n, k = p.shape
                    p.copy_(torch.from_numpy(pack(key.removesuffix(".weight"), n, k, group or k, out)))
        folder = OUT / name
        folder.mkdir()
        save_file(out, folder / "model.safetensors")
        config = json.loads(model.config.to_json_string()) | dict(quantization_config=quantization)
        config["architectures"] = ["LlamaForCausalLM"]
        (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
        prompt = [int(i) for i in np.random.default_rng(2000 + seed).integers(3, 90, 24)]
        with torch.no_grad():
            logits = model(torch.tensor([prompt])).logits[0, -ROWS:].numpy().astype("<f4")
        (OUT / f"{name}.logits.f32").write_bytes(logits.tobytes())
        entries.append(dict(name=name, path=name, prompt=prompt, max_context=64, logits=f"{name}.logits.f32", rows=ROWS,
                            vocab=logits.shape[1], tolerance=1e-4))
    (OUT / "expected.json").write_text('{"cases": [\n' + ",\n".join("  " + json.dumps(e) for e in entries) + "\n]}\n")


if __name__ == "__main__":
    main()
