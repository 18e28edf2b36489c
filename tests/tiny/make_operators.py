#!/usr/bin/env python3
"""Calls of operators with what they compute, for src/reference/operators_test.cc: tests/tiny/operators.json; some as seeds of
reference_fuzz, each a model whose inputs are constants.

Run by hand; no test needs Python packages. The values are those of ONNX Runtime's CPU provider without its optimizers; where that has no
kernel, of a formula in numpy written here. Needs onnx, onnxruntime and numpy (tools/requirements.txt)."""
import json
import math
import pathlib

import numpy as np
import onnxruntime
from onnx import helper

OUT = pathlib.Path(__file__).parent / "operators.json"
CORPUS = pathlib.Path(__file__).parents[1] / "corpus/reference_fuzz"
SEEDS = """mha_past_causal mha_packed_qkv mha_buffer mha_mask_sums attention_past attention_square qattention_past gqa_added gqa_sink embed fused_gemm_relu
fused_matmul_turned_batches mrotary_1 causal_conv_dilation linear_attention qgemm bnb4_1 moe_swiglu qmoe_4_16 qmoe_zeros qlinearconcat qlinearsoftmax
ms_unique conv_11 top_k_9 pad_10 slice_9 scatter_10""".split()
MS = "com.microsoft"
rng = np.random.default_rng(23)
cases = {}


def real(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def bytes_(*shape):
    return rng.integers(0, 256, shape).astype(np.uint8)


def signed(*shape):
    return rng.integers(-128, 128, shape).astype(np.int8)


def ints(*values, t=np.int32):
    return np.array(values, t)


def stored(a):
    a = np.asarray(a)
    kind = int(helper.np_dtype_to_tensor_dtype(a.dtype))
    return {"type": kind, "dims": list(a.shape), "values": [float(f"{x:.9g}") if a.dtype.kind == "f" else int(x) for x in a.reshape(-1).tolist()]}


def run(op, inputs, n_outputs, domain, opset, attributes):
    names = [f"i{k}" if x is not None else "" for k, x in enumerate(inputs)]
    outputs = [f"o{k}" for k in range(n_outputs)]
    node = helper.make_node(op, names, outputs, domain=domain)
    node.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items())
    info = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in zip(names, inputs) if x is not None]
    graph = helper.make_graph([node], op, info, [helper.make_empty_tensor_value_info(n) for n in outputs])
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {n: x for n, x in zip(names, inputs) if x is not None})


def case(name, op, inputs, n_outputs=1, domain=MS, opset=21, want=None, off=0, more=None, **attributes):
    """`want`: outputs by numpy where ONNX Runtime has no kernel; None in it: not compared. `off`: codes that a rounding may differ by."""
    attributes |= more or {}  # those whose names stand above
    inputs = [None if x is None else np.asarray(x) for x in inputs]
    by = "numpy" if want is not None else "onnxruntime"
    want = run(op, inputs, n_outputs, domain, opset, attributes) if want is None else [np.asarray(w) if w is not None else None for w in want]
    assert name not in cases, name
    cases[name] = {"op": op, "domain": domain, "opset": opset, "by": by, "off": off, "attributes": attributes,
                   "inputs": [None if x is None else stored(x) for x in inputs], "outputs": [None if w is None else stored(w) for w in want]}


def gelu(x):
    return np.array([0.5 * v * (1 + math.erf(v / 2**0.5)) for v in x.reshape(-1)]).reshape(x.shape)


