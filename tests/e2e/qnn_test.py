#!/usr/bin/env python3
"""Folders of slm export --to qdq in Qualcomm's compiler and its HTP simulator: all nodes there, the CPU's logits, context binaries.

qnn_test.py SLM. Needs what tools/requirements-qnn.txt pins; skipped without it, a failure with SLM_NEED_QNN=1. Compiled and simulated:
nothing here says what a device does, or how fast.
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
TINY = SOURCE / "tests/tiny/models"
SOCS = (43, 57, 60, 69, 87)  # Hexagon V73, V75, V73, V79, V81
BEGIN = 262
PROMPT = [BEGIN] + [(37 * i) % 199 + 1 for i in range(40)]  # a whole chunk, a part of one, and a token


def worker(folder, soc):
    """In a process of its own: prints what was found as JSON."""
    folder, soc = pathlib.Path(folder), int(soc)
    htp = Htp(soc)
    cpu, direct = Host(folder), Host(folder, htp.session)
    want = cpu.feed(cpu.begin(PROMPT))
    found = {"placed": htp.placed[:], "rms": relative_rms(direct.feed(direct.begin(PROMPT)), want)}
    with tempfile.TemporaryDirectory() as d:
        d = pathlib.Path(d)
        names = {}
        for g in direct.m["graphs"]:
            names[g["file"]] = d / ("soc_" + g["file"])
            htp.session(folder / g["file"], names[g["file"]])
        found["binaries"] = sorted(p.name for p in d.glob("*.bin") if p.stat().st_size > 10000)
        again = Host(folder, htp.session, names)
        found["reloaded_rms"] = relative_rms(again.feed(again.begin(PROMPT)), want)
    print("FOUND", json.dumps(found))


class Qnn(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folders = {}
        for weights in ("w8", "w4-g32", "w4-channel"):
            out = pathlib.Path(cls.temporary.name) / weights
            subprocess.run([SLM, "export", TINY / "llama.gguf", "--to", "qdq", "--weights", weights, "-o", out, "--chunk", "32",
                            "--calib-seqs", "8", "--calib-tokens", "64"], check=True, capture_output=True, timeout=200)
            cls.folders[weights] = out

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def found(self, weights, soc):
        r = subprocess.run([sys.executable, __file__, "--worker", self.folders[weights], str(soc)], capture_output=True, text=True, timeout=600)
        lines = [line for line in r.stdout.splitlines() if line.startswith("FOUND ")]
        self.assertEqual(len(lines), 1, r.stdout + r.stderr)
        return json.loads(lines[0][6:])

    def check(self, weights, soc):
        found = self.found(weights, soc)
        for placed in found["placed"]:
            self.assertEqual(list(placed), ["QNNExecutionProvider"])
            self.assertGreater(sum(placed.values()), 200)
        self.assertLess(found["rms"], 0.02)
        self.assertEqual(len(found["binaries"]), 2)
        self.assertLess(found["reloaded_rms"], 0.02)

    def test_every_soc(self):
        for soc in SOCS:
            with self.subTest(soc):
                self.check("w4-g32", soc)

    def test_every_kind_of_weights(self):
        for weights in ("w8", "w4-channel"):
            with self.subTest(weights):
                self.check(weights, 60)


if __name__ == "__main__":
    missing = [m for m in ("numpy", "onnx", "onnxruntime", "onnxruntime_qnn") if importlib.util.find_spec(m) is None]
    if missing:
        print("needs", *missing, "(pip install -r tools/requirements-qnn.txt)", file=sys.stderr)
        sys.exit(1 if os.environ.get("SLM_NEED_QNN") else 77)
    from htp import Htp, relative_rms
    from static_folder import Host
    if sys.argv[1] == "--worker":
        worker(*sys.argv[2:])
    else:
        SLM = sys.argv.pop(1)
        unittest.main()
