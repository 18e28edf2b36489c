#!/usr/bin/env python3
"""Writes tests/tiny/onnx_decoders, and seeds of importer_fuzz: decoders in ONNX as other software writes them, with logits of ONNX Runtime.

Run by hand; no test needs Python. Needs numpy, onnx, onnxruntime. The weights are those of tests/tiny/models; the graphs follow published
patterns: ONNX Runtime GenAI's model builder (MatMulNBits, GroupQueryAttention, lengths from the attention mask), plain exports of
transformers (norms, rotation and attention in single steps), and those with ONNX's own operators of attention, functions and branches.
expected.json has one entry a case: prompt, rows, vocabulary and the file of the logits [rows, vocabulary] f32 of the prompt's last positions.
"""
import json
import shutil
import struct
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import AttributeProto, TensorProto, helper, load, numpy_helper, save

HERE = Path(__file__).parent
OUT = HERE / "onnx_decoders"
CORPUS = HERE.parent / "corpus/importer_fuzz"
ROWS = 6


def tensors(folder):
    """{name: f32 array} of a safetensors file."""
    data = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    head.pop("__metadata__", None)
    out = {}
    for name, t in head.items():
        raw = data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]]
        if t["dtype"] == "BF16":
            a = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            a = np.frombuffer(raw, {"F16": np.float16, "F32": np.float32}[t["dtype"]]).astype(np.float32)
        out[name.removeprefix("model.")] = a.reshape(t["shape"])
    return out


SMALL = {"model_type": "gemma2", "vocab_size": 12, "hidden_size": 8, "head_dim": 4, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 1, "intermediate_size": 8, "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "sliding_window": 3,
         "query_pre_attn_scalar": 4, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0, "bos_token_id": 1, "eos_token_id": 2}


def small(c):
    """Weights of a seed for the fuzzer."""
    e, f, q, kv = c["hidden_size"], c["intermediate_size"], *(c[k] * c["head_dim"] for k in ("num_attention_heads", "num_key_value_heads"))
    shapes = {"embed_tokens": (c["vocab_size"], e), "norm": (e,)}
    for i in range(c["num_hidden_layers"]):
        norms = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
        shapes |= {f"layers.{i}.{n}": (e,) for n in norms}
        shapes |= {f"layers.{i}.self_attn.{m}_proj": s for m, s in (("q", (q, e)), ("k", (kv, e)), ("v", (kv, e)), ("o", (e, q)))}
        shapes |= {f"layers.{i}.mlp.{m}_proj": s for m, s in (("gate", (f, e)), ("up", (f, e)), ("down", (e, f)))}
    rng = np.random.default_rng(1)
    return {k + ".weight": rng.standard_normal(s).astype(np.float32) for k, s in shapes.items()}


