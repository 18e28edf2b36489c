#!/usr/bin/env python3
"""slm run on folders for ONNX Runtime GenAI through the WebGPU provider, on a driver that computes on the CPU.   webgpu_test.py SLM

`./dev ort webgpu` fetches both into the folder SLM_ORT; without them it is skipped, a failure with SLM_NEED_WEBGPU=1. The provider's shaders
run, no graphics processor does.
"""
import json
import os
import pathlib
import sys
import tempfile
import unittest

import ort_test
from ort_test import document, slm

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
ORT = pathlib.Path(os.environ.get("SLM_ORT") or CACHE / "slmkit/onnxruntime")
LIBRARY = ORT / "webgpu/onnxruntime_ep_webgpu/libonnxruntime_providers_webgpu.so"
DRIVER = ORT / "swiftshader/vk_swiftshader_icd.json"
WEBGPU = ("--device", "WebGpuExecutionProvider", "--ep-library", f"WebGpuExecutionProvider={LIBRARY}")


class WebGpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.d = pathlib.Path(cls.folder.name)
        cls.model, cls.q4 = cls.d / "model", cls.d / "q4.gguf"
        ort_test.write_model(cls.model)
        document("quantize", cls.model, "-o", cls.q4, "--type", "q4_0", "--no-gate")
        for name, source in (("f32", cls.model), ("int4", cls.q4)):
            document("export", source, "--to", "genai", "-o", cls.d / name, "--exact", "--ctx", 64)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_ids(self, name, *words):
        return document("run", self.d / name, "--raw", "--ids", "-n", 24, "--ignore-eos", "-p", "in the end", *words)

    def test_same_tokens_as_the_cpu(self):
        for name, product in (("f32", "MatMul"), ("int4", "MatMulNBits")):
            with self.subTest(name):
                want, got = self.run_ids(name, "--backend", "ort", "--device", "cpu"), self.run_ids(name, *WEBGPU)
                self.assertEqual(got["ids"], want["ids"])
                self.assertEqual(len(got["ids"]), 24)
                where = {(op["op"], op["kernel"]) for op in got["placement"]["ops"]}
                for op in (product, "GroupQueryAttention", "SkipSimplifiedLayerNormalization"):
                    self.assertIn((op, "WebGpuExecutionProvider"), where)
                    self.assertNotIn((op, "CPUExecutionProvider"), where)
                self.assertEqual(got["memory"]["kv_bytes"], want["memory"]["kv_bytes"])
                # The cache stays on the device: what is copied in a step is less than a part of it.
                copied = [op["reason"] for op in got["placement"]["ops"] if op["op"] == "Memcpy"]
                self.assertEqual(len(copied), 1)
                self.assertLess(int(copied[0].split()[2]), got["memory"]["kv_bytes"] // 8)

    def test_power_is_the_preference_of_an_adapter(self):
        ids = self.run_ids("f32", *WEBGPU)["ids"]
        for power in ("burst", "balanced", "low"):
            run = slm("run", self.d / "f32", "--raw", "--ids", "-n", 24, "--ignore-eos", "-p", "in the end", "--json", *WEBGPU, "--power", power)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(json.loads(run.stdout.splitlines()[-1])["ids"], ids)
            self.assertEqual("no balanced mode" in run.stderr, power == "balanced", run.stderr)
        # The provider knows the option: it refuses another value of it.
        refused = slm("run", self.d / "f32", "--raw", "-p", "x", "-n", 1, *WEBGPU, "--ep-option", "powerPreference=no-such", "--no-fallback")
        self.assertNotEqual(refused.returncode, 0, refused.stderr)

    def test_a_cache_that_is_kept_and_rewound(self):
        text = self.d / "text.txt"
        text.write_text("the end of the beginning is in the end the beginning of the end " * 3)
        ppl = [document("eval", self.d / "f32", "ppl", "--text", text, "--window", 32, *words)["ppl"] for words in (("--backend", "ort"), WEBGPU)]
        self.assertLess(abs(ppl[1] / ppl[0] - 1), 1e-3)

    def test_what_it_leaves_is_named(self):
        run = slm("run", self.d / "f32", "--raw", "-p", "in", "-n", 1, *WEBGPU, "--no-fallback")
        self.assertEqual(run.returncode, 3, run.stderr)
        self.assertNotIn("GroupQueryAttention", run.stderr)


if __name__ == "__main__":
    if not (LIBRARY.exists() and DRIVER.exists()):
        print("needs the WebGPU provider and SwiftShader: ./dev ort webgpu fetches them", file=sys.stderr)
        sys.exit(1 if os.environ.get("SLM_NEED_WEBGPU") else 77)
    os.environ.update(VK_ICD_FILENAMES=str(DRIVER), ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER="1")
    ort_test.SLM = sys.argv.pop(1)
    unittest.main()
