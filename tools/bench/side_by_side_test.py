"""The whole comparison against stand-ins whose speeds are known: interleaving, ratios, roofline shares, failures, JSON and chart."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

import side_by_side

PROGRAM = """#!{python}
import json, os, sys, time
a = sys.argv[1:]
with open({log!r}, "a") as f:
    f.write(json.dumps([os.path.basename(sys.argv[0]), *a]) + "\\n")
def say(**record):
    print(json.dumps(record))
if {broken!r} and "m2" in " ".join(a) and "llama" in sys.argv[0]:
    sys.exit("no such architecture: m2")
if a[0] == "devices" and "--probe" not in a:
    say(backends=[dict(device="Test CPU", features=["avx2", "fma"], isa="avx2")])
elif a[0] == "devices":
    say(roofline=[dict(threads=1, memory_gbps=20.0, cache_gbps=90.0, memory_buffer_bytes=1 << 30, cache_buffer_bytes=1 << 24,
                       int8_gops=dict(avx2=500.0, avx512vnni=2000.0))])
elif a[0] == "export":
    open(a[a.index("-o") + 1], "w").close()
elif a[0] == "bench":
    fast = dict(median=300.0, min=300.0, max=300.0)
    if a[a.index("--pp") + 1] != "0":
        say(test="pp512", depth=0, tps=fast, ms=fast, gops=400.0, gbps=None)
    if a[a.index("--ttft") + 1] != "0":
        say(test="ttft32", depth=0, tps=fast, ms=dict(median=20.0), gops=None, gbps=None)
    if a[a.index("--tg") + 1] != "0":
        for depth, tps in ((0, 150.0), (1024, 100.0)):
            say(test="tg128", depth=depth, tps=dict(median=tps), ms=fast, gops=None, gbps=15.0, bytes_per_token=100000000, isa="avx2")
else:
    if "-d" in a:
        say(n_prompt=0, n_gen=128, n_depth=1024, avg_ts=50.0, avg_ns=1, build_commit="abc")
    else:
        say(n_prompt=512, n_gen=0, n_depth=0, avg_ts=200.0, avg_ns=1, build_commit="abc")
        say(n_prompt=32, n_gen=0, n_depth=0, avg_ts=1.0, avg_ns=50000000, build_commit="abc")
        say(n_prompt=0, n_gen=128, n_depth=0, avg_ts=200.0, avg_ns=1, build_commit="abc")
