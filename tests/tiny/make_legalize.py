#!/usr/bin/env python3
"""Small graphs with what they compute, for the rewrites of src/legalize: tests/tiny/legalize/NAME.onnx and cases.json; damaged ones as seeds
of legalize_fuzz.

make_legalize.py. The values are those of ONNX Runtime's CPU provider without its optimizers or, where it has no kernel, of the onnx
package's reference evaluator; the graphs are asked for by hand below. Needs onnx, onnxruntime, numpy (tools/requirements.txt)."""
import json
import pathlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto as T
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

OUT = pathlib.Path(__file__).parent / "legalize"
CORPUS = OUT.parents[1] / "corpus/legalize_fuzz"
MS = "com.microsoft"
rng = np.random.default_rng(7)
cases = {}


def real(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def node(op, inputs, outputs, domain="", **attributes):
    return helper.make_node(op, inputs, outputs, name=f"{op}:{outputs[0]}", domain=domain, **attributes)


def case(name, nodes, inputs, outputs, rewrites, constants=None, native=(), refused=(), opset=21, dims=None, symbols=None, gone=()):
    """`inputs`: name -> array; `symbols`: name -> shape with names of open dimensions; `rewrites`: those that must be made.
    `native`, `refused`: operators that the test's target takes beside the basic ones, or does not; `gone`: operators not in the result."""
    symbols = symbols or {}
    def info(name, a):
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), symbols.get(name, a.shape))
    initializers = [numpy_helper.from_array(np.asarray(a), n) if isinstance(a, (np.ndarray, np.generic)) else a
                    for n, a in (constants or {}).items()]
    graph = helper.make_graph(nodes, name, [info(n, a) for n, a in inputs.items()],
                              [helper.make_empty_tensor_value_info(n) for n in outputs], initializers)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=12 if opset >= 24 else 11 if opset >= 23 else 10)
    try:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        values, by = session.run(None, inputs), "onnxruntime " + onnxruntime.__version__
    except Exception as e:
        if "NotImplemented" not in type(e).__name__ and "NOT_IMPLEMENTED" not in str(e) and "InvalidGraph" not in type(e).__name__:
            raise
        values, by = ReferenceEvaluator(model).run(None, inputs), "onnx " + onnx.__version__
    del graph.output[:]
    graph.output.extend(info(n, np.asarray(v)) for n, v in zip(outputs, values))
    del model.graph.output[:]
    model.graph.output.extend(graph.output)
    (OUT / f"{name}.onnx").write_bytes(model.SerializeToString())
    def stored(a):
        a = np.asarray(a)
        return {"dims": list(a.shape), "type": int(helper.np_dtype_to_tensor_dtype(a.dtype)),
                "values": [float(f"{x:.9g}") if a.dtype.kind == "f" else int(x) for x in a.reshape(-1).tolist()]}
    cases[name] = {"rewrites": rewrites, "native": list(native), "refused": list(refused), "gone": list(gone), "dims": dims or {}, "by": by,
                   "inputs": [stored(a) for a in inputs.values()], "outputs": [stored(a) for a in values]}


