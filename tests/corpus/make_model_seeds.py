"""Seeds of the fuzz targets of src/model: small files that reach every part of the readers. Pure Python.

  python tests/corpus/make_model_seeds.py

gguf_fuzz/llama.gguf and safetensors_fuzz/llama.safetensors are one whole model of 8 tokens and one layer (weights 0), which the
unit tests also cut at every byte and change byte by byte.
"""
import json
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
V, E, F, HEADS = 8, 8, 8, 2
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": E, "num_hidden_layers": 1, "num_attention_heads": HEADS,
          "num_key_value_heads": 1, "vocab_size": V, "intermediate_size": F, "hidden_act": "silu", "rms_norm_eps": 1e-5,
          "rope_theta": 10000.0, "max_position_embeddings": 64, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": [2, 3]}
TYPES = {"u8": 0, "i8": 1, "u16": 2, "i16": 3, "u32": 4, "i32": 5, "f32": 6, "bool": 7, "str": 8, "arr": 9, "u64": 10, "i64": 11, "f64": 12}
CODES = {"u8": "B", "i8": "b", "u16": "H", "i16": "h", "u32": "I", "i32": "i", "f32": "f", "bool": "B", "u64": "Q", "i64": "q", "f64": "d"}


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def item(kind, v):
    return text(v) if kind == "str" else struct.pack("<" + CODES[kind], v)


def value(kind, v):
    if kind.startswith("arr:"):
        inner = kind[4:]
        return struct.pack("<IIQ", TYPES["arr"], TYPES[inner], len(v)) + b"".join(item(inner, x) for x in v)
    return struct.pack("<I", TYPES[kind]) + item(kind, v)


