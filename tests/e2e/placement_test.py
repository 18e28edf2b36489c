#!/usr/bin/env python3
"""Where slm says that nodes run, beside ONNX Runtime's own word, on graphs with planted operators that a provider lacks.   placement_test.py SLM

`slm devices --place` and the report of a run are compared node by node with what onnxruntime for Python says of the same file: whom it assigned
each node, what a profile of a run names, and for Qualcomm's provider its own trace of operators. Needs the packages onnx and onnxruntime and a
provider: that of tests/ort_provider (SLM_ORT_TEST_PROVIDER), Qualcomm's (SLM_ORT_QNN), WebGPU (SLM_ORT, fetched by `./dev ort webgpu`). Skipped
without; a failure with SLM_NEED_ORT=1. Nothing runs on a device: compilers, a simulator and a driver on the CPU.
"""
import collections
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import ort_test
import webgpu_test
from ort_test import document, slm

CPU = "CPUExecutionProvider"
ROWS, WIDTH = 4, 16


class Graph:
    """Nodes named one by one, x [4, 16] to y; `plant` adds the operator under test."""

    def __init__(self, plants):
        self.plants, self.nodes, self.weights, self.planted = plants, [], [], []

    def step(self, op, inputs, name=None, domain="", **attributes):
        from onnx import helper
        name = f"{op.lower()}_{len(self.nodes)}" if name is None else name
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [out], name=name, domain=domain, **attributes))
        return out

    def const(self, value):
        from onnx import numpy_helper
        self.weights.append(numpy_helper.from_array(value, f"c{len(self.weights)}"))
        return self.weights[-1].name

    def product(self, x, **more):
        import numpy as np
        rng = np.random.default_rng(len(self.nodes))
        return self.step("MatMul", [x, self.const(rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 4)], **more)

    def plant(self, x, which=0, name=None):
        import numpy as np
        op, domain, attributes, constants = self.plants[which % len(self.plants)]
        name = f"planted_{len(self.planted)}" if name is None else name
        self.planted.append(name)
        return self.step(op, [x] + [self.const(np.array(c, np.float32)) for c in constants], name, domain, **attributes)

    def save(self, y, path):
        import onnx
        from onnx import TensorProto, helper
        self.nodes[-1].output[0] = "y"
        assert self.nodes[-1].output[0] == "y" and y == f"v{len(self.nodes) - 1}"
        value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [ROWS, WIDTH])
        graph = helper.make_graph(self.nodes, "g", [value("x")], [value("y")], self.weights)
        onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]), str(path))


def middle(g): return g.product(g.plant(g.product("x")))
def first(g): return g.step("Relu", [g.product(g.plant("x"))])
def last(g): return g.plant(g.step("Sigmoid", [g.product("x")]))
def twice(g): return g.product(g.plant(g.plant(g.product("x"))))
def two_kinds(g): return g.product(g.plant(g.product(g.plant(g.product("x"), 0)), 1))
def alone(g): return g.plant("x")
def unnamed(g): return g.product(g.plant(g.product("x", name=""), name=""), name="")
def odd_name(g): return g.product(g.plant(g.product("x"), name='/layers.0/"é" (x1), a\n\x1b[31mb'))


def branch(g):
    a = g.product("x")
    return g.step("Mul", [g.plant(a), g.step("Sigmoid", [a])])


def residual(g):
    return g.step("Add", ["x", g.product(g.plant(g.step("Tanh", [g.product("x")])))])


def four(g):  # more than a message lists
    x = g.product("x")
    for _ in range(4):
        x = g.product(g.plant(x))
    return x


def attention(g):
    q, k, v = (g.product("x") for _ in "qkv")
    scores = g.step("MatMul", [q, g.step("Transpose", [k], perm=[1, 0])])
    y = g.step("MatMul", [g.step("Softmax", [scores], axis=-1), v])
    gate = g.step("Mul", [g.plant(y, 1), g.step("Sigmoid", [y])])
    return g.step("Add", ["x", g.product(gate)])


def codes(g):
    """QuantizeLinear and DequantizeLinear around everything, the planted operator between them."""
    import numpy as np
    scale, zero = g.const(np.array(0.05, np.float32)), g.const(np.array(128, np.uint8))
    pair = lambda x: g.step("DequantizeLinear", [g.step("QuantizeLinear", [x, scale, zero]), scale, zero])
    return g.product(pair(g.plant(pair(g.product(pair("x"))))))


SHAPES = (middle, first, last, twice, two_kinds, alone, unnamed, odd_name, branch, residual, four, attention, codes)
ANY_NAME = (unnamed, codes)  # compared by operator, or the runtime makes nodes of its own