def multi_head():
    b, t, n, h = 2, 3, 2, 4
    d = n * h
    q, k, v, bias = real(b, t, d), real(b, t, d), real(b, t, 6), real(2 * d + 6)
    call = lambda name, inputs, n_outputs=1, **more: case("mha_" + name, "MultiHeadAttention", inputs, n_outputs, num_heads=n, **more)
    call("plain", [q, k, v])
    call("bias", [q, k, v, bias], scale=0.3)
    for name, mask in (("lengths", ints(2, 3)), ("sums", ints(2, 3, 0, 2, 5, 0, 3, 6)), ("keys", ints([1, 1, 0], [0, 1, 1])),
                       ("scores", ints([[1, 1, 0], [0, 1, 1], [1, 0, 0]], [[1, 1, 1], [0, 0, 1], [1, 0, 1]])), ("nothing", ints([0, 0, 0], [1, 1, 1]))):
        call("mask_" + name, [q, k, v, None, mask])
    call("filter", [q, k, v, None, ints([1, 1, 0], [0, 1, 1])], mask_filter_value=-1.5)
    call("causal_mask", [q, k, v, None, ints([0, 1, 1], [1, 1, 0])], unidirectional=1)
    call("not_causal", [q, k, v], unidirectional=-1)
    for name, shape in (("one", (1, 1, t, t)), ("heads", (1, n, t, t)), ("all", (b, n, t, t))):
        call("added_" + name, [q, k, v, None, None, real(*shape)])
    v = real(b, t, d)
    past = [real(b, n, 2, h), real(b, n, 2, h)]
    call("past", [q, k, v, None, None, None, *past], 3)
    call("past_causal", [q, k, v, real(3 * d), ints([1, 0, 1, 1, 1], [0, 1, 1, 1, 0]), real(b, 1, t, t + 2), *past], 3, unidirectional=1)
    heads = lambda x: x.reshape(b, -1, n, h).transpose(0, 2, 1, 3).copy()
    call("cross", [q, heads(real(b, 5, d)), heads(real(b, 5, d)), real(3 * d)])
    call("longer_keys", [q, real(b, 5, d), real(b, 5, d), None, ints(4, 2)])
    call("present", [q, k, v], 3)
    call("half", [q.astype(np.float16), k.astype(np.float16), v.astype(np.float16)])
    call("no_tokens", [real(b, 0, d), real(b, 3, d), real(b, 3, d)])
    # Packed inputs have no kernel there: the same parts apart have.
    parts = lambda x: x.reshape(b, t, n, h)
    want = run("MultiHeadAttention", [q, k, v], 1, MS, 21, {"num_heads": n})
    call("packed_kv", [q, np.stack([parts(k), parts(v)], 3)], want=want)
    call("packed_qkv", [np.stack([parts(q), parts(k), parts(v)], 3)], want=want)
    # A buffer of which two rows count: the rows that count, and what is behind them stays.
    room = [real(b, n, 8, h), real(b, n, 8, h)]
    y, *_ = run("MultiHeadAttention", [q, k, v, None, None, None, room[0][:, :, :2].copy(), room[1][:, :, :2].copy()], 3, MS, 21, {"num_heads": n})
    grown = [np.concatenate([a[:, :, :2], heads(x), a[:, :, 5:]], 2) for a, x in zip(room, (k, v))]
    call("buffer", [q, k, v, None, None, None, *room, ints(2)], 3, want=[y, *grown])


