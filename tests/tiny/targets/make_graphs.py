"""Small graphs around what a decoder does, most with an operator that some target does not take: for slm check and for the compilers.

  make_graphs.py     needs onnx and numpy; writes graphs/NAME.onnx, and shapes.json with what ONNX's own inference says of their values

tools/targets/measure.py --provider qnn --graphs FOLDER --out qnn_htp.json asks the compiler about them. Weights are random; every node
has a name, by which verdicts are compared."""

import json
import pathlib

import numpy as np
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh
from onnx import save, shape_inference

MS = "com.microsoft"
E, HEADS, D, S, PAST, F, V = 16, 2, 8, 4, 4, 32, 32


class Graph:
    def __init__(self, opset=23):
        self.opset, self.nodes, self.inputs, self.outputs, self.constants = opset, [], [], [], []
        self.random = np.random.default_rng(1)
        self.count = {}

    def input(self, name, shape, kind=T.FLOAT):
        self.inputs.append(h.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name, shape, kind=T.FLOAT):
        self.outputs.append(h.make_tensor_value_info(name, kind, shape))

    def constant(self, name, value):
        self.constants.append(nh.from_array(np.asarray(value), name))
        return name

    def weight(self, name, *shape):
        return self.constant(name, self.random.uniform(-0.5, 0.5, shape).astype(np.float32))

    def op(self, kind, *inputs, out=None, domain="", n=1, **attributes):
        """One node; its name is its kind and a number, its outputs are named after it unless `out` says how."""
        self.count[kind] = self.count.get(kind, 0) + 1
        name = f"{kind.lower()}_{self.count[kind]}"
        outputs = [out] if isinstance(out, str) else out or ([name] if n == 1 else [f"{name}.{i}" for i in range(n)])
        self.nodes.append(h.make_node(kind, list(inputs), outputs, name=name, domain=domain, **attributes))
        return outputs[0] if len(outputs) == 1 else outputs

    def model(self):
        graph = h.make_graph(self.nodes, "graph", self.inputs, self.outputs, self.constants)
        return h.make_model(
            graph, opset_imports=[h.make_opsetid("", self.opset), h.make_opsetid(MS, 1)], ir_version=10 if self.opset < 23 else 11
        )

    # Parts of a decoder on float values.
    def norm(self, x):
        return self.op("RMSNormalization", x, self.weight(x + ".norm", E), axis=-1, epsilon=1e-5)

    def norm_in_pieces(self, x, square="Pow"):
        if square == "Pow":
            squares = self.op("Pow", x, self.two())
            mean = self.op("ReduceMean", squares, self.last(), keepdims=1)
        elif square == "Mul":
            mean = self.op("ReduceMean", self.op("Mul", x, x), self.last(), keepdims=1)
        else:
            mean = self.op("Mul", self.op("ReduceSumSquare", x, self.last(), keepdims=1), self.constant("n", np.float32(1 / E)))
        root = self.op("Sqrt", self.op("Add", mean, self.constant(x + ".eps", np.float32(1e-5))))
        return self.op("Mul", self.op("Mul", x, self.op("Reciprocal", root)), self.weight(x + ".norm", E))

    def two(self):
        return self.once("two", np.float32(2))

    def last(self):
        return self.once("last", np.array([-1], np.int64))

    def once(self, name, value):
        if all(c.name != name for c in self.constants):
            self.constant(name, value)
        return name

    def ints(self, *values):
        return self.once("i" + "_".join(map(str, values)), np.array(values, np.int64))

    def heads(self, x):
        return self.op("Transpose", self.op("Reshape", x, self.ints(1, S, HEADS, D)), perm=[0, 2, 1, 3])

    def rope_in_pieces(self, x):
        low = self.op("Slice", x, self.ints(0), self.ints(D // 2), self.ints(3))
        high = self.op("Slice", x, self.ints(D // 2), self.ints(D), self.ints(3))
        turned = self.op("Concat", self.op("Neg", high), low, axis=3)
        return self.op(
            "Add",
            self.op("Mul", x, self.once("cos", np.ones((1, 1, S, D), np.float32))),
            self.op("Mul", turned, self.once("sin", np.zeros((1, 1, S, D), np.float32))),
        )

    def attend(self, q, k, v):
        scores = self.op(
            "Mul", self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2])), self.constant("scale", np.float32(D**-0.5))
        )
        masked = self.op("Add", scores, self.input("mask", [1, 1, S, S]))
        y = self.op("MatMul", self.op("Softmax", masked, axis=-1), v)
        return self.op("Reshape", self.op("Transpose", y, perm=[0, 2, 1, 3]), self.ints(1, S, E))

    def mlp(self, x, tag="mlp"):
        gate = self.op("MatMul", x, self.weight(tag + ".gate", E, F))
        up = self.op("MatMul", x, self.weight(tag + ".up", E, F))
        return self.op("MatMul", self.op("Mul", self.op("Mul", gate, self.op("Sigmoid", gate)), up), self.weight(tag + ".down", F, E))

    # Quantized values: codes in, codes out.
    def scale(self, name, kind, size):
        zero = {T.UINT16: np.uint16(32768), T.UINT8: np.uint8(128), T.INT16: np.int16(0), T.INT8: np.int8(0)}[kind]
        return self.once(f"{name}.s", np.float32(size / (32768 if "16" in str(zero.dtype) else 128))), self.once(f"{name}.z", zero)

    def quantize(self, x, kind=T.UINT16, size=4.0, out=None):
        s, z = self.scale(f"{x}.{kind}", kind, size)
        return self.op("QuantizeLinear", x, s, z, out=out)

    def dequantize(self, codes, like, kind=T.UINT16, size=4.0, out=None):
        s, z = self.scale(f"{like}.{kind}", kind, size)
        return self.op("DequantizeLinear", codes, s, z, out=out)

    def through(self, x, kind=T.UINT16, size=4.0):
        """A pair of QuantizeLinear and DequantizeLinear, as static quantization puts between operators."""
        return self.dequantize(self.quantize(x, kind, size), x, kind, size)

    def weight8(self, name, k, n):
        codes = self.random.integers(-127, 128, (k, n)).astype(np.int8)
        return self.op(
            "DequantizeLinear",
            self.constant(name + ".q", codes),
            self.constant(name + ".s", np.full(n, 1 / 254, np.float32)),
            self.constant(name + ".z", np.zeros(n, np.int8)),
            axis=1,
        )


def start(g, kind=T.FLOAT):
    return g.input("x", [1, S, E], kind)


def end(g, x, kind=T.FLOAT, shape=(1, S, E)):
    g.nodes[-1].output[list(g.nodes[-1].output).index(x)] = "y"
    g.output("y", list(shape), kind)
    return g


def attention_block(g, x, rope, norm):
    y = norm(x)
    q, k, v = (g.heads(g.op("MatMul", y, g.weight(f"w{n}", E, E))) for n in "qkv")
    y = g.attend(rope(q), rope(k), v)
    return g.op("MatMul", y, g.weight("wo", E, E))


def block_float():
    g = Graph()
    x = start(g)
    x = g.op("Add", x, attention_block(g, x, g.rope_in_pieces, g.norm))
    return end(g, g.op("Add", x, g.mlp(g.norm(x))))


def block_in_pieces():
    g = Graph()
    x = start(g)
    x = g.op("Add", x, attention_block(g, x, g.rope_in_pieces, lambda v: g.norm_in_pieces(v, "Mul")))
    return end(g, g.op("Add", x, g.mlp(g.norm_in_pieces(x))))


def skip_norm():
    g = Graph(21)
    x = start(g)
    y = attention_block(
        g, x, g.rope_in_pieces, lambda v: g.op("SimplifiedLayerNormalization", v, g.weight(v + ".n", E), axis=-1, epsilon=1e-5)
    )
    g.op("SkipSimplifiedLayerNormalization", x, y, g.weight("n2", E), domain=MS, out=["normed", "", "", "total"], epsilon=1e-5)
    return end(g, g.op("Add", "total", g.mlp("normed")))


def contrib_rotary():
    g = Graph()
    x = start(g)
    ids = g.input("ids", [1, S], T.INT64)
    tables = g.weight("cos_table", 16, D // 2), g.weight("sin_table", 16, D // 2)
    return end(g, attention_block(g, x, lambda v: g.op("RotaryEmbedding", v, ids, *tables, domain=MS), g.norm))


def standard_attention():
    g = Graph()
    x = g.norm(start(g))
    ids = g.input("ids", [1, S], T.INT64)
    q, k, v = (g.op("MatMul", x, g.weight(f"w{n}", E, E)) for n in "qkv")
    tables = g.weight("cos_table", 16, D // 2), g.weight("sin_table", 16, D // 2)
    turn = lambda y: g.op("RotaryEmbedding", y, *tables, ids, num_heads=HEADS)
    y = g.op("Attention", turn(q), turn(k), v, q_num_heads=HEADS, kv_num_heads=HEADS)
    other = g.op("MultiHeadAttention", q, k, v, domain=MS, num_heads=HEADS)
    return end(g, g.op("Add", g.op("MatMul", y, g.weight("wo", E, E)), other))


def grouped_query():
    g = Graph(21)
    x = start(g)
    q, k, v = (g.op("MatMul", x, g.weight(f"w{n}", E, E)) for n in "qkv")
    past = [g.input(f"past_key_values.0.{n}", [1, HEADS, PAST + S, D]) for n in ("key", "value")]
    lengths = g.input("seqlens_k", [1], T.INT32), g.input("total", [], T.INT32)
    tables = g.weight("cos_table", 16, D // 2), g.weight("sin_table", 16, D // 2)
    y = g.op(
        "GroupQueryAttention",
        q,
        k,
        v,
        *past,
        *lengths,
        *tables,
        domain=MS,
        out=["attended", "present.0.key", "present.0.value"],
        num_heads=HEADS,
        kv_num_heads=HEADS,
        do_rotary=1,
    )[0]
    for n in ("key", "value"):
        g.output(f"present.0.{n}", [1, HEADS, PAST + S, D])
    return end(g, g.op("MatMul", y, g.weight("wo", E, E)))


def gelu_in_pieces():
    g = Graph()
    y = g.op("MatMul", start(g), g.weight("up", E, F))
    inner = g.op("Add", g.op("Erf", g.op("Div", y, g.constant("root", np.float32(2**0.5)))), g.constant("one", np.float32(1)))
    y = g.op("Mul", g.op("Mul", y, inner), g.constant("half", np.float32(0.5)))
    return end(g, g.op("MatMul", g.op("Gelu", y, approximate="tanh"), g.weight("down", F, E)))


def causal_mask():
    g = Graph()
    scores = g.input("scores", [1, HEADS, S, S])
    seen = g.op("Trilu", g.input("ones", [S, S]), upper=0)
    hidden = g.op("Equal", seen, g.constant("zero", np.float32(0)))
    return end(g, g.op("Softmax", g.op("Where", hidden, g.constant("low", np.float32(-50)), scores), axis=-1), shape=(1, HEADS, S, S))


def quantized_embedding():
    g = Graph(21)
    ids = g.input("ids", [1, S], T.INT64)
    codes = g.constant("table", g.random.integers(0, 256, (V, 32 // 2)).astype(np.uint8))
    x = g.op(
        "GatherBlockQuantized",
        codes,
        ids,
        g.constant("table.s", np.ones((V, 1), np.float32)),
        domain=MS,
        bits=4,
        block_size=32,
        gather_axis=0,
        quantize_axis=1,
    )
    b = g.constant("b", g.random.integers(0, 256, (E, 1, 16)).astype(np.uint8))
    y = g.op("MatMulNBits", x, b, g.constant("b.s", np.ones((E, 1), np.float32)), domain=MS, K=32, N=E, bits=4, block_size=32)
    return end(g, g.op("Tanh", y))


def open_length():
    g = Graph()
    x = g.input("x", [1, "tokens", E])
    return end(g, g.op("Add", x, g.mlp(g.norm(x))), shape=(1, "tokens", E))


def quantized_mlp(planted=None, border="codes"):
    g = Graph(21)
    if border == "codes":
        x = g.dequantize(g.input("x", [1, S, E], T.UINT16), "x")
    else:
        x = g.through(g.input("x", [1, S, E]))
    gate = g.through(g.op("MatMul", x, g.weight8("gate", E, F)))
    up = g.through(g.op("MatMul", x, g.weight8("up", E, F)))
    act = g.through(g.op(planted or "Sigmoid", gate))
    y = g.through(g.op("Mul", act, up))
    y = g.op("MatMul", y, g.weight8("down", F, E))
    if border == "codes":
        return end(g, g.quantize(y), T.UINT16)
    return end(g, g.through(y))


def quantized_cache():
    """Keys as int16 codes with zero point 0: uint16 -> int16 just before the product."""
    g = Graph(21)
    q = g.dequantize(g.input("q", [1, HEADS, S, D], T.UINT16), "q")
    k = g.dequantize(g.input("k", [1, HEADS, D, S], T.UINT16), "k")
    new = g.through(k, T.INT16)
    past = g.dequantize(g.input("past_key_values.0.key", [1, HEADS, D, PAST], T.INT16), "past", T.INT16)
    keys = g.quantize(g.op("Concat", past, new, axis=3, out="keys"), T.INT16, out="present.0.key")
    g.output("present.0.key", [1, HEADS, D, PAST + S], T.INT16)
    scores = g.through(g.op("MatMul", q, g.dequantize(keys, "keys", T.INT16)))
    return end(g, g.quantize(g.op("Softmax", scores, axis=-1)), T.UINT16, (1, HEADS, S, PAST + S))


def quantized_attention():
    """Both operands of the products uint16, transposed between."""
    g = Graph(21)
    q, k, v = (g.dequantize(g.input(n, [1, S, HEADS, D], T.UINT16), n) for n in "qkv")
    heads = [g.through(g.op("Transpose", y, perm=[0, 2, 1, 3])) for y in (q, k, v)]
    keys = g.through(g.op("Transpose", heads[1], perm=[0, 1, 3, 2]))
    p = g.through(g.op("Softmax", g.through(g.op("MatMul", heads[0], keys)), axis=-1))
    return end(g, g.quantize(g.op("MatMul", p, heads[2])), T.UINT16, (1, HEADS, S, D))


def cache_in_place():
    g = Graph(24)
    past = g.input("past_key_values.0.key", [1, HEADS, PAST + S, D])
    k = g.input("k", [1, HEADS, 1, D])
    at = g.input("at", [1], T.INT64)
    written = g.op("TensorScatter", past, k, at, axis=2, out="present.0.key")
    g.output("present.0.key", [1, HEADS, PAST + S, D])
    flat = g.op(
        "ScatterND",
        g.input("rows", [PAST + S, D]),
        g.input("row", [1, 1], T.INT64),
        g.op("Reshape", g.op("Slice", k, g.ints(0), g.ints(1), g.ints(1)), g.ints(1, D)),
    )
    return end(
        g,
        g.op(
            "Add",
            g.op("Slice", written, g.ints(0), g.ints(1), g.ints(2)),
            g.op("Reshape", g.op("Slice", flat, g.ints(0), g.ints(1), g.ints(0)), g.ints(1, 1, 1, D)),
        ),
        shape=(1, HEADS, 1, D),
    )


def six_dimensions():
    g = Graph()
    y = g.op("Reshape", start(g), g.ints(1, 2, 2, 2, 2, 4))
    y = g.op("Transpose", y, perm=[0, 2, 1, 4, 3, 5])
    return end(g, g.op("Tanh", g.op("Reshape", y, g.ints(1, S, E))))


def other_types():
    g = Graph()
    x = start(g)
    wide = g.op("Cast", g.op("Cast", g.op("Mul", x, x), to=T.DOUBLE), to=T.FLOAT)
    codes, s, z = g.op("DynamicQuantizeLinear", wide, n=3)
    product = g.op("MatMulInteger", codes, g.constant("w", np.ones((E, E), np.uint8)), z)
    y = g.op("Mul", g.op("Cast", product, to=T.FLOAT), s)
    return end(g, g.op("Relu", y))


def loop():
    g = Graph()
    body = h.make_graph(
        [h.make_node("Mul", ["v", "v"], ["w"], name="body_mul"), h.make_node("Identity", ["go"], ["go2"], name="body_identity")],
        "body",
        [
            h.make_tensor_value_info("i", T.INT64, ()),
            h.make_tensor_value_info("go", T.BOOL, ()),
            h.make_tensor_value_info("v", T.FLOAT, (1, S, E)),
        ],
        [h.make_tensor_value_info("go2", T.BOOL, ()), h.make_tensor_value_info("w", T.FLOAT, (1, S, E))],
    )
    y = g.op("Loop", g.constant("n", np.array(2, np.int64)), g.constant("yes", np.array(True)), g.op("Sigmoid", start(g)), body=body)
    return end(g, g.op("Exp", y))


def sampling():
    g = Graph()
    logits = g.input("logits", [1, V])
    top, ids = g.op("TopK", g.op("Softmax", logits, axis=-1), g.ints(4), n=2, axis=-1)
    mass = g.op("CumSum", top, g.constant("axis", np.array(1, np.int64)))
    folded = g.op("Mod", mass, g.constant("one", np.array([1], np.float32)), fmod=1)
    odd = g.op("Softsign", g.op("ReduceProd", folded, g.last(), keepdims=1))
    g.output(ids, [1, 4], T.INT64)
    return end(g, g.op("Mul", odd, top), shape=(1, 4))


def norm_of_squares():
    g = Graph()
    x = start(g)
    return end(g, g.op("Tanh", g.norm_in_pieces(x, "ReduceSumSquare")))


GRAPHS = {
    f.__name__: f
    for f in (
        block_float,
        block_in_pieces,
        skip_norm,
        contrib_rotary,
        standard_attention,
        grouped_query,
        gelu_in_pieces,
        causal_mask,
        quantized_embedding,
        open_length,
        quantized_mlp,
        quantized_cache,
        quantized_attention,
        cache_in_place,
        six_dimensions,
        other_types,
        loop,
        sampling,
        norm_of_squares,
    )
}
GRAPHS["quantized_mlp_float_border"] = lambda: quantized_mlp(border="float")
GRAPHS["quantized_mlp_planted"] = lambda: quantized_mlp("Softsign")


def shapes(model):
    """Value -> sizes; names of open ones."""
    graph = shape_inference.infer_shapes(model, data_prop=True).graph
    return {
        v.name: [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in v.type.tensor_type.shape.dim]
        for v in [*graph.value_info, *graph.output]
        if v.type.tensor_type.HasField("shape")
    }


if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve().parent
    (here / "graphs").mkdir(exist_ok=True)
    found = {}
    for name, make in GRAPHS.items():
        model = make().model()
        save(model, here / "graphs" / f"{name}.onnx")
        found[name] = shapes(model)
    (here / "shapes.json").write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items()) + "\n}\n")