def norms():
    x, skip, w, b, bias = real(1, 3, 8), real(1, 3, 8), real(8), real(8), real(8)
    n = [node("SkipSimplifiedLayerNormalization", ["x", "skip", "w", "bias"], ["y", "", "", "sum"], MS, epsilon=1e-5)]
    args = dict(inputs={"x": x, "skip": skip}, outputs=["y", "sum"], constants={"w": w, "bias": bias})
    case("skip_rms", n, rewrites=["skip-norm-apart"], native=["SimplifiedLayerNormalization"], **args)
    case("skip_rms_standard", n, rewrites=["skip-norm-apart", "rms-norm-standard"], native=["RMSNormalization"], **args)
    case("skip_rms_pieces", n, rewrites=["skip-norm-apart", "rms-norm-standard", "rms-norm-pieces"], **args)
    n = [node("SkipLayerNormalization", ["x", "skip", "w", "b", "bias"], ["y"], MS, epsilon=1e-5)]
    args = dict(inputs={"x": x, "skip": skip}, outputs=["y"], constants={"w": w, "b": b, "bias": bias})
    case("skip_layer", n, rewrites=["skip-norm-apart"], native=["LayerNormalization"], **args)
    case("skip_layer_pieces", n, rewrites=["skip-norm-apart", "layer-norm-pieces"], **args)
    case("layer_axis_1", [node("LayerNormalization", ["x", "w", "b"], ["y"], axis=1, epsilon=1e-3)], {"x": real(2, 3, 4)}, ["y"],
         ["layer-norm-pieces"], {"w": real(3, 4), "b": real(3, 4)})
    case("rms_axis_1", [node("RMSNormalization", ["x", "w"], ["y"], axis=1)], {"x": real(2, 3, 4)}, ["y"],
         ["rms-norm-simplified", "rms-norm-pieces"], {"w": real(3, 4)}, opset=23)
    case("rms_f16", [node("RMSNormalization", ["x", "w"], ["y"])], {"x": (300 * real(2, 8)).astype(np.float16)}, ["y"],
         ["rms-norm-simplified", "rms-norm-pieces"], {"w": real(8).astype(np.float16)}, opset=23)
    case("layer_old_opset", [node("LayerNormalization", ["x", "w"], ["y"])], {"x": real(2, 5)}, ["y"], ["layer-norm-pieces"], {"w": real(5)},
         opset=17)


def activations():
    x = 2 * real(2, 6)
    case("gelu", [node("Gelu", ["x"], ["y"])], {"x": x}, ["y"], ["gelu-pieces"])
    case("gelu_tanh", [node("Gelu", ["x"], ["y"], approximate="tanh")], {"x": x}, ["y"], ["gelu-pieces"])
    case("ms_gelu", [node("Gelu", ["x"], ["y"], MS)], {"x": x}, ["y"], ["gelu-standard"], native=["Gelu"], refused=["Erf"])
    case("ms_gelu_old_opset", [node("Gelu", ["x"], ["y"], MS)], {"x": x}, ["y"], ["gelu-pieces"], native=["Gelu"], opset=17)
    case("fast_gelu_bias", [node("FastGelu", ["x", "b"], ["y"], MS)], {"x": x}, ["y"], ["gelu-standard"], {"b": real(6)}, native=["Gelu"])
    case("fast_gelu_pieces", [node("FastGelu", ["x", "b"], ["y"], MS)], {"x": x}, ["y"], ["gelu-standard", "gelu-pieces"], {"b": real(6)})
    case("quick_gelu", [node("QuickGelu", ["x"], ["y"], MS, alpha=1.702)], {"x": x}, ["y"], ["silu-pieces"])
    case("swish", [node("Swish", ["x"], ["y"], alpha=0.5)], {"x": x}, ["y"], ["silu-pieces"], opset=24)
    for name, e in (("square", 2.0), ("cube", 3.0), ("root", 0.5), ("inverse", -1.0), ("inverse_root", -0.5)):
        case("pow_" + name, [node("Pow", ["x", "e"], ["y"])], {"x": np.abs(x) + 1}, ["y"], ["power-products"], {"e": np.float32(e)})
    case("reciprocal", [node("Reciprocal", ["x"], ["y"])], {"x": x}, ["y"], ["reciprocal-div"], refused=["Reciprocal"])
    case("div", [node("Div", ["a", "x"], ["y"])], {"a": real(2, 6), "x": x}, ["y"], ["div-reciprocal"], refused=["Div"])


def tables(rows, half):
    angle = np.arange(rows)[:, None] / 100.0 ** (np.arange(half) / half)
    return {"cos": np.cos(angle).astype(np.float32), "sin": np.sin(angle).astype(np.float32)}