def attention():
    b, t, n, h, wide = 2, 3, 2, 4, 5
    d = n * h
    x, w, bias = real(b, t, wide), real(wide, 3 * d), real(3 * d)
    call = lambda name, inputs, n_outputs=1, **more: case("attention_" + name, "Attention", inputs, n_outputs, num_heads=n, **more)
    call("plain", [x, w, bias])
    call("scale", [x, w, 0 * bias], scale=0.4)
    call("ends", [x, w, bias, ints(2, 3)])
    call("ends_starts", [x, w, bias, ints(2, 3, 0, 1)])
    call("keys", [x, w, bias, ints([1, 1, 0], [0, 1, 1])], mask_filter_value=-3.0)
    square = (rng.random((b, 1, 4, 4)) < 0.6).astype(np.int32)  # no kernel there: the rows that count, as a mask of three dimensions
    call("square", [x, w, bias, square], want=run("Attention", [x, w, bias, square[:, 0, :t, :t].copy()], 1, MS, 21, {"num_heads": n}))
    call("past", [x, w, bias, ints([1, 0, 1, 1, 1], [0, 1, 1, 1, 1]), real(2, b, n, 2, h)], 2, unidirectional=1)
    call("added", [x, w, bias, None, None, real(1, n, t, t)])
    call("narrow_values", [x, real(wide, 2 * d + 6), real(2 * d + 6)], qkv_hidden_sizes=[d, d, 6])
    q = lambda name, inputs, n_outputs=1, **more: case("qattention_" + name, "QAttention", inputs, n_outputs, num_heads=n, **more)
    codes, weights, scales = bytes_(b, t, wide), signed(wide, 3 * d), [np.float32(0.02), np.float32(0.01)]
    q("plain", [codes, weights, bias, *scales, None, np.uint8(120), np.int8(3)])
    q("past", [codes, weights, bias, *scales, ints(3, 5), np.uint8(120), np.int8(3), real(2, b, n, 2, h)], 2, unidirectional=1)


def grouped():
    b, hq, hkv, d = 1, 4, 2, 16
    angle = np.arange(16)[:, None] / 100.0 ** (np.arange(8) / 8)
    tables = [np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)]

    def call(name, tokens, past, more=(), n_outputs=3, **attributes):
        total = past + tokens
        inputs = [real(b, tokens, hq * d), real(b, tokens, hkv * d), real(b, tokens, hkv * d), real(b, hkv, past, d), real(b, hkv, past, d),
                  ints(total - 1), np.int32(total), *tables, *more]
        case("gqa_" + name, "GroupQueryAttention", inputs, n_outputs, num_heads=hq, kv_num_heads=hkv, **attributes)

    call("positions", 1, 3, [np.array([[7]])], do_rotary=1)
    call("added", 2, 3, [None, real(1, hq, 2, 5)], do_rotary=1)
    call("sink", 1, 3, [None, None, real(hq)])
    call("smooth", 1, 3, smooth_softmax=1)
    call("scores", 1, 3, n_outputs=4, qk_output=1, softcap=3.0)
    call("weights", 1, 3, n_outputs=4, qk_output=2)
    call("both_ways", 3, 0, causal=0)


