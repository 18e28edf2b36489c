"""Graphs of one operator each, for measure.py: which forms of an operator a target's compiler takes. Needs the packages onnx and numpy.

A case is (name, model, name of the node that is asked about). Forms: f32 and f16 values; u16 and u8: quantized values, DequantizeLinear
before and QuantizeLinear after the operator, as static quantization writes them."""

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h

from forms import FLOATS, MS, NUMPY, Form, binary, shaped, unary

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
FORMS = ["f32", "f16", "u16", "u8", "s16", "s8"]


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


def shapes():
    i64 = lambda *v: np.array(v, np.int64)
    for form in [*FORMS, T.INT32, T.INT64]:
        tag = form if isinstance(form, str) else {T.INT32: "i32", T.INT64: "i64"}[form]
        yield f"Reshape/{tag}", shaped("Reshape", form, (4, 64), [i64(4, 64)])
        yield f"Transpose/{tag}", shaped("Transpose", form, (1, 64, 4), perm=[0, 2, 1])
        yield f"Slice/{tag}", shaped("Slice", form, (1, 4, 32), [i64(0), i64(32), i64(2)])
        yield f"Squeeze/{tag}", shaped("Squeeze", form, (4, 64), [i64(0)])
        yield f"Unsqueeze/{tag}", shaped("Unsqueeze", form, (1, 1, 4, 64), [i64(0)])
        yield f"Expand/{tag}", shaped("Expand", form, (2, 4, 64), [i64(2, 4, 64)])
        yield f"Tile/{tag}", shaped("Tile", form, (2, 4, 64), [i64(2, 1, 1)])
        yield f"Flatten/{tag}", shaped("Flatten", form, (1, 256))
        f = Form(form)
        yield f"Concat/{tag}", f.op("Concat", [f.value("a", (1, 4, 64)), f.value("b", (1, 4, 64))], {"y": ((1, 8, 64), None)}, axis=1)
        f = Form(form)
        yield f"Split/{tag}", f.op(
            "Split", [f.value("x", (1, 4, 64)), f.constant("s", i64(32, 32))], {"a": ((1, 4, 32), None), "b": ((1, 4, 32), None)}, axis=2
        )
        for ids in (T.INT32, T.INT64):
            f = Form(form)
            table = (
                f.weight("t", (128, 64))
                if isinstance(form, str)
                else f.constant("t", np.arange(128 * 64, dtype=NUMPY[form]).reshape(128, 64))
            )
            yield f"Gather/{tag}/ids-{'i32' if ids == T.INT32 else 'i64'}", f.op(
                "Gather", [table, f.value("i", (1, 4), ids)], {"y": ((1, 4, 64), None)}, axis=0
            )
        yield f"Pad/{tag}", shaped("Pad", form, (1, 6, 64), [i64(0, 1, 0, 0, 1, 0)])
        yield f"Trilu/{tag}", shaped("Trilu", form, (1, 64, 64), shape=(1, 64, 64))
    for form in FORMS:
        for ids in (T.INT32, T.INT64):
            name = "i32" if ids == T.INT32 else "i64"
            f = Form(form)
            yield f"ScatterND/{form}/ids-{name}", f.op(
                "ScatterND", [f.value("d", (64, 16)), f.value("i", (1, 1), ids), f.value("u", (1, 16))], {"y": ((64, 16), None)}
            )
            f = Form(form)
            yield f"GatherElements/{form}/ids-{name}", f.op(
                "GatherElements", [f.value("d", (8, 16)), f.value("i", (8, 4), ids)], {"y": ((8, 4), None)}, axis=1
            )
            f = Form(form)
            yield f"GatherND/{form}/ids-{name}", f.op(
                "GatherND", [f.value("d", (8, 16)), f.value("i", (4, 1), ids)], {"y": ((4, 16), None)}
            )
            f = Form(form)
            yield f"ScatterElements/{form}/ids-{name}", f.op(
                "ScatterElements", [f.value("d", (8, 16)), f.value("i", (8, 4), ids), f.value("u", (8, 4))], {"y": ((8, 16), None)}, axis=1
            )
        f = Form(form, 24)
        yield f"TensorScatter-24/{form}", f.op(
            "TensorScatter",
            [f.value("p", (1, 2, 16, 8)), f.value("u", (1, 2, 1, 8)), f.value("i", (1,), T.INT64)],
            {"y": ((1, 2, 16, 8), None)},
            axis=2,
        )
    yield "NonZero/f32", (lambda f: f.op("NonZero", [f.value("x", (4, 4))], {"y": ((2, None), T.INT64)}))(Form("f32"))
    yield "Shape/f32", (lambda f: f.op("Shape", [f.value("x", (4, 4))], {"y": ((2,), T.INT64)}))(Form("f32"))
    yield "Size/f32", (lambda f: f.op("Size", [f.value("x", (4, 4))], {"y": ((), T.INT64)}))(Form("f32"))
    yield "Range/i64", (
        lambda f: f.op(
            "Range", [f.value("a", (), T.INT64), f.value("b", (), T.INT64), f.value("c", (), T.INT64)], {"y": ((None,), T.INT64)}
        )
    )(Form("f32"))
    yield "ConstantOfShape/f32", (lambda f: f.op("ConstantOfShape", [f.value("x", (2,), T.INT64)], {"y": ((None, None), None)}))(
        Form("f32")
    )
    yield "OneHot/f32", (
        lambda f: f.op(
            "OneHot",
            [f.value("i", (4,), T.INT64), f.constant("d", i64(8)), f.constant("v", np.array([0, 1], np.float32))],
            {"y": ((4, 8), None)},
            axis=-1,
        )
    )(Form("f32"))
    yield "DepthToSpace/f32", shaped("DepthToSpace", "f32", (1, 1, 4, 4), shape=(1, 4, 2, 2), blocksize=2)
    yield "Einsum/f32", (
        lambda f: f.op("Einsum", [f.value("a", (4, 8)), f.value("b", (8, 4))], {"y": ((4, 4), None)}, equation="ij,jk->ik")
    )(Form("f32"))
    yield "Unique/f32", (lambda f: f.op("Unique", [f.value("x", (4,))], {"y": ((None,), None)}))(Form("f32"))
    yield "Compress/f32", (lambda f: f.op("Compress", [f.value("x", (4,)), f.value("c", (4,), T.BOOL)], {"y": ((None,), None)}))(
        Form("f32")
    )


