"""Of cases.py: operators that move values, and casts."""

import numpy as np
from onnx import TensorProto as T

from forms import FORMS, NUMPY, Form, shaped


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
