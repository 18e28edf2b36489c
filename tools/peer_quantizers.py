#!/usr/bin/env python3
"""Rounds a Llama-type Hugging Face folder with Intel's neural-compressor (RTN, GPTQ or AWQ, on a CPU), for a comparison with `slm quantize`.

  tools/peer_quantizers.py text OUT.txt                              the built-in calibration text as plain text, for both sides
  tools/peer_quantizers.py round FOLDER OUT --method rtn|gptq|awq --calib OUT.txt [--zeros] [--option NAME=VALUE …]
  tools/peer_quantizers.py compare FOLDER OURS THEIRS --calib OUT.txt --slm slm     by matrix: what products change, values that agree

`round` writes a folder of float weights with the values that the rounded ones stand for (factors of AWQ are multiplied into its columns), which
`slm eval OUT kld --base FOLDER --compute f32` judges as it does a folder of ours. Embedding and head stay float; 4 bits in groups of 32; all
whole sequences of 512 tokens of the text, for ours `--calib OUT.txt --calib-seqs 999`. Needs neural-compressor-pt 3.10, torch and transformers.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[1]
TOKENS, GROUP, BITS = 512, 32, 4


def plain_text(out):
    parts = []
    for line in (SOURCE / "apps/cli/calibration_mix.jsonl").read_text(encoding="utf-8").splitlines():
        j = json.loads(line)
        parts.append(j["text"] if "text" in j else "\n\n".join(m["content"] for m in j["messages"]))
    out.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def open_model(folder):
    import torch
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return model, transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))


def sequences_of(tokenizer, text):
    import torch
    ids = tokenizer(text.read_text(encoding="utf-8"), add_special_tokens=False)["input_ids"]
    return [torch.tensor([ids[at:at + TOKENS]]) for at in range(0, len(ids) - TOKENS + 1, TOKENS)]


def is_layer_matrix(name):
    return ".layers." in name and name.endswith("_proj.weight")


def write_folder(folder, out, weights):
    from safetensors.torch import load_file, save_file
    out.mkdir()
    for file in folder.iterdir():
        if file.suffix in (".json", ".txt", ".jinja"):
            shutil.copy(file, out / file.name)
    tensors = load_file(folder / "model.safetensors")
    missing = [n for n in tensors if is_layer_matrix(n) and n not in weights]
    if missing:
        raise SystemExit(f"not rounded: {missing}")
    save_file({n: weights.get(n, t).contiguous() for n, t in tensors.items()}, out / "model.safetensors", {"format": "pt"})


def round_folder(a):
    from neural_compressor.torch import quantization as inc
    model, tokenizer = open_model(a.folder)
    data = sequences_of(tokenizer, a.calib)
    kind = {"rtn": inc.RTNConfig, "gptq": inc.GPTQConfig, "awq": inc.AWQConfig}[a.method]
    options = {k: json.loads(v) for k, v in (o.split("=", 1) for o in a.option)}
    config = kind(bits=BITS, group_size=GROUP, use_sym=not a.zeros, **options)
    config.set_local(".*lm_head.*", kind(dtype="fp32"))
    original = {n: p.detach().clone() for n, p in model.named_parameters()}

    def read(m):
        for ids in data:
            m(ids)
    if a.method == "awq":
        model = inc.prepare(model, config, example_inputs=data[0])
    else:
        model = inc.prepare(model, config)
    if a.method != "rtn":
        read(model)
    model = inc.convert(model)
    weights = {}
    for name, module in model.named_modules():
        scale = getattr(module, "input_scale", None)  # AWQ's factors, where they were not absorbed
        linear = getattr(module, "linear", module)
        if hasattr(linear, "recover") and name.endswith("_proj"):
            made = linear.recover()
            values = (made.weight if hasattr(made, "weight") else made).detach().float()
            weights[name + ".weight"] = values * scale if scale is not None else values
        elif name.endswith("_proj") and name + ".weight" in original and hasattr(linear, "weight"):
            values = linear.weight.detach().float()
            weights[name + ".weight"] = values * scale if scale is not None else values
    for name, p in model.named_parameters():  # norms that took factors
        if name.endswith("norm.weight") and not bool((p == original[name]).all()):
            weights[name] = p.detach().float()
    write_folder(a.folder, a.out, weights)
    changed = sum(not bool((weights[n] == original[n]).all()) for n in weights)
    print(f"{a.method}: {len(data)} sequences, {changed} of {len(weights)} tensors changed")


def second_moments(model, data):
    """E[x x^T] of what each matrix of the layers reads, of the float model."""
    import torch
    sums, hooks = {}, []
    for name, module in model.named_modules():
        if is_layer_matrix(name + ".weight"):
            def hook(_, inputs, name=name + ".weight"):
                x = inputs[0].reshape(-1, inputs[0].shape[-1]).double()
                sums[name] = sums.get(name, 0) + x.T @ x
            hooks.append(module.register_forward_pre_hook(hook))
    with torch.no_grad():
        for ids in data:
            model(ids)
    for h in hooks:
        h.remove()
    return sums


def dumped(slm, folder, name, shape):
    """Values of a matrix that is packed in one of our formats."""
    import torch
    with tempfile.TemporaryDirectory() as d:
        subprocess.run([slm, "dump", folder, "--tensor", name, "--out", pathlib.Path(d) / "f32"], check=True, capture_output=True)
        return torch.frombuffer(bytearray((pathlib.Path(d) / "f32").read_bytes()), dtype=torch.float32).reshape(shape)


def compare(a):
    from safetensors.torch import load_file
    model, tokenizer = open_model(a.folder)
    moments = second_moments(model, sequences_of(tokenizer, a.calib))
    want, theirs = load_file(a.folder / "model.safetensors"), load_file(a.theirs / "model.safetensors")
    worse = n = 0
    print(f"{'change of products, relative':<44} {'ours':>10} {'theirs':>10} {'ratio':>7} {'same values':>12}")
    for name in sorted(moments):
        w, h = want[name].double(), moments[name]
        ours = dumped(a.slm, a.ours, name, w.shape).double()
        change = lambda values: float((((values - w) @ h) * (values - w)).sum() / ((w @ h) * w).sum())
        mine, other = change(ours), change(theirs[name].double())
        groups = w.reshape(w.shape[0], -1, GROUP)
        step = ((groups.amax(-1, True) - groups.amin(-1, True)) / (2 ** BITS - 1)).expand_as(groups).reshape(w.shape)
        same = float(((ours - theirs[name].double()).abs() < step / 4).double().mean())
        print(f"{name:<44} {mine:10.3e} {other:10.3e} {mine / other:7.3f} {100 * same:10.2f} %")
        n += 1
        worse += mine > other * 1.001
    print(f"ours is worse by more than 0.1 % in {worse} of {n}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    p = verbs.add_parser("text")
    p.add_argument("out", type=pathlib.Path)
    p = verbs.add_parser("round")
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--method", choices=("rtn", "gptq", "awq"), required=True)
    p.add_argument("--calib", type=pathlib.Path, required=True)
    p.add_argument("--zeros", action="store_true", help="zero points; without: symmetric")
    p.add_argument("--option", action="append", default=[], help="of the package's configuration, the value as JSON")
    p = verbs.add_parser("compare")
    for name in ("folder", "ours", "theirs"):
        p.add_argument(name, type=pathlib.Path)
    p.add_argument("--calib", type=pathlib.Path, required=True)
    p.add_argument("--slm", default="slm")
    a = parser.parse_args()
    if a.verb == "text":
        plain_text(a.out)
    else:
        {"round": round_folder, "compare": compare}[a.verb](a)


if __name__ == "__main__":
    main()
