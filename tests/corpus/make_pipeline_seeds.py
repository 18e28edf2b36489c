#!/usr/bin/env python3
"""Seeds of genai_fuzz and pipeline_fuzz: configurations of ONNX Runtime GenAI, and with them the graphs of their stages.

  python tests/corpus/make_pipeline_seeds.py

Run by hand; no test needs Python. Needs the onnx package. The graphs are the seed operators_24 of importer_fuzz, cut in three.
"""
import json
import pathlib
import struct
import sys

import onnx
from onnx import TensorProto, helper

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from split_pipeline import part  # noqa: E402


def config(stages):
    return {"model": {"type": "decoder-pipeline", "context_length": 16, "vocab_size": 12, "bos_token_id": 1, "eos_token_id": [2],
                      "decoder": {"num_hidden_layers": 2, "pipeline": [{name: s} for name, s in stages.items()]}}}


def cut(model):
    producer = {o: n for n in model.graph.node for o in n.output if o}
    embedded = next(n.output[0] for n in model.graph.node if "input_ids" in n.input and n.op_type == "Gather")
    at = producer["logits"].input[0]
    while producer[at].op_type != "Norm":  # a function of the file
        at = producer[at].input[0]
    between = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, "T", 8]) for n in (embedded, at)}
    inputs, outputs = [v.name for v in model.graph.input], [v.name for v in model.graph.output]
    graphs = {"embedding": part(model, ["input_ids"], [embedded], between),
              "layers": part(model, [embedded] + [i for i in inputs if i != "input_ids"], [at] + [o for o in outputs if o != "logits"], between),
              "head": part(model, [at], ["logits"], between)}
    return graphs, {name: {"filename": f"{name}.onnx", "inputs": [v.name for v in g.graph.input], "outputs": [v.name for v in g.graph.output]}
                    for name, g in graphs.items()}


def main():
    texts, pipelines = HERE / "genai_fuzz", HERE / "pipeline_fuzz"
    for folder in (texts, pipelines):
        folder.mkdir(exist_ok=True)
    graphs, stages = cut(onnx.load_from_string((HERE / "importer_fuzz/operators_24").read_bytes()))
    variants = {"three": stages}
    variants["cycle"] = {n: stages[n] for n in ("layers", "embedding", "head")}
    variants["nobody"] = {n: dict(s) for n, s in stages.items()}
    variants["nobody"]["head"]["inputs"] = ["absent"]
    variants["forwarded"] = {n: dict(s) for n, s in stages.items()}
    variants["forwarded"]["embedding"] |= {"output_names_forwarder": {stages["embedding"]["outputs"][0]: "hidden"}, "run_on_prompt": True}
    variants["prompts"] = {n: s | {"run_on_token_gen": n != "layers"} for n, s in stages.items()}
    for name, s in variants.items():
        text = json.dumps(config(s)).encode()
        (texts / name).write_bytes(text)
        parts = [text] + [graphs[n].SerializeToString() for n in s]
        (pipelines / name).write_bytes(b"".join(struct.pack("<I", len(p)) + p for p in parts))
    one = '{"filename": "a.onnx", "inputs": ["x"], "outputs": ["y"]}'
    (texts / "same_name").write_text('{"model": {"decoder": {"pipeline": [{"a": %s, "a": %s}]}}}' % (one, one))
    (texts / "thousand").write_text('{"model": {"decoder": {"pipeline": [{%s}]}}}' % ", ".join('"%d": {"filename": "a"}' % i for i in range(1000)))
    (texts / "outside").write_text('{"model": {"decoder": {"pipeline": [{"a": {"filename": "../../etc/passwd"}}]}}}')
    (texts / "plain").write_bytes((HERE.parent / "tiny/onnx_decoders/builder_f32/genai_config.json").read_bytes())


if __name__ == "__main__":
    main()
