#!/usr/bin/env python3
"""Decoder pipelines: folders of slm export --to qdq in ONNX Runtime GenAI, and pipelines on own kernels, beside GenAI.   pipeline_test.py SLM

Needs the packages onnx and onnxruntime_genai and an ONNX Runtime for slm; skipped without, a failure with SLM_NEED_ORT=1. SLM_ORT_QNN is the library of
Qualcomm's provider, whose simulator of the HTP then runs the graphs. Simulated: nothing here says what a device does.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import ort_test
from ort_test import ON_HTP, QNN, SOURCE, document, has_package, has_runtime, slm
from split_pipeline import split

BEGIN, CHUNK, N = 262, 32, 20
PROMPTS = ("", "x", "The quick brown fox jumps over", "A text of some length: the quick brown fox jumps over the lazy dog and the cat sat on the mat")


def worker(folder, provider):
    """In a process of its own: token lists from stdin, a line of greedy tokens, or of an error, for each; then who ran the graphs' nodes."""
    import onnxruntime_genai as genai
    profiles = tempfile.TemporaryDirectory()
    config = genai.Config(folder)
    if provider == "cpu":
        config.clear_providers()
    else:
        genai.register_execution_provider_library("QNNExecutionProvider", QNN)
        config.set_provider_option("QNN", "soc_model", "60")
    config.overlay(json.dumps({"model": {"decoder": {"session_options": {"enable_profiling": profiles.name + "/p"}}}}))
    model = genai.Model(config)
    for prompt in json.loads(sys.stdin.read()):
        parameters = genai.GeneratorParams(model)
        parameters.set_search_options(do_sample=False)
        generator = genai.Generator(model, parameters)
        try:
            generator.append_tokens(prompt)
            out = []
            while len(out) < N:
                generator.generate_next_token()
                out.append(int(generator.get_next_tokens()[0]))
            print("IDS", json.dumps(out))
        except RuntimeError as e:
            print("IDS", json.dumps(str(e)))
    del generator, parameters, model  # writes the profiles
    events = [e for path in pathlib.Path(profiles.name).iterdir() for e in json.loads(path.read_text())]
    print("PROVIDERS", json.dumps(sorted({e["args"]["provider"] for e in events if e.get("cat") == "Node"})))


class Pipeline(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.d = pathlib.Path(cls.temporary.name)
        cls.model = cls.d / "llama"  # the tiny Llama, said to be made for a longer context
        shutil.copytree(SOURCE / "tests/tiny/models/llama", cls.model)
        config = json.loads((cls.model / "config.json").read_text())
        (cls.model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 512}))
        for weights in ("f32", "w8", "w4-g32"):
            calibration = () if weights == "f32" else ("--calib-seqs", 8, "--calib-tokens", 64)
            made = slm("export", cls.model, "--to", "qdq", "--weights", weights, "-o", cls.d / weights, "--chunk", CHUNK, "--ctx", 160, *calibration)
            assert made.returncode == 0, made.stderr

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def own(self, folder, prompt, *words):
        return document("run", folder, "--raw", "-p", prompt, "-n", N, "--ids", "--ignore-eos", *words)["ids"]

    def tokens(self, prompt):
        return document("tokenize", self.model, "--no-special", stdin=prompt)["ids"]

    def genai(self, folder, provider, prompts):
        run = subprocess.run([sys.executable, __file__, "--worker", folder, provider], input=json.dumps(prompts), capture_output=True, text=True,
                             timeout=300)
        lines = [line.split(" ", 1) for line in run.stdout.splitlines() if line.startswith(("IDS ", "PROVIDERS "))]
        found = [json.loads(value) for _, value in lines]
        self.assertEqual(len(found), len(prompts) + 1, run.stdout + run.stderr)
        # What the provider leaves to the CPU would be no proof of anything.
        self.assertEqual(found.pop(), ["CPUExecutionProvider" if provider == "cpu" else "QNNExecutionProvider"])
        return found

    def check(self, weights, provider, *words):
        folder = self.d / weights
        front, prompts = ([], PROMPTS[1:]) if weights == "f32" else ([BEGIN], PROMPTS)
        ids = [front + self.tokens(p) for p in prompts]
        self.assertGreater(len(ids[-1]), 2 * CHUNK)
        for prompt, got in zip(prompts, self.genai(folder, provider, ids)):
            with self.subTest(weights, prompt=prompt):
                self.assertEqual(got, self.own(folder, prompt, *words))

    def test_tokens_on_the_cpu(self):
        for weights in ("f32", "w8", "w4-g32"):
            self.check(weights, "cpu")

    @unittest.skipUnless(QNN, "needs Qualcomm's provider: ./dev ort qnn")
    def test_tokens_on_the_simulator(self):
        for weights in ("w8", "w4-g32"):
            self.check(weights, "qnn", *ON_HTP)

    def test_another_first_token_is_an_error(self):
        self.assertIn(f"a_prompt_must_begin_with_token_{BEGIN}", self.genai(self.d / "w8", "cpu", [[BEGIN, 5], [5, 6, 7]])[1])

    def test_whole_chunks(self):
        """Prompts that end at a chunk's end, and one token before and after."""
        ids = [BEGIN] + [(37 * i) % 199 + 1 for i in range(2 * CHUNK + 1)]
        lengths = (CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK)
        text = {n: self.genai(self.d / "w8", "cpu", [ids[:n]])[0] for n in lengths}
        for n, got in text.items():
            from static_folder import Host
            host, want = Host(self.d / "w8"), []
            row = host.feed(host.begin(ids[:n]))[-1]
            while len(want) < N:
                want.append(int(row.argmax()))
                row = host.feed([want[-1]])[-1]
            self.assertEqual(got, want, n)

    def test_the_token_that_fills_a_chunk(self):
        """GenAI takes it for a prompt's end: none that begins or ends a text."""
        config = json.loads((self.d / "w8/genai_config.json").read_text())["model"]
        self.assertNotIn(config["pad_token_id"], (BEGIN, 263))
        self.assertLess(config["pad_token_id"], config["vocab_size"])

    def test_another_form_has_none(self):
        made = slm("export", self.model, "--to", "qdq", "--weights", "f32", "-o", self.d / "four", "--chunk", CHUNK, "--ctx", 64, "--decode-tokens", 4)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn("no genai_config.json", made.stderr)
        self.assertFalse((self.d / "four/genai_config.json").exists())


