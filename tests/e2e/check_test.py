"""slm check beside the compilers' own word, and as a command line.   check_test.py SLM

The verdicts of tests/tiny/targets/qnn_htp.json were given by onnxruntime-qnn (its framework trace, tools/targets/measure.py). With the
packages onnx and numpy, one-operator graphs of tools/targets/cases.py are also compared with tests/tiny/targets/measured, a seventh of
them, all with SLM_ALL_CASES=1. SLM_NEED_ONNX=1: without the packages that fails."""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SLM = ""
SOURCE = pathlib.Path(os.environ.get("SLM_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
GRAPHS = SOURCE / "tests/tiny/targets/graphs"
MODELS = SOURCE / "tests/tiny/models"


def slm(*words):
    return subprocess.run([SLM, *map(str, words)], capture_output=True, text=True, timeout=120)


def check(model, target, *words):
    """The document, and the exit code."""
    run = slm("check", model, "--target", target, "--json", *words)
    return (json.loads(run.stdout) if run.stdout else None), run.returncode


def verdicts(document):
    # A node of a body is named "loop/body:node"; traces have the last part only.
    return {node.rsplit(":", 1)[-1]: o["verdict"] for o in document["ops"] for node in o["nodes"]}


class Truth(unittest.TestCase):
    def test_qnn_traces(self):
        self.compare("qnn-htp-v73", "qnn_htp.json", ("onnxruntime-qnn", "2.7.0"), 290, 25)

    def test_webgpu_placements(self):
        self.compare("webgpu", "webgpu.json", ("onnxruntime-ep-webgpu", "0.4.0"), 290, 55)

    def test_an_exported_model(self):
        """What slm check says of a model is what the providers said of its export."""
        for target, file in (("qnn-htp-v73", "exported_qnn.json"), ("webgpu", "exported_webgpu.json")):
            golden = json.loads((SOURCE / "tests/tiny/targets" / file).read_text())
            dims = [word for name, size in golden.get("dims", {}).items() for word in ("--dim", f"{name}={size}")]
            ours = verdicts(check(MODELS / "qwen3", target, *dims)[0])
            theirs = golden["graphs"]["qwen3"]["nodes"]
            self.assertEqual(set(ours), set(theirs))
            for node, verdict in theirs.items():
                if ours[node] != "folded":  # the optimizers were off
                    self.assertEqual(ours[node] == "native", verdict["verdict"] == "native", f"{target}: {node}: {verdict}")

    def compare(self, target, file, version, least, least_refused):
        golden = json.loads((SOURCE / "tests/tiny/targets" / file).read_text())
        self.assertEqual(golden["versions"][version[0]], version[1])
        compared = refused = 0
        for name, graph in golden["graphs"].items():
            ours = verdicts(check(GRAPHS / f"{name}.onnx", target)[0])
            # The runtime renames transposes that it moves, with what quantizes them; the others must all be told alike.
            known = {k: v for k, v in graph["nodes"].items() if k in ours}
            self.assertGreaterEqual(len(known), 0.7 * len(ours), name)
            for node, theirs in known.items():
                self.assertEqual(ours[node] == "native", theirs["verdict"] == "native", f"{name}: {node}: {theirs}")
                compared += 1
                refused += theirs["verdict"] != "native"
        self.assertGreater(compared, least)
        self.assertGreater(refused, least_refused)

    def test_one_operator_graphs(self):
        if not all(importlib.util.find_spec(m) for m in ("onnx", "numpy")):
            if os.environ.get("SLM_NEED_ONNX"):
                self.fail("the packages onnx and numpy are missing")
            self.skipTest("the packages onnx and numpy are missing")
        sys.path.insert(0, str(SOURCE / "tools/targets"))
        import cases

        measured = {
            target: json.loads((SOURCE / f"tests/tiny/targets/measured/{file}.json").read_text())["cases"]
            for target, file in (("cpu-x86", "cpu"), ("qnn-htp-v73", "qnn"), ("webgpu", "webgpu"))
        }
        wrong = []
        with tempfile.TemporaryDirectory() as folder:
            for name, model in sampled(cases.all_cases()):
                path = pathlib.Path(folder) / "m.onnx"
                path.write_bytes(model.SerializeToString())
                for target, found in measured.items():
                    theirs = found.get(name, {})
                    if "verdict" not in theirs or exempt(name, theirs):
                        continue
                    ours = verdicts(check(path, target)[0])["asked"]
                    if (ours == "native") != (theirs["verdict"] == "native"):
                        wrong.append(f"{target}: {name}: {ours}, measured {theirs}")
        self.assertEqual(wrong, [])


def sampled(cases):
    """All with SLM_ALL_CASES=1; else every seventh, which is enough to see a description that went wrong."""
    step = 1 if os.environ.get("SLM_ALL_CASES") else 7
    return (c for i, c in enumerate(cases) if i % step == 0)


def exempt(name, theirs):
    """Where a graph of one operator is no measure of that operator in a graph."""
    if name.startswith(("Shape/", "Size/")):
        return True  # of fixed sizes: folded
    if "expanded" in theirs and theirs["verdict"] != "native":
        return True  # a transpose that the runtime moved past QuantizeLinear, between codes: no graph has it
    return False


class CommandLine(unittest.TestCase):
    def test_contract(self):
        document, code = check(GRAPHS / "skip_norm.onnx", "qnn-htp-v75")
        self.assertEqual(code, 0)
        for key in ("target", "supported", "fallback", "blocked", "ops", "fusions", "copies", "memory", "bounds", "shapes", "sources"):
            self.assertIn(key, document)
        self.assertEqual((document["target"], document["fallback"], document["blocked"]), ("qnn-htp-v75", 1, 0))
        bad = document["ops"][0]
        self.assertEqual(
            (bad["op"], bad["domain"], bad["count"], bad["verdict"]), ("SkipSimplifiedLayerNormalization", "com.microsoft", 1, "fallback")
        )
        self.assertIn("SimplifiedLayerNormalization", bad["replacement"])
        self.assertEqual(bad["applied_by"], "slm legalize")
        self.assertIn(bad["source"], document["sources"])
        self.assertEqual(document["supported"] + document["fallback"] + document["folded"], sum(o["count"] for o in document["ops"]))

    def test_exit_codes(self):
        self.assertEqual(slm("check", GRAPHS / "skip_norm.onnx", "--target", "qnn-htp-v73").returncode, 0)
        self.assertEqual(slm("check", GRAPHS / "skip_norm.onnx", "--target", "qnn-htp-v73", "--no-fallback").returncode, 3)
        self.assertEqual(slm("check", GRAPHS / "block_float.onnx", "--target", "qnn-htp-v73", "--no-fallback").returncode, 0)
        self.assertEqual(slm("check", GRAPHS / "cache_in_place.onnx", "--target", "openvino-npu-4000").returncode, 3)
        self.assertEqual(slm("check", GRAPHS / "block_float.onnx").returncode, 2)
        self.assertEqual(slm("check", "--target", "webgpu").returncode, 2)
        self.assertEqual(slm("check", GRAPHS / "block_float.onnx", "--target", "webgpu", "--dim", "x").returncode, 2)
        self.assertEqual(slm("check", GRAPHS / "block_float.onnx", "--target", "webgpu", "--dim", "x=4").returncode, 2)
        unknown = slm("check", GRAPHS / "block_float.onnx", "--target", "qnn-htp-v99")
        self.assertEqual(unknown.returncode, 1)
        self.assertIn("qnn-htp-v73", unknown.stderr)

    def test_targets_are_listed(self):
        document = json.loads(slm("check", "--list-targets", "--json").stdout)
        files = {p.stem for p in (SOURCE / "targets").glob("*.json")}
        self.assertEqual({t["name"] for t in document["targets"]}, files)

    def test_a_description_from_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "mine.json"
            path.write_text(
                '{"schema": 1, "name": "mine", "extends": "cpu-x86", "sources": {"me": {"assumed": "a test"}}, "operators": '
                '[{"op": "Softmax", "native": false, "reason": "not here", "source": "me"}]}'
            )
            document, code = check(GRAPHS / "block_float.onnx", path)
            self.assertEqual(code, 3)  # a description without a fallback
            self.assertEqual([(o["op"], o["verdict"]) for o in document["ops"] if o["verdict"] != "native"], [("Softmax", "blocked")])
            path.write_text('{"schema": 1, "name": "mine", "extends": "cpu-x86", "sources": {}, "operators": [{"op": "Softmax"}]}')
            broken = slm("check", GRAPHS / "block_float.onnx", "--target", path)
            self.assertEqual(broken.returncode, 1)
            self.assertIn("mine.json: operators[0] (Softmax): source", broken.stderr)

    def test_dimensions(self):
        document, code = check(GRAPHS / "open_length.onnx", "qnn-htp-v73")
        self.assertEqual((code, document["supported"], document["fallback"]), (0, 0, 8))
        self.assertEqual(document["shapes"][0]["open_dims"], ["tokens"])
        first = slm("check", "--dim", "tokens=4", GRAPHS / "open_length.onnx", "--target", "qnn-htp-v73", "--json")
        self.assertEqual(json.loads(first.stdout)["supported"], 8)  # the option takes one word, not MODEL
        document, _ = check(GRAPHS / "open_length.onnx", "qnn-htp-v73", "--dim", "tokens=4")
        self.assertEqual((document["supported"], document["fallback"]), (8, 0))

    def test_models_are_checked_as_exported(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "genai"
            self.assertEqual(slm("export", MODELS / "gemma3.gguf", "--to", "genai", "-o", out).returncode, 0)
            for model in (MODELS / "gemma3.gguf", MODELS / "qwen3"):
                document, code = check(model, "cpu-x86")
                self.assertEqual((code, document["blocked"], document["fallback"]), (0, 0, 0), model)
            written, _ = check(out, "webgpu")
            source, _ = check(MODELS / "gemma3.gguf", "webgpu")
            key = lambda d: sorted((o["domain"], o["op"], o["verdict"], o["count"]) for o in d["ops"])
            self.assertEqual(key(written), key(source))
            self.assertEqual(written["memory"], source["memory"])
            self.assertIn(("attention", "operator", True), {(f["what"], f["form"], f["one_kernel"]) for f in written["fusions"]})

    def test_text(self):
        text = slm("check", GRAPHS / "block_in_pieces.onnx", "--target", "qnn-htp-v73").stdout
        self.assertIn("RMSNorm: 0 of 2 in one kernel", text)
        self.assertIn("mul_1, reducemean_1, add_1", text)
        self.assertIn("measured: onnxruntime 1.31.1", text)


if __name__ == "__main__":
    SLM = shutil.which(sys.argv.pop(1))
    unittest.main()
