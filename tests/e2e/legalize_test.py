#!/usr/bin/env python3
"""slm legalize: graphs before and after in ONNX Runtime's CPU provider, a whole decoder in Qualcomm's compiler.   legalize_test.py SLM

Needs onnx, onnxruntime and numpy for the values (skipped without them, a failure with SLM_NEED_ORT=1 or SLM_NEED_QNN=1) and
onnxruntime-qnn for the compiler (the same with SLM_NEED_QNN=1). Compiled and simulated: nothing here says what a device does."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from ort_test import write_model

SLM = ""
SOURCE = pathlib.Path(os.environ.get("SLM_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
GRAPHS = SOURCE / "tests/tiny/targets/graphs"
CASES = SOURCE / "tests/tiny/legalize"
PAST, TOKENS = 31, 1


def slm(*words):
    return subprocess.run([SLM, *map(str, words)], capture_output=True, text=True, timeout=200)


def legalize(model, target, out, *words, code=0):
    run = slm("legalize", model, "--target", target, "-o", out, "--json", *words)
    assert run.returncode == code, f"{model} for {target}: {run.returncode}: {run.stderr}{run.stdout}"
    return json.loads(run.stdout)


def lengths(past=PAST, total=PAST + TOKENS, tokens=TOKENS):
    sizes = {"batch_size": 1, "sequence_length": tokens, "past_sequence_length": past, "total_sequence_length": total}
    return [word for name, n in sizes.items() for word in ("--dim", f"{name}={n}")]


def worker(path, values):
    """In a process of its own, which keeps one SoC: the graph in Qualcomm's compiler; prints where the nodes are and how far off."""
    import numpy as np
    from htp import Htp, relative_rms
    data = np.load(values)
    htp = Htp(60)
    session = htp.session(path)
    got = session.run(None, {i.name: data["in:" + i.name] for i in session.get_inputs()})
    rms = {o.name: relative_rms(g.astype(np.float64), data["out:" + o.name]) for o, g in zip(session.get_outputs(), got)}
    print("FOUND", json.dumps({"placed": htp.placed[0], "rms": rms}))


