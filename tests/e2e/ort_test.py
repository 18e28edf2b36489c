#!/usr/bin/env python3
"""slm on folders of ONNX Runtime GenAI, through ONNX Runtime.   ort_test.py SLM

What needs the library is skipped where `slm devices` finds none, a failure with SLM_NEED_ORT=1. That also asks for the packages onnx and
onnxruntime_genai, and fetches the demo model. SLM_ORT_TEST_PROVIDER names the execution provider of tests/ort_provider, SLM_ORT_QNN Qualcomm's.
"""
import array
import hashlib
import importlib.util
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

from genai_ids import greedy_ids
from weights_file import write_tensors

SLM = ""
SOURCE = pathlib.Path(os.environ.get("SLM_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
LLAMA = SOURCE / "tests/tiny/models/llama"
GENAI = SOURCE / "tests/tiny/models/genai_qwen3"
NEEDED = bool(os.environ.get("SLM_NEED_ORT"))
TEST_PROVIDER = os.environ.get("SLM_ORT_TEST_PROVIDER", "")
QNN = os.environ.get("SLM_ORT_QNN", "")
ON_HTP = ("--device", "QNNExecutionProvider", "--no-fallback", "--ep-library", f"QNNExecutionProvider={QNN}",
          "--ep-option", "QNNExecutionProvider:backend_type=htp", "--ep-option", "QNNExecutionProvider:soc_model=60")
WITH_TEST_PROVIDER = ("--ep-library", f"SlmTestExecutionProvider={TEST_PROVIDER}", "--device", "SlmTestExecutionProvider")


def slm(*words, stdin=""):
    return subprocess.run([SLM, *map(str, words)], input=stdin, capture_output=True, text=True, timeout=250)


def document(*words, **more):
    run = slm(*words, "--json", **more)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def has_package(name):
    return importlib.util.find_spec(name) is not None


def has_runtime():
    return any(b["backend"] == "ort" for b in document("devices")["backends"])


def write_model(folder):
    """A random Llama with heads of 16 and the tokenizer of the tiny one."""
    folder.mkdir()
    config = json.loads((LLAMA / "config.json").read_text())
    config.update(hidden_size=64, head_dim=16, num_attention_heads=4, num_key_value_heads=2, intermediate_size=96, dtype="float32")
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (LLAMA / name).exists():
            (folder / name).write_bytes((LLAMA / name).read_bytes())
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], 64), "lm_head.weight": (config["vocab_size"], 64), "model.norm.weight": (64,)}
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        shapes.update({p + "input_layernorm.weight": (64,), p + "post_attention_layernorm.weight": (64,), p + "self_attn.q_proj.weight": (64, 64),
                       p + "self_attn.k_proj.weight": (32, 64), p + "self_attn.v_proj.weight": (32, 64), p + "self_attn.o_proj.weight": (64, 64),
                       p + "mlp.gate_proj.weight": (96, 64), p + "mlp.up_proj.weight": (96, 64), p + "mlp.down_proj.weight": (64, 96)})
    rng, tensors = random.Random(7), {}
    for name, shape in shapes.items():
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = array.array("f", (1.0 if len(shape) == 1 else rng.gauss(0, 0.3) for _ in range(n)))
        tensors[name] = ("F32", shape, values.tobytes())
    write_tensors(folder / "model.safetensors", tensors)


