"""A folder of ONNX Runtime GenAI with one decoder graph as one with a pipeline of three: embedding, layers, head. Needs the package onnx.

  split_pipeline.py FOLDER OUT
"""
import json
import pathlib
import shutil
import sys

NORMS = ("SkipSimplifiedLayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization")


def part(model, inputs, outputs, names):
    """The nodes that make `outputs` from `inputs` and weights; `names`: types of values that are neither in the graph's own lists."""
    import onnx
    producer = {o: n for n in model.graph.node for o in n.output if o}
    needed, open_names, used = set(), list(outputs), set()
    while open_names:
        name = open_names.pop()
        used.add(name)
        node = producer.get(name)
        if name in inputs or node is None or id(node) in needed:
            continue
        needed.add(id(node))
        open_names += [i for i in node.input if i]
    known = {v.name: v for v in (*model.graph.input, *model.graph.output)} | names
    out = onnx.ModelProto()
    out.CopyFrom(model)
    graph = out.graph
    del graph.node[:], graph.initializer[:], graph.input[:], graph.output[:], graph.value_info[:]
    graph.node.extend(n for n in model.graph.node if id(n) in needed)
    graph.initializer.extend(t for t in model.graph.initializer if t.name in used)
    graph.input.extend(known[i] for i in inputs if i in used)
    graph.output.extend(known[o] for o in outputs)
    return out


def split(folder, out, rename=None):
    """`rename`: {name of a value between stages in the earlier one: in the later one}, by output_names_forwarder."""
    import onnx
    from onnx import TensorProto, helper
    folder, out = pathlib.Path(folder), pathlib.Path(out)
    config = json.loads((folder / "genai_config.json").read_text())
    decoder = config["model"]["decoder"]
    model = onnx.load(str(folder / decoder.pop("filename")), load_external_data=False)
    producer = {o: n for n in model.graph.node for o in n.output if o}
    embedded = next(n.output[0] for n in model.graph.node if "input_ids" in n.input and n.op_type.startswith("Gather"))
    node = producer["logits"]
    while node.op_type not in NORMS:
        at, node = node.input[0], producer[node.input[0]]
    values = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch_size", "sequence_length", decoder["hidden_size"]]) for n in (embedded, at)}
    inputs, outputs = [v.name for v in model.graph.input], [v.name for v in model.graph.output]
    stages = {"embedding": part(model, ["input_ids"], [embedded], values),
              "layers": part(model, [embedded] + [i for i in inputs if i != "input_ids"], [at] + [o for o in outputs if o != "logits"], values),
              "lm_head": part(model, [at] + [i for i in inputs if i != "input_ids"], ["logits"], values)}
    out.mkdir()
    for file in folder.iterdir():
        if file.suffix != ".onnx" and file.name != "genai_config.json":
            shutil.copy(file, out)
    for name, graph in stages.items():
        onnx.save(graph, str(out / f"{name}.onnx"))
    pipeline = {name: {"filename": f"{name}.onnx", "inputs": [v.name for v in g.graph.input], "outputs": [v.name for v in g.graph.output]}
                for name, g in stages.items()}
    pipeline["lm_head"]["is_lm_head"] = True
    if rename:
        to = "hidden_states_of_" + rename
        later = onnx.load(str(out / "layers.onnx"), load_external_data=False)
        for v in later.graph.input:
            v.name = to if v.name == embedded else v.name
        for n in later.graph.node:
            n.input[:] = [to if i == embedded else i for i in n.input]
        onnx.save(later, str(out / "layers.onnx"))
        pipeline["layers"]["inputs"] = [v.name for v in later.graph.input]
        pipeline["embedding"]["output_names_forwarder"] = {embedded: to}
    config["model"]["type"] = "decoder-pipeline"
    decoder["pipeline"] = [{name: stage} for name, stage in pipeline.items()]
    (out / "genai_config.json").write_text(json.dumps(config, indent=1))
    return out


if __name__ == "__main__":
    split(*sys.argv[1:])
