#!/usr/bin/env python3
"""slm on folders of static graphs: the answers of own kernels, and Qualcomm's HTP simulator under slm's own host.   static_test.py SLM

Skipped where `slm devices` finds no ONNX Runtime, a failure with SLM_NEED_ORT=1; SLM_ORT_QNN is the library of Qualcomm's provider. Simulated:
nothing here says what a device does.
"""
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

import ort_test
from ort_test import ON_HTP, QNN, SOURCE, TEST_PROVIDER, document, has_runtime, slm, write_model

LLAMA = SOURCE / "tests/tiny/models/llama.gguf"
PROMPT = "The quick brown fox jumps over the lazy dog"  # 40 tokens: a whole chunk and a part of one


def answer(*words):
    return document("run", *words, "--raw", "-p", PROMPT, "-n", 12, "--ids")


class Static(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.d = pathlib.Path(cls.temporary.name)
        cls.text = cls.d / "text"
        cls.text.write_text(" ".join(f"{PROMPT} {i}." for i in range(40)))
        for weights in ("f32", "w8", "w4-g32"):
            calibration = () if weights == "f32" else ("--calib-seqs", 8, "--calib-tokens", 64)
            made = slm("export", LLAMA, "--to", "qdq", "--weights", weights, "-o", cls.d / weights, "--chunk", 32, *calibration)
            assert made.returncode == 0, made.stderr

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_float_graphs_answer_as_own_kernels_do(self):
        own = answer(LLAMA, "--compute", "f32", "--kv", "f32")
        static = answer(self.d / "f32")
        self.assertEqual(static["ids"], own["ids"])
        self.assertEqual(static["memory"]["kv_type"], "f32")
        self.assertTrue(static["isa"].startswith("onnxruntime"), static["isa"])

    def test_own_kernels_run_them(self):
        """The graph for one token: no value of a float folder is rounded, so the tokens are those of ONNX Runtime."""
        runtime, own = answer(self.d / "f32"), answer(self.d / "f32", "--backend", "cpu", "--compute", "f32")
        self.assertEqual(own["ids"], runtime["ids"])
        self.assertFalse(own["isa"].startswith("onnxruntime"), own["isa"])
        self.assertEqual(answer(self.d / "w8", "--backend", "cpu")["prompt_tokens"], answer(self.d / "w8")["prompt_tokens"])
        folder = self.d / "changed"
        shutil.copytree(self.d / "f32", folder)
        data = bytearray((folder / "weights.bin").read_bytes())
        data[100] ^= 1
        (folder / "weights.bin").write_bytes(data)
        run = slm("run", folder, "--backend", "cpu", "-p", "x")
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertIn("weights.bin: is not the file that was exported", run.stderr)

    def test_the_prefix_comes_by_itself(self):
        folder = answer(self.d / "w8")
        manifest = json.loads((self.d / "w8/manifest.json").read_text())
        self.assertEqual(folder["prompt_tokens"], answer(LLAMA)["prompt_tokens"] + len(manifest["prefix"]["tokens"]))
        refused = slm("eval", self.d / "w8", "ppl", "--text", self.text, "--window", 32, "--bos", "never")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("begin", refused.stderr)

    def test_a_prompt_here_and_its_answer_there(self):
        both = answer(LLAMA, "--prefill-model", self.d / "f32", "--compute", "f32", "--kv", "f32")
        self.assertEqual(both["ids"], answer(LLAMA, "--compute", "f32", "--kv", "f32")["ids"])
        self.assertEqual((both["hand_over"]["count"], both["hand_over"]["tokens"]), (1, both["prompt_tokens"]))

    def test_eval_compares_with_the_base_alone(self):
        """The options of two devices are MODEL's: a base that took them, too, would be no base."""
        windows = ("--text", self.text, "--window", 32, "--windows", 2, "--bos", "always")
        both = document("eval", LLAMA, "kld", "--base", LLAMA, "--prefill-model", self.d / "w4-g32", *windows)
        alone = document("eval", self.d / "w4-g32", "kld", "--base", LLAMA, *windows)
        self.assertGreater(both["kld"]["mean"], 0.001)
        self.assertAlmostEqual(both["kld"]["mean"], alone["kld"]["mean"], delta=alone["kld"]["mean"] / 10)

    def test_options_of_providers_are_not_of_a_base_on_own_kernels(self):
        run = slm("eval", self.d / "w8", "kld", "--base", LLAMA, "--text", self.text, "--window", 32, "--windows", 1, "--bos", "always",
                  "--ep-library", f"SlmTestExecutionProvider={TEST_PROVIDER}", "--power", "low")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertNotIn("change nothing", run.stderr)
        self.assertIn("change nothing", slm("run", LLAMA, "-p", "x", "-n", 1, "--ep-library", "A=b").stderr)

    def test_check_takes_both_graphs(self):
        found = document("check", self.d / "w8", "--target", "qnn-htp-v73")
        self.assertEqual(found["blocked"], 0)
        text = slm("check", self.d / "w8", "--target", "qnn-htp-v73").stdout
        self.assertIn("prefill.onnx: ", text)
        self.assertIn("decode.onnx: ", text)
        self.assertIn("offload_graph_io_quantization=0, or integer outputs (slm run of a folder of slm export --to qdq does that)", text)
        inspected = slm("inspect", self.d / "w8")
        self.assertEqual(inspected.returncode, 1)
        self.assertIn("slm check", inspected.stderr)

    def test_verify_takes_them(self):
        package = self.d / "package"
        package.mkdir()
        (package / "model.gguf").write_bytes(LLAMA.read_bytes())
        for weights in ("f32", "w8"):  # the second needs a begin token, the GGUF file does not
            shutil.copytree(self.d / weights, package / weights)
        made = slm("verify", package, "--record")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(slm("verify", package, "--no-latency").returncode, 0)
        golden = (package / "golden.json").read_text()
        self.assertTrue('"f32"' in golden and '"w8"' in golden, golden[:2000])
        alone = slm("verify", self.d / "w8", "--record")
        self.assertEqual(alone.returncode, 2, alone.stderr)
        self.assertIn("--base", alone.stderr)

    def test_bench_begins_as_the_folder_must(self):
        run = slm("bench", self.d / "w8", "--pp", 40, "--ttft", 1, "--tg", 4, "-r", 1, "--json")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual([json.loads(line)["tokens"] for line in run.stdout.splitlines()], [40, 1, 4])

    def test_two_sessions_of_a_genai_folder(self):
        write_model(self.d / "wide")
        made = slm("export", self.d / "wide", "--to", "genai", "-o", self.d / "genai")
        self.assertEqual(made.returncode, 0, made.stderr)
        genai = self.d / "genai"
        words = ("--ep-library", f"SlmTestExecutionProvider={TEST_PROVIDER}")
        one = answer(genai, "--backend", "ort")
        two = answer(genai, "--prefill-device", "SlmTestExecutionProvider", "--decode-device", "cpu", *words)
        own = answer(genai, "--prefill-device", "cpu", "--decode-device", "cpu")
        self.assertEqual(two["ids"], one["ids"])
        self.assertEqual(two["hand_over"]["tokens"], two["prompt_tokens"])
        self.assertEqual(own["hand_over"]["tokens"], own["prompt_tokens"])

    def test_power_is_of_providers(self):
        refused = slm("run", LLAMA, "--power", "low", "-p", "x")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("--power", refused.stderr)

    @unittest.skipUnless(QNN, "needs Qualcomm's provider: ./dev ort qnn")
    def test_every_power_is_taken(self):
        for power in ("burst", "balanced", "low"):
            run = slm("run", self.d / "w8", "--raw", "-p", "x", "-n", 1, "--power", power, *ON_HTP)
            self.assertEqual(run.returncode, 0, run.stderr)

    @unittest.skipUnless(QNN, "needs Qualcomm's provider: ./dev ort qnn")
    def test_simulated_htp(self):
        for weights in ("w8", "w4-g32"):
            with self.subTest(weights):
                folder = self.d / weights
                htp, cpu = answer(folder, *ON_HTP), answer(folder)
                self.assertEqual(htp["ids"], cpu["ids"])
                self.assertEqual({row["kernel"] for row in htp["placement"]["ops"]}, {"QNNExecutionProvider"})
                far = document("eval", folder, "kld", "--base", folder, "--base-device", "cpu", "--text", self.text, "--window", 48, "--windows", 4,
                               "--bos", "always", *ON_HTP)
                self.assertLess(far["rms_logits"], 0.02)
                self.assertGreaterEqual(far["top1"], 0.975)

    @unittest.skipUnless(QNN, "needs Qualcomm's provider: ./dev ort qnn")
    def test_a_prompt_on_the_simulator_its_answer_on_own_kernels(self):
        both = answer(LLAMA, "--prefill-model", self.d / "w8", "--prefill-device", "QNNExecutionProvider", "--decode-device", "cpu", *ON_HTP[3:])
        self.assertEqual(both["hand_over"]["tokens"], both["prompt_tokens"])
        self.assertEqual(both["ids"][0], answer(self.d / "w8")["ids"][0])


if __name__ == "__main__":
    ort_test.SLM = sys.argv.pop(1)
    if not has_runtime():
        print("needs ONNX Runtime: ./dev ort", file=sys.stderr)
        sys.exit(1 if ort_test.NEEDED else 77)
    unittest.main()