class OwnKernels(unittest.TestCase):
    """A folder of one graph, cut in three stages: the tokens of onnxruntime-genai, which loads the same folder."""

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.d = pathlib.Path(self.temporary.name)
        model = self.d / "model"
        shutil.copytree(SOURCE / "tests/tiny/models/llama", model)  # its four heads of 8 become two of 16, which ONNX Runtime takes
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
                                                                "max_position_embeddings": 256}))
        self.whole = self.d / "whole"
        made = slm("export", model, "--to", "genai", "-o", self.whole, "--exact")
        self.assertEqual(made.returncode, 0, made.stderr)

    def run_own(self, folder, prompt, *words):
        run = slm("run", folder, "--raw", "-p", prompt, "-n", 64, "--ids", "--ignore-eos", "--compute", "f32", "--json", *words)
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout.splitlines()[-1])["ids"]

    def genai(self, folder, prompts):
        code = ("import json, sys; sys.path.insert(0, sys.argv[1]); import onnxruntime_genai as g; from genai_ids import greedy_ids\n"
                "m = g.Model(sys.argv[2])\nfor ids in json.load(sys.stdin): print('IDS', greedy_ids(m, ids, 64))")
        config = folder / "genai_config.json"
        whole = config.read_text()
        endless = json.loads(whole)
        endless["model"]["eos_token_id"] = endless["model"]["vocab_size"] - 1  # it goes on as --ignore-eos does
        config.write_text(json.dumps(endless))
        run = subprocess.run([sys.executable, "-c", code, str(pathlib.Path(__file__).parent), str(folder)], input=json.dumps(prompts),
                             capture_output=True, text=True, timeout=200)
        config.write_text(whole)
        found = [json.loads(line[4:]) for line in run.stdout.splitlines() if line.startswith("IDS ")]
        self.assertEqual(len(found), len(prompts), run.stdout + run.stderr)
        return found

    def test_tokens_of_three_stages(self):
        ids = []
        for prompt in PROMPTS[1:]:
            run = slm("tokenize", self.whole, "--json", "--no-special", stdin=prompt)
            ids.append(json.loads(run.stdout)["ids"])
        for rename in (None, "embedding"):  # by the same names, and by names that are forwarded
            folder = split(self.whole, self.d / f"split-{rename}", rename)
            for prompt, want in zip(PROMPTS[1:], self.genai(folder, ids)):
                with self.subTest(prompt, rename=rename):
                    self.assertEqual(len(want), 64)
                    self.assertEqual(self.run_own(folder, prompt), want)
                    self.assertEqual(self.run_own(self.whole, prompt), want)
            self.assertTrue(json.loads(slm("inspect", folder, "--json").stdout)["runnable"])

    def test_another_backend_says_what_it_takes(self):
        folder = split(self.whole, self.d / "split")
        run = slm("run", folder, "--backend", "ort", "-p", "x")
        self.assertEqual(run.returncode, 1)
        self.assertIn("own kernels run pipelines", run.stderr)


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        worker(*sys.argv[2:])
        sys.exit()
    ort_test.SLM = sys.argv.pop(1)
    missing = [m for m in ("numpy", "onnx", "onnxruntime", "onnxruntime_genai") if not has_package(m)]
    if missing or not has_runtime():
        print("needs ONNX Runtime (./dev ort) and the packages", *missing, file=sys.stderr)
        sys.exit(1 if ort_test.NEEDED else 77)
    unittest.main()