class Graph:
    """Nodes and weights of one model; `step` names its result."""

    def __init__(self, name, folder):
        self.name, self.w = name, small(SMALL) if folder == "small" else tensors(HERE / "models" / folder)
        self.c = SMALL if folder == "small" else json.loads((HERE / "models" / folder / "config.json").read_text())
        self.nodes, self.weights, self.inputs, self.outputs, self.known, self.functions = [], [], [], [], set(), []
        c = self.c
        self.layers, self.heads, self.kv = c["num_hidden_layers"], c["num_attention_heads"], c["num_key_value_heads"]
        self.width, self.e = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"], c["hidden_size"]
        self.type, self.n = np.float32, 0

    def step(self, op, inputs, name=None, domain="", outputs=None, **attributes):
        self.n += 1
        name = name or f"{op}_{self.n}"
        outputs = outputs or [name + ".out"]
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name, domain=domain, **attributes))
        return outputs[0]

    def const(self, name, value):
        if name not in self.known:
            self.known.add(name)
            self.weights.append(numpy_helper.from_array(np.array(value, order="C"), name))
        return name

    def ints(self, *values):
        return self.const("ints_" + "_".join(map(str, values)).replace("-", "m"), np.array(values, np.int64))

    def number(self, value):
        return self.const(f"number_{value}", np.array(value, self.type))

    def raw(self, name, kind, dims, data):
        self.known.add(name)
        self.weights.append(helper.make_tensor(name, kind, dims, data, raw=True))
        return name

    def cache(self, symbol_past="past_sequence_length", symbol_total="total_sequence_length"):
        kind = TensorProto.FLOAT16 if self.type == np.float16 else TensorProto.FLOAT
        value = helper.make_tensor_value_info
        for i in range(self.layers):
            for what in ("key", "value"):
                self.inputs.append(value(f"past_key_values.{i}.{what}", kind, ["batch_size", self.kv, symbol_past, self.width]))
                self.outputs.append(value(f"present.{i}.{what}", kind, ["batch_size", self.kv, symbol_total, self.width]))
        self.outputs.insert(0, value("logits", kind, ["batch_size", "sequence_length", self.c["vocab_size"]]))

    def model(self, opset, microsoft):
        graph = helper.make_graph(self.nodes, "main_graph", self.inputs, self.outputs, self.weights)
        opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid("com.microsoft", 1)] if microsoft else [])
        opsets += [helper.make_opsetid("tests", 1)] if self.functions else []
        return helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="tests", functions=self.functions)

    def write(self, opset, microsoft, config):
        folder = OUT / self.name
        folder.mkdir(parents=True)
        model = self.model(opset, microsoft)
        save(model, str(folder / "model.onnx"), save_as_external_data=microsoft, location="model.onnx.data", size_threshold=512)
        for name, content in config.items():
            (folder / name).write_text(json.dumps(content, indent=1) + "\n")
        case = self.logits(folder)
        if self.name == "builder_window":  # how the cache is kept, not what is computed; it would want past and present in one memory
            model = load(str(folder / "model.onnx"), load_external_data=False)
            for node in model.graph.node:
                if node.op_type == "GroupQueryAttention":
                    node.attribute.append(helper.make_attribute("sliding_window_cache", 1))
            (folder / "model.onnx").write_bytes(model.SerializeToString())
        return case

    def logits(self, folder):
        options = onnxruntime.SessionOptions()  # its fusions would multiply by codes with activations rounded to int8
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
        prompt = [int(x) for x in np.random.default_rng(len(self.name)).integers(3, self.c["vocab_size"] - 8, 20)]
        past = {i.name: np.zeros((1, i.shape[1], 0, i.shape[3]), self.type) for i in session.get_inputs() if i.name.startswith("past")}
        names, rows, at = [o.name for o in session.get_outputs()], [], 0
        for part in [prompt[:len(prompt) - ROWS + 1]] + [[t] for t in prompt[len(prompt) - ROWS + 1:]]:
            at += len(part)
            feed = {"input_ids": np.array([part], np.int64), "attention_mask": np.ones((1, at), np.int64)}
            if any(i.name == "position_ids" for i in session.get_inputs()):
                feed["position_ids"] = np.arange(at - len(part), at, dtype=np.int64)[None]
            out = dict(zip(names, session.run(None, feed | past)))
            past = {k: out[k.replace("past_key_values", "present")] for k in past}
            rows.append(out["logits"][0, -1])
        np.array(rows, np.float32).tofile(OUT / f"{self.name}.logits.f32")
        return {"name": self.name, "prompt": prompt, "rows": ROWS, "vocab": self.c["vocab_size"], "logits": f"{self.name}.logits.f32",
                "tolerance": 4e-3 if self.type == np.float16 else 2e-4}


