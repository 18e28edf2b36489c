#!/usr/bin/env python3
"""Seeds of onnx_fuzz and the files that src/onnx/read_test.cc reads: small models that reach every part of the reader.

  python tests/corpus/make_onnx_seeds.py

Run by hand; no test needs Python. Needs the onnx package (tools/requirements.txt). Each model passes onnx.checker.
"""
import pathlib

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h

OUT = pathlib.Path(__file__).resolve().parent / "onnx_fuzz"
OPSETS = [h.make_opsetid("", 25), h.make_opsetid("com.microsoft", 1), h.make_opsetid("own", 1)]


def save(name, graph, functions=(), check=True):
    model = h.make_model(graph, opset_imports=OPSETS, ir_version=13, functions=list(functions), producer_name="seeds", producer_version="1")
    h.set_model_props(model, {"made": "by hand"})
    if check:
        onnx.checker.check_model(model)
    (OUT / f"{name}.onnx").write_bytes(model.SerializeToString())


def vi(name, kind=T.FLOAT, shape=(2, "T")):
    return h.make_tensor_value_info(name, kind, shape)


def raw(name, kind, dims, data):
    return h.make_tensor(name, kind, dims, data, raw=True)


def types():
    """An initializer of every type, raw and as numbers, 5 values each (3 bytes of 4 bits, 2 bytes of 2 bits)."""
    bits = {T.FLOAT: 32, T.UINT8: 8, T.INT8: 8, T.UINT16: 16, T.INT16: 16, T.INT32: 32, T.INT64: 64, T.BOOL: 8, T.FLOAT16: 16, T.DOUBLE: 64,
            T.UINT32: 32, T.UINT64: 64, T.COMPLEX64: 64, T.COMPLEX128: 128, T.BFLOAT16: 16, T.FLOAT8E4M3FN: 8, T.FLOAT8E4M3FNUZ: 8,
            T.FLOAT8E5M2: 8, T.FLOAT8E5M2FNUZ: 8, T.UINT4: 4, T.INT4: 4, T.FLOAT4E2M1: 4, T.FLOAT8E8M0: 8, T.UINT2: 2, T.INT2: 2}
    tensors = [raw(T.DataType.Name(k).lower(), k, [5], bytes(range(1, (5 * b + 7) // 8 + 1))) for k, b in bits.items()]
    tensors += [h.make_tensor("numbers_float", T.FLOAT, [3], [1.0, -2.0, 0.5]), h.make_tensor("numbers_half", T.FLOAT16, [2], [1.0, -2.0]),
                h.make_tensor("numbers_int8", T.INT8, [3], [1, -2, 3]), h.make_tensor("numbers_uint32", T.UINT32, [2], [1, 4000000000]),
                h.make_tensor("numbers_int4", T.INT4, [3], [1, -2, 7]), h.make_tensor("texts", T.STRING, [2], [b"one", b"two"])]
    save("types", h.make_graph([h.make_node("Identity", ["x"], ["y"])], "types", [vi("x")], [vi("y")], tensors))


def control():
    """If with two branches, a function with an attribute reference, a node of com.microsoft, optional inputs left out."""
    then = h.make_graph([h.make_node("Neg", ["a"], ["t"])], "then", [], [vi("t")])
    other = h.make_graph([h.make_node("Abs", ["a"], ["e"])], "else", [], [vi("e")])
    leaky = h.make_node("LeakyRelu", ["p"], ["q"])
    leaky.attribute.append(h.make_attribute_ref("alpha", onnx.AttributeProto.FLOAT, ref_attr_name="slope"))
    function = h.make_function("own", "Leak", ["p"], ["q"], [leaky], [h.make_opsetid("", 25)], ["slope"])
    nodes = [h.make_node("If", ["c"], ["b"], then_branch=then, else_branch=other), h.make_node("Leak", ["b"], ["l"], domain="own", slope=0.1),
             h.make_node("Clip", ["l", "", "high"], ["k"], name="clip"), h.make_node("FastGelu", ["k"], ["y"], domain="com.microsoft"),
             h.make_node("Constant", [], ["s"], value_strings=["a", "b"])]
    graph = h.make_graph(nodes, "control", [vi("a"), vi("c", T.BOOL, [])], [vi("y"), vi("s", T.STRING, [2])], [h.make_tensor("high", T.FLOAT, [], [6.0])])
    save("control", graph, [function], check=False)  # the checker does not know com.microsoft


def sparse():
    values, indices = h.make_tensor("w", T.FLOAT, [2], [1.0, 2.0]), h.make_tensor("w_at", T.INT64, [2], [0, 5])
    graph = h.make_graph([h.make_node("Add", ["x", "w"], ["y"])], "sparse", [vi("x", shape=(2, 3))], [vi("y", shape=(2, 3))],
                         sparse_initializer=[h.make_sparse_tensor(values, indices, [2, 3])])
    save("sparse", graph)


def external():
    """Refers to a file that the fuzz target does not have."""
    t = raw("w", T.FLOAT, [4], np.zeros(4, "<f4").tobytes())
    onnx.external_data_helper.set_external_data(t, "w.bin", 4096, 16)
    t.ClearField("raw_data")
    t.data_location = T.EXTERNAL
    save("external", h.make_graph([h.make_node("Add", ["x", "w"], ["y"])], "external", [vi("x", shape=(4,))], [vi("y", shape=(4,))], [t]), check=False)


def containers():
    """Sequence, optional and map among the types of values."""
    tensor = h.make_tensor_type_proto(T.FLOAT, [None, 2])
    kinds = {"seq": h.make_sequence_type_proto(tensor), "opt": h.make_optional_type_proto(tensor), "map": h.make_map_type_proto(T.INT64, tensor)}
    inputs = [h.make_value_info(name, kind) for name, kind in kinds.items()] + [vi("x")]
    save("containers", h.make_graph([h.make_node("Identity", ["x"], ["y"])], "containers", inputs, [vi("y")]))


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    for make in (types, control, sparse, external, containers):
        make()