"""


class SideBySide(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.log = self.folder / "log"

    def program(self, path, broken=False, text=PROGRAM):
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(python=sys.executable, log=str(self.log), broken=broken))
        path.chmod(0o755)
        return path

    def run_it(self, *more, models=("m1.gguf",), env=None):
        out, svg = self.folder / "out.json", self.folder / "out.svg"
        run = subprocess.run([sys.executable, side_by_side.__file__, "--slm", self.folder / "slm", "--peers", self.folder / "peers",
                              "--json", out, "--svg", svg, *more, *models],
                             capture_output=True, text=True, check=False, env={**os.environ, **(env or {})})
        return run, json.loads(out.read_text()) if out.exists() else None, svg.read_text() if svg.exists() else None

    def test_the_whole(self):
        self.program("slm")
        self.program("peers/llama.cpp/bin/llama-bench")
        run, raw, svg = self.run_it("-r", "3", "-t", "2")
        self.assertEqual(run.returncode, 0, run.stderr)
        group = raw["summary"][0]
        self.assertEqual((group["model"], group["threads"], group["rounds"]), ("m1.gguf", 2, 3))
        ratios = group["ratios"]["llama.cpp"]  # above 1 is better for speeds and for times
        for key, expected in (("pp512", 1.5), ("ttft32_ms", 2.5), ("tg128", 0.75), ("tg128_d1024", 2.0)):
            self.assertAlmostEqual(ratios[key], expected, msg=key)
        self.assertEqual(group["best_peer"]["pp512"], {"engine": "llama.cpp", "ratio": 1.5})
        self.assertGreater(group["engines"]["slm"]["first_ms"]["median"], 0)
        package = {k: v for k, v in group["engines"]["slm package"].items() if v}
        self.assertEqual(list(package), ["first_ms"])  # only the start is another one
        start = group["package_best_peer"]["first_ms"]
        self.assertEqual(start["engine"], "llama.cpp")
        pairs = [(r["values"]["llama.cpp"]["first_ms"], r["values"]["slm package"]["first_ms"]) for r in raw["rounds"]]
        self.assertAlmostEqual(start["ratio"], sorted(theirs / ours for theirs, ours in pairs)[1])
        self.assertGreater(group["engines"]["llama.cpp"]["rss_mib"]["median"], 1)
        roof = group["roofline"]
        self.assertEqual((roof["ceiling"], roof["gbps_share"]), ("memory_gbps", 0.75))
        self.assertEqual((roof["int8_isa"], roof["gops_share"]), ("avx512vnni", 0.2))
        self.assertEqual(raw["versions"]["llama.cpp"], "abc")
        self.assertIn("15.0 GB/s = 75% of 20.0 GB/s read from memory", run.stdout)
        self.assertIn("400 GOP/s = 20% of 2000 GOP/s", run.stdout)
        self.assertIn("1.50 x", run.stdout)
        self.assertLessEqual(max(map(len, run.stdout.splitlines())), 120)
        self.check_turns()
        ElementTree.fromstring(svg)
        self.assertEqual(svg.count("<rect"), 1 + 2 * 6 + 1)  # the ground, a bar for each engine and figure, one for the package's start

    def check_turns(self):
        """The roofline first in every round; who runs first alternates."""
        calls = [json.loads(line) for line in self.log.read_text().splitlines()]
        calls = [c for c in calls if "export" not in c and ("devices" not in c or "--probe" in c)]
        turns = ["probe" if "--probe" in c else "package" if c[2].endswith(".slm") else c[0] for c in calls]
        turns = [t for i, t in enumerate(turns) if i == 0 or turns[i - 1] != t]
        self.assertEqual(turns, ["probe", "slm", "package", "llama-bench", "probe", "package", "llama-bench", "slm",
                                 "probe", "llama-bench", "slm", "package"])

    def test_a_forced_tier_is_held_against_its_own_peak(self):
        self.program("slm")
        _, raw, _ = self.run_it("-r", "1", "-t", "1", env={"SLM_FORCE_ISA": "avx2"})
        self.assertEqual(raw["summary"][0]["roofline"]["gops_share"], 0.8)

    def test_a_peer_that_cannot_is_named_with_its_reason(self):
        self.program("slm")
        self.program("peers/llama-bench", broken=True)
        run, raw, _ = self.run_it("-r", "2", "-t", "1", models=("m1.gguf", "m2.gguf"))
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual([sorted(g["engines"]) for g in raw["summary"]], [["llama.cpp", "slm", "slm package"], ["slm", "slm package"]])
        self.assertIn("llama.cpp: no such architecture: m2", run.stdout)

    def test_without_peers(self):
        self.program("slm")
        run, raw, _ = self.run_it("-r", "1", "-t", "1")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(raw["summary"][0]["ratios"], {})
        self.assertIn("no peer found", run.stderr)

    def test_slm_that_fails_fails_the_run(self):
        self.program("slm", text="#!{python}\nimport sys\nsys.exit('broken on purpose {log} {broken}')\n")
        run, raw, _ = self.run_it("-r", "1", "-t", "1")
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("broken on purpose", run.stderr)
        self.assertIsNone(raw)

    def test_a_program_that_hangs_is_stopped(self):
        self.program("slm")
        self.program("peers/llama-bench", text="#!{python}\nimport time\ntime.sleep(60)  # {log} {broken}\n")
        run, _, _ = self.run_it("-r", "1", "-t", "1", "--timeout", "1")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("no end after 1 s", run.stdout)


if __name__ == "__main__":
    unittest.main()