def rotary():
    ids = np.array([[3, 4, 5], [0, 7, 1]])
    for name, shape, half, attributes in (("flat", (2, 3, 16), 4, {"num_heads": 2}), ("heads", (2, 2, 3, 8), 4, {}),
                                          ("pairs", (2, 2, 3, 8), 4, {"interleaved": 1}),
                                          ("part", (2, 3, 16), 2, {"num_heads": 2, "rotary_embedding_dim": 4})):
        x = real(*shape)
        ms = [node("RotaryEmbedding", ["x", "ids", "cos", "sin"], ["y"], MS, **attributes)]
        args = dict(inputs={"x": x, "ids": ids}, outputs=["y"], constants=tables(16, half))
        case(f"ms_rotary_{name}", ms, rewrites=["rotary-standard"], native=["RotaryEmbedding"], **args)
        case(f"ms_rotary_{name}_pieces", ms, rewrites=["rotary-standard", "rotary-pieces"], **args)
    pairs = [node("RotaryEmbedding", ["x", "cos", "sin"], ["y"], num_heads=2, interleaved=1, rotary_embedding_dim=4)]
    own = {k: v[ids] for k, v in tables(16, 2).items()}
    case("rotary_rows_pairs_part", pairs, {"x": real(2, 3, 16), **own}, ["y"], ["rotary-pieces"], opset=23)
    open_x = {"x": ("batch", "tokens", 16), "ids": ("batch", "tokens")}
    case("ms_rotary_open", [node("RotaryEmbedding", ["x", "ids", "cos", "sin"], ["y"], MS, num_heads=2)], {"x": real(2, 3, 16), "ids": ids},
         ["y"], ["rotary-pieces"], tables(16, 4), opset=17, symbols=open_x)


def grouped(name, past, total, tokens=1, batch=1, buffer=None, packed=False, half=8, rewrites=("grouped-query-to-heads",), **attributes):
    """`total`: valid tokens after the call, one a sequence; `buffer`: rows of the present."""
    hq, hkv, d = 4, 2, 16
    buffer = buffer or past
    q, k, v = real(batch, tokens, hq * d), real(batch, tokens, hkv * d), real(batch, tokens, hkv * d)
    keys, values = real(batch, hkv, past, d), real(batch, hkv, past, d)
    for b in range(batch):  # what is not used is zero: the operator does not say what it leaves there
        keys[b, :, total[b] - tokens:] = 0
        values[b, :, total[b] - tokens:] = 0
    inputs = {"q": np.concatenate([q, k, v], 2)} if packed else {"q": q, "k": k, "v": v}
    inputs |= {"past_k": keys, "past_v": values, "last": np.array(total, np.int32) - 1}
    rotates = attributes.get("do_rotary", 0)
    names = ["q", "" if packed else "k", "" if packed else "v", "past_k", "past_v", "last", "total"] + (["cos", "sin"] if rotates else [])
    constants = {"total": np.array(buffer, np.int32)} | (tables(32, half) if rotates else {})
    case(name, [node("GroupQueryAttention", names, ["y", "present_k", "present_v"], MS, num_heads=hq, kv_num_heads=hkv, **attributes)],
         inputs, ["y", "present_k", "present_v"], list(rewrites), constants, native=["RotaryEmbedding"], gone=["GroupQueryAttention"])