def gguf(keys, tensors, version=3):
    """tensors: (name, shape outermost first, type id, bytes)."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    out += b"".join(text(k) + value(t, v) for k, t, v in keys)
    at, blob = 0, b""
    for name, shape, kind, data in tensors:
        out += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", kind, at)
        blob += data + b"\0" * (-len(data) % 32)
        at = len(blob)
    return out + b"\0" * (-len(out) % 32) + blob


def f32(name, *shape):
    n = 1
    for d in shape:
        n *= d
    return (name, list(shape), 0, struct.pack(f"<{n}f", *[0.0] * n))


VOCABULARY = [("tokenizer.ggml.model", "str", "gpt2"), ("tokenizer.ggml.pre", "str", "gpt-2"),
              ("tokenizer.ggml.tokens", "arr:str", ["a", "b", "<|im_end|>", "ab", "c", "d", "e", "f"]),
              ("tokenizer.ggml.token_type", "arr:i32", [1, 1, 3, 1, 1, 1, 1, 1]), ("tokenizer.ggml.scores", "arr:f32", [0.0] * V),
              ("tokenizer.ggml.merges", "arr:str", ["a b"]), ("tokenizer.ggml.bos_token_id", "u32", 1),
              ("tokenizer.ggml.eos_token_id", "u32", 0), ("tokenizer.ggml.add_bos_token", "bool", 1),
              ("tokenizer.chat_template", "str", "{{ messages }}")]


def llama(prefix="blk.0.", hf=False):
    a = "model.layers.0." if hf else prefix
    n = (["input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "post_attention_layernorm",
          "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"] if hf else
         ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"])
    shapes = [(E,), (E, E), (E // HEADS, E), (E // HEADS, E), (E, E), (E,), (F, E), (F, E), (E, F)]
    top = [f32("model.embed_tokens.weight" if hf else "token_embd.weight", V, E), f32("model.norm.weight" if hf else "output_norm.weight", E)]
    return top + [f32(a + name + ".weight", *shape) for name, shape in zip(n, shapes)]


def packed(quantization, parts):
    """A config, a zero byte, a safetensors file of one matrix "x" in parts (name, dtype, shape)."""
    sizes, table, at = {"I32": 4, "F32": 4, "F16": 2, "I64": 8, "I8": 1, "U8": 1, "F8_E4M3": 1}, {}, 0
    blob = b""
    for name, dtype, shape in parts:
        n = 1
        for d in shape:
            n *= d
        data = b"\0" * (n * sizes[dtype])
        if name == "weight_shape":
            data = struct.pack("<2q", 8, 16)
        if name == "weight_global_scale":
            data = struct.pack("<f", 1)
        table["x." + name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at, blob = at + len(data), blob + data
    header = json.dumps(table).encode()
    return json.dumps({"quantization_config": quantization}).encode() + b"\0" + struct.pack("<Q", len(header)) + header + blob


def grouped_seeds():
    awq = {"quant_method": "awq", "bits": 4, "group_size": 8, "version": "gemm"}
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 8, "checkpoint_format": "gptq"}
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 8}
    ct = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"g": {"weights": weights}}}
    whole = {"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {"g": {"weights": {"num_bits": 8, "strategy": "channel"}}}}
    def fp4(group, strategy):
        return {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized" if group == 16 else "mxfp4-pack-quantized",
                "config_groups": {"g": {"weights": {"num_bits": 4, "type": "float", "strategy": strategy, "group_size": group}}}}
    return {"awq": packed(awq, [("qweight", "I32", [16, 1]), ("qzeros", "I32", [2, 1]), ("scales", "F16", [2, 8])]),
            "gptq": packed(gptq, [("qweight", "I32", [2, 8]), ("qzeros", "I32", [2, 1]), ("scales", "F16", [2, 8]), ("g_idx", "I32", [16])]),
            "ct": packed(ct, [("weight_packed", "I32", [8, 2]), ("weight_scale", "F16", [8, 2]), ("weight_shape", "I64", [2]),
                              ("weight_zero_point", "I32", [1, 2])]),
            "bytes": packed(whole, [("weight", "I8", [8, 16]), ("weight_scale", "F16", [8, 1])]),
            "nvfp4": packed(fp4(16, "tensor_group"), [("weight_packed", "U8", [2, 16]), ("weight_scale", "F8_E4M3", [2, 2]),
                                                      ("weight_global_scale", "F32", [1])]),
            "mxfp4": packed(fp4(32, "group"), [("weight_packed", "U8", [2, 32]), ("weight_scale", "U8", [2, 2])]),
            "bitnet": packed({"quant_method": "bitnet"}, [("weight", "U8", [2, 16]), ("weight_scale", "F16", [1])])}


def main():
    sizes = [("general.architecture", "str", "llama"), ("llama.block_count", "u32", 1), ("llama.context_length", "u32", 64),
             ("llama.embedding_length", "u32", E), ("llama.feed_forward_length", "u32", F), ("llama.attention.head_count", "u32", HEADS),
             ("llama.attention.head_count_kv", "arr:i32", [1]), ("llama.rope.freq_base", "f32", 10000.0),
             ("llama.attention.layer_norm_rms_epsilon", "f32", 1e-5)]
    every = [("general.architecture", "str", "none")] + [(f"x.{k}", k, 1) for k in CODES] + [("x.list." + k, "arr:" + k, [1, 0]) for k in CODES]
    blocks = [("q" + str(k), [256], k, b"\x11" * size) for k, size in
              [(2, 144), (3, 160), (6, 176), (7, 192), (8, 272), (10, 84), (11, 110), (12, 144), (13, 176), (14, 210), (20, 144), (23, 136), (39, 136),
               (16, 66), (24, 256), (28, 2048), (30, 512)]]
    seeds = {"gguf_fuzz/llama.gguf": gguf(sizes + VOCABULARY, llama()), "gguf_fuzz/types.gguf": gguf(every, blocks, 2),
             "gguf_fuzz/vocabulary.gguf": gguf([("general.architecture", "str", "llama"), ("general.alignment", "u32", 64)] + VOCABULARY, [])}
    table, blob = {"__metadata__": {"format": "pt"}}, b""
    for name, shape, _, data in llama(hf=True):
        table[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(blob), len(blob) + len(data)]}
        blob += data
    header = json.dumps(table).encode()
    seeds["safetensors_fuzz/llama.safetensors"] = struct.pack("<Q", len(header)) + header + blob
    kinds = {"b": "BF16", "f": "F8_E4M3", "i": "I32"}
    sizes_of = {"BF16": 2, "F8_E4M3": 1, "I32": 4}
    small, at = {}, 0
    for name, kind in kinds.items():
        small[name] = {"dtype": kind, "shape": [2, 3], "data_offsets": [at, at + 6 * sizes_of[kind]]}
        at += 6 * sizes_of[kind]
    header = json.dumps(small).encode()
    seeds["safetensors_fuzz/types.safetensors"] = struct.pack("<Q", len(header)) + header + b"\1" * at
    seeds["config_fuzz/llama.json"] = json.dumps(CONFIG).encode()
    scaled = CONFIG | {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                        "original_max_position_embeddings": 32}}
    seeds["config_fuzz/llama3_rope.json"] = json.dumps(scaled).encode()
    gemma = CONFIG | {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": CONFIG | {
        "model_type": "gemma3_text", "head_dim": 4, "sliding_window": 4, "layer_types": ["sliding_attention"], "query_pre_attn_scalar": 4,
        "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0}, "sliding_attention": {"rope_theta": 100.0}}}}
    seeds["config_fuzz/gemma3.json"] = json.dumps(gemma).encode()
    phi = CONFIG | {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "partial_rotary_factor": 0.5, "original_max_position_embeddings": 16,
                    "rope_scaling": {"type": "longrope", "long_factor": [1.5], "short_factor": [1.0]}}
    seeds["config_fuzz/phi3.json"] = json.dumps(phi).encode()
    seeds |= {"grouped_fuzz/" + name: data for name, data in grouped_seeds().items()}
    for name, data in seeds.items():
        (HERE / name).parent.mkdir(exist_ok=True)
        (HERE / name).write_bytes(data)
        print(name, len(data))


main()
