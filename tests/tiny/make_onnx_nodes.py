#!/usr/bin/env python3
"""Writes tests/tiny/onnx_nodes: small node tests of the onnx package, and cases of com.microsoft's operators computed here with numpy.

Run by hand; no test needs Python packages. Needs onnx (tools/requirements.txt). The numpy formulas are those of ONNX Runtime's
docs/ContribOperators.md, one value after the other, written without the tree's own code.
"""
import json
import math
import pathlib
import shutil

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

OUT = pathlib.Path(__file__).parent / "onnx_nodes"
NAMES = """add_bcast attention_4d_gqa attention_4d_causal_padded_kv_bf16 bitcast_float32_to_int32 cast_FLOAT_to_FLOAT8E4M3FN cast_FLOAT_to_INT4
cast_e8m0_FLOAT_to_FLOAT8E8M0 clip concat_3d_axis_negative_2 cumsum_1d_reverse_exclusive dequantizelinear_blocked dynamicquantizelinear
einsum_batch_diagonal gather_elements_negative_indices gathernd_example_float32 gemm_all_attributes layer_normalization_2d_axis1
matmul_1d_3d mod_mixed_sign_int8 onehot_with_negative_axis pow_types_int64_int64 qlinearmatmul_2D_uint8_float32 quantizelinear_float4e2m1
reduce_log_sum_exp_do_not_keepdims_example reduce_max_empty_set reflect_pad reshape_zero_and_negative_dim rms_normalization_2d_axis1
rotary_embedding_with_rotary_dim scatternd_multiply slice_neg_steps softmax_axis_0 split_variable_parts_2d_opset18 tensorscatter top_k
transpose_all_permutations_2 tril_out_neg where_example wrap_pad loop11 scan9_multi_state range_float_type_positive_delta_expanded""".split()


def write(name, model, inputs, outputs, rtol, atol):
    folder = OUT / name / "test_data_set_0"
    folder.mkdir(parents=True)
    (OUT / name / "model.onnx").write_bytes(model.SerializeToString())
    (OUT / name / "tolerance.json").write_text(json.dumps({"rtol": rtol, "atol": atol}) + "\n")
    for kind, tensors in (("input", inputs), ("output", outputs)):
        for i, t in enumerate(tensors):
            t = t if isinstance(t, onnx.TensorProto) else numpy_helper.from_array(np.asarray(t))
            (folder / f"{kind}_{i}.pb").write_bytes(t.SerializeToString())


