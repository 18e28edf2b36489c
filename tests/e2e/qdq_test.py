#!/usr/bin/env python3
"""slm export --to qdq: the folder in ONNX Runtime, float against transformers' logits, quantized against float.   qdq_test.py SLM

Needs the packages onnxruntime, onnx and numpy; skipped without them, a failure with SLM_NEED_ORT=1.
"""
import hashlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from export_folder import export_folder

SLM = ""
SOURCE = pathlib.Path(os.environ.get("SLM_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
TINY = SOURCE / "tests/tiny/models"
SMALL = ("--calib-seqs", 8, "--calib-tokens", 64, "--chunk", 32)
BEGIN = 262  # token that the tiny Llama begins with


def slm(*words):
    return subprocess.run([SLM, *map(str, words)], capture_output=True, text=True, timeout=200)


def unrounded(path):
    """The graph with its activations as they are: what goes through QuantizeLinear and DequantizeLinear skips both."""
    import onnx
    import onnxruntime
    model = onnx.load(str(path))
    made = {o: n for n in model.graph.node for o in n.output}
    same = {}
    for n in model.graph.node:
        for i, x in enumerate(n.input):
            n.input[i] = same.get(x, x)
        if n.op_type == "DequantizeLinear" and n.input[0] in made:
            same[n.output[0]] = made[n.input[0]].input[0]
    last = made["logits"]
    last.op_type, last.input[:] = "Identity", [same["logits"]]
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


class Qdq(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.d = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def export(self, model, name, *words):
        return export_folder(self, slm, model, "qdq", self.d / name, *words)

    def test_float_graphs_give_logits_of_transformers(self):
        """Every architecture: the prompt in one piece, cut in two, and its end token by token."""
        checked = 0
        for case in json.loads((TINY / "expected.json").read_text())["cases"]:
            with self.subTest(case["name"]):
                checked += 1
                want = np.fromfile(TINY / case["logits"], np.float32).reshape(case["rows"], case["vocab"])
                out = self.export(TINY / case["path"], case["name"], "--weights", "f32", "--chunk", 32, "--ctx", case["max_context"])
                host, prompt = Host(out), case["prompt"]
                first, limit = len(prompt) - case["rows"], max(case["tolerance"], 2e-5) * np.abs(want).max()
                self.assertLess(np.abs(host.feed(prompt)[first:] - want).max(), limit)
                host.reset()
                host.feed(prompt[:3])
                self.assertLess(np.abs(host.feed(prompt[3:])[first - 3:] - want).max(), limit)
                host.reset()
                host.feed(prompt[:first])
                got = np.concatenate([host.feed([t]) for t in prompt[first:]])
                self.assertLess(np.abs(got - want).max(), limit)
        self.assertGreaterEqual(checked, 18)

    def test_keys_rotated_by_columns(self):
        """The other form of the graph, with half of a head rotated, norms of heads, and none of both."""
        for case in json.loads((TINY / "expected.json").read_text())["cases"]:
            if case["name"] not in ("llama", "qwen3", "phi3_short", "smollm3"):
                continue
            want = np.fromfile(TINY / case["logits"], np.float32).reshape(case["rows"], case["vocab"])
            out = self.export(TINY / case["path"], case["name"], "--weights", "f32", "--chunk", 32, "--ctx", case["max_context"],
                              "--key-rotation", "columns")
            host, prompt = Host(out), case["prompt"]
            first, limit = len(prompt) - case["rows"], max(case["tolerance"], 2e-5) * np.abs(want).max()
            host.feed(prompt[:first + 1])
            got = np.concatenate([host.feed([t]) for t in prompt[first + 1:]])
            self.assertLess(np.abs(got - want[1:]).max(), limit, case["name"])
        by_columns = Host(self.quantized("w8", "--key-rotation", "columns"))
        rows = Host(self.export(TINY / "llama.gguf", "rows", "--weights", "w8", *SMALL))
        prompt = [BEGIN] + list(range(20, 45))
        self.assertLess(divergence(rows.feed(rows.begin(prompt)), by_columns.feed(by_columns.begin(prompt))), 1e-3)

    def test_a_decode_graph_of_more_tokens_than_a_call(self):
        """The second form: what a call does not fill is not read."""
        case = next(c for c in json.loads((TINY / "expected.json").read_text())["cases"] if c["name"] == "llama")
        want = np.fromfile(TINY / case["logits"], np.float32).reshape(case["rows"], case["vocab"])
        out = self.export(TINY / case["path"], "four", "--weights", "f32", "--chunk", 32, "--ctx", case["max_context"], "--decode-tokens", 4)
        self.assertEqual([g["tokens"] for g in json.loads((out / "manifest.json").read_text())["graphs"]], [32, 4])
        host, prompt = Host(out), case["prompt"]
        first, limit = len(prompt) - case["rows"], max(case["tolerance"], 2e-5) * np.abs(want).max()
        for size in (1, 3):
            host.reset()
            host.feed(prompt[:first])
            rest = prompt[first:]
            got = np.concatenate([host.feed(rest[i:i + size]) for i in range(0, len(rest), size)])
            self.assertLess(np.abs(got - want).max(), limit)

    def quantized(self, weights, *words, source="llama.gguf"):
        return self.export(TINY / source, weights, "--weights", weights, *SMALL, *words)

    def test_matrices_lose_what_their_bits_say(self):
        """A uniform grid loses step / sqrt(12): for normal weights and a row's range about 0.7 % with 8 bits and 11 % with 4."""
        import onnx
        arrays = lambda out: {i.name: onnx.numpy_helper.to_array(i) for i in onnx.load(str(out / "decode.onnx")).graph.initializer}
        floats = arrays(self.export(TINY / "llama", "floats", "--weights", "f32", "--chunk", 32))
        for weights, bits in (("w8", 8), ("w4-g32", 4), ("w4-channel", 4)):
            stored, n = arrays(self.quantized(weights, source="llama")), 0
            for name in [x[:-6] for x in stored if x.endswith("_proj.weight.codes")]:
                codes, scales = stored[name + ".codes"].astype(np.float32), stored[name + ".scales"]
                if scales.ndim == 2:
                    scales = np.repeat(scales, codes.shape[0] // scales.shape[0], 0)
                error = np.linalg.norm(codes * scales - floats[name]) / np.linalg.norm(floats[name])
                self.assertLess(error, 0.012 if bits == 8 or "down_proj" in name else 0.16, f"{weights} {name}")
                n += 1
            self.assertEqual(n, 14)

    def test_rounded_activations_cost_little(self):
        """Against the same graph without the roundings of activations; prefill against decode; 8 bits against float."""
        rng = np.random.default_rng(3)
        prompts = [[BEGIN] + rng.integers(1, 200, n).tolist() for n in (2, 20, 33, 60)]
        for source in ("llama.gguf", "llama"):  # rotation of neighbours, and of halves
            floats = Host(self.export(TINY / source, "float-" + source, "--weights", "f32", "--chunk", 32))
            for weights in ("w8", "w4-g32", "w4-channel"):
                with self.subTest(source + " " + weights):
                    out = self.export(TINY / source, weights + source, "--weights", weights, *SMALL)
                    host, smooth = Host(out), Host(out, unrounded)
                    self.assertEqual(host.m["prefix"]["tokens"], [BEGIN])
                    losses, whole = [], []
                    for p in prompts:
                        got, want = host.feed(host.begin(p)), smooth.feed(smooth.begin(p))
                        losses.append(divergence(want, got))
                        floats.reset()
                        whole.append(divergence(floats.feed(p)[1:], got))
                        one = np.concatenate([host.feed([t]) for t in host.begin(p)])
                        self.assertLess(divergence(got, one), 1e-5)  # decode and prefill have the same ranges and codes
                    self.assertLess(max(losses), 1e-3)
                    self.assertGreater(max(losses), 0)
                    if weights == "w8":
                        self.assertLess(np.mean(whole), 3e-3)

    def test_graphs_are_what_a_compiler_of_npus_takes(self):
        """Fixed shapes, valid ONNX, 16 bits on every activation, keys and values signed around 0."""
        import onnx
        for weights in ("w8", "w4-g32", "w4-channel"):
            out = self.quantized(weights)
            for name in ("prefill.onnx", "decode.onnx"):
                onnx.checker.check_model(str(out / name), full_check=True)
                model = onnx.load(str(out / name))
                g = model.graph
                for v in [*g.input, *g.output]:
                    self.assertTrue(all(d.dim_value > 0 for d in v.type.tensor_type.shape.dim), v.name)
                made = {o: n for n in g.node for o in n.output}
                constants = {i.name: onnx.numpy_helper.to_array(i) for i in g.initializer}
                products = floats = 0
                for n in g.node:
                    if n.op_type in ("QuantizeLinear", "DequantizeLinear"):
                        continue
                    for x in n.input:
                        floats += x not in constants
                        self.assertTrue(x in constants or made[x].op_type == "DequantizeLinear", f"{n.name}: {x} is no dequantized value")
                    if n.op_type == "MatMul":
                        second = made[n.input[1]]
                        if second.input[0] not in constants:  # of two activations
                            products += 1
                            zero = constants[second.input[2]]
                            self.assertEqual((zero.dtype, int(zero)), (np.int16, 0), n.name)
                self.assertEqual(products, 4)
                self.assertGreater(floats, 20)

    def test_scales_of_blocks_come_back_from_themselves(self):
        """LPBQ: every scale is a whole multiple, 1 to 16, of a 16th of its column's largest, as Qualcomm's compiler will round it."""
        import onnx
        model = onnx.load(str(self.quantized("w4-g32") / "decode.onnx"))
        kinds = {i.name: i for i in model.graph.initializer}
        blocks = 0
        for n in model.graph.node:
            size = [a.i for a in n.attribute if a.name == "block_size"]
            if n.op_type == "DequantizeLinear" and size:
                blocks += 1
                scales = onnx.numpy_helper.to_array(kinds[n.input[1]])
                unit = scales.max(0) / np.float32(16)
                numbers = np.rint(scales / unit)
                self.assertTrue(((numbers >= 1) & (numbers <= 16)).all(), n.name)
                np.testing.assert_array_equal(scales, unit * numbers.astype(np.float32))
        self.assertEqual(blocks, 2 * 6)  # all but down projections and head

    def test_one_file_of_weights_serves_both_graphs(self):
        import onnx
        out = self.quantized("w8")
        places = []
        for name in ("prefill.onnx", "decode.onnx"):
            model = onnx.load(str(out / name), load_external_data=False)
            places.append({t.name: [(e.key, e.value) for e in t.external_data] for t in model.graph.initializer if t.external_data})
        self.assertEqual(places[0], places[1])
        self.assertGreater(len(places[0]), 10)

    def test_manifest(self):
        out = self.quantized("w8")
        m = json.loads((out / "manifest.json").read_text())
        sha = lambda p: hashlib.sha256(pathlib.Path(p).read_bytes()).hexdigest()
        self.assertEqual(m["source"], [{"file": "weights", "sha256": sha(TINY / "llama.gguf")}])
        names = ("prefill.onnx", "weights.bin", "decode.onnx", "host.safetensors", "genai_host.onnx", "genai_logits.onnx")
        self.assertEqual(m["files"], {n: sha(out / n) for n in names})
        self.assertEqual(m["calibration"]["sha256"], sha(SOURCE / "apps/cli/calibration_mix.jsonl"))
        self.assertEqual(m["recipe"]["ranges"]["margin"], 1.5)
        self.assertEqual([g["tokens"] for g in m["graphs"]], [32, 1])
        self.assertNotIn(str(self.d), (out / "manifest.json").read_text())

    def test_same_bytes(self):
        folders = [self.export(TINY / "llama.gguf", f"t{n}", "--weights", "w4-g32", *SMALL, "-t", n) for n in (1, 3)]
        names = sorted(p.name for p in folders[0].iterdir())
        self.assertIn("tokenizer.json", names)
        for name in names:
            self.assertEqual((folders[0] / name).read_bytes(), (folders[1] / name).read_bytes(), name)

    def test_refusals(self):
        out = self.d / "no"
        model = TINY / "llama.gguf"
        for words, code, says in ((("--activations", 8), 1, "use 16"), (("--ctx", 1 << 20), 2, "--ctx"), (("--ctx", 16), 2, "--chunk"),
                                  (("--weights", "f32", "--calib-seqs", 4), 2, "calibration"), (("--weights", "w2"), 2, "w2")):
            r = slm("export", model, "--to", "qdq", "-o", out, *words)
            self.assertEqual(r.returncode, code, r.stderr)
            self.assertIn(says, r.stderr)
            self.assertFalse(out.exists())
        r = slm("export", model, "--to", "gguf", "-o", out, "--weights", "w8")
        self.assertEqual((r.returncode, out.exists()), (2, False), r.stderr)


if __name__ == "__main__":
    missing = [m for m in ("numpy", "onnx", "onnxruntime") if importlib.util.find_spec(m) is None]
    if missing:
        print("needs", *missing, "(pip install -r tools/requirements.txt)", file=sys.stderr)
        sys.exit(1 if os.environ.get("SLM_NEED_ORT") else 77)
    import numpy as np
    from static_folder import Host, divergence
    SLM = sys.argv.pop(1)
    unittest.main()
