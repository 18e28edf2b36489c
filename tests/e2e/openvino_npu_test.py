#!/usr/bin/env python3
"""slm compile --target openvino-npu-…: with a stand-in for the compiler always, with OpenVINO's own where it is.   openvino_npu_test.py SLM

SLM_NEED_OPENVINO_NPU=1 asks for the compiler's tests: `./dev openvino-npu` installs it, SLM_OPENVINO_NPU names its folder. Compiled
for devices that are not here: nothing runs, no number of the graphs is checked.
"""
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import ort_test

SLM = ""
SOURCE = pathlib.Path(os.environ.get("SLM_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
TINY = SOURCE / "tests/tiny/models"
PLATFORMS = ("3720", "4000", "5010")
SMALL = ("--chunk", 32, "--calib-seqs", 4, "--calib-tokens", 64)
COMPILER = pathlib.Path(os.environ.get("SLM_OPENVINO_NPU") or
                        pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "slmkit/openvino_npu")

# Prints what the real one prints, and does what the files beside it say.
STAND_IN = """#!/bin/sh
here=$(dirname "$0")
echo "npu_compile openvino: 1.2.3"
echo "npu_compile compiler: 4.5"
echo run >>"$here/runs"
[ ! -e "$here/does" ] || . "$here/does"
[ ! -e "$here/sleeps" ] || sleep 60
if [ -e "$here/says" ]; then cat "$here/says"; echo "npu_compile error compile: Exception from a.cpp:1: Compilation failed"; exit 1; fi
echo "[INFO] 00:00:00.000 [x]   Estimated inference latency: $(cat "$here/latency") us in dpu frequency 1850.00 MHz"
{ echo "$2"; head -c "$(cat "$here/bytes")" /dev/zero; } >"$3"
"""


def slm(*words, env=None):
    return subprocess.run([SLM, *map(str, words)], capture_output=True, text=True, timeout=280, env={**os.environ, **(env or {})})


def sha256(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


class Folder(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.d = pathlib.Path(self.temporary.name)
        self.cache = self.d / "cache"

    def tearDown(self):
        self.temporary.cleanup()

    def export(self, model, name, *words):
        r = slm("export", model, "--to", "qdq", "-o", self.d / name, *words)
        self.assertEqual(r.returncode, 0, r.stderr)
        return self.d / name

    def compiled(self, model, platform="4000", *words, code=0):
        r = slm("compile", model, "--target", f"openvino-npu-{platform}", "--cache", self.cache, "--json", *words)
        self.assertEqual(r.returncode, code, r.stderr)
        return json.loads(r.stdout.splitlines()[-1]), r.stderr


class WithAStandIn(Folder):
    def setUp(self):
        super().setUp()
        self.c = self.d / "compiler"
        self.c.mkdir()
        (self.c / "npu_compile").write_text(STAND_IN)
        (self.c / "npu_compile").chmod(0o755)
        self.will(latency=100, bytes=1000)
        self.folder = self.export(TINY / "qwen3.gguf", "graphs", "--weights", "f32", "--chunk", 32)

    def will(self, **files):
        for name, text in files.items():
            (self.c / name).write_text(str(text))

    def runs(self):
        runs = self.c / "runs"
        return len(runs.read_text().split()) if runs.exists() else 0

    def compiled(self, *words, code=0, model=None, platform="4000"):
        return super().compiled(model or self.folder, platform, "--compiler", self.c, *words, code=code)

    def test_kept_with_a_record(self):
        got, _ = self.compiled()
        self.assertEqual([(g["file"], g["tokens"]) for g in got["graphs"]], [("prefill.onnx", 32), ("decode.onnx", 1)])
        for g in got["graphs"]:
            self.assertEqual((g["bytes"], g["estimated_latency_us"], g["estimated_at_mhz"], g["cached"]), (1005, 100, 1850, False))
            self.assertEqual(pathlib.Path(g["blob"]).read_bytes(), b"4000\n" + bytes(1000))
            self.assertEqual((g["blob_sha256"], g["model_sha256"]), (sha256(g["blob"]), sha256(self.folder / g["file"])))
            record = json.loads((pathlib.Path(g["blob"]).parent / "record.json").read_text())
            self.assertEqual((record["platform"], record["compiler"]), ("4000", "OpenVINO 1.2.3, NPU compiler 4.5"))
            self.assertIn("nothing was measured", record["estimate"])
            self.assertEqual([d["sha256"] for d in record["data"]], [sha256(self.folder / "weights.bin")])
        again, _ = self.compiled()
        self.assertEqual(([g["cached"] for g in again["graphs"]], self.runs()), ([True, True], 2))
        self.compiled(platform="5010")
        self.assertEqual(self.runs(), 4)
        own = json.loads((self.folder / "compiled.json").read_text())
        self.assertEqual(sorted(own["targets"]), ["openvino-npu-4000", "openvino-npu-5010"])
        self.assertEqual([g["file"] for g in own["targets"]["openvino-npu-4000"]], ["prefill.onnx", "decode.onnx"])
        self.assertNotIn(str(self.d), (self.folder / "compiled.json").read_text())

    def test_a_damaged_blob_is_made_anew(self):
        got, _ = self.compiled(model=self.folder / "decode.onnx")
        blob = pathlib.Path(got["graphs"][0]["blob"])
        blob.write_bytes(b"5" + blob.read_bytes()[1:])
        got, _ = self.compiled(model=self.folder / "decode.onnx")
        self.assertIn("SHA-256 differs", got["graphs"][0]["made_anew"])
        self.assertEqual((got["graphs"][0]["blob"], blob.read_bytes()[:5]), (str(blob), b"4000\n"))
        self.assertFalse((self.folder / "compiled.json").exists())

    def compiled_afresh(self, *words, **more):
        self.cache = self.d / f"cache{self.runs()}"
        return self.compiled(*words, **more)

    def test_growth_is_a_gate(self):
        self.compiled()
        own, base = self.folder / "compiled.json", self.d / "base.json"
        first = own.read_text()
        self.will(latency=110)
        self.assertEqual(self.compiled_afresh()[0]["grown"], [])
        own.write_text(first)
        for grown in ({"latency": 111, "bytes": 1000}, {"latency": 90, "bytes": 1200}):
            self.will(**grown)
            got, said = self.compiled_afresh(code=3)
            self.assertEqual(len(got["grown"]), 2)
            self.assertIn("grew by more than 10 %: decode.onnx", said)
            self.assertEqual(own.read_text(), first)
        base.write_text(first)
        self.compiled_afresh("--accept-growth")
        self.assertEqual([g["bytes"] for g in json.loads(own.read_text())["targets"]["openvino-npu-4000"]], [1205, 1205])
        self.compiled_afresh()
        self.assertEqual(len(self.compiled("--against", base, code=3)[0]["grown"]), 2)
        self.assertEqual(len(self.compiled("--against", base, model=self.folder / "decode.onnx", code=3)[0]["grown"]), 1)

    def test_messages_name_our_nodes(self):
        self.will(says='[ERROR] 00:00:00.000 [vpux-compiler] ConvertEltwiseToInPlace Pass failed : loc(fused<{}>["layers.1.attn_add", "x"])\n')
        error, said = self.compiled(model=self.folder / "prefill.onnx", code=1)
        self.assertEqual(error["error"]["code"], "unsupported")
        self.assertIn("at layers.1.attn_add (Add): the compiler for NPU 4000 says: [vpux-compiler] ConvertEltwiseToInPlace Pass failed", said)
        self.assertIn("slm check", said)
        log = list(self.cache.glob("*.failed.log"))
        self.assertEqual(len(log), 1)
        self.assertIn("ConvertEltwiseToInPlace", log[0].read_text())
        m = json.loads((self.folder / "manifest.json").read_text())
        m["graphs"].reverse()  # decode first
        (self.folder / "manifest.json").write_text(json.dumps(m))
        self.assertIn("--decode-tokens 4", self.compiled(code=1)[1])

    def test_every_refused_graph_is_reported(self):
        (self.c / "npu_compile").write_text(STAND_IN.replace('if [ -e "$here/says" ]', 'if [ "${1##*/}" = prefill.onnx ]'))
        (self.c / "says").write_text("[ERROR] 00:00:00.000 [vpux-compiler] a pass failed\n")
        got, said = self.compiled(code=1)
        self.assertEqual([(g["file"], "error" in g) for g in got["graphs"]], [("decode.onnx", False), ("prefill.onnx", True)])
        self.assertIn("prefill.onnx: the compiler for NPU 4000 says: [vpux-compiler] a pass failed", said)
        own = json.loads((self.folder / "compiled.json").read_text())
        self.assertEqual([row["file"] for row in own["targets"]["openvino-npu-4000"]], ["decode.onnx"])

    def test_another_run_meanwhile(self):
        """What it lists in compiled.json stays; a graph that it is compiling is an error that says what to do, one that it has made is used."""
        got, _ = self.compiled(platform="5010")
        own = self.folder / "compiled.json"
        theirs, lists = self.d / "theirs.json", json.loads(own.read_text())
        lists["targets"]["openvino-npu-3720"] = lists["targets"].pop("openvino-npu-5010")
        theirs.write_text(json.dumps(lists))
        self.will(does=f"cp {theirs} {own}")
        self.compiled()
        self.assertEqual(sorted(json.loads(own.read_text())["targets"]), ["openvino-npu-3720", "openvino-npu-4000"])
        blob = pathlib.Path(got["graphs"][0]["blob"]).parent
        blob.rename(self.d / "made")
        part = blob.with_name(blob.name + ".part")
        part.mkdir()
        with open(part / ".slmkit.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            error, _ = self.compiled(platform="5010", code=1)
        self.assertEqual((error["error"]["code"], error["error"]["hint"]), ("unavailable", "wait for it, or choose another folder"))
        shutil.rmtree(part)
        self.will(does=f"cp -r {self.d}/made {blob}")
        n = self.runs()
        got, _ = self.compiled(platform="5010")
        self.assertEqual(([g["cached"] for g in got["graphs"]], self.runs()), ([True, True], n + 1))

    def test_a_limit_of_time(self):
        self.will(sleeps=1)
        error, _ = self.compiled("--limit", 1, code=3)
        self.assertEqual(error["error"]["code"], "limit")
        self.assertIn("ran for more than 1 s", error["error"]["message"])

    def test_a_compiler_that_writes_nothing(self):
        (self.c / "npu_compile").write_text("#!/bin/sh\nexit 0\n")
        self.assertIn("wrote no blob", self.compiled(code=1)[0]["error"]["message"])
        (self.c / "npu_compile").write_text("#!/bin/sh\nkill -9 $$\n")
        self.assertIn("exit code 137", self.compiled(code=1)[0]["error"]["message"])

    def test_refusals(self):
        def refused(code, says, *words):
            r = slm("compile", *words)
            self.assertEqual(r.returncode, code, r.stderr)
            self.assertIn(says, r.stderr)
        there = ("--compiler", self.c)
        refused(1, "./dev openvino-npu", self.folder, "--target", "openvino-npu-4000", "--compiler", self.d / "nowhere")
        refused(2, "openvino-npu-5010", self.folder, "--target", "openvino-npu-9", *there)
        refused(2, "--device", self.folder, "--target", "qnn-htp-v73", *there)
        refused(2, "--device or --target", self.folder)
        refused(2, "--device or --target", self.folder, "--target", "openvino-npu-4000", "--device", "npu")
        refused(2, "slm export MODEL --to qdq", TINY, "--target", "openvino-npu-4000", *there)
        refused(1, "--against", self.folder, "--target", "openvino-npu-4000", "--against", self.d / "none.json", *there)
        (self.folder / "compiled.json").write_text("{}")
        refused(1, "not a record of compiled graphs", self.folder, "--target", "openvino-npu-4000", *there)
        (self.folder / "manifest.json").write_text(json.dumps({"format": "slmkit-static", "graphs": [{"file": "../x.onnx", "tokens": 1}]}))
        refused(1, "../x.onnx", self.folder, "--target", "openvino-npu-4000", *there)
        self.assertEqual(self.runs(), 0)


class WithTheCompiler(Folder):
    @classmethod
    def setUpClass(cls):
        if not os.environ.get("SLM_NEED_OPENVINO_NPU"):
            raise unittest.SkipTest("minutes under Wine: SLM_NEED_OPENVINO_NPU=1, or .ci/run openvino_npu")
        assert (COMPILER / "npu_compile").exists(), "OpenVINO's compiler is not here: ./dev openvino-npu installs it"

    def check(self, folder, platform):
        got, _ = self.compiled(folder, platform)
        self.assertEqual(len(got["graphs"]), 2)
        for g in got["graphs"]:
            self.assertGreater(g["bytes"], 10000)
            self.assertGreater(g["estimated_latency_us"], 1)
            self.assertTrue(g["compiler"].startswith("OpenVINO 20"), g["compiler"])
            self.assertEqual(pathlib.Path(g["blob"]).read_bytes()[:4], b"\x7fELF")

    def test_every_platform(self):
        ort_test.write_model(self.d / "model")
        for weights, platforms, words in (("w8", PLATFORMS, ("--key-rotation", "columns")), ("w4-channel", PLATFORMS[1:], ())):
            folder = self.export(self.d / "model", weights, "--weights", weights, *SMALL, *words)
            for platform in platforms:
                with self.subTest((weights, platform)):
                    self.check(folder, platform)

    def test_the_second_decode_form(self):
        folder = self.export(TINY / "llama.gguf", "four", "--weights", "f32", "--chunk", 32, "--decode-tokens", 4)
        self.check(folder, "4000")

    def test_graphs_that_it_refuses(self):
        """A failure of its own, with the form that it takes; and open dimensions: NPUs have none."""
        folder = self.export(TINY / "llama.gguf", "rows", "--weights", "f32", "--chunk", 32)
        got, said = self.compiled(folder, "3720", code=1)
        errors = {g["file"]: g["error"]["message"] for g in got["graphs"] if "error" in g}
        self.assertIn("UnrollPermuteDMA Pass failed", errors["prefill.onnx"])
        self.assertIn("--key-rotation columns", said)
        error, said = self.compiled(TINY / "genai_qwen3/model.onnx", code=1)
        self.assertEqual(error["error"]["code"], "unsupported", said)
        self.assertIn("the compiler for NPU 4000 says: ", said)


if __name__ == "__main__":
    SLM = ort_test.SLM = sys.argv.pop(1)
    unittest.main()