ERF = ("Erf", "", {}, [])
SOFTSIGN = ("Softsign", "", {}, [])
QNN_LACKS = [ERF, ("Mod", "", {"fmod": 1}, [[0.75] * WIDTH]), SOFTSIGN]
WEBGPU_LACKS = [SOFTSIGN, ("Selu", "", {}, []), ("Mod", "", {"fmod": 1}, [[0.75] * WIDTH])]


def worker(provider, library, options, folder):
    """In a process of its own: what ONNX Runtime says of every graph of the folder, as JSON."""
    import numpy as np
    import onnxruntime as ort
    ort.set_default_logger_severity(4)
    ort.register_execution_provider_library(provider, library)
    devices = [d for d in ort.get_ep_devices() if d.ep_name == provider]
    found = {}
    for path in sorted(pathlib.Path(folder).glob("*.onnx")):
        so = ort.SessionOptions()
        so.log_severity_level = 4
        so.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        so.enable_profiling = True
        so.profile_file_prefix = str(path.with_suffix(".profile"))
        trace = path.with_suffix(".trace")
        trace.mkdir()
        own = {"enable_framework_op_trace": "1", "framework_op_trace_dir": str(trace)} if provider.startswith("QNN") else {}
        so.add_provider_for_devices(devices, json.loads(options) | own)
        session = ort.InferenceSession(str(path), so)
        nodes = [(n.name, n.op_type, part.ep_name) for part in session.get_provider_graph_assignment_info() for n in part.get_nodes()]
        session.run(None, {i.name: np.linspace(-1, 1, ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH) for i in session.get_inputs()}
                    if len(session.get_inputs()) == 1 else decoder_feed(session))
        events = json.loads(pathlib.Path(session.end_profiling()).read_text())
        ran = [(e["name"].removesuffix("_kernel_time"), e["args"]["op_name"], e["args"]["provider"]) for e in events
               if e.get("cat") == "Node" and e["name"].endswith("_kernel_time")]
        refused = [n["node_name"] for f in trace.glob("qnn_op_trace*.json") for n in json.loads(f.read_text())["unsupported_nodes"]]
        found[path.name] = {"nodes": nodes, "ran": ran, "refused": refused}
    print("FOUND", json.dumps(found))


def decoder_feed(session):
    import numpy as np
    kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(float16)": np.float16}
    shape = lambda dims: [d if isinstance(d, int) else 0 if "past" in str(d) else 1 for d in dims]
    return {i.name: np.zeros(shape(i.shape), kinds[i.type]) if "past" in i.name else np.ones(shape(i.shape), kinds[i.type]) for i in session.get_inputs()}