def fused():
    x, bias = real(2, 3, 4), real(4)
    case("bias_gelu", "BiasGelu", [x, bias])
    case("bias_split_gelu", "BiasSplitGelu", [x, bias], want=[(((s := (x + bias).astype(np.float64))[..., :2]) * gelu(s[..., 2:])).astype(np.float32)])
    skip = real(2, 3, 4)
    case("bias_add", "BiasAdd", [x, bias, skip], want=[x + bias + skip])
    e = np.exp(x.astype(np.float64) + bias)
    case("bias_softmax", "BiasSoftmax", [x, bias], axis=2, is_inner_broadcast=1, want=[(e / e.sum(-1, keepdims=True)).astype(np.float32)])
    case("fused_matmul", "FusedMatMul", [real(2, 4, 3), real(2, 5, 4)], transA=1, transB=1, alpha=0.25)
    case("fused_matmul_batches", "FusedMatMul", [real(3, 2, 4), real(2, 4, 5)], transBatchA=1)
    case("fused_matmul_turned_batches", "FusedMatMul", [real(4, 2, 3), real(5, 2, 4)], transBatchA=1, transA=1, transBatchB=1, transB=1)
    case("fused_matmul_vector", "FusedMatMul", [real(4), real(4, 5)], alpha=2.0)
    case("fused_matmul_empty", "FusedMatMul", [real(2, 0), real(0, 3)])
    case("transpose_matmul", "TransposeMatMul", [real(4, 3), real(4, 5)], transA=1)
    a, w = real(2, 3), real(3, 4)
    case("fused_matmul_relu", "FusedMatMulActivation", [a, w], activation="Relu", want=[np.maximum(a @ w, 0)])
    for activation, more in (("Relu", {}), ("LeakyRelu", {"activation_alpha": 0.2}), ("Sigmoid", {}), ("Tanh", {}),
                             ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4})):
        case("fused_gemm_" + activation.lower(), "FusedGemm", [a, w, bias], activation=activation, alpha=0.5, **more)
    s = (a @ w + bias).astype(np.float64)
    case("gemm_fast_gelu", "GemmFastGelu", [a, w, bias], want=[(0.5 * s * (1 + np.tanh((2 / np.pi) ** 0.5 * (s + 0.044715 * s**3)))).astype(np.float32)])
    ids, kinds = ints([1, 0, 4], [2, 2, 3]), ints([0, 1, 1], [0, 0, 1])
    tables = [real(5, 4), real(6, 4), real(2, 4), real(4), real(4)]
    case("embed", "EmbedLayerNormalization", [ids, kinds, *tables, ints([1, 1, 0], [1, 1, 1])], 3, epsilon=1e-6)
    case("embed_holes", "EmbedLayerNormalization", [ids, kinds, *tables, ints([0, 0, 0], [1, 0, 1])], 3)
    case("embed_plain", "EmbedLayerNormalization", [ids, None, tables[0], tables[1], None, *tables[3:]], 2)
    case("embed_positions", "EmbedLayerNormalization", [ids, kinds, *tables, None, ints([5, 0, 1], [2, 3, 3])], 3)
    case("gated_rms_norm", "GatedRMSNorm", [real(2, 6), real(3), real(2, 6)])
    case("gated_rms_norm_sigmoid", "GatedRMSNorm", [real(2, 6), real(6), real(2, 6)], activation="sigmoid", epsilon=1e-2)
    case("linear_attention_gate", "LinearAttentionGate", [real(1, 2, 3), real(3), real(3), real(1, 2, 3)], 2)
    case("linear_attention", "LinearAttention", [real(1, 3, 8), real(1, 3, 8), real(1, 3, 6), real(1, 2, 4, 3), -np.abs(real(1, 3, 2)), real(1, 3, 2)], 2,
         q_num_heads=2, kv_num_heads=2)
    case("causal_conv_dilation", "CausalConvWithState", [real(1, 2, 5), real(2, 1, 3), real(2), real(1, 2, 4)], 2, dilation=2, activation="silu")
    sections = np.stack([np.array([[3, 4, 5]]), np.array([[0, 7, 1]]), np.array([[2, 2, 6]])])
    angle = np.arange(8)[:, None] / 10.0 ** (np.arange(6) / 6)
    tables = [np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)]
    for layout in (0, 1):
        case(f"mrotary_{layout}", "MRotaryEmbedding", [real(1, 2, 3, 12), sections, *tables], mrope_section=[2, 2, 2], mrope_layout=layout)


