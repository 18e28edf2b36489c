#!/usr/bin/env python3
"""Kills slm quantize at 20 random moments of a run of some seconds (the demo model, quantized again); see gate_test.py.

First argument: the executable.
"""
import json
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import gate_test  # noqa: E402


class Resume(gate_test.Resume):
    KILLS = 20
    WORDS = ("--type", "q5_0", "--requantize", "--no-gate")

    @classmethod
    def setUpClass(cls):
        fetched = subprocess.run([gate_test.SLM, "fetch", "smollm2-135m-instruct", "--json"], capture_output=True, text=True, check=True)
        cls.MODEL = json.loads(fetched.stdout.splitlines()[-1])["path"]


if __name__ == "__main__":
    gate_test.SLM = sys.argv.pop(1)
    unittest.main(argv=sys.argv[:1])