def attention():
    grouped("gqa_grows", 7, [8], buffer=8, do_rotary=1)
    grouped("gqa_buffer", 8, [5], do_rotary=1)
    grouped("gqa_window_cap", 8, [7], do_rotary=1, local_window_size=3, softcap=2.0)
    grouped("gqa_packed_pairs", 8, [6], packed=True, do_rotary=1, rotary_interleaved=1)
    grouped("gqa_prefill", 6, [4], tokens=4, scale=0.5)
    grouped("gqa_batch", 8, [5, 8], batch=2, do_rotary=1)
    for name, heads_first, extra in (("heads", True, {"is_causal": 1}), ("flat", False, {"scale": 0.3}), ("cap", True, {"softcap": 1.5})):
        b, hq, hkv, t, s, d = 2, 4, 2, 3, 5, 8
        q, k, v = real(b, hq, t, d), real(b, hkv, t, d), real(b, hkv, t, d)
        attributes = dict(extra)
        if not heads_first:
            q, k, v = (a.transpose(0, 2, 1, 3).reshape(b, t, -1) for a in (q, k, v))
            attributes |= {"q_num_heads": hq, "kv_num_heads": hkv}
        mask = rng.random((t, s)) < 0.6
        mask[:, 0] = True
        inputs = {"q": q, "k": k, "v": v, "mask": real(b, 1, t, s) if name == "cap" else mask, "past_k": real(b, hkv, s - t, d),
                  "past_v": real(b, hkv, s - t, d)}
        case(f"attention_{name}", [node("Attention", list(inputs), ["y", "present_k", "present_v"], **attributes)], inputs,
             ["y", "present_k", "present_v"], ["attention-to-heads"], opset=23)
    case("attention_plain", [node("Attention", ["q", "k", "v"], ["y"])], {k: real(1, 2, 3, 8) for k in "qkv"}, ["y"],
         ["attention-to-heads"], opset=23)
    case("tensor_scatter", [node("TensorScatter", ["past", "x", "at"], ["y"], axis=2)],
         {"past": real(2, 2, 6, 4), "x": real(2, 2, 2, 4), "at": np.array([1, 4])}, ["y"], ["scatter-elements"], opset=24)


def nibbles(codes):
    return (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)