def blocks(w, bits, block):
    """Asymmetric rounding in blocks of columns: codes [n, groups, block], scales and zero points [n, groups]."""
    n, k = w.shape
    groups = -(-k // block)
    padded = np.zeros((n, groups * block), np.float32)
    padded[:, :k] = w
    g, top = padded.reshape(n, groups, block), 2**bits - 1
    low, high = np.minimum(g.min(-1), 0), np.maximum(g.max(-1), 0)
    scale = np.maximum((high - low) / top, 1e-6).astype(np.float16).astype(np.float32)
    zero = np.clip(np.rint(-low / scale), 0, top)
    return np.clip(np.rint(g / scale[..., None] + zero[..., None]), 0, top).astype(np.uint8), scale, zero.astype(np.uint8)


def packed(codes, bits):
    """Along the last axis, lowest bits first, padded to whole bytes."""
    per = 8 // bits
    pad = -codes.shape[-1] % per
    codes = np.concatenate([codes, np.zeros(codes.shape[:-1] + (pad,), np.uint8)], -1)
    return sum((codes[..., i::per] << (i * bits)).astype(np.uint8) for i in range(per))


class Builder(Graph):
    """A graph as ONNX Runtime GenAI's model builder makes it."""

    def __init__(self, name, folder, bits=0, block=32, pack=False, kind=np.float32, rotary_nodes=False, window=-1):
        super().__init__(name, folder)
        self.window = window
        self.bits, self.block, self.pack, self.type, self.rotary_nodes = bits, block, pack, kind, rotary_nodes

    def table(self):
        rope = self.c.get("rope_scaling") or {}
        freq = self.c.get("rope_theta", 10000.0) ** -(np.arange(0, self.width, 2) / self.width)
        if rope.get("rope_type") == "llama3":
            turns, low, high = rope["original_max_position_embeddings"] * freq / (2 * np.pi), rope["low_freq_factor"], rope["high_freq_factor"]
            blend = np.clip((turns - low) / (high - low), 0, 1)
            freq = (1 - blend) * freq / rope["factor"] + blend * freq
        angle = np.arange(self.c["max_position_embeddings"])[:, None] * freq
        return self.const("cos_cache", np.cos(angle).astype(self.type)), self.const("sin_cache", np.sin(angle).astype(self.type))

    def product(self, x, name, w, bias=None, block=None):
        node = "/" + name.replace(".", "/") + "/MatMul"
        if self.bits:
            codes, scales, zeros = blocks(w, self.bits, block or self.block)
            b = self.const(name + ".MatMul.weight_Q4", packed(codes, self.bits))
            s = self.const(name + ".MatMul.weight_scales", scales)
            z = self.const(name + ".MatMul.weight_zp", packed(zeros, self.bits))
            y = self.step("MatMulNBits", [x, b, s, z], node + "NBits", "com.microsoft", N=w.shape[0], K=w.shape[1], bits=self.bits,
                          block_size=block or self.block, accuracy_level=1)
        else:
            y = self.step("MatMul", [x, self.const(name + ".MatMul.weight", w.T.astype(self.type))], node)
        return y if bias is None else self.step("Add", [y, self.const(name + ".Add.bias", bias.astype(self.type))], node + "/Add")

    def norm(self, name, x, skip=None):
        weight, eps = self.const(name + ".weight", self.w[name + ".weight"].astype(self.type)), self.c["rms_norm_eps"]
        node = "/" + name.replace(".", "/") + "/LayerNorm"
        if skip is None:
            return self.step("SimplifiedLayerNormalization", [x, weight], node, axis=-1, epsilon=eps, stash_type=1), x
        outs = [node + "/output_0", "", "", node + "/output_3"]
        self.step("SkipSimplifiedLayerNormalization", [x, skip, weight], node, "com.microsoft", outs, epsilon=eps)
        return outs[0], outs[3]

    def attention(self, i, x, seqlens, total):
        p, w = f"layers.{i}.self_attn", self.w
        cos, sin = self.table()
        if self.pack:
            stack = np.concatenate([w[f"{p}.{m}_proj.weight"] for m in "qkv"])
            q, k, v = self.product(x, f"{p}.qkv_proj", stack), "", ""
        else:
            q, k, v = (self.product(x, f"{p}.{m}_proj", w[f"{p}.{m}_proj.weight"]) for m in "qkv")
            if f"{p}.q_norm.weight" in w:
                q, k = (self.head_norm(f"{p}.{m}_norm", y, h) for m, y, h in (("q", q, self.heads), ("k", k, self.kv)))
            if self.rotary_nodes:
                q, k = (self.step("RotaryEmbedding", [y, "position_ids", cos, sin], f"/{p}/{m}_rotary/RotaryEmbedding", "com.microsoft",
                                  num_heads=h if self.width * h else 0, interleaved=0, rotary_embedding_dim=0)
                        for m, y, h in (("q", q, self.heads), ("k", k, self.kv)))
        inputs = [q, k, v, f"past_key_values.{i}.key", f"past_key_values.{i}.value", seqlens, total]
        inputs += [] if self.rotary_nodes else [cos, sin]
        y = self.step("GroupQueryAttention", inputs, f"/{p}/GroupQueryAttention", "com.microsoft",
                      [f"/{p}/GroupQueryAttention/output_0", f"present.{i}.key", f"present.{i}.value"], num_heads=self.heads,
                      kv_num_heads=self.kv, scale=self.width**-0.5, do_rotary=0 if self.rotary_nodes else 1, rotary_interleaved=0, local_window_size=self.window)
        return self.product(y, f"{p}.o_proj", w[f"{p}.o_proj.weight"])

    def head_norm(self, name, x, heads):
        split = self.step("Reshape", [x, self.ints(0, -1, self.width)], f"/{name}/Reshape_1")  # heads joined to the tokens
        weight = self.const(name + ".weight", self.w[name + ".weight"].astype(self.type))
        y = self.step("SimplifiedLayerNormalization", [split, weight], f"/{name}/SimplifiedLayerNormalization", axis=-1,
                      epsilon=self.c["rms_norm_eps"], stash_type=1)
        return self.step("Reshape", [y, self.ints(0, -1, heads * self.width)], f"/{name}/Reshape_2")

    def build(self):
        value = helper.make_tensor_value_info
        self.inputs = [value("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"]),
                       value("attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"])]
        if self.rotary_nodes:
            self.inputs.append(value("position_ids", TensorProto.INT64, ["batch_size", "sequence_length"]))
        self.cache()
        base = "/model/attn_mask_reformat/attn_mask_subgraph"
        tokens = self.step("ReduceSum", ["attention_mask", self.ints(1)], base + "/ReduceSum", keepdims=0)
        seqlens = self.step("Cast", [self.step("Sub", [tokens, self.ints(1)], base + "/Sub")], base + "/Sub/Cast", to=TensorProto.INT32)
        shape = self.step("Shape", ["attention_mask"], base + "/Shape")
        length = self.step("Gather", [shape, self.const("one", np.array(1, np.int64))], base + "/Gather", axis=0)
        total = self.step("Cast", [length], base + "/Gather/Cast", to=TensorProto.INT32)
        x, skip = self.embedding(), None
        for i in range(self.layers):
            h, x = self.norm(f"layers.{i}.input_layernorm", x, skip)
            h, x = self.norm(f"layers.{i}.post_attention_layernorm", x, self.attention(i, h, seqlens, total))
            p = f"layers.{i}.mlp"
            gate, up = (self.product(h, f"{p}.{m}", self.w[f"{p}.{m}.weight"]) for m in ("gate_proj", "up_proj"))
            act = self.step("Mul", [gate, self.step("Sigmoid", [gate], f"/{p}/act_fn/Sigmoid")], f"/{p}/act_fn/Mul")
            skip = self.product(self.step("Mul", [act, up], f"/{p}/Mul"), f"{p}.down_proj", self.w[f"{p}.down_proj.weight"], block=16)
        h, _ = self.norm("norm", x, skip)
        self.head(h)
        rows = {"model": {"type": self.c["model_type"], "vocab_size": self.c["vocab_size"], "context_length": self.c["max_position_embeddings"],
                          "bos_token_id": 1, "eos_token_id": [2], "pad_token_id": 0,
                          "decoder": {"filename": "model.onnx", "head_size": self.width, "hidden_size": self.e,
                                      "num_attention_heads": self.heads, "num_key_value_heads": self.kv, "num_hidden_layers": self.layers,
                                      "session_options": {"provider_options": []},
                                      "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask",
                                                 "past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"},
                                      "outputs": {"logits": "logits", "present_key_names": "present.%d.key",
                                                  "present_value_names": "present.%d.value"}}}, "search": {}}
        return self.write(21, True, {"genai_config.json": rows})

    def embedding(self):
        table = self.w["embed_tokens.weight"]
        if not self.bits and "lm_head.weight" not in self.w:  # the head's matrix
            table = self.step("Transpose", [self.const("lm_head.MatMul.weight", table.T.astype(self.type))], "/model/embed_tokens/Transpose", perm=[1, 0])
            return self.step("Gather", [table, "input_ids"], "/model/embed_tokens/Gather")
        if not self.bits:
            return self.step("Gather", [self.const("model.embed_tokens.weight", table.astype(self.type)), "input_ids"], "/model/embed_tokens/Gather")
        # Shared with the head: the same codes, seen flat.
        codes, scales, zeros = blocks(table, 8, 16)
        self.tied = (self.const("lm_head.MatMul.weight_Q8", packed(codes, 8).reshape(len(table), -1)),
                     self.const("lm_head.MatMul.weight_scales", scales), self.const("lm_head.MatMul.weight_zp", packed(zeros, 8)))
        return self.step("GatherBlockQuantized", [self.tied[0], "input_ids", *self.tied[1:]], "/model/embed_tokens/GatherBlockQuantized",
                         "com.microsoft", bits=8, block_size=16, gather_axis=0, quantize_axis=1)

    def head(self, h):
        if self.bits:
            codes = self.step("Reshape", [self.tied[0], self.ints(self.c["vocab_size"], -1, 16)], "/lm_head/Reshape")
            self.step("MatMulNBits", [h, codes, *self.tied[1:]], "/lm_head/MatMulNBits", "com.microsoft", ["logits"], N=self.c["vocab_size"],
                      K=self.e, bits=8, block_size=16, accuracy_level=1)
        else:
            w = self.w.get("lm_head.weight", self.w["embed_tokens.weight"])
            self.step("MatMul", [h, self.const("lm_head.MatMul.weight", w.T.astype(self.type))], "/lm_head/MatMul", outputs=["logits"])


