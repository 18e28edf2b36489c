#!/usr/bin/env python3
"""Writes tests/tiny/matmulnbits.json: codes in groups, and the input bytes of com.microsoft.MatMulNBits that mean them.

Run by hand; no test needs Python. Needs numpy, onnx, onnxruntime. The bytes are packed here from the operator's description and accepted
only if ONNX Runtime, given them, multiplies by scale * (code - zero): the recorded bytes are what that software takes, not what ours writes.
"""
import json
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

OUT = Path(__file__).parent / "matmulnbits.json"


def pack(codes, zeros, bits, block):
    n, k = codes.shape
    groups, per_byte = zeros.shape[1], 8 // bits
    padded = np.repeat(zeros, block, axis=1)
    padded[:, :k] = codes
    b = np.zeros((n, groups, block // per_byte), np.uint8)
    z = np.zeros((n, (groups + per_byte - 1) // per_byte), np.uint8)
    for i in range(per_byte):
        b |= (padded.reshape(n, groups, block)[:, :, i::per_byte] << (i * bits)).astype(np.uint8)
        z[:, :len(range(i, groups, per_byte))] |= (zeros[:, i::per_byte] << (i * bits)).astype(np.uint8)
    return b, z


def product(x, b, scales, z, n, k, bits, block):
    names = ["x", "b", "s"] + (["z"] if z is not None else [])
    node = helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=block)
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, x.shape), value("b", TensorProto.UINT8, b.shape), value("s", TensorProto.FLOAT, scales.shape)]
    if z is not None:
        inputs.append(value("z", TensorProto.UINT8, z.shape))
    graph = helper.make_graph([node], "g", inputs, [value("y", TensorProto.FLOAT, (x.shape[0], n))])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)], ir_version=9)
    feed = {"x": x, "b": b, "s": scales} | ({"z": z} if z is not None else {})
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feed)[0]


def main():
    rng, cases = np.random.default_rng(5), []
    for bits, n, k, block, symmetric in [(4, 5, 64, 32, False), (4, 3, 40, 16, False), (4, 4, 64, 32, True), (8, 3, 96, 32, False)]:
        groups = -(-k // block)
        codes = rng.integers(0, 1 << bits, (n, k))
        zeros = np.full((n, groups), 1 << (bits - 1)) if symmetric else rng.integers(0, 1 << bits, (n, groups))
        scales = rng.uniform(0.01, 0.1, (n, groups)).astype(np.float32)
        b, z = pack(codes, zeros, bits, block)
        x = rng.normal(size=(7, k)).astype(np.float32)
        of = np.arange(k) // block
        want = x.astype(np.float64) @ (scales[:, of].astype(np.float64) * (codes - zeros[:, of])).T
        got = product(x, b, scales, None if symmetric else z, n, k, bits, block)
        assert np.allclose(got, want, rtol=1e-4, atol=1e-4), np.abs(got - want).max()
        cases.append(dict(bits=bits, n=n, k=k, group=block, codes=codes.ravel().tolist(), zeros=zeros.ravel().tolist(),
                          b=b.ravel().tolist(), zero_points=[] if symmetric else z.ravel().tolist()))
    OUT.write_text('{"cases": [\n' + ",\n".join("  " + json.dumps(c, separators=(",", ":")) for c in cases) + "\n]}\n")


if __name__ == "__main__":
    main()
