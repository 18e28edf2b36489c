#!/usr/bin/env python3
"""The demo model as static graphs: what 8 and 4 bits lose against float over more than 1024 tokens, and one window in Qualcomm's simulator.

qdq_slow_test.py SLM. The text is this repository's own documentation, so that nothing but the model has to be fetched. Needs onnxruntime,
onnx and numpy, for the simulator onnxruntime_qnn; skipped without, a failure with SLM_NEED_QNN=1. Takes about 4 GB.
"""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SLM = ""
SOURCE = pathlib.Path(os.environ.get("SLM_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
PAGES = ("ARCHITECTURE.md", "STYLE.md", "CONTRIBUTING.md", "docs/text.md", "docs/graph.md", "docs/formats.md")
WINDOWS, LENGTH = 9, 128
MOST = {"w8": 0.015, "w4-g32": 0.13}


def slm(*words, text=None):
    return subprocess.run([SLM, *map(str, words), "--json"], input=text, capture_output=True, text=True, check=True).stdout


class Whole(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.d = pathlib.Path(cls.folder.name)
        cls.model = json.loads(slm("fetch", "smollm2-135m-instruct").splitlines()[-1])["path"]
        for weights in ("f32", *MOST):
            calibration = () if weights == "f32" else ("--calib-seqs", 16, "--calib-tokens", 256)
            slm("export", cls.model, "--to", "qdq", "--weights", weights, "--ctx", 256, "-o", cls.d / weights, *calibration)
        begin = json.loads((cls.d / "w8/manifest.json").read_text())["prefix"]["tokens"]
        text = "".join((SOURCE / page).read_text(encoding="utf-8") for page in PAGES)
        ids = [i for i in json.loads(slm("tokenize", cls.model, "--no-special", text=text))["ids"] if i not in begin]
        rest = LENGTH - len(begin)
        cls.windows = [begin + ids[i * rest:(i + 1) * rest] for i in range(WINDOWS)]
        cls.float = cls.logits("f32")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def logits(cls, weights, session=None, n=WINDOWS):
        host = Host(cls.d / weights, session or cpu_session)
        return [host.feed(host.begin(w)) for w in cls.windows[:n]]

    def test_divergence_from_float(self):
        for weights, most in MOST.items():
            with self.subTest(weights):
                got = self.logits(weights)
                tokens = sum(len(g) for g in got)
                self.assertGreaterEqual(tokens, 1024)
                kld = sum(divergence(f[-len(g):], g) * len(g) for f, g in zip(self.float, got)) / tokens
                print(weights, "KLD", kld, file=sys.stderr)
                self.assertLess(kld, most)

    def test_simulator(self):
        if importlib.util.find_spec("onnxruntime_qnn") is None:
            self.skipTest("needs onnxruntime_qnn")
        htp = Htp()
        for weights in MOST:
            with self.subTest(weights):
                want, got = self.logits(weights, n=1)[0], self.logits(weights, htp.session, 1)[0]
                self.assertTrue(all(list(placed) == ["QNNExecutionProvider"] for placed in htp.placed), htp.placed)
                self.assertLess(relative_rms(got, want), 0.03)
                self.assertGreaterEqual((got.argmax(-1) == want.argmax(-1)).mean(), 0.96)


if __name__ == "__main__":
    needs = ["numpy", "onnx", "onnxruntime"] + (["onnxruntime_qnn"] if os.environ.get("SLM_NEED_QNN") else [])
    missing = [m for m in needs if importlib.util.find_spec(m) is None]
    if missing:
        print("needs", *missing, "(pip install -r tools/requirements-qnn.txt)", file=sys.stderr)
        sys.exit(1 if os.environ.get("SLM_NEED_QNN") else 77)
    from htp import Htp, relative_rms
    from static_folder import Host, cpu_session, divergence
    SLM = sys.argv.pop(1)
    unittest.main()
