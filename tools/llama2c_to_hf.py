#!/usr/bin/env python3
"""A model of llama2.c (its .bin of version 0, f32, and its tokenizer) as a Hugging Face folder; every value is kept.

  tools/llama2c_to_hf.py stories260K.bin tok512.bin FOLDER        needs the standard library only

Sources: llama2.c's run.c (the order of the arrays) and tokenizer.py; transformers' Llama; sentencepiece_model.proto (field numbers).
"""
import json
import pathlib
import struct
import sys


def matrices(data):
    """(config, {name: (shape, bytes)}): row-major arrays of f32 one after the other, those of all layers together."""
    e, f, layers, heads, kv_heads, vocab, context = struct.unpack_from("<7i", data)
    tied, vocab, head = vocab > 0, abs(vocab), e // heads
    at, out = 28, {}

    def take(*shape):
        nonlocal at
        n = 4
        for d in shape:
            n *= d
        if at + n > len(data):
            raise SystemExit(f"the file ends at byte {len(data)}, an array {list(shape)} at {at + n}")
        at += n
        return shape, data[at - n:at]

    def halves(matrix, n_heads):
        """Rows of each head that rotate together lie side by side in llama2.c, half a head apart in transformers."""
        (rows, columns), raw = matrix
        row = [raw[i * columns * 4:(i + 1) * columns * 4] for i in range(rows)]
        return (rows, columns), b"".join(row[h * head + 2 * i + odd] for h in range(n_heads) for odd in (0, 1) for i in range(head // 2))

    out["model.embed_tokens.weight"] = take(vocab, e)
    each = lambda *shape: [take(*shape) for _ in range(layers)]
    parts = {"input_layernorm": each(e), "self_attn.q_proj": [halves(m, heads) for m in each(e, e)],
             "self_attn.k_proj": [halves(m, kv_heads) for m in each(kv_heads * head, e)], "self_attn.v_proj": each(kv_heads * head, e),
             "self_attn.o_proj": each(e, e), "post_attention_layernorm": each(e), "mlp.gate_proj": each(f, e), "mlp.down_proj": each(e, f),
             "mlp.up_proj": each(f, e)}
    for name, tensors in parts.items():
        for i, tensor in enumerate(tensors):
            out[f"model.layers.{i}.{name}.weight"] = tensor
    out["model.norm.weight"] = take(e)
    take(2, context, head // 2)  # tables of rotation
    if not tied:
        out["lm_head.weight"] = take(vocab, e)
    if at != len(data):
        raise SystemExit(f"{len(data) - at} bytes are left over: no file of version 0")
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": e, "intermediate_size": f, "num_hidden_layers": layers,
              "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head, "vocab_size": vocab,
              "max_position_embeddings": context, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "attention_bias": False,
              "mlp_bias": False, "tie_word_embeddings": tied, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"}
    return config, out


def safetensors(tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, raw) in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(raw for _, raw in tensors.values())


def sentencepiece(data):
    """The vocabulary as a sentencepiece model: llama2.c keeps the pieces in order with their scores, spaces for their mark."""
    def number(n):
        out = bytearray()
        while n > 127:
            out.append(n & 127 | 128)
            n >>= 7
        return bytes(out) + bytes([n])

    integer = lambda field, n: number(field << 3) + number(n & (1 << 64) - 1)
    text = lambda field, raw: number(field << 3 | 2) + number(len(raw)) + raw
    at, out, i = 4, b"", 0
    while at < len(data):
        score, n = struct.unpack_from("<fI", data, at)
        piece = data[at + 8:at + 8 + n]
        at += 8 + n
        kind = {0: 2, 1: 3, 2: 3}.get(i, 6 if len(piece) == 6 and piece[:3] == b"<0x" else 1)  # unknown, control, byte, normal
        piece = piece.strip(b"\n") if kind == 3 else piece.replace(b" ", "▁".encode())
        out += text(1, text(1, piece) + number(2 << 3 | 5) + struct.pack("<f", score) + integer(3, kind))
        i += 1
    trainer = integer(3, 2) + integer(35, 1) + integer(40, 0) + integer(41, 1) + integer(42, 2) + integer(43, -1)  # BPE, bytes, special ids
    normalizer = text(1, b"identity") + integer(3, 1) + integer(4, 0) + integer(5, 1)
    return out + text(2, trainer) + text(3, normalizer)


def main():
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    config, tensors = matrices(pathlib.Path(sys.argv[1]).read_bytes())
    folder = pathlib.Path(sys.argv[3])
    folder.mkdir()
    tokens = {"add_bos_token": True, "add_eos_token": False, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
              "tokenizer_class": "LlamaTokenizer", "model_max_length": config["max_position_embeddings"]}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens, indent=2) + "\n")
    (folder / "model.safetensors").write_bytes(safetensors(tensors))
    (folder / "tokenizer.model").write_bytes(sentencepiece(pathlib.Path(sys.argv[2]).read_bytes()))


if __name__ == "__main__":
    main()