def microsoft(name, op, inputs, outputs, **attributes):
    names = [f"i{k}" if x is not None else "" for k, x in enumerate(inputs)]
    made = [f"o{k}" if x is not None else "" for k, x in enumerate(outputs)]

    def info(names, values):
        return [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in zip(names, values) if v is not None]

    node = helper.make_node(op, names, made, domain="com.microsoft", **attributes)
    model = helper.make_model(helper.make_graph([node], name, info(names, inputs), info(made, outputs)), ir_version=10,
                              opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
    write(name, model, [x for x in inputs if x is not None], [x for x in outputs if x is not None], 1e-5, 1e-6)


def rotate(x, cos, sin, position):
    half = len(x) // 2
    return np.concatenate([x[:half] * cos[position] - x[half:] * sin[position], x[half:] * cos[position] + x[:half] * sin[position]])


def group_query_attention(rng):
    """Two sequences with 5 and 3 keys after this call, one new token each, a cache of 4 slots, a window of 4 and a soft cap."""
    hq, hkv, d, totals, window, cap = 4, 2, 16, [5, 3], 4, 5.0
    q, k, v = (rng.normal(size=(2, 1, h * d)).astype(np.float32) for h in (hq, hkv, hkv))
    past = [rng.normal(size=(2, hkv, 4, d)).astype(np.float32) for _ in range(2)]
    angle = np.arange(8)[:, None] / 100 ** (np.arange(d // 2) / (d // 2))
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    present = [np.zeros((2, hkv, 5, d), np.float32) for _ in range(2)]
    y = np.zeros((2, 1, hq * d), np.float32)
    for b, total in enumerate(totals):
        for h in range(hkv):
            for cache, old, new in ((present[0], past[0], rotate(k[b, 0, h * d:][:d], cos, sin, total - 1)), (present[1], past[1], v[b, 0, h * d:][:d])):
                cache[b, h, :total - 1] = old[b, h, :total - 1]
                cache[b, h, total - 1] = new
        for h in range(hq):
            keys = range(max(0, total - window), total)
            turned = rotate(q[b, 0, h * d:][:d], cos, sin, total - 1)
            scores = [cap * math.tanh(float(turned @ present[0][b, h // 2, s]) / math.sqrt(d) / cap) for s in keys]
            weights = np.exp(scores) / np.exp(scores).sum()
            y[b, 0, h * d:(h + 1) * d] = sum(w * present[1][b, h // 2, s] for w, s in zip(weights, keys))
    microsoft("ms_group_query_attention", "GroupQueryAttention",
              [q, k, v, *past, np.array([t - 1 for t in totals], np.int32), np.array([5], np.int32), cos, sin], [y, *present],
              num_heads=hq, kv_num_heads=hkv, do_rotary=1, local_window_size=window, softcap=cap)


def skip_norm(rng):
    x, skip, scale, bias = (rng.normal(size=s).astype(np.float32) for s in ((2, 3, 10), (2, 3, 10), (10,), (10,)))
    total = x + skip + bias
    y = total / np.sqrt((total.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-5) * scale
    microsoft("ms_skip_simplified_norm", "SkipSimplifiedLayerNormalization", [x, skip, scale, bias], [y.astype(np.float32), None, None, total], epsilon=1e-5)


def matmul_nbits(rng):
    """4 bits, 5 columns of 48 values in blocks of 32: the second block is half padding, zero points two to a byte."""
    n, k, block = 5, 48, 32
    codes, zeros = rng.integers(0, 16, (n, 64)), rng.integers(0, 16, (n, 2))
    scales = rng.uniform(0.1, 1, (n, 2)).astype(np.float32)
    a = rng.normal(size=(3, k)).astype(np.float32)
    w = np.array([[(codes[r, c] - zeros[r, c // block]) * scales[r, c // block] for c in range(k)] for r in range(n)])
    packed = (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8).reshape(n, 2, 16)
    microsoft("ms_matmul_nbits", "MatMulNBits", [a, packed, scales.reshape(-1), (zeros[:, 0] | zeros[:, 1] << 4).astype(np.uint8)],
              [(a.astype(np.float64) @ w.T).astype(np.float32)], N=n, K=k, bits=4, block_size=block)


def branches_and_functions():
    """The model control.onnx of the fuzz seeds for both conditions: minus or absolute value, a leak of 0.1 below zero, at most 6, FastGelu."""
    model = onnx.load(OUT.parents[1] / "corpus/onnx_fuzz/control.onnx")
    a = np.array([[-9.0, -1.0, 0.5], [2.0, 7.0, -0.25]], np.float32)
    for name, condition, chosen in (("own_if_then", True, -a), ("own_if_else", False, np.abs(a))):
        k = np.minimum(np.where(chosen < 0, chosen * 0.1, chosen), 6).astype(np.float64)
        y = 0.5 * k * (1 + np.tanh(math.sqrt(2 / math.pi) * (k + 0.044715 * k ** 3)))
        write(name, model, [a, np.array(condition)], [y.astype(np.float32), np.array(["a", "b"], object)], 1e-5, 1e-6)


def wide_integers():
    """64-bit integers whose neighbours are one double: order, sums, ends."""
    x, u = np.array([2**62, 2**62 + 1, -5, 2**62 + 1], np.int64), np.array([7, 2**63, 2**63 + 1], np.uint64)
    top = np.argsort(u)[::-1][:2]
    nodes = [helper.make_node("ArgMax", ["x"], ["best"], axis=0, keepdims=0), helper.make_node("TopK", ["u", "two"], ["top", "order"]),
             helper.make_node("CumSum", ["x", "zero"], ["sums"]), helper.make_node("Sub", ["sums", "x"], ["before"]),
             helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0), helper.make_node("Sub", ["sum", "x"], ["rest"]),
             helper.make_node("ReduceMax", ["u"], ["last"], keepdims=0), helper.make_node("Equal", ["u", "last"], ["is_last"]),
             helper.make_node("ReduceMin", ["x"], ["least"], keepdims=0), helper.make_node("Equal", ["x", "least"], ["is_least"])]
    with np.errstate(over="ignore"):
        outputs = [np.argmax(x), top.astype(np.int64), np.cumsum(x) - x, x.sum() - x, u == u.max(), x == x.min()]
    names = ["best", "order", "before", "rest", "is_last", "is_least"]
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in zip(names, outputs)]
    graph = helper.make_graph(nodes, "wide_integers", [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
                                                       for n, v in (("x", x), ("u", u))], infos,
                              [numpy_helper.from_array(np.array(2, np.int64).reshape(1), "two"), numpy_helper.from_array(np.array(0, np.int64), "zero")])
    write("own_wide_integers", helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]), [x, u], outputs, 0, 0)


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    cases = {t.name: t for t in collect_testcases(None)}
    for name in NAMES:
        t = cases["test_" + name]
        inputs, outputs = t.data_sets[0]
        half = any(helper.tensor_dtype_to_np_dtype(o.type.tensor_type.elem_type).itemsize == 2 for o in t.model.graph.output)
        write(name, t.model, inputs, outputs, *((2e-2, 1e-2) if half else (max(t.rtol, 1e-5), max(t.atol, 1e-6))))
    rng = np.random.default_rng(11)
    branches_and_functions()
    wide_integers()
    for make in (group_query_attention, skip_norm, matmul_nbits):
        make(rng)


if __name__ == "__main__":
    main()
