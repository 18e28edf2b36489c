#!/usr/bin/env python3
"""Tiny random models through ONNX Runtime GenAI's own model builder, and their greedy tokens in onnxruntime-genai beside those of `slm`.

  builder_folders.py make OUT [NAME…]         Python with torch, transformers and onnxruntime-genai: OUT/NAME-fp32, OUT/NAME-int4
  builder_folders.py compare SLM FOLDER… [-n 40] [--ort LIBRARY]    Python with onnxruntime-genai: exit 1 when a difference is no near tie

By hand: torch is too large for .ci/run. Nothing is fetched. Products of codes are of accuracy level 1 (floats): at the usual level 4 the runtime
rounds activations to int8, and random models part at near ties. The kinds of graph that it found are in make_onnx_decoders.py.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

TOKENIZER = pathlib.Path(__file__).parent / "models/llama"
PROMPTS = ("The cat sat on the mat and", "def fibonacci(n):", "Water boils at 100 degrees because")
NEAR = {"own": 0.03, "own f32": 1e-4, "ort": 0}  # of the logits' spread; "own" rounds activations to int8


def configs(transformers):
    base = {"vocab_size": 272, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    rope = {"type": "longrope", "rope_type": "longrope", "short_factor": [1 + 0.05 * i for i in range(8)], "long_factor": [1.5 + 0.5 * i for i in range(8)]}
    local = {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8}
    yield "phi3", transformers.Phi3Config(**base, original_max_position_embeddings=64, rope_scaling=rope)
    yield "qwen2", transformers.Qwen2Config(**base)
    yield "qwen3", transformers.Qwen3Config(**base, head_dim=16)
    yield "gemma2", transformers.Gemma2Config(**base, **local)
    yield "gemma3", transformers.Gemma3TextConfig(**base, **local, layer_types=["sliding_attention", "full_attention"])
    yield "llama", transformers.LlamaConfig(**base)
    yield "smollm3", transformers.SmolLM3Config(**base)
    yield "granite", transformers.GraniteConfig(**base, embedding_multiplier=12.0, logits_scaling=8.0, residual_multiplier=0.22, attention_multiplier=0.0625)


def flat_rotation(transformers):
    """The builder reads one set of rotations; transformers 5 keeps one a kind of layer (Gemma 3)."""
    load = transformers.AutoConfig.from_pretrained

    def patched(*args, **more):
        made = load(*args, **more)
        c = made[0] if isinstance(made, tuple) else made
        kinds = getattr(c, "rope_parameters", None) or {}
        if "full_attention" in kinds:
            c.rope_theta, c.rope_local_base_freq = (kinds[k]["rope_theta"] for k in ("full_attention", "sliding_attention"))
            c.rope_parameters = {**kinds, "rope_type": "default", "rope_theta": c.rope_theta}
        return made

    transformers.AutoConfig.from_pretrained = patched


def build(folder, out, precision):
    """In a process of its own: the builder is a program."""
    import runpy

    import transformers
    flat_rotation(transformers)
    sys.argv = ["builder", "-i", folder, "-o", out, "-p", precision, "-e", "cpu", "-c", out + ".cache", "--extra_options", "accuracy_level=1"]
    runpy.run_module("onnxruntime_genai.models.builder", run_name="__main__")


def make(out, names):
    import torch
    import transformers
    for name, config in configs(transformers):
        if names and name not in names:
            continue
        torch.manual_seed(3)
        model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
        with torch.no_grad():
            for key, p in model.named_parameters():
                p.add_(torch.randn_like(p) * 0.1) if "norm" in key else p.normal_(0, 0.25)
        source = out / (name + ".hf")
        model.save_pretrained(source)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            (source / file).write_bytes((TOKENIZER / file).read_bytes())
        for precision in ("fp32", "int4"):
            subprocess.run([sys.executable, __file__, "build", str(source), str(out / f"{name}-{precision}"), precision], check=True,
                           env={**os.environ, "HF_HUB_OFFLINE": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            print(name, precision, flush=True)


def greedy(model, ids, n):
    """Tokens, and by how much of the logits' spread each was ahead of the next."""
    import numpy as np
    import onnxruntime_genai as genai
    p = genai.GeneratorParams(model)
    p.set_search_options(max_length=len(ids) + n + 1, do_sample=False)
    g = genai.Generator(model, p)
    g.append_tokens(ids)
    out, ahead = [], []
    for _ in range(n):
        logits = np.array(g.get_logits(), np.float32).reshape(-1)
        best = np.sort(logits)[::-1]
        out.append(int(logits.argmax()))
        ahead.append(float((best[0] - best[1]) / logits.std()))
        g.append_tokens([out[-1]])
    return out, ahead


def compare(slm, folder, n, library):
    import onnxruntime_genai as genai
    model, wrong = genai.Model(folder), 0
    ways = {"own": (), "own f32": ("--compute", "f32", "--kv", "f32"), "ort": ("--backend", "ort", *(("--ort", library) if library else ()))}
    for text in PROMPTS:
        ids = json.loads(subprocess.run([slm, "tokenize", folder, "--json"], input=text, capture_output=True, text=True, check=True).stdout)["ids"]
        for way, words in ways.items():
            run = subprocess.run([slm, "run", folder, "--raw", "--ids", "--ignore-eos", "-n", str(n), "-p", text, "--json", *words],
                                 capture_output=True, text=True)
            if run.returncode:
                print(f"{folder}: {way}: {run.stderr.strip()}")
                wrong += 1
                continue
            got = json.loads(run.stdout.splitlines()[-1])
            begin = [1] * (got["prompt_tokens"] - len(ids))
            want, ahead = greedy(model, begin + ids, len(got["ids"]))
            at = next((i for i, (a, b) in enumerate(zip(want, got["ids"])) if a != b), None)
            wrong += at is not None and ahead[at] > NEAR[way]
            said = "equal" if at is None else f"differs at {at}, where the next was {ahead[at]:.4f} of the spread behind"
            print(f"{folder}: {text!r}: {way}: {len(want)} tokens: {said}")
    return wrong


if __name__ == "__main__":
    if sys.argv[1] == "build":
        build(*sys.argv[2:])
        sys.exit()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("make", "compare"))
    parser.add_argument("words", nargs="+")
    parser.add_argument("-n", type=int, default=40)
    parser.add_argument("--ort", default="")
    o = parser.parse_args()
    if o.verb == "make":
        pathlib.Path(o.words[0]).mkdir(exist_ok=True)
        make(pathlib.Path(o.words[0]), o.words[1:])
    else:
        sys.exit(sum(compare(o.words[0], folder, o.n, o.ort) for folder in o.words[1:]) > 0)