class WithoutTheLibrary(unittest.TestCase):
    """What must be said when nothing can be run."""

    def check(self, run, code, *says):
        self.assertEqual(run.returncode, code, run.stderr)
        for text in says:
            self.assertIn(text, run.stderr)

    def test_refusals(self):
        self.check(slm("run", GENAI, "-p", "x", "--ort", "/nowhere/lib.so"), 1, "ONNX Runtime is not here", "./dev ort")
        self.check(slm("run", GENAI, "-p", "x", "--ort", SOURCE / "docs"), 1, "no libonnxruntime.so in it")
        self.check(slm("run", LLAMA, "-p", "x", "--backend", "ort"), 2, "not a folder for ONNX Runtime GenAI", "slm export MODEL --to genai")
        self.check(slm("run", GENAI, "-p", "x", "--ep-library", "no-path"), 2, "--ep-library", "NAME=PATH")
        self.check(slm("run", GENAI, "-p", "x", "--backend", "ort", "--compute", "f32"), 2, "--compute f32")
        self.check(slm("run", LLAMA, "-p", "x", "--device", "npu"), 1, "device 'npu'")
        self.check(slm("run", LLAMA, "-p", "x", "--device", "npu,cpu", "--no-fallback"), 3, "not on npu")
        self.check(slm("devices", "--ort", "/nowhere/lib.so"), 1, "./dev ort")
        error = json.loads(slm("run", GENAI, "-p", "x", "--ort", "/nowhere/lib.so", "--json").stdout)["error"]
        self.assertEqual(error["code"], "unavailable")

    def test_a_list_of_devices_falls_back(self):
        self.assertEqual(document("run", LLAMA, "--raw", "-p", "in", "-n", 1, "--device", "npu,cpu")["device"], "cpu")


