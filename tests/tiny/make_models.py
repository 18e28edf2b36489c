#!/usr/bin/env python3
"""Writes tests/tiny/models: tiny random models of every architecture, with logits of transformers in f32.

Run by hand when an architecture is added; the results are committed and no test needs Python. Needs torch, transformers,
safetensors, tokenizers, numpy, gguf. Deterministic for given versions of these: seeds are fixed.

Every weight is k / 2^s with |k| <= 127, so that BF16, F16 and F32 files of a model hold the same numbers and the expected
logits belong to all of them. The GGUF twins follow the rules of llama.cpp's converters: tensor names from the gguf
package, rows of q and k reordered for rotation in pairs (llama), norms stored as 1 + w (gemma), rope factors as tensors.

expected.json: one entry a case. `path`: folder or .gguf file under models/. `prompt`: token ids. `max_context`: build the
model for so many tokens (it decides LongRoPE's factors). `logits`: file of little-endian f32 [rows, vocab], the last `rows`
positions of the prompt. `tolerance`: allowed max|a - b| / max|b|.
"""
import argparse
import json
import math
import shutil
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

ROWS = 8
TOLERANCE = 1e-4
SMALL = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)


def architectures():
    """name -> (config, dtype of the file, config keys spelt as transformers 4 wrote them)."""
    t = transformers
    llama3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=32)
    long_rope = dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75, original_max_position_embeddings=32,
                     short_factor=[1.0, 1.05, 1.1, 1.2, 1.3, 1.5], long_factor=[1.1, 1.5, 2.0, 3.0, 5.0, 8.0])
    gemma3_rope = dict(full_attention=dict(rope_type="linear", factor=8.0, rope_theta=100000.0),
                       sliding_attention=dict(rope_type="default", rope_theta=500.0))
    gemma = SMALL | dict(head_dim=16, num_attention_heads=2, num_key_value_heads=1)
    yield "llama", t.LlamaConfig(**SMALL | dict(vocab_size=264, bos_token_id=262, eos_token_id=263, pad_token_id=None)), "bfloat16", {}
    yield "llama3_rope", t.LlamaConfig(**SMALL, head_dim=16, tie_word_embeddings=True, rope_parameters=llama3), "float16", {
        "rope_theta": 10000.0, "rope_scaling": {k: v for k, v in llama3.items() if k != "rope_theta"}}
    yield "llama_bias", t.LlamaConfig(**SMALL, attention_bias=True, mlp_bias=True, tie_word_embeddings=True), "bfloat16", {}
    yield "mistral", t.MistralConfig(**SMALL, head_dim=8, sliding_window=7), "bfloat16", {}
    yield "qwen2", t.Qwen2Config(**SMALL, tie_word_embeddings=True), "bfloat16", {"rope_theta": 10000.0}
    yield "qwen3", t.Qwen3Config(**SMALL, head_dim=16), "bfloat16", {}
    yield "gemma", t.GemmaConfig(**gemma), "bfloat16", {}
    yield "gemma2", t.Gemma2Config(**gemma, query_pre_attn_scalar=24, sliding_window=7, attn_logit_softcapping=2.0,
                                   final_logit_softcapping=10.0), "bfloat16", {}
    yield "gemma3", t.Gemma3TextConfig(**gemma | dict(hidden_size=48, num_hidden_layers=3, intermediate_size=32), query_pre_attn_scalar=24,
                                       sliding_window=7, rope_parameters=gemma3_rope,
                                       layer_types=["sliding_attention", "full_attention", "sliding_attention"]), "bfloat16", {
        "rope_theta": 100000.0, "rope_local_base_freq": 500.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    yield "phi3", t.Phi3Config(**SMALL | dict(num_attention_heads=2, num_key_value_heads=1), original_max_position_embeddings=32,
                               partial_rotary_factor=0.75, rope_parameters=long_rope), "bfloat16", {
        "rope_theta": 10000.0, "partial_rotary_factor": 0.75, "original_max_position_embeddings": 32,
        "rope_scaling": {"type": "longrope", "short_factor": long_rope["short_factor"], "long_factor": long_rope["long_factor"]}}
    yield "smollm3", t.SmolLM3Config(**SMALL | dict(intermediate_size=32), no_rope_layers=[1, 0]), "float32", {}
    yield "granite", t.GraniteConfig(**SMALL, tie_word_embeddings=True, embedding_multiplier=6.0, attention_multiplier=0.25,
                                     residual_multiplier=0.5, logits_scaling=4.0), "bfloat16", {}


def randomise(model, seed):
    """Weights far from their defaults, so that leaving out any part shows in the logits."""
    rng = np.random.default_rng(seed)
    for name, p in sorted(model.named_parameters()):
        if p.ndim == 2:
            scale = 2.0 ** (-6 if "embed" in name or "lm_head" in name else -8)
            k = np.clip(np.rint(rng.normal(0, 50, p.shape)), -127, 127)
        else:
            plain_norm = "norm" in name and "Gemma" not in type(model).__name__  # Gemma's files hold w - 1
            scale = 2.0**-6 if plain_norm else 2.0**-8
            k = np.rint(rng.uniform(40 if plain_norm else -100, 100, p.shape))
        p.data = torch.tensor(k * scale, dtype=torch.float32)
    model.tie_weights()


def save(model, folder, dtype, spelling):
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    for extra in folder.glob("generation_config.json"):
        extra.unlink()
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if spelling:
        config.pop("rope_parameters", None)
        config.update(spelling)
    path.write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")


def add_tokenizer(folder):
    """Byte-level BPE: 256 bytes, six merges, two special tokens; with a chat template."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("i", "n"), ("a", "n"), ("Ġ", "a"), ("Ġ", "the")]
    vocab = {token: i for i, token in enumerate(letters + [a + b for a, b in merges])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|bos|>", special=True), AddedToken("<|eos|>", special=True)])
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    template = "{% for m in messages %}<|bos|>{{ m['role'] }}\n{{ m['content'] }}<|eos|>\n{% endfor %}{% if add_generation_prompt %}<|bos|>assistant\n{% endif %}"
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|bos|>", "eos_token": "<|eos|>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    return tokenizer, [f"{a} {b}" for a, b in merges], template


def logits_of(folder, prompt):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        return model, model(torch.tensor([prompt])).logits[0, -ROWS:].numpy().astype("<f4")


def pair_order(w, heads):
    """Rows of a q or k projection from halves (i, i + D/2) to neighbours (2i, 2i + 1), as the llama converter stores them."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def llama3_factors(config):
    p, d = config.rope_parameters, config.head_dim
    freqs = p["rope_theta"] ** -(np.arange(0, d, 2) / d)
    low, high = (p["original_max_position_embeddings"] / p[k] for k in ("low_freq_factor", "high_freq_factor"))
    factors = []
    for wavelength in 2 * math.pi / freqs:
        smooth = (p["original_max_position_embeddings"] / wavelength - p["low_freq_factor"]) / (p["high_freq_factor"] - p["low_freq_factor"])
        factors.append(1 if wavelength < high else p["factor"] if wavelength > low else 1 / ((1 - smooth) / p["factor"] + smooth))
    return np.array(factors, np.float32)


def write_gguf(path, model, arch, tokenizer):
    c, w = model.config, gguf.GGUFWriter(path, arch)
    w.add_name(path.stem)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_block_count(c.num_hidden_layers)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_vocab_size(c.vocab_size)
    head_dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    if head_dim * c.num_attention_heads != c.hidden_size:
        w.add_key_length(head_dim)
        w.add_value_length(head_dim)
    rope = c.rope_parameters.get("full_attention", c.rope_parameters)
    w.add_rope_freq_base(rope["rope_theta"])
    w.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1.0)))
    if rope["rope_type"] == "linear":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "llama3":
        w.add_tensor("rope_freqs.weight", llama3_factors(c))
    if rope["rope_type"] == "longrope":
        original = rope["original_max_position_embeddings"]
        w.add_rope_scaling_orig_ctx_len(original)
        w.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(c.max_position_embeddings / original) / math.log(original)))
        w.add_tensor("rope_factors_long.weight", np.array(rope["long_factor"], np.float32))
        w.add_tensor("rope_factors_short.weight", np.array(rope["short_factor"], np.float32))
    if arch == "phi3":
        w.add_sliding_window(0)
    if arch == "gemma3":
        w.add_sliding_window(c.sliding_window)
        w.add_array("gemma3.attention.sliding_window_pattern", [t == "sliding_attention" for t in c.layer_types])
        w.add_float32("gemma3.rope.freq_base_swa", c.rope_parameters["sliding_attention"]["rope_theta"])
        w.add_attention_scale(c.query_pre_attn_scalar**-0.5)
    if tokenizer:
        tok, merges, template = tokenizer
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("gpt-2")
        w.add_token_list([tok.id_to_token(i) for i in range(c.vocab_size)])
        w.add_token_types([gguf.TokenType.NORMAL] * (c.vocab_size - 2) + [gguf.TokenType.CONTROL] * 2)
        w.add_token_merges(merges)
        w.add_bos_token_id(c.vocab_size - 2)
        w.add_eos_token_id(c.vocab_size - 1)
        w.add_add_bos_token(False)
        w.add_chat_template(template)
    names = gguf.get_tensor_name_map(next(a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == arch), c.num_hidden_layers)
    for name, tensor in sorted(model.state_dict().items()):
        if name == "lm_head.weight" and c.tie_word_embeddings:
            continue
        data = tensor.float().numpy()
        if arch == "gemma3" and name.endswith("norm.weight"):
            data = data + 1
        if arch == "llama" and ".q_proj." in name:
            data = pair_order(data, c.num_attention_heads)
        if arch == "llama" and ".k_proj." in name:
            data = pair_order(data, c.num_key_value_heads)
        w.add_tensor(names.get_name(name, (".weight", ".bias")), np.ascontiguousarray(data, np.float16 if data.ndim == 2 else np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


GGUF = {"llama": "llama", "llama3_rope": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3", "phi3": "phi3"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "models")
    out = parser.parse_args().out
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    cases = []
    for seed, (name, config, dtype, spelling) in enumerate(architectures()):
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(config)
        randomise(model, seed)
        save(model, out / name, dtype, spelling)
        tokenizer = add_tokenizer(out / name) if name == "llama" else None
        rng = np.random.default_rng(1000 + seed)
        # LongRoPE: a prompt within the original context takes the short factors, a longer one the long factors.
        for suffix, length, context in ([("_short", 24, 32), ("_long", 40, 64)] if name == "phi3" else [("", 24, 64)]):
            prompt = [int(i) for i in rng.integers(3, 90, length)]
            loaded, logits = logits_of(out / name, prompt)
            file = f"{name}{suffix}.logits.f32"
            (out / file).write_bytes(logits.tobytes())
            case = dict(name=name + suffix, path=name, prompt=prompt, max_context=context, logits=file, rows=ROWS,
                        vocab=logits.shape[1], tolerance=TOLERANCE)
            cases.append(case)
            if name in GGUF:
                cases.append(case | dict(name=name + suffix + "_gguf", path=name + ".gguf"))
        if name in GGUF:
            write_gguf(out / (name + ".gguf"), loaded, GGUF[name], tokenizer)
    lines = ",\n".join("  " + json.dumps(c) for c in cases)
    (out / "expected.json").write_text('{"cases": [\n' + lines + "\n]}\n")
    size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
    print(f"{len(cases)} cases, {size} bytes")
    assert size <= 1 << 20, "the fixtures must stay within 1 MiB"


if __name__ == "__main__":
    main()