class Plain(Graph):
    """A graph as exporters of PyTorch make it from transformers: nothing but ONNX's own operators."""

    def __init__(self, name, folder, codes=False):
        super().__init__(name, folder)
        self.codes, self.gemma = codes, "gemma" in self.c["model_type"]

    def product(self, x, name):
        w = self.w[name + ".weight"]
        if not self.codes:
            y = self.step("MatMul", [x, self.const("onnx::" + name, w.T)], "/" + name + "/MatMul")
        elif "mlp" in name:  # a scale for each row, int8, stored as [columns, rows]
            scale = np.maximum(np.abs(w).max(1) / 127, 1e-6).astype(np.float32)
            q = np.clip(np.rint(w / scale[:, None]), -127, 127).astype(np.int8)
            y = self.step("DequantizeLinear", [self.const(name + ".q", q.T), self.const(name + ".s", scale)], f"/{name}/DequantizeLinear", axis=1)
            y = self.step("MatMul", [x, y], "/" + name + "/MatMul")
        else:  # unsigned codes of 4 bits with zero points, blocks of 16 columns, stored as [rows, columns]
            codes, scale, zero = blocks(w, 4, 16)
            n, k = w.shape
            q = self.raw(name + ".q", TensorProto.UINT4, [n, k], packed(codes.reshape(1, -1)[:, :n * k], 4).tobytes())
            z = self.raw(name + ".z", TensorProto.UINT4, list(zero.shape), packed(zero.reshape(1, -1), 4).tobytes())
            y = self.step("DequantizeLinear", [q, self.const(name + ".s", scale), z], f"/{name}/DequantizeLinear", axis=1, block_size=16)
            y = self.step("MatMul", [x, self.step("Transpose", [y], f"/{name}/Transpose", perm=[1, 0])], "/" + name + "/MatMul")
        bias = self.w.get(name + ".bias")
        return y if bias is None else self.step("Add", [self.const(name + ".bias", bias), y], f"/{name}/Add")

    def norm(self, name, x):
        base = "/" + name
        mean = self.step("ReduceMean", [self.step("Pow", [x, self.number(2.0)], base + "/Pow"), self.ints(-1)], base + "/ReduceMean", keepdims=1)
        root = self.step("Sqrt", [self.step("Add", [mean, self.number(float(self.c["rms_norm_eps"]))], base + "/Add")], base + "/Sqrt")
        y = self.step("Mul", [x, self.step("Div", [self.number(1.0), root], base + "/Div")], base + "/Mul")
        w = self.const(name + ".weight", self.w[name + ".weight"])
        if self.gemma:
            return self.step("Mul", [y, self.step("Add", [w, self.number(1.0)], base + "/Add_1")], base + "/Mul_1")
        return self.step("Mul", [w, y], base + "/Mul_1")

    def tables(self):
        """cos and sin [1, T, width] of position_ids."""
        freq = (self.c.get("rope_theta", 10000.0) ** -(np.arange(0, self.width, 2) / self.width)).astype(np.float32)
        inv = self.const("inv_freq", freq.reshape(1, -1, 1))
        pos = self.step("Cast", [self.step("Unsqueeze", ["position_ids", self.ints(1)])], to=TensorProto.FLOAT)
        batch = self.step("Gather", [self.step("Shape", ["position_ids"]), self.const("zero", np.array(0, np.int64))], axis=0)
        shape = self.step("Concat", [self.step("Unsqueeze", [batch, self.ints(0)]), self.ints(-1), self.ints(1)], axis=0)
        spread = self.step("Expand", [inv, self.step("Where", [self.step("Equal", [shape, self.ints(-1)]), self.ints(1), shape])])
        angle = self.step("Transpose", [self.step("MatMul", [spread, pos], "/rotary_emb/MatMul")], perm=[0, 2, 1])
        angle = self.step("Concat", [angle, angle], axis=-1)
        return [self.step("Unsqueeze", [self.step("Mul", [self.step(f, [angle]), self.number(1.0)]), self.ints(1)]) for f in ("Cos", "Sin")]

    def masks(self):
        """[1, 1, T, S] of the global and the local layers."""
        total = self.step("Gather", [self.step("Shape", ["attention_mask"]), self.const("one", np.array(1, np.int64))], axis=0)
        keys = self.step("Unsqueeze", [self.step("Range", [self.const("zero", np.array(0, np.int64)), total, self.const("one", np.array(1, np.int64))]), self.ints(0)])
        queries = self.step("Reshape", ["position_ids", self.ints(-1, 1)])
        seen = self.step("LessOrEqual", [keys, queries])
        given = self.step("Cast", ["attention_mask"], to=TensorProto.BOOL)
        out = []
        for window in (0, self.c.get("sliding_window") or 0):
            s = seen
            if window:
                s = self.step("And", [s, self.step("Greater", [keys, self.step("Sub", [queries, self.ints(window)])])])
            s = self.step("And", [s, given])
            s = self.step("Unsqueeze", [s, self.ints(0, 1)])
            out.append(self.step("Where", [s, self.number(0.0), self.number(float(np.finfo(np.float32).min))]))
        return out

    def rotate(self, x, cos, sin):
        a = self.step("Slice", [x, self.ints(0), self.ints(self.width // 2), self.ints(3), self.ints(1)])
        b = self.step("Slice", [x, self.ints(self.width // 2), self.ints(2**63 - 1), self.ints(3), self.ints(1)])
        turned = self.step("Concat", [self.step("Neg", [b]), a], axis=-1)
        return self.step("Add", [self.step("Mul", [x, cos]), self.step("Mul", [turned, sin])])

    def repeat(self, x):
        if self.heads == self.kv:
            return x
        shape = self.step("Shape", [x])
        d = [self.step("Unsqueeze", [self.step("Gather", [shape, self.const(f"at_{i}", np.array(i, np.int64))], axis=0), self.ints(0)]) for i in range(4)]
        n = self.ints(self.heads // self.kv)
        wide = self.step("Expand", [self.step("Unsqueeze", [x, self.ints(2)]), self.step("Concat", [d[0], d[1], n, d[2], d[3]], axis=0)])
        return self.step("Reshape", [wide, self.step("Concat", [d[0], self.ints(self.heads), d[2], d[3]], axis=0)])

    def attention(self, i, x, cos, sin, mask):
        p = f"layers.{i}.self_attn"
        shape = self.step("Shape", [x])
        two = self.step("Slice", [shape, self.ints(0), self.ints(2), self.ints(0)])
        q, k, v = (self.step("Transpose", [self.step("Reshape", [self.product(x, f"{p}.{m}_proj"), self.step("Concat", [two, self.ints(-1, self.width)], axis=0)])],
                             perm=[0, 2, 1, 3]) for m in "qkv")
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        k = self.step("Concat", [f"past_key_values.{i}.key", k], outputs=[f"present.{i}.key"], axis=2)
        v = self.step("Concat", [f"past_key_values.{i}.value", v], outputs=[f"present.{i}.value"], axis=2)
        k, v = self.repeat(k), self.repeat(v)
        scale = float(self.c.get("query_pre_attn_scalar", self.width)) ** -0.5
        if self.gemma:  # the scale after the product, and a soft cap
            scores = self.step("Mul", [self.step("MatMul", [q, self.step("Transpose", [k], perm=[0, 1, 3, 2])]), self.number(scale)])
            cap = self.number(float(self.c["attn_logit_softcapping"]))
            scores = self.step("Mul", [self.step("Tanh", [self.step("Div", [scores, cap])]), cap])
        else:  # its root before, on both sides
            root = self.step("Sqrt", [self.number(scale)])
            scores = self.step("MatMul", [self.step("Mul", [q, root]), self.step("Mul", [self.step("Transpose", [k], perm=[0, 1, 3, 2]), root])])
        p_seen = self.step("Softmax", [self.step("Add", [scores, mask])], axis=-1)
        p_seen = self.step("Where", [self.step("IsNaN", [p_seen]), self.number(0.0), p_seen])
        y = self.step("Transpose", [self.step("MatMul", [p_seen, v])], perm=[0, 2, 1, 3])
        y = self.step("Reshape", [y, self.step("Concat", [two, self.ints(-1)], axis=0)])
        return self.product(y, f"{p}.o_proj")

    opset, microsoft = 21, False

    def mlp(self, p, h):
        gate = self.product(h, p + ".mlp.gate_proj")
        act = self.step("Gelu", [gate], approximate="tanh") if self.gemma else self.step("Mul", [gate, self.step("Sigmoid", [gate])])
        return self.product(self.step("Mul", [act, self.product(h, p + ".mlp.up_proj")]), p + ".mlp.down_proj")

    def build(self):
        value = helper.make_tensor_value_info
        self.inputs = [value("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"]),
                       value("attention_mask", TensorProto.INT64, ["batch_size", "past_sequence_length + sequence_length"]),
                       value("position_ids", TensorProto.INT64, ["batch_size", "sequence_length"])]
        self.cache(symbol_total="past_sequence_length + sequence_length")
        table = self.const("model.embed_tokens.weight", self.w["embed_tokens.weight"])
        x = self.step("Gather", [table, "input_ids"], "/model/embed_tokens/Gather")
        if self.gemma:
            x = self.step("Mul", [x, self.number(float(np.float32(self.e) ** np.float32(0.5)))])
        cos, sin = self.tables()
        masks = self.masks()
        for i in range(self.layers):
            p, local = f"layers.{i}", self.gemma and i % 2 == 0
            y = self.attention(i, self.norm(p + ".input_layernorm", x), cos, sin, masks[1 if local else 0])
            x = self.step("Add", [x, self.norm(p + ".post_attention_layernorm", y) if self.gemma else y])
            h = self.norm(p + (".pre_feedforward_layernorm" if self.gemma else ".post_attention_layernorm"), x)
            y = self.mlp(p, h)
            x = self.step("Add", [x, self.norm(p + ".post_feedforward_layernorm", y) if self.gemma else y])
        h = self.norm("norm", x)
        head = self.const("lm_head.weight", self.w["lm_head.weight"].T) if "lm_head.weight" in self.w else self.step("Transpose", [table], perm=[1, 0])
        if self.gemma:
            cap = self.number(float(self.c["final_logit_softcapping"]))
            y = self.step("Tanh", [self.step("Div", [self.step("MatMul", [h, head]), cap])])
            self.step("Mul", [y, cap], outputs=["logits"])
        else:
            self.step("MatMul", [h, head], "/lm_head/MatMul", outputs=["logits"])
        keys = ("model_type", "max_position_embeddings", "bos_token_id", "eos_token_id", "vocab_size")
        return self.write(self.opset, self.microsoft, {"config.json": {k: self.c[k] for k in keys}})


class Operators(Plain):
    """ONNX's own operators of sets 23 and 24: RMSNormalization, RotaryEmbedding with tables of the call, Attention with a past; what is
    multiplied stands in functions of the file, one in the other."""
    opset, microsoft = 24, False

    def norm(self, name, x):
        if not self.functions:
            self.functions = self.own_functions()
        return self.step("Norm", [x, self.const(name + ".weight", self.w[name + ".weight"])], "/" + name, "tests", eps=self.c["rms_norm_eps"])

    def halves(self):
        freq = self.c.get("rope_theta", 10000.0) ** -(np.arange(0, self.width, 2) / self.width)
        angle = np.arange(self.c["max_position_embeddings"])[:, None] * freq
        return self.const("cos_cache", np.cos(angle).astype(np.float32)), self.const("sin_cache", np.sin(angle).astype(np.float32))

    def tables(self):
        return [self.step("Gather", [t, "position_ids"], axis=0) for t in self.halves()]

    def masks(self):
        return [None, None]

    def rows(self, i, x):
        return [self.product(x, f"layers.{i}.self_attn.{m}_proj") for m in "qkv"]

    def attention(self, i, x, cos, sin, mask):
        p = f"layers.{i}.self_attn"
        q, k, v = self.rows(i, x)
        q, k = (self.step("RotaryEmbedding", [y, cos, sin], num_heads=n) for y, n in ((q, self.heads), (k, self.kv)))
        y = self.step("Attention", [q, k, v, "", f"past_key_values.{i}.key", f"past_key_values.{i}.value"], f"/{p}/Attention",
                      outputs=[f"/{p}/y", f"present.{i}.key", f"present.{i}.value"], q_num_heads=self.heads, kv_num_heads=self.kv, is_causal=1)
        return self.product(y, f"{p}.o_proj")

    def mlp(self, p, h):
        gate, up = (self.const(f"onnx::{p}.mlp.{m}_proj", self.w[f"{p}.mlp.{m}_proj.weight"].T) for m in ("gate", "up"))
        return self.product(self.step("Gated", [h, gate, up], f"/{p}/mlp", "tests"), f"{p}.mlp.down_proj")

    def own_functions(self):
        """One with an attribute of its caller, and one that calls another."""
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("tests", 1)]
        norm = helper.make_node("RMSNormalization", ["x", "w"], ["y"], axis=-1)
        norm.attribute.append(helper.make_attribute_ref("epsilon", AttributeProto.FLOAT, ref_attr_name="eps"))
        silu = [helper.make_node("Sigmoid", ["x"], ["s"]), helper.make_node("Mul", ["x", "s"], ["y"], name="times")]
        gated = [helper.make_node("MatMul", ["x", "gate"], ["g"]), helper.make_node("Silu", ["g"], ["a"], domain="tests"),
                 helper.make_node("MatMul", ["x", "up"], ["u"], name="up"), helper.make_node("Mul", ["a", "u"], ["y"])]
        return [helper.make_function("tests", "Norm", ["x", "w"], ["y"], [norm], opsets, ["eps"]),
                helper.make_function("tests", "Silu", ["x"], ["y"], silu, opsets),
                helper.make_function("tests", "Gated", ["x", "gate", "up"], ["y"], gated, opsets)]


class Masked(Operators):
    """Attention [1, H, T, D] with the cache joined before it, masks as numbers or truth, with a window and a soft cap."""
    opset = 23

    def norm(self, name, x):
        w = self.const(name + ".weight", self.w[name + ".weight"] + 1)  # gemma's norms count from 1
        return self.step("RMSNormalization", [x, w], "/" + name, epsilon=self.c["rms_norm_eps"])

    def tables(self):
        return self.halves()

    masks, mlp = Plain.masks, Plain.mlp

    def attention(self, i, x, cos, sin, mask):
        p = f"layers.{i}.self_attn"
        q, k, v = (self.step("Transpose", [self.step("Reshape", [y, self.ints(0, 0, n, self.width)])], perm=[0, 2, 1, 3])
                   for y, n in zip(self.rows(i, x), (self.heads, self.kv, self.kv)))
        q, k = (self.step("RotaryEmbedding", [y, cos, sin, "position_ids"]) for y in (q, k))
        k = self.step("Concat", [f"past_key_values.{i}.key", k], outputs=[f"present.{i}.key"], axis=2)
        v = self.step("Concat", [f"past_key_values.{i}.value", v], outputs=[f"present.{i}.value"], axis=2)
        if i % 2:
            k, v = self.repeat(k), self.repeat(v)
            mask = self.step("Equal", [mask, self.number(0.0)])
        y = self.step("Attention", [q, k, v, mask], f"/{p}/Attention", scale=float(self.c["query_pre_attn_scalar"]) ** -0.5,
                      softcap=float(self.c["attn_logit_softcapping"]))
        y = self.step("Reshape", [self.step("Transpose", [y], perm=[0, 2, 1, 3]), self.ints(0, 0, -1)])
        return self.product(y, f"{p}.o_proj")


class Branching(Operators):
    """com.microsoft's MultiHeadAttention with a bias and a past; tables of rotations chosen by an If, as LongRoPE is written."""
    opset, microsoft = 21, True

    def __init__(self, name, folder):
        super().__init__(name, folder)
        self.threshold = self.c["max_position_embeddings"] * 5 // 8
        for i in range(self.layers):  # as many heads of keys as of queries
            for m in "kv":
                key = f"layers.{i}.self_attn.{m}_proj.weight"
                self.w[key] = np.repeat(self.w[key].reshape(self.kv, self.width, -1), self.heads // self.kv, 0).reshape(-1, self.e)
        self.kv = self.heads

    norm, masks, mlp = Plain.norm, Plain.masks, Plain.mlp

    def tables(self):
        total = self.step("Gather", [self.step("Shape", ["attention_mask"]), self.const("one", np.array(1, np.int64))], axis=0)
        longer = self.step("Greater", [total, self.const("threshold", np.array(self.threshold, np.int64))])
        branches = {}
        for branch, factor in (("then_branch", 4.0), ("else_branch", 1.0)):
            freq = self.c.get("rope_theta", 10000.0) ** -(np.arange(0, self.width, 2) / self.width)
            angle = np.arange(self.c["max_position_embeddings"] if factor > 1 else self.threshold)[:, None] * freq / factor
            nodes = [helper.make_node("Constant", [], [f"{f.__name__}_{branch}"], value=numpy_helper.from_array(f(angle).astype(np.float32))) for f in (np.cos, np.sin)]
            outs = [helper.make_tensor_value_info(n.output[0], TensorProto.FLOAT, angle.shape) for n in nodes]
            branches[branch] = helper.make_graph(nodes, branch, [], outs)
        self.step("If", [longer], "/rope/If", outputs=["cos_cache", "sin_cache"], **branches)
        return ["cos_cache", "sin_cache"]

    def attention(self, i, x, cos, sin, mask):
        p = f"layers.{i}.self_attn"
        q, k, v = self.rows(i, x)
        q, k = (self.step("RotaryEmbedding", [y, "position_ids", cos, sin], domain="com.microsoft", num_heads=self.heads if i else 0) for y in (q, k))
        bias = self.const(f"{p}.bias", np.random.default_rng(i).standard_normal(3 * self.heads * self.width).astype(np.float32) / 4)
        inputs = [q, k, v, bias, "", "" if i else mask, f"past_key_values.{i}.key", f"past_key_values.{i}.value"]
        y = self.step("MultiHeadAttention", inputs, f"/{p}/MultiHeadAttention", "com.microsoft",
                      [f"/{p}/y", f"present.{i}.key", f"present.{i}.value"], num_heads=self.heads, unidirectional=i)
        return self.product(y, f"{p}.o_proj")


def seed(g):
    g.write = lambda opset, microsoft, config: (CORPUS / g.name).write_bytes(g.model(opset, microsoft).SerializeToString())
    g.build()


if __name__ == "__main__":
    for seeded in (Operators("operators_24", "small"), Masked("operators_23", "small"), Branching("branching", "small")):
        seed(seeded)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    cases = [Builder("builder_int4", "llama3_rope", bits=4, pack=True).build(),
             Builder("builder_f32", "llama3_rope", rotary_nodes=True).build(),
             Builder("builder_f16", "qwen3", kind=np.float16).build(),
             Builder("builder_window", "llama3_rope", bits=4, pack=True, window=7).build(),
             Plain("plain_f32", "llama").build(),
             Plain("plain_codes", "llama_bias", codes=True).build(),
             Plain("plain_gemma2", "gemma2").build(),
             Operators("operators_24", "llama").build(),
             Masked("operators_23", "gemma2").build(),
             Branching("branching", "llama").build()]
    lines = ",\n".join("  " + json.dumps(c) for c in cases)
    (OUT / "expected.json").write_text('{"cases": [\n' + lines + "\n]}\n")