def products():
    scale = [np.float32(0.02), np.float32(0.03)]
    a, b = bytes_(2, 3), signed(3, 4)
    case("integer_to_float", "MatMulIntegerToFloat", [a, b, *scale, np.uint8(120), np.int8(-3), real(4)])
    case("integer_to_float_columns", "MatMulIntegerToFloat", [a, b, scale[0], np.abs(real(4)), None, signed(4)])
    case("integer16", "MatMulInteger16", [a.astype(np.int16) * 100, b.astype(np.int16) * 200])
    case("qgemm", "QGemm", [a, scale[0], np.uint8(7), b, scale[1], np.int8(3), ints(100, -200, 50, 0), np.float32(0.4), np.uint8(130)], alpha=0.5)
    case("qgemm_float", "QGemm", [bytes_(3, 2), scale[0], np.uint8(7), signed(4, 3), np.abs(real(4)), signed(4)], transA=1, transB=1)
    for kind in (0, 1):
        case(f"bnb4_{kind}", "MatMulBnb4", [real(2, 24), bytes_(24 * 5 // 2), np.abs(real(8))], K=24, N=5, block_size=16, quant_type=kind)
    x, router = real(3, 4), real(3, 5)
    w = [real(5, 8, 4), real(5, 8), real(5, 4, 8), real(5, 4)]
    for activation in ("relu", "gelu", "silu", "identity"):
        case("moe_" + activation, "MoE", [x, router, *w], k=2, activation_type=activation)
    case("moe_not_normalized", "MoE", [x[None], router, w[0], None, w[2]], k=3, normalize_routing_weights=2)
    case("moe_normalized", "MoE", [x[None], router, w[0], None, w[2]], k=3, normalize_routing_weights=1)
    case("moe_swiglu", "MoE", [x, router, real(5, 16, 4), real(5, 16), w[2], w[3]], k=2, activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.702,
         activation_beta=1.0, swiglu_limit=1.0)
    x, router = real(2, 32), real(2, 3)
    for bits, block in ((4, 0), (8, 0), (4, 16)):
        blocks = [2] if block else []
        inputs = [x, router, bytes_(3, 32, 32 * bits // 8), np.abs(real(3, 32, *blocks)) / 16, None, bytes_(3, 32, 16 * bits // 8),
                  np.abs(real(3, 32, *blocks[:0], *([1] if block else []))) / 16]
        more = {"block_size": block} if block else {}
        case(f"qmoe_{bits}_{block}", "QMoE", inputs, k=2, expert_weight_bits=bits, activation_type="swiglu", swiglu_fusion=1, **more)
    case("qmoe_mixed", "QMoE", [*inputs, *[None] * 7, np.abs(real(2, 3))], k=2, activation_type="swiglu", swiglu_fusion=1, normalize_routing_weights=1,
         block_size=16)
    case("qmoe_zeros", "QMoE", [*inputs, *[None] * 4, bytes_(3, 32, 1), bytes_(3, 32, 1)], k=1, activation_type="swiglu", swiglu_fusion=1, block_size=16)


def codes():
    s, z = [np.float32(v) for v in (0.05, 0.03, 0.1)], [np.uint8(v) for v in (120, 131, 7)]
    a, b = bytes_(2, 5), bytes_(5)
    for op in ("QLinearAdd", "QLinearMul"):
        case(op.lower(), op, [a, s[0], z[0], b, s[1], z[1], s[2], z[2]], off=1)
    case("qlinearadd_int8", "QLinearAdd", [signed(2, 5), s[0], np.int8(3), signed(2, 1), s[1], np.int8(0), s[2], np.int8(-9)], off=1)
    case("qlinearsigmoid", "QLinearSigmoid", [a, s[0], z[0], np.float32(1 / 256), np.uint8(0)], off=1)
    case("qlinearleakyrelu", "QLinearLeakyRelu", [a, s[0], z[0], s[1], z[1]], alpha=0.2, off=1)
    case("qlinearsoftmax", "QLinearSoftmax", [a, s[0], z[0], np.float32(1 / 256), np.uint8(0)], axis=-1, more={"opset": 13}, off=1)
    case("qlinearconcat", "QLinearConcat", [s[2], z[2], a, s[0], z[0], bytes_(2, 3), s[1], z[1]], axis=1, off=1)
    case("qlinearwhere", "QLinearWhere", [np.array([True, False, True, True, False]), a, s[0], z[0], b, s[1], z[1], s[2], z[2]], off=1)
    case("ms_quantize", "QuantizeLinear", [real(2, 3), np.float32(1e-4), np.uint16(3000)])
    case("ms_quantize_axis", "QuantizeLinear", [real(2, 3), np.abs(real(2)), signed(2)], axis=0)
    case("ms_dequantize", "DequantizeLinear", [rng.integers(0, 65536, (2, 3)).astype(np.uint16), np.float32(1e-3), np.uint16(30000)])


def small():
    case("ms_range", "Range", [np.float32(1), np.float32(3.5)])
    case("ms_trilu", "Trilu", [real(3, 4), np.int64(1)], upper=0)
    case("ms_gather_nd", "GatherND", [real(2, 3, 2), np.array([[0, 1], [1, 2]])])
    case("ms_pad", "Pad", [real(2, 3), np.array([0, 1, 1, 0]), np.float32(9)])
    case("expand_dims", "ExpandDims", [real(2, 3), np.int32(-1)])
    case("ms_unique", "Unique", [np.array([2, 1, 1, 3, 4, 3], np.float32)], 3)
    # What operator sets before 13 mean, which exports of encoders still have.
    old = lambda name, op, inputs, opset, n=1, **more: case(f"{name}_{opset}", op, inputs, n, domain="", opset=opset, **more)
    x = real(2, 3, 4)
    old("softmax", "Softmax", [x], 11)
    old("softmax_last", "Softmax", [x], 11, axis=-1)
    old("log_softmax", "LogSoftmax", [x], 12, axis=2)
    old("hardmax", "Hardmax", [x], 11)
    old("clip", "Clip", [x], 10, min=-0.5, max=0.75)
    old("slice", "Slice", [x], 9, starts=[1, -3], ends=[3, 1000], axes=[1, 2])
    old("pad", "Pad", [x], 10, pads=[0, 1, 0, 0, 0, 2], value=1.5)
    old("top_k", "TopK", [x], 9, 2, k=2)
    old("one_hot", "OneHot", [np.array([1, 0, 2]), np.int64(3), np.array([0, 1], np.float32)], 9)
    old("squeeze", "Squeeze", [real(2, 1, 3)], 11, axes=[1])
    old("unsqueeze", "Unsqueeze", [real(2, 3)], 11, axes=[0, 3])
    old("split", "Split", [real(2, 4)], 11, 2, axis=1, split=[1, 3])
    old("reduce_mean", "ReduceMean", [x], 11, axes=[-1], keepdims=0)
    old("layer_norm", "LayerNormalization", [x, real(4), real(4)], 11, axis=-1)
    old("dropout", "Dropout", [x], 11)
    old("scatter", "Scatter", [x, np.array([[[2, 0, 1, 1]]]), real(1, 1, 4)], 10, axis=1)
    old("conv", "Conv", [real(1, 4, 7), real(6, 2, 3), real(6)], 11, group=2, strides=[2], dilations=[2], pads=[1, 2])
    old("scalar_add", "Add", [np.float32(2), np.float32(3)], 13)
    old("empty_sum", "ReduceSum", [real(0, 3), np.array([0])], 13)


def composed():
    """Forms without a kernel there, as others that have one."""
    b, t, hq, hkv, d = 1, 2, 2, 1, 16
    q, k, v, past = real(b, t, hq * d), real(b, t, hkv * d), real(b, t, hkv * d), [real(b, hkv, 3, d) for _ in range(2)]
    wq, wk = real(d), real(d)

    def normalized(x, w):
        x = x.reshape(b, t, -1, d).astype(np.float64)
        return (x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w).reshape(b, t, -1).astype(np.float32)

    rest, heads = [v, *past, ints(4), np.int32(5)], {"num_heads": hq, "kv_num_heads": hkv}
    want = run("GroupQueryAttention", [np.asarray(x) for x in (normalized(q, wq), normalized(k, wk), *rest)], 3, MS, 21, heads)
    case("gqa_norms", "GroupQueryAttention", [q, k, *rest, *[None] * 7, wq, wk], 3, want=want, **heads)
    x, router, w, bias, down = real(3, 4), real(3, 5), real(5, 16, 4), real(5, 16), real(5, 4, 8)
    more = {"k": 2, "activation_type": "swiglu", "activation_alpha": 1.5, "activation_beta": 0.5}
    want = run("MoE", [x, router, w, bias, down], 1, MS, 21, {**more, "swiglu_fusion": 1})
    halves = lambda a: [np.ascontiguousarray(a[:, 0::2]), np.ascontiguousarray(a[:, 1::2])]
    case("moe_side_by_side", "MoE", [x, router, np.concatenate(halves(w), 1), np.concatenate(halves(bias), 1), down], want=want, swiglu_fusion=2, **more)
    (gate, up), (gate_bias, up_bias) = halves(w), halves(bias)
    case("moe_apart", "MoE", [x, router, gate, gate_bias, down, None, up, up_bias], want=want, **more)
    a, s, z = bytes_(2, 5), [np.float32(0.05), np.float32(0.03)], [np.uint8(120), np.uint8(131)]
    mean = ((a.astype(np.float64) - 120) * s[0]).mean(1, keepdims=True)
    case("qlinearreducemean", "QLinearReduceMean", [a, s[0], z[0], s[1], z[1]], axes=[1], keepdims=1, off=1,
         want=[np.clip(np.rint(mean / s[1]) + 131, 0, 255).astype(np.uint8)])
    ids, kinds = ints([1, 0, 4], [2, 2, 3]), ints([0, 1, 1], [0, 0, 1])
    case("qembed", "QEmbedLayerNormalization", [ids, kinds, bytes_(5, 4), bytes_(6, 4), bytes_(2, 4), bytes_(4), bytes_(4), ints([1, 1, 0], [1, 1, 1]),
                                                *[np.float32(v) for v in (0.01, 0.02, 0.015, 0.01, 0.03)], *[np.uint8(v) for v in (120, 130, 128, 10, 127)]], 2)


def seed(name):
    c = cases[name]
    names = [f"i{k}" if x is not None else "" for k, x in enumerate(c["inputs"])]
    outputs = [f"o{k}" for k in range(len(c["outputs"]))]
    node = helper.make_node(c["op"], names, outputs, domain=c["domain"])
    node.attribute.extend(helper.make_attribute(k, v) for k, v in c["attributes"].items())
    constants = [helper.make_tensor(n, x["type"], x["dims"], x["values"]) for n, x in zip(names, c["inputs"]) if x is not None]
    graph = helper.make_graph([node], name, [], [helper.make_empty_tensor_value_info(n) for n in outputs], constants)
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", c["opset"]), helper.make_opsetid(MS, 1)])
    (CORPUS / f"{name}.onnx").write_bytes(model.SerializeToString())


def coded_cache():
    """GroupQueryAttention over codes of 8 bits, and of 4 in the halves of a byte; one scale, or one a channel."""
    b, hq, hkv, d = 1, 2, 1, 16
    for bits, kind, shape in ((8, "PER_TENSOR", (1,)), (8, "PER_CHANNEL", (1, hkv, 1, d)), (4, "PER_CHANNEL", (1, hkv, 1, d))):
        codes = [signed(b, hkv, 3, d) if bits == 8 else bytes_(b, hkv, 3, d // 2) for _ in range(2)]
        scales = [np.abs(real(*shape)) / 2 ** (bits - 2) + np.float32(0.01) for _ in range(2)]
        inputs = [real(b, 1, hq * d), real(b, 1, hkv * d), real(b, 1, hkv * d), *codes, ints(3), np.int32(4), *[None] * 5, *scales]
        case(f"gqa_codes_{bits}_{kind.lower()}", "GroupQueryAttention", inputs, 3, num_heads=hq, kv_num_heads=hkv, kv_cache_bit_width=bits,
             k_quant_type=kind, v_quant_type=kind)


def main():
    for family in (multi_head, attention, grouped, fused, products, codes, small, coded_cache, composed):
        family()
    lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in cases.items()]
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    CORPUS.mkdir(exist_ok=True)
    for name in SEEDS:
        seed(name)
    print(len(cases), "cases by", onnxruntime.__version__)


if __name__ == "__main__":
    main()
