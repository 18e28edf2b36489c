"""How cases.py builds its graphs: inputs and constants in a form, one operator, its outputs. Needs the packages onnx and numpy."""

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

MS = "com.microsoft"
FLOATS = {"f32": T.FLOAT, "f16": T.FLOAT16}
CODES = {"u16": T.UINT16, "u8": T.UINT8, "s16": T.INT16, "s8": T.INT8}
FORMS = ["f32", "f16", "u16", "u8", "s16", "s8"]  # of most operators
NUMPY = {
    T.FLOAT: np.float32,
    T.FLOAT16: np.float16,
    T.UINT16: np.uint16,
    T.UINT8: np.uint8,
    T.INT16: np.int16,
    T.INT8: np.int8,
    T.INT32: np.int32,
    T.INT64: np.int64,
    T.BOOL: np.bool_,
    T.DOUBLE: np.float64,
}
IR = 11


class Form:
    """Builds one graph: inputs and constants in a form, the operator, its outputs."""

    def __init__(self, form, opset=21):
        self.form, self.opset = form, opset
        self.inputs, self.outputs, self.constants, self.nodes = [], [], [], []
        self.random = np.random.default_rng(0)

    def scale(self, name, form):
        code = CODES[form]
        zero = 0 if form.startswith("s") else (32768 if form == "u16" else 128)
        self.constants += [
            nh.from_array(np.float32(4 / (32768 if "16" in form else 128)), name + ".s"),
            nh.from_array(NUMPY[code](zero), name + ".z"),
        ]
        return [name + ".s", name + ".z"]

    def value(self, name, shape, form=None):
        """A graph input; quantized ones are read through DequantizeLinear."""
        form = form or self.form
        if form in CODES:
            self.inputs.append(h.make_tensor_value_info(name + ".q", CODES[form], shape))
            self.nodes.append(h.make_node("DequantizeLinear", [name + ".q", *self.scale(name, form)], [name], name=name + ".dq"))
        else:
            self.inputs.append(h.make_tensor_value_info(name, FLOATS.get(form, form), shape))
        return name

    def weight(self, name, shape, form=None):
        """A constant; quantized ones are 8-bit codes for 8-bit forms, 16-bit ones else."""
        form = form or self.form
        x = self.random.uniform(-1, 1, shape)
        if form in CODES:
            scale = 1 / (32768 if "16" in form else 128)
            zero = 0 if form.startswith("s") else (32768 if form == "u16" else 128)
            dtype = NUMPY[CODES[form]]
            codes = np.clip(np.round(x / scale) + zero, np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)
            self.constants += [
                nh.from_array(codes, name + ".q"),
                nh.from_array(np.float32(scale), name + ".s"),
                nh.from_array(dtype(zero), name + ".z"),
            ]
            self.nodes.append(h.make_node("DequantizeLinear", [name + ".q", name + ".s", name + ".z"], [name], name=name + ".dq"))
        else:
            self.constants.append(nh.from_array(np.asarray(x, NUMPY[FLOATS[form]]), name))
        return name

    def constant(self, name, array):
        self.constants.append(nh.from_array(np.asarray(array), name))
        return name

    def codes(self, name, shape, bits, axis=None, block=0):
        """A constant matrix of signed codes behind DequantizeLinear: one scale, one a channel, or one a block."""
        kind = {8: T.INT8, 4: T.INT4, 16: T.INT16}[bits]
        top = 2 ** (bits - 1) - 1
        values = self.random.integers(-top, top + 1, shape)
        self.constants.append(h.make_tensor(name + ".q", kind, shape, values.flatten().tolist()))
        scale_shape = () if axis is None else (shape[axis],)
        if block:
            scale_shape = tuple(n // block if i == axis else n for i, n in enumerate(shape))
        self.constants.append(nh.from_array(np.full(scale_shape, 1 / top, np.float32), name + ".s"))
        attributes = {} if axis is None else {"axis": axis}
        if block:
            attributes["block_size"] = block
        inputs = [name + ".q", name + ".s"]
        if not block:
            self.constants.append(h.make_tensor(name + ".z", kind, scale_shape, [0] * int(np.prod(scale_shape))))
            inputs.append(name + ".z")
        self.nodes.append(h.make_node("DequantizeLinear", inputs, [name], name=name + ".dq", **attributes))
        return name

    def op(self, kind, inputs, outputs, domain="", **attributes):
        """The operator in question. outputs: {name: (shape, form or element type)}."""
        names = []
        after = []
        for name, (shape, form) in outputs.items():
            form = form or self.form
            if form in CODES:
                after.append(h.make_node("QuantizeLinear", [name, *self.scale(name + ".o", form)], [name + ".q"], name=name + ".q"))
                self.outputs.append(h.make_tensor_value_info(name + ".q", CODES[form], shape))
            else:
                self.outputs.append(h.make_tensor_value_info(name, FLOATS.get(form, form), shape))
            names.append(name)
        self.nodes.append(h.make_node(kind, inputs, names, name="asked", domain=domain, **attributes))
        self.nodes += after
        return self

    def model(self):
        graph = h.make_graph(self.nodes, "case", self.inputs, self.outputs, self.constants)
        return h.make_model(graph, opset_imports=[h.make_opsetid("", self.opset), h.make_opsetid(MS, 1)], ir_version=IR)


def unary(kind, form, opset=21, shape=(1, 4, 64), domain="", out=None, **attributes):
    f = Form(form, opset)
    return f.op(kind, [f.value("x", shape)], {"y": (shape, out)}, domain, **attributes)


def binary(kind, form, opset=21, shape=(1, 4, 64), out=None, **attributes):
    f = Form(form, opset)
    return f.op(kind, [f.value("a", shape), f.value("b", shape)], {"y": (shape, out)}, **attributes)


def shaped(kind, form, result, constants=(), opset=21, shape=(1, 4, 64), **attributes):
    """An operator whose further inputs are integer constants."""
    f = Form(form, opset)
    names = [f.value("x", shape)] + [f.constant(f"c{i}", c) if c is not None else "" for i, c in enumerate(constants)]
    return f.op(kind, names, {"y": (result, None)}, **attributes)
