"""Graphs of one operator each, for measure.py: which forms of an operator a target's compiler takes. Needs the packages onnx and numpy.

A case is (name, model, name of the node that is asked about). Forms: f32 and f16 values; u16 and u8: quantized values, DequantizeLinear
before and QuantizeLinear after the operator, as static quantization writes them."""

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h

from cases_of_decoders import attention, norms, products
from cases_of_shapes import casts, shapes
from forms import FLOATS, FORMS, MS, NUMPY, Form, binary, shaped, unary

UNARY = [
    "Abs",
    "Neg",
    "Exp",
    "Log",
    "Sqrt",
    "Reciprocal",
    "Sigmoid",
    "Tanh",
    "Relu",
    "LeakyRelu",
    "Elu",
    "HardSwish",
    "HardSigmoid",
    "Softplus",
    "Erf",
    "Sin",
    "Cos",
    "Tan",
    "Atan",
    "Floor",
    "Ceil",
    "Round",
    "Sign",
    "Identity",
    "Softmax",
    "LogSoftmax",
    "Mish",
    "Softsign",
    "Selu",
    "Celu",
]
BINARY = ["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mod"]
REDUCE = ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"]


def elementwise():
    for form in FORMS:
        for kind in UNARY:
            yield f"{kind}/{form}", unary(kind, form)
        yield f"Gelu/{form}", unary("Gelu", form)
        yield f"Gelu-tanh/{form}", unary("Gelu", form, approximate="tanh")
        yield f"Swish-24/{form}", unary("Swish", form, 24)
        yield f"ms.Gelu/{form}", unary("Gelu", form, domain=MS)
        yield f"ms.QuickGelu/{form}", unary("QuickGelu", form, domain=MS, alpha=1.0)
        yield f"ms.FastGelu/{form}", unary("FastGelu", form, domain=MS)
        for kind in BINARY:
            yield f"{kind}/{form}", binary(kind, form, fmod=1) if kind == "Mod" else binary(kind, form)
        for kind in ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"):
            yield f"{kind}/{form}", binary(kind, form, out=T.BOOL)
        f = Form(form)
        yield f"Clip/{form}", f.op(
            "Clip",
            [
                f.value("x", (1, 4, 64)),
                f.constant("lo", np.array(-1, NUMPY[FLOATS.get(form, 1)])),
                f.constant("hi", np.array(1, NUMPY[FLOATS.get(form, 1)])),
            ],
            {"y": ((1, 4, 64), None)},
        )
        f = Form(form)
        yield f"Where/{form}", f.op(
            "Where", [f.value("c", (1, 4, 64), T.BOOL), f.value("a", (1, 4, 64)), f.value("b", (1, 4, 64))], {"y": ((1, 4, 64), None)}
        )
    for kind in ("Add", "Mul", "Sub", "Div", "Max", "Min", "Mod"):
        yield f"{kind}/i32", binary(kind, T.INT32)
        yield f"{kind}/i64", binary(kind, T.INT64)
    for kind in ("Equal", "Greater", "Less"):
        yield f"{kind}/i32", binary(kind, T.INT32, out=T.BOOL)
        yield f"{kind}/i64", binary(kind, T.INT64, out=T.BOOL)
    for kind in ("And", "Or", "Xor"):
        yield f"{kind}/bool", binary(kind, T.BOOL)
    yield "Not/bool", unary("Not", T.BOOL)
    yield "IsNaN/f32", unary("IsNaN", "f32", out=T.BOOL)
    yield "BitwiseAnd/i32", binary("BitwiseAnd", T.INT32)
    yield "BitShift/u8", binary("BitShift", T.UINT8, direction="LEFT")
    for rank in range(1, 8):
        shape = (1,) * (rank - 1) + (64,)
        yield f"Add/f32/rank{rank}", binary("Add", "f32", shape=shape)
        yield f"Add/u16/rank{rank}", binary("Add", "u16", shape=shape)
    for rank in range(2, 7):
        shape = tuple(range(2, 2 + rank))
        order = tuple(reversed(range(rank)))
        f = Form("f32")
        yield f"Transpose/f32/rank{rank}", f.op("Transpose", [f.value("x", shape)], {"y": (tuple(reversed(shape)), None)}, perm=order)