def casts():
    kinds = {"f32": T.FLOAT, "f16": T.FLOAT16, "i32": T.INT32, "i64": T.INT64, "bool": T.BOOL, "u8": T.UINT8, "i8": T.INT8, "f64": T.DOUBLE}
    for a, source in kinds.items():
        for b, target in kinds.items():
            if a != b:
                f = Form(a)
                yield f"Cast/{a}-{b}", f.op("Cast", [f.value("x", (1, 4, 64), source)], {"y": ((1, 4, 64), target)}, to=target)


def products():
    for form in FORMS:
        f = Form(form)
        yield f"MatMul-const/{form}", f.op("MatMul", [f.value("x", (1, 4, 64)), f.weight("w", (64, 32))], {"y": ((1, 4, 32), None)})
        f = Form(form)
        yield f"MatMul-dynamic/{form}", f.op(
            "MatMul", [f.value("a", (1, 2, 4, 64)), f.value("b", (1, 2, 64, 4))], {"y": ((1, 2, 4, 4), None)}
        )
        f = Form(form)
        yield f"Gemm/{form}", f.op("Gemm", [f.value("x", (4, 64)), f.weight("w", (32, 64))], {"y": ((4, 32), None)}, transB=1)
        f = Form(form)
        yield f"Conv-1x1/{form}", f.op("Conv", [f.value("x", (1, 64, 1, 4)), f.weight("w", (32, 64, 1, 1))], {"y": ((1, 32, 1, 4), None)})
        f = Form(form)
        yield f"Conv1D/{form}", f.op("Conv", [f.value("x", (1, 64, 8)), f.weight("w", (32, 64, 3))], {"y": ((1, 32, 6), None)})
    for a, b, y in (
        ("u16", "s16", "u16"),
        ("u16", "u8", "u16"),
        ("u16", "u16", "u8"),
        ("u8", "u8", "u16"),
        ("s16", "s16", "s16"),
        ("s8", "s8", "s8"),
        ("u16", "s8", "u16"),
    ):
        f = Form(a)
        yield f"MatMul-dynamic/{a}-{b}-{y}", f.op(
            "MatMul", [f.value("a", (1, 2, 4, 64)), f.value("b", (1, 2, 64, 4), b)], {"y": ((1, 2, 4, 4), y)}
        )
    for form in ("f32", "u16", "u8"):
        for bits, axis, block, name in (
            (8, None, 0, "w8"),
            (8, 1, 0, "w8c"),
            (4, None, 0, "w4"),
            (4, 1, 0, "w4c"),
            (4, 0, 32, "w4b32"),
            (8, 0, 32, "w8b32"),
            (16, None, 0, "w16"),
        ):
            f = Form(form)
            yield f"MatMul-{name}/{form}", f.op(
                "MatMul", [f.value("x", (1, 4, 64)), f.codes("w", (64, 32), bits, axis, block)], {"y": ((1, 4, 32), None)}
            )
    f = Form("u16")
    yield "MatMul-w8c/u16-u8", f.op("MatMul", [f.value("x", (1, 4, 64)), f.codes("w", (64, 32), 8, 1)], {"y": ((1, 4, 32), "u8")})
    f = Form("u8")
    yield "MatMulInteger/u8", f.op(
        "MatMulInteger", [f.value("a", (4, 64), T.UINT8), f.constant("b", np.ones((64, 4), np.uint8))], {"y": ((4, 4), T.INT32)}
    )
    f = Form("f32")
    yield "DynamicQuantizeLinear/f32", f.op(
        "DynamicQuantizeLinear", [f.value("x", (4, 64))], {"y": ((4, 64), T.UINT8), "s": ((), T.FLOAT), "z": ((), T.UINT8)}
    )
    for form in ("f32", "f16"):
        for bits in (4, 8, 2):
            for block in (32, 128):
                f = Form(form)
                k = 256
                b = f.constant("b", f.random.integers(0, 256, (32, k // block, block * bits // 8)).astype(np.uint8))
                s = f.constant("s", np.ones((32, k // block), NUMPY[FLOATS[form]]))
                yield f"ms.MatMulNBits-{bits}b{block}/{form}", f.op(
                    "MatMulNBits", [f.value("x", (1, 4, k)), b, s], {"y": ((1, 4, 32), None)}, MS, K=k, N=32, bits=bits, block_size=block
                )
        f = Form(form)
        zeros = f.constant("z", np.full((32, 4), 136, np.uint8))
        b = f.constant("b", f.random.integers(0, 256, (32, 8, 16)).astype(np.uint8))
        s = f.constant("s", np.ones((32, 8), NUMPY[FLOATS[form]]))
        yield f"ms.MatMulNBits-4b32-zeros/{form}", f.op(
            "MatMulNBits", [f.value("x", (1, 4, 256)), b, s, zeros], {"y": ((1, 4, 32), None)}, MS, K=256, N=32, bits=4, block_size=32
        )
        for bits in (4, 8):
            f = Form(form)
            t = f.constant("t", f.random.integers(0, 256, (128, 256 * bits // 8)).astype(np.uint8))
            s = f.constant("s", np.ones((128, 8), NUMPY[FLOATS[form]]))
            yield f"ms.GatherBlockQuantized-{bits}/{form}", f.op(
                "GatherBlockQuantized",
                [t, f.value("i", (1, 4), T.INT64), s],
                {"y": ((1, 4, 256), None)},
                MS,
                bits=bits,
                block_size=32,
                gather_axis=0,
                quantize_axis=1,
            )


def norms():
    for form in FORMS:
        x = (1, 4, 64)
        f = Form(form)
        yield f"LayerNormalization/{form}", f.op(
            "LayerNormalization", [f.value("x", x), f.weight("w", (64,)), f.weight("b", (64,))], {"y": (x, None)}, axis=-1
        )
        f = Form(form, 23)
        yield f"RMSNormalization-23/{form}", f.op("RMSNormalization", [f.value("x", x), f.weight("w", (64,))], {"y": (x, None)}, axis=-1)
        f = Form(form, 23)
        yield f"RMSNormalization-23-dynamic-weight/{form}", f.op(
            "RMSNormalization", [f.value("x", x), f.value("w", (64,))], {"y": (x, None)}, axis=-1
        )
        f = Form(form, 23)
        yield f"RMSNormalization-23-axis1/{form}", f.op(
            "RMSNormalization", [f.value("x", x), f.weight("w", (4, 64))], {"y": (x, None)}, axis=1
        )
        f = Form(form)
        yield f"SimplifiedLayerNormalization/{form}", f.op(
            "SimplifiedLayerNormalization", [f.value("x", x), f.weight("w", (64,))], {"y": (x, None)}, axis=-1, epsilon=1e-5
        )
        f = Form(form)
        yield f"ms.SkipSimplifiedLayerNormalization/{form}", f.op(
            "SkipSimplifiedLayerNormalization", [f.value("x", x), f.value("s", x), f.weight("w", (64,))], {"y": (x, None)}, MS, epsilon=1e-5
        )
        f = Form(form)
        yield f"ms.SkipLayerNormalization/{form}", f.op(
            "SkipLayerNormalization",
            [f.value("x", x), f.value("s", x), f.weight("w", (64,)), f.weight("b", (64,))],
            {"y": (x, None)},
            MS,
            epsilon=1e-5,
        )
        f = Form(form)
        yield f"InstanceNormalization/{form}", f.op(
            "InstanceNormalization", [f.value("x", (1, 64, 4, 4)), f.weight("w", (64,)), f.weight("b", (64,))], {"y": ((1, 64, 4, 4), None)}
        )
        f = Form(form)
        yield f"LpNormalization/{form}", f.op("LpNormalization", [f.value("x", x)], {"y": (x, None)}, axis=-1, p=2)


def attention():
    heads, kv, d, past = 4, 2, 64, 64
    for form in ("f32", "f16"):
        f = Form(form, 23)
        yield f"Attention-23/{form}", f.op(
            "Attention",
            [f.value("q", (1, 4, heads * d)), f.value("k", (1, 4, kv * d)), f.value("v", (1, 4, kv * d))],
            {"y": ((1, 4, heads * d), None)},
            q_num_heads=heads,
            kv_num_heads=kv,
        )
        f = Form(form, 23)
        yield f"Attention-23-mask/{form}", f.op(
            "Attention",
            [f.value("q", (1, 4, heads * d)), f.value("k", (1, 4, kv * d)), f.value("v", (1, 4, kv * d)), f.value("m", (1, 1, 4, 4))],
            {"y": ((1, 4, heads * d), None)},
            q_num_heads=heads,
            kv_num_heads=kv,
        )
        f = Form(form, 23)
        yield f"Attention-23-past/{form}", f.op(
            "Attention",
            [
                f.value("q", (1, 1, heads * d)),
                f.value("k", (1, 1, kv * d)),
                f.value("v", (1, 1, kv * d)),
                "",
                f.value("pk", (1, kv, past, d)),
                f.value("pv", (1, kv, past, d)),
            ],
            {"y": ((1, 1, heads * d), None), "nk": ((1, kv, past + 1, d), None), "nv": ((1, kv, past + 1, d), None)},
            q_num_heads=heads,
            kv_num_heads=kv,
        )
        f = Form(form, 23)
        yield f"RotaryEmbedding-23/{form}", f.op(
            "RotaryEmbedding",
            [f.value("x", (1, heads, 4, d)), f.weight("c", (128, d // 2)), f.weight("s", (128, d // 2)), f.value("p", (1, 4), T.INT64)],
            {"y": ((1, heads, 4, d), None)},
        )
        f = Form(form, 23)
        yield f"RotaryEmbedding-23-no-ids/{form}", f.op(
            "RotaryEmbedding",
            [f.value("x", (1, heads, 4, d)), f.value("c", (1, 4, d // 2)), f.value("s", (1, 4, d // 2))],
            {"y": ((1, heads, 4, d), None)},
        )
        f = Form(form)
        yield f"ms.RotaryEmbedding/{form}", f.op(
            "RotaryEmbedding",
            [f.value("x", (1, heads, 4, d)), f.value("p", (1, 4), T.INT64), f.weight("c", (128, d // 2)), f.weight("s", (128, d // 2))],
            {"y": ((1, heads, 4, d), None)},
            MS,
        )
        f = Form(form)
        yield f"ms.MultiHeadAttention/{form}", f.op(
            "MultiHeadAttention",
            [f.value("q", (1, 4, 256)), f.value("k", (1, 4, 256)), f.value("v", (1, 4, 256))],
            {"y": ((1, 4, 256), None)},
            MS,
            num_heads=4,
        )
        for tag, extra in (("", {}), ("-window", {"local_window_size": 16}), ("-softcap", {"softcap": 30.0})):
            f = Form(form)
            names = [
                f.value("q", (1, 1, heads * d)),
                f.value("k", (1, 1, kv * d)),
                f.value("v", (1, 1, kv * d)),
                f.value("pk", (1, kv, past, d)),
                f.value("pv", (1, kv, past, d)),
                f.value("sl", (1,), T.INT32),
                f.value("tl", (), T.INT32),
                f.weight("c", (128, d // 2)),
                f.weight("s", (128, d // 2)),
            ]
            yield f"ms.GroupQueryAttention{tag}/{form}", f.op(
                "GroupQueryAttention",
                names,
                {"y": ((1, 1, heads * d), None), "nk": ((1, kv, past, d), None), "nv": ((1, kv, past, d), None)},
                MS,
                num_heads=heads,
                kv_num_heads=kv,
                do_rotary=1,
                **extra,
            )


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
