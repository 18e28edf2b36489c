#!/usr/bin/env python3
"""slm export --to genai: the folder in ONNX Runtime, against transformers' logits.   genai_test.py SLM

Needs the packages onnxruntime, onnx, numpy and gguf; skipped without them, a failure with SLM_NEED_ORT=1.
"""
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from export_folder import export_folder
from genai_ids import greedy_ids

SLM = ""
SOURCE = pathlib.Path(os.environ.get("SLM_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
TINY = SOURCE / "tests/tiny/models"


def slm(*words):
    return subprocess.run([SLM, *map(str, words)], capture_output=True, text=True, timeout=120)


class Runner:
    """The exported graph, fed tokens as GenAI feeds them."""

    def __init__(self, folder):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
        self.outputs = [o.name for o in self.session.get_outputs()]
        self.cache = {}
        for i in self.session.get_inputs():
            if i.name.startswith("past_key_values."):
                self.cache[i.name] = np.zeros((1, i.shape[1], 0, i.shape[3]), np.float32)
        self.n = 0

    def feed(self, tokens):
        """Logits [V] after the last of them."""
        self.n += len(tokens)
        ids, mask = np.array([tokens], np.int64), np.ones((1, self.n), np.int64)
        out = dict(zip(self.outputs, self.session.run(None, {"input_ids": ids, "attention_mask": mask, **self.cache})))
        self.cache = {name: out[name.replace("past_key_values", "present")] for name in self.cache}
        return out["logits"][0, -1]


class GenAi(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.d = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def export(self, model, name, *words):
        return export_folder(self, slm, model, "genai", self.d / name, "--exact", *words)

    def test_logits_of_transformers(self):
        """Prompt in one piece, then token by token: every architecture, folders and GGUF files."""
        checked = 0
        for case in json.loads((TINY / "expected.json").read_text())["cases"]:
            with self.subTest(case["name"]):
                if self.is_refused(TINY / case["path"]):
                    r = slm("export", TINY / case["path"], "--to", "genai", "-o", self.d / "no")
                    self.assertEqual(r.returncode, 1)
                    self.assertIn("multiples of 16", r.stderr)
                    self.assertFalse((self.d / "no").exists())
                    continue
                checked += 1
                want = np.fromfile(TINY / case["logits"], np.float32).reshape(case["rows"], case["vocab"])
                out = self.export(TINY / case["path"], case["name"], "--ctx", case["max_context"])
                run, prompt = Runner(out), case["prompt"]
                first = len(prompt) - case["rows"]
                got = [run.feed(prompt[:first + 1])] + [run.feed([t]) for t in prompt[first + 1:]]
                scale = np.abs(want).max()
                self.assertLess(np.abs(np.array(got) - want).max() / scale, max(case["tolerance"], 2e-4))
                self.assertLess(np.abs(Runner(out).feed(prompt) - want[-1]).max() / scale, max(case["tolerance"], 2e-4))

        self.assertGreaterEqual(checked, 8)

    def is_refused(self, model):
        """Heads that ONNX Runtime's attention does not take."""
        if model.suffix == ".gguf":
            model = model.with_suffix("")
        c = json.loads((model / "config.json").read_text())
        head = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
        return head % 16 != 0 or c.get("partial_rotary_factor") is not None

    def quantized(self, kind):
        out = self.d / f"{kind}.gguf"
        r = slm("quantize", TINY / "llama3_rope.gguf", "-o", out, "--type", kind, "--head", kind, "--no-gate")
        self.assertEqual(r.returncode, 0, r.stderr)
        return out

    def test_blocks_hold_the_values_of_the_file(self):
        """The codes' product against the same weights dequantized by the gguf package (all types: src/exporter's test)."""
        for name in ("q4_0", "q4_1", "q5_0", "q8_0"):
            with self.subTest(name):
                source = self.quantized(name)
                plain = self.d / f"{name}-f32.gguf"
                subprocess.run([sys.executable, SOURCE / "tools/dequantize_gguf.py", source, plain], check=True, stdout=subprocess.DEVNULL)
                blocks, floats = Runner(self.export(source, name)), Runner(self.export(plain, name + "-f32"))
                for tokens in ([1, 5, 9, 30, 2], [7], [11]):
                    a, b = blocks.feed(tokens), floats.feed(tokens)
                    self.assertLess(np.abs(a - b).max(), 1e-4 * np.abs(b).max())

    def test_divergence_as_slm_eval_has_it(self):
        """tools/ort_divergence.py: the same windows, the same figures, by another runtime; of a folder against itself none."""
        plain, source = self.d / "model", self.d / "q4_0.gguf"
        shutil.copytree(TINY / "llama", plain)  # has a tokenizer; its four heads of 8 become two of 16
        config = json.loads((plain / "config.json").read_text())
        config.update(num_attention_heads=2, num_key_value_heads=1, head_dim=16)
        (plain / "config.json").write_text(json.dumps(config))
        r = slm("quantize", plain, "-o", source, "--type", "q4_0", "--head", "f16", "--no-gate")
        self.assertEqual(r.returncode, 0, r.stderr)
        folders = [self.export(plain, "plain"), self.export(source, "q4_0")]
        text = self.d / "text"
        text.write_text("The quick brown fox jumps over the lazy dog. 0123456789 " * 8)
        words = ("--text", text, "--window", 40, "--windows", 3)
        r = subprocess.run([sys.executable, SOURCE / "tools/ort_divergence.py", "measure", folders[0], *folders, "--slm", SLM,
                            "--model", plain, "--json", *map(str, words)], capture_output=True, text=True, timeout=120)
        self.assertEqual(r.returncode, 0, r.stderr)
        same, got = map(json.loads, r.stdout.splitlines())
        self.assertEqual((same["kld"]["mean"], same["top1"], same["dlnppl"]["mean"]), (0, 1, 0))
        r = slm("eval", source, "kld", "--base", plain, "--bos", "always", "--compute", "f32", "--kv", "f32", "--json", *words)
        self.assertEqual(r.returncode, 0, r.stderr)
        want = json.loads(r.stdout)
        self.assertEqual(got["tokens"], 3 * 39)
        for key in ("kld", "dlnppl"):
            for figure in ("mean", "sigma"):
                self.assertAlmostEqual(got[key][figure], want[key][figure], delta=2e-3 * want["kld"]["mean"], msg=f"{key} {figure}")
        self.assertGreater(want["kld"]["mean"], 1e-5)

    def test_a_tied_table_is_stored_once(self):
        import onnx
        out = self.export(self.quantized("q8_0"), "tied")
        model = onnx.load(str(out / "model.onnx"), load_external_data=False)
        places = {}
        for t in model.graph.initializer:
            e = {x.key: x.value for x in t.external_data}
            if e:
                places.setdefault((e["offset"], e["length"]), []).append(t.name)
        self.assertEqual([len(names) for names in places.values() if len(names) > 1], [2], places)

    def test_config(self):
        out = self.export(TINY / "qwen3", "qwen3", "--ctx", 40)
        config = json.loads((out / "genai_config.json").read_text())
        source = json.loads((TINY / "qwen3/config.json").read_text())
        decoder = config["model"]["decoder"]
        self.assertEqual(config["model"]["context_length"], 40)
        for ours, theirs in (("hidden_size", "hidden_size"), ("num_attention_heads", "num_attention_heads"),
                             ("num_key_value_heads", "num_key_value_heads"), ("num_hidden_layers", "num_hidden_layers")):
            self.assertEqual(decoder[ours], source[theirs], ours)
        self.assertEqual(config["model"]["vocab_size"], source["vocab_size"])

    def test_greedy_ids_in_genai(self):
        """The demo model: tokenizer and decoding of ONNX Runtime GenAI against ours, both with f32 activations."""
        if not os.environ.get("SLM_NEED_ORT"):
            self.skipTest("fetches the demo model; SLM_NEED_ORT=1 asks for it")
        import onnxruntime_genai as genai
        path = json.loads(slm("fetch", "smollm2-135m-instruct", "--json").stdout.splitlines()[-1])["path"]
        folder = self.export(path, "demo", "--ctx", 256)
        model = genai.Model(str(folder))
        tokenizer = genai.Tokenizer(model)
        for prompt in ("The cat sat on the mat and", "Why is the sky blue? 12345\n\tna\u00efve \u4e1c\u4eac"):
            words = ("--raw", "--compute", "f32", "-n", 64, "-p", prompt, "--json")
            want = json.loads(slm("run", path, *words).stdout)["text"]
            self.assertEqual(json.loads(slm("run", folder, *words).stdout)["text"], want)  # the exported folder, imported
            ids = tokenizer.encode(prompt)
            ours = json.loads(subprocess.run([SLM, "tokenize", path, "--json"], input=prompt, capture_output=True, text=True).stdout)["ids"]
            self.assertEqual([int(i) for i in ids], ours)
            self.assertEqual(tokenizer.decode(greedy_ids(model, ids, 64)), want)

    def test_same_bytes(self):
        a, b = self.export(TINY / "qwen3", "a"), self.export(TINY / "qwen3", "b")
        for name in ("model.onnx", "model.onnx.data", "genai_config.json"):
            self.assertEqual((a / name).read_bytes(), (b / name).read_bytes(), name)

    def test_refusals(self):
        out = self.d / "there"
        out.mkdir()
        (out / "file").write_text("mine")
        for words, code, says in ((("-o", out), 2, "there"), (("-o", self.d / "x", "--ctx", 1 << 20), 2, "--ctx"),
                                  (("-o", TINY / "qwen3/model.safetensors"), 2, "model")):
            r = slm("export", TINY / "qwen3", "--to", "genai", *words)
            self.assertEqual(r.returncode, code, r.stderr)
            self.assertIn(says, r.stderr)
        self.assertEqual((out / "file").read_text(), "mine")
        r = slm("export", TINY / "qwen3", "--exact", "-o", self.d / "y")
        self.assertEqual((r.returncode, (self.d / "y").exists()), (2, False), r.stderr)


if __name__ == "__main__":
    missing = [m for m in ("numpy", "onnx", "onnxruntime", "gguf") if importlib.util.find_spec(m) is None]
    if missing:
        print("needs", *missing, "(pip install -r tools/requirements.txt)", file=sys.stderr)
        sys.exit(1 if os.environ.get("SLM_NEED_ORT") else 77)
    import numpy as np
    SLM = sys.argv.pop(1)
    unittest.main()