class Legalize(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.d = pathlib.Path(cls.folder.name)
        write_model(cls.d / "model")
        assert slm("quantize", cls.d / "model", "-o", cls.d / "q4.gguf", "--type", "q4_0", "--no-gate").returncode == 0
        for name, source in (("float", cls.d / "model"), ("int4", cls.d / "q4.gguf"), ("qwen3", SOURCE / "tests/tiny/models/qwen3")):
            run = slm("export", source, "--to", "genai", "--exact", "--ctx", 64, "-o", cls.d / name)
            assert run.returncode == 0, run.stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    # ---- what is said
    def test_report(self):
        out = self.d / "report.onnx"
        document = legalize(GRAPHS / "skip_norm.onnx", "qnn-htp-v73", out)
        self.assertEqual(document["before"]["fallback"], 1)
        self.assertEqual(document["after"]["fallback"], 0)
        self.assertTrue(document["all_native"])
        (done,) = document["rewritten"]
        self.assertEqual((done["op"], done["rewrites"]), ("com.microsoft.SkipSimplifiedLayerNormalization", ["skip-norm-apart"]))
        self.assertEqual((done["comparison"]["outcome"], document["whole"]["outcome"]), ("equal", "equal"))
        self.assertEqual(document["files"][0], str(out))
        text = slm("legalize", GRAPHS / "other_types.onnx", "--target", "qnn-htp-v73", "-o", out).stdout
        self.assertIn("matmulinteger_1 (MatMulInteger): the provider has no builder for it; no rewrite", text)
        again = [slm("legalize", GRAPHS / "skip_norm.onnx", "--target", "qnn-htp-v73", "-o", self.d / n) and (self.d / n).read_bytes()
                 for n in ("one.onnx", "two.onnx")]
        self.assertEqual(again[0].replace(b"one.onnx", b"two.onnx"), again[1])
        after = json.loads(slm("check", out, "--target", "qnn-htp-v73", "--json").stdout)
        self.assertEqual(after["fallback"], 2)

    def test_exit_codes(self):
        out = self.d / "codes.onnx"
        legalize(GRAPHS / "six_dimensions.onnx", "openvino-npu-4000", out, code=3)
        legalize(GRAPHS / "other_types.onnx", "qnn-htp-v73", out, "--no-fallback", code=3)
        run = slm("legalize", GRAPHS / "open_length.onnx", "--target", "qnn-htp-v73", "-o", out, "--dim", "token=4")
        self.assertEqual(run.returncode, 2)

    def test_check_says_who_applies_it(self):
        document = json.loads(slm("check", self.d / "qwen3", "--target", "qnn-htp-v73", "--json", *lengths()).stdout)
        found = {o["op"]: o for o in document["ops"]}
        for op in ("GroupQueryAttention", "SkipSimplifiedLayerNormalization"):
            self.assertEqual(found[op]["applied_by"], "slm legalize", op)
        refused = json.loads(slm("check", GRAPHS / "other_types.onnx", "--target", "qnn-htp-v73", "--json").stdout)["ops"]
        self.assertEqual({o["applied_by"] for o in refused if o["verdict"] == "fallback"}, {None})

    # ---- what is computed
    def values(self, before, after, feed):
        import numpy as np
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        sessions = [onnxruntime.InferenceSession(str(p), options, providers=["CPUExecutionProvider"]) for p in (before, after)]
        self.assertEqual([o.name for o in sessions[0].get_outputs()], [o.name for o in sessions[1].get_outputs()])
        want, got = (s.run(None, {i.name: feed[i.name] for i in s.get_inputs()}) for s in sessions)
        for o, w, g in zip(sessions[0].get_outputs(), want, got):
            self.assertEqual((w.shape, w.dtype), (g.shape, g.dtype))
            np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5 + 2e-5 * np.abs(w).max(), err_msg=o.name)
        return {o.name: w for o, w in zip(sessions[0].get_outputs(), want)}

    def needs_values(self):
        missing = [m for m in ("numpy", "onnx", "onnxruntime") if importlib.util.find_spec(m) is None]
        if missing:
            self.assertFalse(os.environ.get("SLM_NEED_ORT") or os.environ.get("SLM_NEED_QNN"), f"needs {missing}")
            self.skipTest(f"needs {missing}")

    def random_feed(self, path):
        import numpy as np
        import onnx
        rng, feed = np.random.default_rng(3), {}
        for v in onnx.load(str(path)).graph.input:
            t = v.type.tensor_type
            shape, kind = [d.dim_value for d in t.shape.dim], onnx.helper.tensor_dtype_to_np_dtype(t.elem_type)
            feed[v.name] = rng.standard_normal(shape).astype(kind) if np.dtype(kind).kind == "f" else rng.integers(0, 2, shape).astype(kind)
        return feed

    def test_small_graphs(self):
        self.needs_values()
        import onnx
        made = 0
        for target, graphs in (("qnn-htp-v73", ("skip_norm", "block_in_pieces", "contrib_rotary", "quantized_embedding", "causal_mask",
                                                "norm_of_squares")),
                               ("openvino-npu-3720", ("contrib_rotary", "gelu_in_pieces")),
                               ("webgpu", ("block_in_pieces", "gelu_in_pieces", "standard_attention"))):
            for name in graphs:
                with self.subTest(f"{name} for {target}"):
                    out = self.d / f"{name}.{target}.onnx"
                    document = legalize(GRAPHS / f"{name}.onnx", target, out)
                    self.assertTrue(document["all_native"], document["left"])
                    made += len(document["rewritten"])
                    if "SimplifiedLayerNormalization" not in {n.op_type for n in onnx.load(str(out)).graph.node}:  # ONNX Runtime's own
                        onnx.checker.check_model(str(out))
                    self.values(GRAPHS / f"{name}.onnx", out, self.random_feed(out))
        self.assertGreater(made, 12)

    def test_a_default_is_no_constant(self):
        """An initializer that the caller may replace: x to the power of e, which is 2 unless it is given."""
        self.needs_values()
        import numpy as np
        import onnx
        from onnx import TensorProto, helper, numpy_helper
        value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        graph = helper.make_graph([helper.make_node("Pow", ["x", "e"], ["y"])], "g", [value("x", [2, 3]), value("e", [])], [value("y", [2, 3])],
                                  [numpy_helper.from_array(np.float32(2), "e")])
        path, out = self.d / "default.onnx", self.d / "default_out.onnx"
        onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]), str(path))
        legalize(path, "qnn-htp-v73", out)
        x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
        self.values(path, out, {"x": x, "e": np.array(3, np.float32)})

    def decoder_feed(self, past, valid, total, tokens=1, layers=2):
        import numpy as np
        rng = np.random.default_rng(5)
        feed = {"input_ids": rng.integers(1, 90, (1, tokens)), "attention_mask": np.ones((1, total), np.int64)}
        feed["attention_mask"][:, valid:] = 0
        for i in range(layers):
            for side in ("key", "value"):
                feed[f"past_key_values.{i}.{side}"] = rng.standard_normal((1, 2, past, 16)).astype(np.float32)
                feed[f"past_key_values.{i}.{side}"][:, :, valid - tokens:] = 0
        return feed

    def decoders(self):
        """name, words of --dim, inputs: a token behind a past, one into a buffer that is not full, a chunk."""
        yield "grows", lengths(), (31, 32, 32, 1)
        yield "buffer", lengths(32, 32), (32, 20, 32, 1)
        yield "chunk", lengths(32, 32, 8), (32, 20, 32, 8)

    def test_decoder(self):
        self.needs_values()
        import onnx
        for model in ("float", "int4", "qwen3"):
            for name, words, sizes in self.decoders():
                with self.subTest(f"{model} {name}"):
                    before, out = self.d / model / "model.onnx", self.d / f"{model}_{name}.onnx"
                    document = legalize(before, "qnn-htp-v73", out, *words)
                    self.assertTrue(document["all_native"], document["left"])
                    self.assertEqual(document["whole"]["outcome"], "equal")
                    self.assertEqual(document["after"]["folded"], 0)
                    graph = onnx.load(str(out)).graph
                    gone = {"GroupQueryAttention", "Shape", "SkipSimplifiedLayerNormalization"}
                    self.assertEqual({n.op_type for n in graph.node} & gone, set())
                    self.assertFalse([v.name for v in [*graph.input, *graph.output] for d in v.type.tensor_type.shape.dim if d.dim_param])
                    self.values(before, out, self.decoder_feed(*sizes))

    def test_decoder_on_other_targets(self):
        self.needs_values()
        before = self.d / "int4/model.onnx"
        document = legalize(before, "openvino-npu-3720", self.d / "openvino.onnx", *lengths())
        self.assertTrue(document["all_native"], document["left"])
        self.values(before, self.d / "openvino.onnx", self.decoder_feed(31, 32, 32))
        document = legalize(before, "webgpu", self.d / "webgpu.onnx", *lengths())
        self.assertEqual({left["node"] for left in document["left"]}, {"mask.tokens", "mask.last", "seqlens_k"})
        self.values(before, self.d / "webgpu.onnx", self.decoder_feed(31, 32, 32))

    # ---- what the compiler says
    def test_qnn_takes_all(self):
        self.needs_values()
        if importlib.util.find_spec("onnxruntime_qnn") is None:
            self.assertFalse(os.environ.get("SLM_NEED_QNN"), "needs onnxruntime_qnn")
            self.skipTest("needs onnxruntime_qnn")
        import numpy as np
        for model in ("float", "int4", "qwen3"):
            for name, words, sizes in self.decoders():
                with self.subTest(f"{model} {name}"):
                    before, out, values = self.d / model / "model.onnx", self.d / f"qnn_{model}_{name}.onnx", self.d / "values.npz"
                    legalize(before, "qnn-htp-v73", out, *words)
                    feed = self.decoder_feed(*sizes)
                    want = self.values(before, out, feed)
                    np.savez(values, **{"in:" + k: v for k, v in feed.items()}, **{"out:" + k: v for k, v in want.items()})
                    run = subprocess.run([sys.executable, __file__, "--worker", out, values], capture_output=True, text=True, timeout=250)
                    lines = [line for line in run.stdout.splitlines() if line.startswith("FOUND ")]
                    self.assertEqual(len(lines), 1, run.stdout + run.stderr)
                    found = json.loads(lines[0][6:])
                    self.assertEqual(list(found["placed"]), ["QNNExecutionProvider"])
                    self.assertGreater(found["placed"]["QNNExecutionProvider"], 60)
                    self.assertLess(max(found["rms"].values()), 0.02)


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        worker(*sys.argv[2:])
    else:
        import ort_test
        SLM = ort_test.SLM = sys.argv.pop(1)
        unittest.main()