def reductions():
    for form in FORMS:
        for kind in REDUCE:
            yield f"{kind}/{form}", shaped(kind, form, (1, 4, 1), [np.array([-1], np.int64)])
        f = Form(form)
        yield f"ArgMax/{form}", f.op("ArgMax", [f.value("x", (1, 64))], {"y": ((1, 1), T.INT64)}, axis=-1)
        f = Form(form)
        yield f"TopK/{form}", f.op(
            "TopK",
            [f.value("x", (1, 64)), f.constant("k", np.array([4], np.int64))],
            {"v": ((1, 4), None), "i": ((1, 4), T.INT64)},
            axis=-1,
        )
        yield f"CumSum/{form}", shaped("CumSum", form, (1, 4, 64), [np.array(1, np.int64)])

    for kind in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean"):
        for form, tag in ((T.INT32, "i32"), (T.INT64, "i64")):
            yield f"{kind}/{tag}", shaped(kind, form, (1, 4, 1), [np.array([-1], np.int64)])


def others():
    f = Form("f32")
    yield "dynamic-MatMul/f32", f.op("MatMul", [f.value("x", (1, "s", 64)), f.weight("w", (64, 32))], {"y": ((1, "s", 32), None)})
    f = Form("f32")
    yield "dynamic-Add/f32", f.op("Add", [f.value("a", (1, "s", 64)), f.value("b", (1, "s", 64))], {"y": ((1, "s", 64), None)})
    f = Form("f32")
    yield "dynamic-Reshape/f32", f.op("Reshape", [f.value("a", (1, 4, 64)), f.value("b", (2,), T.INT64)], {"y": ((4, 64), None)})
    for form in ("f32", "u16"):
        f = Form(form)
        yield f"BatchNormalization/{form}", f.op(
            "BatchNormalization",
            [f.value("x", (1, 64, 4, 4))] + [f.constant(c, np.ones(64, np.float32)) for c in "sbmv"],
            {"y": ((1, 64, 4, 4), None)},
        )
        f = Form(form)
        yield f"MaxPool/{form}", f.op(
            "MaxPool", [f.value("x", (1, 64, 4, 4))], {"y": ((1, 64, 2, 2), None)}, kernel_shape=[2, 2], strides=[2, 2]
        )
    f = Form("f32")
    yield "LSTM/f32", f.op(
        "LSTM",
        [f.value("x", (4, 1, 16)), f.weight("w", (1, 64, 16)), f.weight("r", (1, 64, 16))],
        {"y": ((4, 1, 1, 16), None)},
        hidden_size=16,
    )
    f = Form("f32")
    yield "GRU/f32", f.op(
        "GRU",
        [f.value("x", (4, 1, 16)), f.weight("w", (1, 48, 16)), f.weight("r", (1, 48, 16))],
        {"y": ((4, 1, 1, 16), None)},
        hidden_size=16,
    )
    body = h.make_graph(
        [h.make_node("Add", ["v", "v"], ["w"]), h.make_node("Identity", ["go"], ["go2"])],
        "body",
        [
            h.make_tensor_value_info("i", T.INT64, ()),
            h.make_tensor_value_info("go", T.BOOL, ()),
            h.make_tensor_value_info("v", T.FLOAT, (4,)),
        ],
        [h.make_tensor_value_info("go2", T.BOOL, ()), h.make_tensor_value_info("w", T.FLOAT, (4,))],
    )
    f = Form("f32")
    yield "Loop/f32", f.op(
        "Loop",
        [f.constant("n", np.array(3, np.int64)), f.constant("yes", np.array(True)), f.value("x", (4,))],
        {"y": ((4,), None)},
        body=body,
    )
    branch = lambda name, kind: h.make_graph([h.make_node(kind, ["x"], [name])], name, [], [h.make_tensor_value_info(name, T.FLOAT, (4,))])
    f = Form("f32")
    f.value("x", (4,))
    yield "If/f32", f.op(
        "If", [f.value("c", (), T.BOOL)], {"y": ((4,), None)}, then_branch=branch("t", "Neg"), else_branch=branch("e", "Exp")
    )
    for kind, form in (("u16", T.UINT16), ("u8", T.UINT8), ("s8", T.INT8), ("s16", T.INT16)):
        f = Form("f32")
        yield f"QuantizeLinear/f32-{kind}", f.op(
            "QuantizeLinear", [f.value("x", (1, 4, 64)), *f.scale("x", kind)], {"y": ((1, 4, 64), form)}
        )
        f = Form("f32")
        yield f"DequantizeLinear/{kind}-f32", f.op(
            "DequantizeLinear", [f.value("x", (1, 4, 64), form), *f.scale("x", kind)], {"y": ((1, 4, 64), None)}
        )


def all_cases():
    for group in (elementwise, reductions, shapes, casts, products, norms, attention, others):
        for name, form in group():
            yield name, form.model()


if __name__ == "__main__":
    n = bad = 0
    for case, built in all_cases():
        n += 1
        try:
            onnx.checker.check_model(built)
        except Exception as error:  # contrib operators are unknown to the checker, but nothing else may be wrong
            bad += 1
            print(case, str(error).splitlines()[0])
    print(n, "cases,", bad, "refused")
