#!/usr/bin/env python3
"""Divergence of quantized folders from a float one, all run by ONNX Runtime; and folders rounded by ONNX Runtime's own quantizers.

  ort_divergence.py round FLOAT METHOD NEW      METHOD: default, default-sym, rtn, rtn-sym, k_quant, hqq; 4 bits in blocks of 32
  ort_divergence.py measure FLOAT FOLDER... --slm SLM --model MODEL --text FILE [--windows 12] [--window 512] [--json]

Folders are those of `slm export --to genai --exact`; the head stays what it is. MODEL only gives the tokenizer: any source of the folders.
Windows and figures are those of `slm eval kld --bos always`: a begin token before each window, all but its first token scored.
Needs numpy, onnx, onnxruntime; `round` also onnx_ir, hqq torch.
"""
import argparse
import json
import math
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime

BLOCK = 32


def float_products(graph):
    """Names of the nodes that are not to be rounded: what gives the logits."""
    return [n.name for n in graph.node if "logits" in n.output]


def round_folder(source, method, out):
    from onnxruntime.quantization import matmul_nbits_quantizer as q
    symmetric = method.endswith("-sym")
    config = {"default": lambda: q.DefaultWeightOnlyQuantConfig(block_size=BLOCK, is_symmetric=symmetric, accuracy_level=1),
              "rtn": q.RTNWeightOnlyQuantConfig, "k_quant": q.KQuantWeightOnlyQuantConfig,
              "hqq": lambda: q.HQQWeightOnlyQuantConfig(block_size=BLOCK)}[method.removesuffix("-sym")]()
    model = onnx.load(str(source / "model.onnx"))
    quantizer = q.MatMulNBitsQuantizer(model, block_size=BLOCK, is_symmetric=symmetric, accuracy_level=1,
                                       nodes_to_exclude=float_products(model.graph), algo_config=config)
    quantizer.process()
    out.mkdir()
    for file in source.iterdir():
        if not file.name.startswith("model.onnx"):
            shutil.copy(file, out)
    quantizer.model.save_model_to_file(str(out / "model.onnx"), use_external_data_format=True)


class Runner:
    """A folder's graph with its last-token Gather taken out, so that it gives the logits of all tokens."""

    def __init__(self, folder, threads):
        model = onnx.load(str(folder / "model.onnx"), load_external_data=False)
        nodes = model.graph.node
        head, = [n for n in nodes if "logits" in n.output]
        last, = [n for n in nodes if n.op_type == "Gather" and n.output[0] == head.input[0]]
        head.input[0] = last.input[0]
        nodes.remove(last)
        for output in model.graph.output:
            if output.name == "logits":
                output.type.tensor_type.shape.dim[1].dim_param = "sequence_length"
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self.cache = {i.name: np.zeros((1, i.shape[1], 0, i.shape[3]), np.float32)
                      for i in self.session.get_inputs() if i.name.startswith("past_key_values.")}
        self.bytes = sum(f.stat().st_size for f in folder.glob("model.onnx*"))

    def logits(self, tokens):
        ids = np.array([tokens], np.int64)
        return self.session.run(["logits"], {"input_ids": ids, "attention_mask": np.ones_like(ids), **self.cache})[0][0]


def log_probabilities(logits):
    x = logits.astype(np.float64)
    x -= x.max(1, keepdims=True)
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def windows(arguments, folder):
    text = pathlib.Path(arguments.text).read_bytes()
    out = subprocess.run([arguments.slm, "tokenize", arguments.model, "--json"], input=text, stdout=subprocess.PIPE, check=True).stdout
    ids = json.loads(out)["ids"]
    begin = json.loads((folder / "genai_config.json").read_text())["model"]["bos_token_id"]
    width = arguments.window
    return [[begin, *ids[i * width:(i + 1) * width]] for i in range(min(arguments.windows, len(ids) // width))]


def error(x):
    return math.sqrt(np.var(x) / (len(x) - 1))


def measure(arguments):
    base = Runner(arguments.float, arguments.threads)
    others = {f: Runner(f, arguments.threads) for f in arguments.folders}
    kld, top, delta = ({f: [] for f in others} for _ in range(3))
    nll = []
    for tokens in windows(arguments, arguments.float):
        rows, right = np.arange(1, len(tokens) - 1), np.array(tokens[2:])  # nothing says what the window's first token is
        b = log_probabilities(base.logits(tokens))[1:-1]
        nll.extend(-b[rows - 1, right])
        for folder, runner in others.items():
            p = log_probabilities(runner.logits(tokens))[1:-1]
            kld[folder].extend((np.exp(b) * (b - p)).sum(1))
            top[folder].extend(p.argmax(1) == b.argmax(1))
            delta[folder].extend((b - p)[rows - 1, right])
    print(f"float: perplexity {math.exp(np.mean(nll)):.4f}, {len(nll)} tokens", file=sys.stderr)
    for folder, runner in others.items():
        result = {"folder": folder.name, "tokens": len(nll), "bytes": runner.bytes,
                  "kld": {"mean": float(np.mean(kld[folder])), "sigma": error(kld[folder])}, "top1": float(np.mean(top[folder])),
                  "dlnppl": {"mean": float(np.mean(delta[folder])), "sigma": error(delta[folder])}, "ppl": math.exp(np.mean(nll))}
        if arguments.json:
            print(json.dumps(result))
        else:
            print(f"{folder.name}: KLD {result['kld']['mean']:.6f} +- {result['kld']['sigma']:.6f}, "
                  f"same top token {100 * result['top1']:.2f} %, "
                  f"delta ln PPL {result['dlnppl']['mean']:.5f} +- {result['dlnppl']['sigma']:.5f}, {runner.bytes} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    r = verbs.add_parser("round")
    r.add_argument("float", type=pathlib.Path)
    r.add_argument("method", choices=("default", "default-sym", "rtn", "rtn-sym", "k_quant", "hqq"))
    r.add_argument("new", type=pathlib.Path)
    m = verbs.add_parser("measure")
    m.add_argument("float", type=pathlib.Path)
    m.add_argument("folders", type=pathlib.Path, nargs="+")
    for name in ("slm", "model", "text"):
        m.add_argument("--" + name, required=True)
    m.add_argument("--windows", type=int, default=12)
    m.add_argument("--window", type=int, default=512)
    m.add_argument("--threads", type=int, default=2)
    m.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.verb == "round":
        round_folder(arguments.float, arguments.method, arguments.new)
    else:
        measure(arguments)


if __name__ == "__main__":
    main()
