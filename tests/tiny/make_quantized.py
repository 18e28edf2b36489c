#!/usr/bin/env python3
"""Writes tests/tiny/models/quantized.gguf and quantized_tied.gguf: models/llama.gguf and qwen2.gguf with block-quantized matrices.

  python tests/tiny/make_quantized.py     (after make_models.py, which empties the folder)

The expected logits of these files are what kF32 computes from them (its arithmetic is proved against transformers on the other
models). The types are chosen so that every path of the quantized back end runs: q, k, v (and gate, up) of one kind are fused,
those of several kinds are not; products into the residual stream (attn_output, ffn_down), the head and a head tied to the
embedding take every kind. K is 32 or 64 in these files, so the K-quants (blocks of 256) cannot occur; codes_test has those. A
width of 48 values holds no whole blocks: the feed-forward part is widened to 64 with new random values. Needs numpy and gguf.
"""
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize

MODELS = Path(__file__).resolve().parent / "models"
Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 = Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0
# Layer 0 fuses with one kind, layer 1 mixes.
UNTIED = {"token_embd": Q5_1, "output": Q4_0,
          "blk.0.attn_q": Q4_0, "blk.0.attn_k": Q4_0, "blk.0.attn_v": Q4_0, "blk.0.attn_output": Q4_1,
          "blk.0.ffn_gate": Q4_1, "blk.0.ffn_up": Q4_1, "blk.0.ffn_down": Q5_0,
          "blk.1.attn_q": Q4_1, "blk.1.attn_k": Q5_1, "blk.1.attn_v": Q8_0, "blk.1.attn_output": Q5_1,
          "blk.1.ffn_gate": Q4_0, "blk.1.ffn_up": Q5_0, "blk.1.ffn_down": Q8_0}
# Here q, k, v of layer 0 mix.
TIED = {"token_embd": Q8_0,
        "blk.0.attn_q": Q5_0, "blk.0.attn_k": Q8_0, "blk.0.attn_v": Q5_0, "blk.0.attn_output": Q4_0,
        "blk.0.ffn_gate": Q5_1, "blk.0.ffn_up": Q5_1, "blk.0.ffn_down": Q4_1,
        "blk.1.attn_q": Q5_1, "blk.1.attn_k": Q5_1, "blk.1.attn_v": Q5_1, "blk.1.attn_output": Q8_0,
        "blk.1.ffn_gate": Q8_0, "blk.1.ffn_up": Q8_0, "blk.1.ffn_down": Q4_0}
FEED_FORWARD = 64
SKIPPED = {"GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.architecture", "general.name"}


def widened(name, data, rng):
    """The matrix with FEED_FORWARD instead of 48 rows (gate, up) or columns (down), the new part of the old one's size."""
    axis = 1 if "ffn_down" in name else 0
    extra = FEED_FORWARD - data.shape[axis]
    shape = (data.shape[0], extra) if axis else (extra, data.shape[1])
    return np.concatenate([data, rng.normal(0, data.std(), shape).astype(np.float32)], axis)


def write(source, target, types, seed):
    rng = np.random.default_rng(seed)
    r = gguf.GGUFReader(MODELS / source)
    arch = r.fields["general.architecture"].contents()
    w = gguf.GGUFWriter(MODELS / target, arch)
    w.add_name(target.removesuffix(".gguf"))
    for key, field in r.fields.items():
        if key in SKIPPED:
            continue
        value = FEED_FORWARD if key.endswith("feed_forward_length") else field.contents()
        sub = field.types[1] if len(field.types) > 1 else None
        w.add_key_value(key, value, field.types[0], sub)
    for t in r.tensors:
        data = np.asarray(dequantize(t.data, t.tensor_type), np.float32).reshape(t.shape[::-1].tolist())
        name = t.name.removesuffix(".weight")
        if name not in types:
            w.add_tensor(t.name, data)
            continue
        if "ffn_" in name:
            data = widened(name, data, rng)
        w.add_tensor(t.name, quantize(data, types[name]), raw_dtype=types[name])
    assert {n + ".weight" for n in types} <= {t.name for t in r.tensors}
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    size = (MODELS / target).stat().st_size
    print(target, size, "bytes")
    assert size <= 45 * 1024


if __name__ == "__main__":
    write("llama.gguf", "quantized.gguf", UNTIED, 1)
    write("qwen2.gguf", "quantized_tied.gguf", TIED, 2)