class Ort(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        found = [b for b in document("devices")["backends"] if b["backend"] == "ort"]
        if not found and not NEEDED:
            raise unittest.SkipTest("needs ONNX Runtime: ./dev ort fetches it")
        assert found, "slm devices finds no ONNX Runtime; ./dev ort fetches it"
        cls.info = found[0]
        cls.folder = tempfile.TemporaryDirectory()
        cls.d = pathlib.Path(cls.folder.name)
        cls.model, cls.genai = cls.d / "model", cls.d / "genai"
        write_model(cls.model)
        document("export", cls.model, "--to", "genai", "-o", cls.genai, "--exact", "--ctx", 64)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_ids(self, model, *words):
        return document("run", model, "--raw", "--ids", "-n", 24, "-p", "in the end", *words)

    def test_devices(self):
        self.assertGreaterEqual(self.info["api"], 24)
        self.assertIn({"name": "CPUExecutionProvider", "device": "cpu"}, [{k: p[k] for k in ("name", "device")} for p in self.info["providers"]])
        self.assertIn("CPUExecutionProvider", slm("devices").stdout)

    def test_same_tokens_as_own_kernels(self):
        want = self.run_ids(self.model, "--compute", "f32", "--kv", "f32")
        for words in (("-t", 1), (), ("--device", "cpu", "--no-fallback")):
            got = self.run_ids(self.genai, "--backend", "ort", *words)
            self.assertEqual(got["ids"], want["ids"], words)
        self.assertEqual(got["device"], "cpu")
        own = self.run_ids(self.genai, "--compute", "f32", "--kv", "f32")
        self.assertEqual((own["ids"], own["placement"]["ops"][0]["backend"]), (want["ids"], "cpu"), "own kernels on the same folder")
        self.assertTrue(got["isa"].startswith("onnxruntime 1."), got["isa"])
        self.assertEqual({op["kernel"] for op in got["placement"]["ops"]}, {"CPUExecutionProvider"})
        # 2 layers of keys and values, 2 heads of 16, 64 slots of f32
        self.assertEqual(got["memory"]["kv_bytes"], 2 * 2 * 2 * 16 * 64 * 4)
        self.assertEqual(got["memory"]["kv_type"], "f32")
        self.assertGreater(got["memory"]["activations_bytes"], 0)

    def test_perplexity_of_own_kernels(self):
        text = self.d / "text.txt"
        text.write_text("the end of the beginning is in the end the beginning of the end " * 6)
        own = document("eval", self.model, "ppl", "--text", text, "--window", 32, "--compute", "f32", "--kv", "f32")
        ort = document("eval", self.genai, "ppl", "--text", text, "--window", 32, "--backend", "ort")
        self.assertEqual(own["tokens"], ort["tokens"])
        self.assertLess(abs(ort["ppl"] / own["ppl"] - 1), 1e-4)

    def test_chat_keeps_the_cache(self):
        run = slm("chat", self.genai, "--backend", "ort", "--json", "-n", 4, stdin="hi\nin\n")
        self.assertEqual(run.returncode, 0, run.stderr)
        answers = [json.loads(line) for line in run.stdout.splitlines()]
        self.assertEqual([a["cached_tokens"] > 0 for a in answers], [False, True])

    def test_bench(self):
        run = slm("bench", self.genai, "--backend", "ort", "--pp", 16, "--tg", 4, "--ttft", 8, "-r", 2, "-t", "1,2", "--json")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual([json.loads(x)["threads"] for x in run.stdout.splitlines()], [1, 1, 1, 2, 2, 2])

    def test_context_and_memory_are_limits(self):
        self.assertEqual(slm("run", self.genai, "--backend", "ort", "-p", "x", "--ctx", 65).returncode, 2)
        self.assertEqual(slm("run", self.genai, "--backend", "ort", "-p", "x", "--mem", "10K").returncode, 3)

    def test_fall_back_says_why(self):
        run = slm("run", self.genai, "--raw", "-p", "in", "-n", 1, "--device", "npu")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("npu: no execution provider offers it", run.stderr)
        run = slm("run", self.genai, "--raw", "-p", "in", "-n", 1, "--device", "npu", "--no-fallback")
        self.assertEqual(run.returncode, 3, run.stderr)
        self.assertIn("GroupQueryAttention x2 (", run.stderr)

    def test_a_provider_from_its_library(self):
        if not TEST_PROVIDER:
            self.skipTest("SLM_ORT_TEST_PROVIDER is not set")
        want = self.run_ids(self.model, "--compute", "f32", "--kv", "f32")
        got = self.run_ids(self.genai, *WITH_TEST_PROVIDER)
        self.assertEqual(got["ids"], want["ids"])
        by_kernel = {}
        for op in got["placement"]["ops"]:
            by_kernel.setdefault(op["kernel"], {})[op["op"]] = op["reason"]
        self.assertEqual(set(by_kernel["SlmTestExecutionProvider"]), {"MatMul"})
        self.assertNotIn("MatMul", by_kernel["CPUExecutionProvider"])
        self.assertEqual(set(by_kernel["CPUExecutionProvider"].values()), {"left by SlmTestExecutionProvider"})
        run = slm("run", self.genai, "--raw", "-p", "in", "-n", 1, *WITH_TEST_PROVIDER, "--no-fallback")
        self.assertEqual(run.returncode, 3, run.stderr)
        self.assertIn("GroupQueryAttention x2 (", run.stderr)
        self.assertIn("SlmTestExecutionProvider", slm("devices", "--ep-library", f"SlmTestExecutionProvider={TEST_PROVIDER}").stdout)

    def planted(self, op, domain=""):
        """x -> MatMul -> the operator under test -> MatMul -> y, static shapes."""
        import numpy as np
        import onnx
        from onnx import TensorProto, helper, numpy_helper
        rng = np.random.default_rng(3)
        weights = [numpy_helper.from_array(rng.standard_normal((16, 16)).astype(np.float32), n) for n in ("w1", "w2")]
        nodes = [helper.make_node("MatMul", ["x", "w1"], ["a"], name="first"), helper.make_node(op, ["a"], ["b"], name="planted", domain=domain),
                 helper.make_node("MatMul", ["b", "w2"], ["y"], name="second")]
        value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 16])
        model = helper.make_model(helper.make_graph(nodes, "g", [value("x")], [value("y")], weights), ir_version=10,
                                  opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
        path = self.d / f"{op}.onnx"
        onnx.save(model, str(path))
        return path

    def test_a_width_that_the_graph_leaves_open(self):
        """The model builder writes "kv_cache_dim"; genai_config.json says how many."""
        if not has_package("onnx"):
            self.skipTest("needs the package onnx")
        import onnx
        folder = self.d / "open"
        shutil.copytree(self.genai, folder)
        model = onnx.load(str(folder / "model.onnx"), load_external_data=False)
        for v in (*model.graph.input, *model.graph.output):
            if len(v.type.tensor_type.shape.dim) == 4:
                v.type.tensor_type.shape.dim[3].dim_param = "kv_cache_dim"
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        want = self.run_ids(self.genai, "--backend", "ort")
        got = self.run_ids(folder, "--backend", "ort")
        self.assertEqual((got["ids"], got["memory"]["kv_bytes"]), (want["ids"], want["memory"]["kv_bytes"]))
        self.assertEqual(self.run_ids(folder, "--compute", "f32", "--kv", "f32")["ids"], want["ids"])
        config = json.loads((folder / "genai_config.json").read_text())
        del config["model"]["decoder"]["head_size"]
        (folder / "genai_config.json").write_text(json.dumps(config))
        for words in (("--backend", "ort"), ()):
            run = slm("run", folder, "-p", "x", *words)
            self.assertEqual(run.returncode, 1, run.stderr)
            self.assertIn("past_key_values.0.key", run.stderr)

    def check_planted(self, path, provider, *words):
        place = document("devices", "--place", path, *words)
        where = {name: op["provider"] for op in place["ops"] for name in op["names"]}
        self.assertEqual(where, {"first": provider, "planted": "CPUExecutionProvider", "second": provider})
        run = slm("devices", "--place", path, *words, "--no-fallback")
        self.assertEqual(run.returncode, 3, run.stderr)
        self.assertRegex(run.stderr, r" x1 \(planted\)")
        for name in ("first", "second"):
            self.assertNotIn(name, run.stderr)

    def test_a_planted_operator(self):
        if not has_package("onnx"):
            self.assertFalse(NEEDED, "the package onnx is missing")
            self.skipTest("needs the package onnx")
        path = self.planted("Erf")
        self.assertEqual(document("devices", "--place", path, "--no-fallback", "--device", "cpu")["providers"], {"CPUExecutionProvider": 3})
        if TEST_PROVIDER:
            self.check_planted(path, "SlmTestExecutionProvider", *WITH_TEST_PROVIDER)

    def test_a_planted_operator_on_qnn(self):
        if not QNN or not has_package("onnx"):
            self.skipTest("SLM_ORT_QNN names no library, or the package onnx is missing")
        qnn = ("--ep-library", f"QNNExecutionProvider={QNN}", "--device", "QNNExecutionProvider", "--ep-option", "backend_type=htp",
               "--ep-option", "soc_model=60")
        self.check_planted(self.planted("Erf"), "QNNExecutionProvider", *qnn)
        self.assertEqual(document("devices", "--place", self.planted("Relu"), *qnn, "--no-fallback")["providers"], {"QNNExecutionProvider": 3})

    def test_a_compiled_graph_needs_its_record(self):
        """A provider may load a damaged binary without a word: ours is looked at before."""
        if not has_package("onnx"):
            self.skipTest("needs the package onnx")
        import onnx
        from onnx import TensorProto, helper
        folder = self.d / "foreign"
        folder.mkdir()
        node = helper.make_node("EPContext", ["x"], ["y"], domain="com.microsoft", embed_mode=0, ep_cache_context="bin", main_context=1, source="QNN")
        value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 16])
        onnx.save(helper.make_model(helper.make_graph([node], "g", [value("x")], [value("y")]), ir_version=10,
                                    opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]), str(folder / "c.onnx"))
        (folder / "bin").write_bytes(b"code")
        sums = {n: hashlib.sha256((folder / n).read_bytes()).hexdigest() for n in ("c.onnx", "bin")}

        def refused(record, says):
            if record is not None:
                (folder / "record.json").write_text(record if isinstance(record, str) else json.dumps(record))
            run = slm("devices", "--place", folder / "c.onnx")
            self.assertEqual(run.returncode, 1, run.stderr)
            self.assertIn(says, run.stderr)

        files = [{"name": n, "sha256": x} for n, x in sums.items()]
        refused(None, "there is no record.json")
        refused("{", "record.json is damaged")
        refused({"schema": 1, "provider": "P", "files": files[:1]}, "names a binary that its record does not")
        refused({"schema": 1, "provider": "P", "files": files[1:]}, "does not stand in record.json")
        refused({"schema": 1, "provider": "P", "files": files + [{"name": "../x", "sha256": ""}]}, "../x")
        refused({"schema": 1, "provider": "P", "files": [files[0], {"name": "bin", "sha256": sums["c.onnx"]}]}, "SHA-256 differs")

    def test_compile_on_qnn(self):
        if not QNN or not has_package("onnx"):
            self.skipTest("SLM_ORT_QNN names no library, or the package onnx is missing")
        qnn = ("--ep-library", f"QNNExecutionProvider={QNN}", "--device", "QNNExecutionProvider", "--ep-option", "backend_type=htp")
        cache, model = self.d / "contexts", self.planted("Relu")
        compiled = lambda soc: document("compile", model, *qnn, "--ep-option", f"soc_model={soc}", "--cache", cache)
        place = lambda c: slm("devices", "--place", c["model"], *qnn, "--ep-option", "soc_model=60", "--no-fallback")
        first, again, other = compiled(60), compiled(60), compiled(57)
        self.assertEqual([c["cached"] for c in (first, again, other)], [False, True, False])
        self.assertEqual(first["model"], again["model"])
        self.assertNotEqual(first["model"], other["model"])
        self.assertRegex(first["ep_compatibility_info"], r"\d")
        self.assertEqual(place(first).returncode, 0, place(first).stderr)
        binary = [pathlib.Path(p) for p in first["artifacts"] if p.endswith(".bin")][0]
        data = bytearray(binary.read_bytes())
        data[len(data) // 2] ^= 1
        binary.write_bytes(data)
        run = place(first)
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertIn("SHA-256 differs", run.stderr)
        anew = compiled(60)
        self.assertEqual((anew["cached"], anew["model"]), (False, first["model"]))
        self.assertIn("SHA-256 differs", anew["made_anew"])
        self.assertEqual(place(anew).returncode, 0)
        record = pathlib.Path(anew["model"]).parent / "record.json"
        stale = json.loads(record.read_text())
        record.write_text(json.dumps(dict(stale, provider_version="0.0.1")))
        run = place(anew)
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertIn("another provider_version", run.stderr)
        self.assertIn("another provider_version", compiled(60)["made_anew"])
        record.unlink()
        self.assertEqual(place(anew).returncode, 1)
        self.assertEqual(compiled(60)["cached"], False)

    def test_greedy_ids_of_genai(self):
        """64 tokens of the demo model: ONNX Runtime GenAI, our host of ONNX Runtime, and our own kernels."""
        if not NEEDED:
            self.skipTest("fetches the demo model; SLM_NEED_ORT=1 asks for it")
        import onnxruntime_genai as genai
        path = document("fetch", "smollm2-135m-instruct")["path"]
        folder = self.d / "demo"
        document("export", path, "--to", "genai", "-o", folder, "--ctx", 256, "--exact")
        model = genai.Model(str(folder))
        for prompt in ("The cat sat on the mat and", "def fibonacci(n):"):
            ids = json.loads(subprocess.run([SLM, "tokenize", path, "--json"], input=prompt, capture_output=True, text=True).stdout)["ids"]
            want = greedy_ids(model, ids, 64)
            words = ("--raw", "--ids", "--ignore-eos", "-n", len(want), "-p", prompt)
            self.assertEqual(document("run", folder, "--backend", "ort", *words)["ids"], want)
            self.assertEqual(document("run", folder, "--compute", "f32", *words)["ids"], want)
            self.assertEqual(document("run", path, "--compute", "f32", *words)["ids"], want)


if __name__ == "__main__":
    SLM = sys.argv.pop(1)
    unittest.main()
