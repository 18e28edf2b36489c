"""Of cases.py: products, norms and attention."""

import numpy as np
from onnx import TensorProto as T

from forms import FLOATS, FORMS, MS, NUMPY, Form


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
