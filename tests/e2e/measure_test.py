"""slm bench and slm devices --probe: every field of their JSON is there and is a possible number.   measure_test.py SLM"""
import json
import os
import pathlib
import subprocess
import sys
import unittest

SLM = ""
SOURCE = pathlib.Path(os.environ.get("SLM_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
MODEL = SOURCE / "tests/tiny/models/llama.gguf"


def slm(*words):
    run = subprocess.run([SLM, *map(str, words), "--json"], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


class Measure(unittest.TestCase):
    def test_probe(self):
        run = subprocess.run([SLM, "devices", "--probe", "--threads", "1,2", "--json"], capture_output=True, text=True, timeout=120)
        if run.returncode == 3:
            self.skipTest("not enough memory to measure it: " + run.stderr.strip())
        self.assertEqual(run.returncode, 0, run.stderr)
        document = json.loads(run.stdout)
        tiers = {"avx2", "avxvnni", "avx512vnni", "avx512bf16", "amx", "neon_dotprod", "neon_i8mm"}
        self.assertEqual([r["threads"] for r in document["roofline"]], [1, 2])
        for r in document["roofline"]:
            self.assertGreaterEqual(r["memory_buffer_bytes"], 512 << 20)
            self.assertTrue(0.1 < r["memory_gbps"] < 5000, r)
            self.assertTrue(r["cache_gbps"] is None or 0.1 < r["cache_gbps"] < 50000, r)
            self.assertLessEqual(set(r["int8_gops"]), tiers)
            for gops in r["int8_gops"].values():
                self.assertTrue(0.1 < gops < 1e6, r)
        here = document["backends"][0]
        if here["isa_best"] in tiers:
            best = {"avx512bf16": "avx512vnni"}.get(here["isa_best"], here["isa_best"])  # its integer products are those
            self.assertIn(best, document["roofline"][0]["int8_gops"])

    def test_probe_is_asked_for(self):
        document, = slm("devices")
        self.assertNotIn("roofline", document)
        run = subprocess.run([SLM, "devices", "--threads", "1"], capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("--probe", run.stderr)

    def test_bench_with_and_without_warm_up(self):
        for more in ([], ["--no-warmup"]):
            records = slm("bench", MODEL, "--pp", "16", "--ttft", "8", "--tg", "4", "--depth", "0,8", "-r", "2", "-t", "1", *more)
            self.assertEqual([r["test"] for r in records], ["pp16", "ttft8", "tg4", "tg4 @d8"])
            for r in records:
                self.assertGreater(r["tps"]["median"], 0)
                self.assertEqual(r["repetitions"], 2)


if __name__ == "__main__":
    SLM = sys.argv.pop(1)
    unittest.main()