class Against:
    """What is the same for every provider; `lacks` are operators that it does not take."""
    takes_the_rest = True

    @classmethod
    def setUpClass(cls):
        if not cls.plugin or not pathlib.Path(cls.plugin).exists():
            raise unittest.SkipTest(f"the library of {cls.provider} is not here")
        cls.folder = tempfile.TemporaryDirectory()
        cls.d = pathlib.Path(cls.folder.name)
        cls.planted = {}
        for make in SHAPES:
            g = Graph(cls.lacks)
            g.save(make(g), cls.d / f"{make.__name__}.onnx")
            cls.planted[make] = g.planted
        cls.more()
        r = subprocess.run([sys.executable, __file__, "--worker", cls.provider, cls.plugin, json.dumps(cls.options), cls.d], capture_output=True,
                           text=True, timeout=200)
        lines = [line for line in r.stdout.splitlines() if line.startswith("FOUND ")]
        assert len(lines) == 1, r.stdout + r.stderr
        cls.found = json.loads(lines[0][6:])
        cls.words = ["--ep-library", f"{cls.provider}={cls.plugin}", "--device", cls.provider]
        for key, value in cls.options.items():
            cls.words += ["--ep-option", f"{key}={value}"]

    @classmethod
    def more(cls):
        """Other files to ask ONNX Runtime about."""

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_every_node(self):
        self.assertGreaterEqual(len(SHAPES), 12)
        for make in SHAPES:
            with self.subTest(make.__name__):
                self.check(make)

    def check(self, make):
        path = self.d / f"{make.__name__}.onnx"
        theirs = self.found[path.name]
        ours = document("devices", "--place", path, *self.words)
        rows = collections.Counter((op["op"], op["provider"]) for op in ours["ops"] for _ in range(op["count"]))
        self.assertEqual(rows, collections.Counter((op, provider) for _, op, provider in theirs["nodes"]))
        self.assertEqual(ours["nodes"], len(theirs["nodes"]))
        self.assertEqual(ours["providers"], dict(collections.Counter(provider for _, _, provider in theirs["nodes"])))
        named = collections.Counter((name, op["op"], op["provider"]) for op in ours["ops"] for name in op["names"])
        self.assertEqual(named, collections.Counter((printable(name), op, provider) for name, op, provider in theirs["nodes"]))

        left = [(name, op) for name, op, provider in theirs["nodes"] if provider == CPU]
        # What ran: every planted node on the CPU under its name, the provider's share there. (The CPU's own fusions come after the assignment.)
        ran = collections.Counter((name, provider) for name, op, provider in theirs["ran"] if not op.startswith("Memcpy"))
        for name in self.planted[make]:
            self.assertTrue(not name or (ran[name, CPU], ran[name, self.provider]) == (1, 0), f"{name!r}: {ran}")
        self.assertEqual(any(provider == self.provider for _, provider in ran), self.provider in ours["providers"])
        if self.takes_the_rest and make not in ANY_NAME:
            self.assertEqual(sorted(name for name, _ in left), sorted(self.planted[make]))
            self.assertEqual(sorted(name for name, provider in ran if provider == CPU), sorted(self.planted[make]))
            if theirs["refused"]:
                self.assertEqual(sorted(theirs["refused"]), sorted(self.planted[make]), "the provider's own trace")

        run = slm("devices", "--place", path, *self.words, "--no-fallback")
        self.assertEqual(run.returncode, 3, run.stderr)
        listed = run.stderr.split(f"not on {self.provider}: ", 1)[1]
        for op, count in collections.Counter(op for _, op in left).items():
            self.assertIn(f"{op} x{count} (", listed)
            names = [printable(name) for name, o in left if o == op]
            self.assertEqual(sum(name in listed for name in names), count if count <= 3 or len(set(names)) < count else 3)
        taken = {op for _, op, provider in theirs["nodes"] if provider != CPU} - {op for _, op in left}
        for op in taken:
            self.assertNotRegex(listed, rf"\b{op} x\d")


def printable(name):
    return re.sub(r"[\x00-\x1f\x7f]", " ", name)


class OnTestProvider(Against, unittest.TestCase):
    provider, plugin, options = "SlmTestExecutionProvider", ort_test.TEST_PROVIDER, {}
    lacks, takes_the_rest = [ERF, SOFTSIGN], False

    @classmethod
    def more(cls):
        ort_test.write_model(cls.d / "model")
        document("export", cls.d / "model", "--to", "genai", "-o", cls.d / "genai", "--exact", "--ctx", 64)
        for file in (cls.d / "genai").iterdir():
            (cls.d / file.name.replace("model.onnx", "decoder.onnx") if file.suffix == ".onnx" else cls.d / file.name).write_bytes(file.read_bytes())

    def test_the_report_of_a_run(self):
        theirs = collections.Counter((op, provider) for _, op, provider in self.found["decoder.onnx"]["nodes"])
        ours = document("run", self.d / "genai", "--raw", "-p", "in", "-n", 1, *self.words)["placement"]["ops"]
        self.assertEqual({(op["op"], op["kernel"]): op["count"] for op in ours if op["op"] != "Memcpy"}, dict(theirs))
        self.assertGreater(theirs["MatMul", self.provider], 10)
        self.assertGreater(theirs["GroupQueryAttention", CPU], 1)


class OnQnn(Against, unittest.TestCase):
    provider, plugin, options = "QNNExecutionProvider", ort_test.QNN, {"backend_type": "htp", "soc_model": "60"}
    lacks = QNN_LACKS

    def test_the_trace_names_what_was_planted(self):
        for make in (middle, two_kinds, attention):
            self.assertEqual(sorted(self.found[f"{make.__name__}.onnx"]["refused"]), sorted(self.planted[make]))


class OnWebGpu(Against, unittest.TestCase):
    provider, plugin, options = "WebGpuExecutionProvider", str(webgpu_test.LIBRARY) if webgpu_test.DRIVER.exists() else None, {}
    lacks = WEBGPU_LACKS


if __name__ == "__main__":
    os.environ.update(VK_ICD_FILENAMES=str(webgpu_test.DRIVER), ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER="1")
    missing = [m for m in ("numpy", "onnx", "onnxruntime") if importlib.util.find_spec(m) is None]
    if missing:
        print("needs", *missing, "(pip install -r tools/requirements.txt)", file=sys.stderr)
        sys.exit(1 if ort_test.NEEDED else 77)
    if sys.argv[1] == "--worker":
        worker(*sys.argv[2:])
    else:
        ort_test.SLM = sys.argv.pop(1)
        unittest.main()