def weights():
    n, k, block = 6, 64, 32
    for name, bits, zeros, biased in (("plain", 4, False, False), ("zeros", 4, True, True), ("bytes", 8, True, False)):
        codes = rng.integers(0, 1 << bits, (n, k // block, block)).astype(np.uint8)
        constants = {"w": nibbles(codes) if bits == 4 else codes, "scales": np.abs(real(n, k // block))}
        if zeros:
            z = rng.integers(0, 1 << bits, (n, k // block)).astype(np.uint8)
            constants["zeros"] = nibbles(z) if bits == 4 else z
        if biased:
            constants["bias"] = real(n)
        names = ["x", "w", "scales"] + (["zeros"] if zeros else []) + (["", "bias"] if biased else [])
        case(f"nbits_{name}", [node("MatMulNBits", names, ["y"], MS, N=n, K=k, bits=bits, block_size=block)], {"x": real(2, 3, k)}, ["y"],
             ["dequantize-weights"], constants)
    rows, width, block = 10, 48, 16  # three blocks: a byte of zero points that is half used
    codes = rng.integers(0, 16, (rows, width)).astype(np.uint8)
    z = np.concatenate([rng.integers(0, 16, (rows, 3)), np.zeros((rows, 1))], 1).astype(np.uint8)
    ids = np.array([[3, 0, 9]])
    for name, more in (("plain", {}), ("zeros", {"zeros": nibbles(z)})):
        case(f"gather_{name}", [node("GatherBlockQuantized", ["table", "ids", "scales", *more], ["y"], MS, block_size=block, bits=4,
                                     gather_axis=0, quantize_axis=1)], {"ids": ids}, ["y"], ["dequantize-weights"],
             {"table": nibbles(codes), "scales": np.abs(real(rows, width // block)), **more})
    case("gather_float", [node("GatherBlockQuantized", ["table", "ids", "scales", "zeros"], ["y"], MS, block_size=block, bits=4)], {"ids": ids},
         ["y"], ["float-table"], {"table": nibbles(codes), "scales": np.abs(real(rows, width // block)), "zeros": nibbles(z)},
         refused=["DequantizeLinear"])


def layout():
    case("gemm", [node("Gemm", ["a", "w", "c"], ["y"], alpha=0.5, beta=2.0, transA=1, transB=1)], {"a": real(4, 3)}, ["y"], ["gemm-apart"],
         {"w": real(5, 4), "c": real(5)})
    case("gather_scalar", [node("Gather", ["x", "i"], ["y"], axis=1)], {"x": real(2, 4, 3)}, ["y"], ["gather-slice"], {"i": np.int64(-2)},
         refused=["Gather"])
    case("gather_neighbours", [node("Gather", ["x", "i"], ["y"], axis=2)], {"x": real(2, 4, 5)}, ["y"], ["gather-slice"],
         {"i": np.array([1, 2, 3])}, refused=["Gather"])
    case("one_hot", [node("OneHot", ["i", "n", "v"], ["h"]), node("MatMul", ["h", "t"], ["y"])], {"i": np.array([[2, 0, 4]])}, ["y"],
         ["one-hot-gather"], {"n": np.int64(5), "v": np.array([0, 1], np.float32), "t": real(5, 3)}, gone=["OneHot", "MatMul"])
    case("softmax_axis", [node("Softmax", ["x"], ["y"], axis=1)], {"x": real(2, 4, 3)}, ["y"], ["softmax-last-axis"])
    case("trilu", [node("Trilu", ["x", "k"], ["y"], upper=0)], {"x": real(2, 4, 5)}, ["y"], ["trilu-where"], {"k": np.int64(1)})
    case("sum_of_squares", [node("ReduceSumSquare", ["x", "a"], ["y"], keepdims=0)], {"x": real(2, 4, 3)}, ["y"], ["square-sum-apart"],
         {"a": np.array([1])})
    for n in (1, 7, 32):
        case(f"whole_sum_{n}", [node("ReduceSum", ["x", "a"], ["y"], keepdims=n % 2)], {"x": rng.integers(-2**40, 2**40, (2, n))}, ["y"],
             ["whole-sum-halves"], {"a": np.array([1])}, refused=["ReduceSum"])


def whole():
    constants = {"two": np.float32(2), "e": np.float32(1e-5), "w": real(8), "r2": np.float32(2 ** 0.5), "one": np.float32(1),
                 "half": np.float32(0.5), "last": np.array([-1])}
    norm = [node("Pow", ["x", "two"], ["p"]), node("ReduceMean", ["p", "last"], ["m"]), node("Add", ["m", "e"], ["s"]),
            node("Sqrt", ["s"], ["r"]), node("Div", ["x", "r"], ["d"]), node("Mul", ["w", "d"], ["y"])]
    used = lambda *names: {k: constants[k] for k in names}
    case("whole_rms", norm, {"x": real(2, 3, 8)}, ["y"], ["rms-norm-whole"], used("two", "e", "w", "last"),
         native=["RMSNormalization", "Pow"], gone=["ReduceMean", "Sqrt"])
    norm[4:] = [node("Reciprocal", ["r"], ["i"]), node("Mul", ["x", "i"], ["d"]), node("Mul", ["d", "w"], ["y"])]
    case("whole_rms_inverse", norm, {"x": real(2, 3, 8)}, ["y"], ["rms-norm-whole"], used("two", "e", "w", "last"),
         native=["RMSNormalization", "Pow"], gone=["ReduceMean", "Reciprocal"])
    gelu = [node("Div", ["x", "r2"], ["s"]), node("Erf", ["s"], ["f"]), node("Add", ["f", "one"], ["g"]), node("Mul", ["x", "g"], ["h"]),
            node("Mul", ["h", "half"], ["y"])]
    case("whole_gelu", gelu, {"x": real(2, 8)}, ["y"], ["gelu-whole"], used("r2", "one", "half"), native=["Gelu"], gone=["Erf"])


def fixed():
    """Open dimensions, shapes that are computed, a branch that is decided by one."""
    body = lambda name, op: helper.make_graph([node(op, ["x", "c"], [name])], name, [], [helper.make_tensor_value_info(name, T.FLOAT, None)],
                                              [numpy_helper.from_array(np.float32(3), "c")])
    nodes = [node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "zero"], ["n"]), node("Greater", ["n", "two"], ["many"]),
             helper.make_node("If", ["many"], ["z"], name="if", then_branch=body("t", "Mul"), else_branch=body("f", "Add")),
             node("Unsqueeze", ["n", "first"], ["n1"]), node("Concat", ["n1", "minus"], ["to"], axis=0), node("Reshape", ["z", "to"], ["y"])]
    constants = {"zero": np.int64(0), "two": np.int64(2), "first": np.array([0]), "minus": np.array([-1])}
    case("fixed_length", nodes, {"x": real(3, 2, 4)}, ["y"], [], constants, refused=["If", "Shape"], gone=["If", "Shape", "Concat"],
         dims={"tokens": 3}, symbols={"x": ("tokens", 2, 4)})


def contrib():
    """com.microsoft's operators of encoders and of decoders before grouped heads."""
    x, bias = 2 * real(2, 6), real(6)
    case("bias_gelu", [node("BiasGelu", ["x", "b"], ["y"], MS)], {"x": x}, ["y"], ["gelu-standard"], {"b": bias}, native=["Gelu"])
    case("bias_gelu_pieces", [node("BiasGelu", ["x", "b"], ["y"], MS)], {"x": x}, ["y"], ["gelu-pieces"], {"b": bias}, opset=17)
    case("fused_matmul", [node("FusedMatMul", ["a", "w"], ["y"], MS, transA=1, transB=1, alpha=0.5)], {"a": real(2, 4, 3)}, ["y"],
         ["fused-matmul-apart"], {"w": real(5, 4)})
    case("fused_matmul_batches", [node("FusedMatMul", ["a", "w"], ["y"], MS, transBatchA=1)], {"a": real(3, 2, 4), "w": real(2, 4, 5)}, ["y"],
         ["fused-matmul-apart"])
    case("transpose_matmul", [node("TransposeMatMul", ["a", "w"], ["y"], MS, transA=1)], {"a": real(4, 3)}, ["y"], ["fused-matmul-apart"],
         {"w": real(4, 5)})
    ids, kinds = np.array([[1, 0, 4], [2, 2, 3]], np.int32), np.array([[0, 1, 1], [0, 0, 1]], np.int32)
    tables = {"words": real(5, 4), "places": real(6, 4), "kinds_of": real(2, 4), "w": real(4), "b": real(4)}
    case("embed", [node("EmbedLayerNormalization", ["ids", "kinds", *tables], ["y", "ends"], MS, epsilon=1e-6)], {"ids": ids, "kinds": kinds}, ["y"],
         ["embed-norm-apart"], tables, native=["LayerNormalization"])
    n, d, t = 2, 8, 3
    q, k, v, bias = real(2, t, d), real(2, t, d), real(2, t, d), real(3 * d)
    def heads(name, inputs, outputs=("y",), constants=None, skip=(), **attributes):
        names = [None if i in skip else i for i in ("q", "k", "v", "b", "mask", "added", "past_k", "past_v")]
        names = [i if i in inputs or i in (constants or {}) else "" for i in names]
        while not names[-1]:
            names.pop()
        case("multi_head_" + name, [node("MultiHeadAttention", names, list(outputs), MS, num_heads=n, **attributes)], inputs, list(outputs),
             ["multi-head-to-heads"], constants)
    heads("keys", {"q": q, "k": k, "v": v, "mask": np.array([[1, 1, 0], [0, 1, 1]], np.int32)}, constants={"b": bias})
    heads("lengths", {"q": q, "k": real(2, 5, d), "v": real(2, 5, d), "mask": np.array([4, 2], np.int32)}, scale=0.3)
    heads("past", {"q": q, "k": k, "v": v, "added": real(1, n, t, 5), "past_k": real(2, n, 2, 4), "past_v": real(2, n, 2, 4)},
          ["y", "present_k", "present_v"], unidirectional=1)
    heads("cross", {"q": q, "k": real(2, n, 4, 4), "v": real(2, n, 4, 4)})
    def packed(name, inputs, more=(), **attributes):
        case("packed_attention_" + name, [node("Attention", ["x", "w", "b", *more], ["y"], MS, num_heads=n, **attributes)], inputs, ["y"],
             ["multi-head-to-heads"], {"w": real(6, 3 * d), "b": real(3 * d)})
    packed("keys", {"x": real(2, t, 6), "mask": np.array([[1, 1, 0], [1, 1, 1]], np.int32)}, ["mask"])
    packed("causal", {"x": real(2, t, 6)}, unidirectional=1)


def damaged():
    """Seeds that no runtime takes: inputs or outputs left out, a cache of another rank, a block beyond any size."""
    inputs = {"x": np.ones((1, 2, 3, 8), np.float32), "past": np.ones(4, np.float32), "ids": np.array([[1]])}
    constants = {"one": np.float32(1), "last": np.array([-1]), "depth": np.int64(4), "pair": np.array([0, 1], np.float32),
                 "table": np.ones((4, 8), np.uint8), "scales": np.ones((4, 1), np.float32)}
    graphs = {
        "short_gemm": [node("Gemm", ["x"], ["y"])],
        "short_div": [node("Div", ["x"], ["y"])],
        "short_square": [node("Mul", ["x"], ["p"]), node("ReduceMean", ["p", "last"], ["m"]), node("Add", ["m", "one"], ["s"]),
                         node("Sqrt", ["s"], ["y"])],
        "short_power": [node("Pow", ["x"], ["p"]), node("ReduceMean", ["p", "last"], ["y"])],
        "short_erf": [node("Div", ["x"], ["s"]), node("Erf", ["s"], ["f"]), node("Add", ["f", "one"], ["y"])],
        "short_one_hot": [node("OneHot", ["ids", "depth", "pair"], ["h"]), node("MatMul", ["h"], ["y"])],
        "no_output": [helper.make_node("Reciprocal", ["x"], []), helper.make_node("Erf", ["x"], ["", "y"])],
        "cache_of_rank_1": [node("Attention", ["x", "x", "x", "", "past", "past"], ["y"])],
        "short_multi_head": [node("MultiHeadAttention", ["x"], ["y"], MS, num_heads=2), node("MultiHeadAttention", ["x", "x"], ["z"], MS, num_heads=2**62),
                             node("Attention", ["x", "ids"], ["u"], MS, num_heads=2, qkv_hidden_sizes=[2**62, 2**62, 2**62]),
                             node("FusedMatMul", ["past"], ["t"], MS, transA=1, transBatchB=1),
                             node("EmbedLayerNormalization", ["ids", "", "x", "x"], ["e"], MS), node("BiasGelu", ["x"], ["g"], MS)],
        "long_block": [node("GatherBlockQuantized", ["table", "ids", "scales"], ["y"], MS, block_size=2**63 - 1)],
    }
    info = lambda name, a: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
    for name, nodes in graphs.items():
        used = {i for n in nodes for i in n.input}
        graph = helper.make_graph(nodes, name, [info(n, a) for n, a in inputs.items()], [helper.make_empty_tensor_value_info("y")],
                                  [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items() if n in used])
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MS, 1)]
        (CORPUS / f"{name}.onnx").write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=11).SerializeToString())


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    for family in (norms, activations, rotary, attention, weights, layout, whole, fixed, contrib):
        family()
    damaged()
    lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in cases.items()]
    (OUT / "cases.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(len(cases), "cases")
