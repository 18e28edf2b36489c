"""slm quantize: the gate, the mark in the file, the report, and going on after a kill.   gate_test.py SLM"""
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SLM = ""
SOURCE = pathlib.Path(os.environ.get("SLM_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
MODEL = SOURCE / "tests/tiny/models/llama.gguf"
KEY = b"slmkit.gate"


def slm(*words):
    return subprocess.run([SLM, *map(str, words)], capture_output=True, text=True, timeout=120)


def mark_of(path):
    """The text under the key, None without it."""
    data = path.read_bytes()
    at = data.find(KEY)
    if at < 0:
        return None
    at += len(KEY) + 4  # the type
    n = int.from_bytes(data[at:at + 8], "little")
    return data[at + 8:at + 8 + n].decode()


class Gate(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.d = pathlib.Path(self.folder.name)
        self.out = self.d / "out.gguf"

    def tearDown(self):
        self.folder.cleanup()

    def quantize(self, *words, code=0):
        r = slm("quantize", MODEL, "-o", self.out, "--type", "q4_0", *words, "--json")
        self.assertEqual(r.returncode, code, r.stderr)
        self.assertEqual(sorted(p.name for p in self.d.glob("*.part*")), [], "work files are gone")
        return json.loads(r.stdout)

    def test_measured_without_a_budget(self):
        gate = self.quantize()["gate"]
        self.assertGreater(gate["kld"]["mean"], 0)
        self.assertGreater(gate["kld"]["sigma"], 0)
        self.assertTrue(0 < gate["top1"] < 1)
        self.assertEqual((gate["passed"], gate["max_kld"], gate["text"], gate["ctx"]), (None, None, "built-in", 63))
        self.assertIsNone(mark_of(self.out))
        # The same figures by the verb that measures, on the same text.
        text = self.d / "text"
        text.write_text("the cat in an oven " * 60, encoding="utf-8")
        gate = self.quantize("--gate-text", text)["gate"]
        self.assertEqual((gate["text"], gate["text_sha256"]), (str(text), hashlib.sha256(text.read_bytes()).hexdigest()))
        bos = "never" if gate["bos"] is None else "always"
        r = slm("eval", self.out, "kld", "--base", MODEL, "--text", text, "--window", gate["ctx"], "--windows", 2048 // gate["ctx"], "--bos", bos, "--json")
        self.assertEqual(r.returncode, 0, r.stderr)
        for key in ("kld", "top1", "dlnppl", "tokens", "windows"):
            self.assertEqual(json.loads(r.stdout)[key], gate[key], key)

    def test_a_budget_marks_the_file(self):
        plain = self.quantize()
        mean = plain["gate"]["kld"]["mean"]
        passed = self.quantize("--max-kld", mean * 1.01)
        self.assertTrue(passed["gate"]["passed"])
        self.assertRegex(mark_of(self.out), r"^passed: mean KLD \S+ \+- \S+ of at most ")
        good = self.out.read_bytes()
        missed = self.quantize("--max-kld", mean * 0.99, code=3)
        self.assertFalse(missed["gate"]["passed"])
        self.assertEqual(missed["gate"]["kld"], passed["gate"]["kld"])
        self.assertRegex(mark_of(self.out), r"^missed: ")
        self.assertEqual(len(self.out.read_bytes()), len(good))
        self.assertEqual(slm("run", self.out, "--raw", "-p", "the cat", "-n", 4).returncode, 0)
        again = self.out.read_bytes()
        self.quantize("--max-kld", mean * 0.99, "-t", 1, code=3)
        self.assertEqual(self.out.read_bytes(), again, "the same bytes for any threads, the mark included")

    def test_without_the_gate(self):
        self.assertIsNone(self.quantize("--no-gate")["gate"])
        first = self.out.read_bytes()
        self.quantize()
        self.assertEqual(self.out.read_bytes(), first, "measuring changes no byte")

    def test_refusals(self):
        def refused(code, *words, says):
            r = slm("quantize", MODEL, "-o", self.out, *words)
            self.assertEqual(r.returncode, code, r.stderr)
            self.assertIn(says, r.stderr)
            self.assertFalse(self.out.exists())
        refused(2, "--no-gate", "--max-kld", "1", says="--no-gate")
        refused(2, "--max-kld", "-1", says="not a number from 0 on")
        refused(1, "--gate-text", self.d / "none", says="none")
        refused(2, "--report", MODEL, says="a file of the model itself")
        refused(2, "--report", self.d / "none/page.html", says="no folder")
        same = self.d / "same"
        same.write_text("the cat sat in an oven " * 200, encoding="utf-8")
        refused(2, "--recipe", "default", "--calib", same, "--calib-seqs", 2, "--gate-text", same, says="is the text of calibration")
        short = self.d / "short"
        short.write_text("the cat", encoding="utf-8")
        for words in ((), ("--max-kld", "1"), ("--recipe", "default")):
            refused(2, *words, "--gate-text", short, says="one window takes")
            self.assertEqual([p.name for p in self.d.glob("*.part*")], [], "found out before the work starts")
        r = slm("quantize", MODEL, "-o", "/dev/null", "--max-kld", "1")
        self.assertEqual(r.returncode, 2, r.stderr)

    def test_work_outlives_a_gate_that_cannot_judge(self):
        # A context of 2 tokens: every tensor can be written, and no window be judged.
        model, data = self.d / "model.gguf", bytearray(MODEL.read_bytes())
        key = b"llama.context_length"
        at = data.index(key) + len(key)
        self.assertEqual(int.from_bytes(data[at:at + 4], "little"), 4, "a uint32 follows")
        data[at + 4:at + 8] = (2).to_bytes(4, "little")
        model.write_bytes(data)
        for again in (False, True):
            r = slm("quantize", model, "-o", self.out, "--max-kld", "1")
            self.assertEqual(r.returncode, 2, r.stderr)
            self.assertIn("the gate", r.stderr)
            self.assertFalse(self.out.exists())
            self.assertTrue((self.d / "out.gguf.part").exists())
            self.assertEqual("tensors are there from an earlier run" in r.stderr, again, r.stderr)

    def test_memory_is_for_both(self):
        r = slm("quantize", MODEL, "-o", self.out, "--mem", "1M")
        self.assertEqual(r.returncode, 3, r.stderr)
        resident = int(re.search(r"\((\d+) of them are resident now\)", r.stderr).group(1))  # with a sanitizer far more than without
        gate = self.quantize("--mem", str(resident + (60 << 20)))
        self.assertIsNotNone(gate["gate"])

    def test_report(self):
        page = self.d / "report.html"
        first = self.quantize("--report", page)
        text = page.read_text(encoding="utf-8")
        for part in (hashlib.sha256(MODEL.read_bytes()).hexdigest(), hashlib.sha256(self.out.read_bytes()).hexdigest(), first["gate"]["text_sha256"],
                     "blk.0.ffn_down.weight", f"{first['gate']['kld']['mean']:.6f}", "&quot;recipe&quot;: &quot;fast&quot;"):
            self.assertIn(part, text)
        self.assertNotRegex(text, r"(src|href)=")
        points = lambda: json.loads(re.search(r'id="slm-report">(.*?)</script>', page.read_text(encoding="utf-8")).group(1))["points"]
        self.assertEqual([p["label"] for p in points()], ["fast q4_0"])
        r = slm("quantize", MODEL, "-o", self.d / "b.gguf", "--type", "q8_0", "--report", page)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual([p["label"] for p in points()], ["fast q4_0", "fast q8_0"])
        self.assertLess(points()[1]["kld"], points()[0]["kld"])
        r = slm("quantize", MODEL, "-o", self.d / "c.gguf", *Smallest.WORDS, "--body-bpw", 7, "--report", page)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertRegex(points()[2]["label"], r"^default 6\.\d\d bits$|^default 7\.00 bits$")
        for part in ("Types by sensitivity", "expected KLD"):
            self.assertIn(part, page.read_text(encoding="utf-8"))


class Smallest(unittest.TestCase):
    """--max-kld under a calibrated recipe, without types: the smallest file that is expected to keep to it."""
    WORDS = ("--recipe", "default", "--calib-seqs", 8, "--calib-tokens", 64)

    def quantize(self, out, kld, *words):
        r = slm("quantize", MODEL, "-o", out, *self.WORDS, "--max-kld", kld, *words, "--json")
        return r.returncode, json.loads(r.stdout) if r.stdout else r.stderr

    def test_sizes_follow_the_budget(self):
        with tempfile.TemporaryDirectory() as folder:
            out, sizes = pathlib.Path(folder) / "out.gguf", []
            for kld in (0.1, 0.05, 0.02, 0.005):
                code, j = self.quantize(out, kld)
                self.assertEqual(code, 0, j)
                self.assertLessEqual(j["gate"]["kld"]["mean"], kld)
                self.assertEqual(j["bytes"], out.stat().st_size)
                self.assertRegex(mark_of(out), "^passed: ")
                tries = j["allocation"]["tries"]
                self.assertEqual(tries[-1]["measured"], j["gate"]["kld"]["mean"])
                self.assertEqual(len([n for n in j["notes"] if n.startswith("try ")]), len(tries))
                sizes.append(j["bytes"])
            self.assertEqual(sizes, sorted(sizes))
            self.assertLess(sizes[0], sizes[-1])

    def test_what_is_missed_is_tried_again_with_more_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out.gguf"
            text = pathlib.Path(folder) / "text"
            text.write_text("zebra QUARTZ 0123456789 ~~~ \u00e9\u00e8 {}[]<> " * 60, encoding="utf-8")
            several = []
            for kld in (0.004, 0.006, 0.008, 0.011, 0.015, 0.02):
                code, j = self.quantize(out, kld, "--gate-text", text)
                tries = j["allocation"]["tries"]
                self.assertLessEqual(len(tries), 4)
                for before, after in zip(tries, tries[1:]):
                    self.assertGreater(before["measured"], kld)
                    self.assertGreater(after["bytes"], before["bytes"])
                self.assertEqual(code, 0 if tries[-1]["measured"] <= kld else 3)
                self.assertEqual(sorted(p.name for p in out.parent.iterdir()), ["out.gguf", "text"])
                several.append((len(tries), code))
            self.assertTrue(any(n > 1 for n, _ in several), several)
            again = out.read_bytes()
            self.quantize(out, kld, "--gate-text", text, "-t", 1)
            self.assertEqual(out.read_bytes(), again, "any number of threads")

    def test_what_nothing_meets(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out.gguf"
            code, j = self.quantize(out, 1e-7)
            self.assertEqual(code, 3)
            self.assertEqual(set(j["allocation"]["types"]), {"f16", "q8_0"})
            self.assertEqual((len(j["allocation"]["tries"]), j["gate"]["passed"]), (1, False))
            self.assertTrue(any("nothing loses less" in n and f"{j['gate']['kld']['mean']:.6f}" in n for n in j["notes"]), j["notes"])
            self.assertRegex(mark_of(out), "^missed: ")

    def test_with_a_type_it_only_judges(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out.gguf"
            code, j = self.quantize(out, 1e-7, "--type", "q4_0")
            self.assertEqual((code, j["allocation"], j["type"]), (3, None, "q4_0"))
            code, j = self.quantize(out, 1e-7, "--body-bpw", 7)
            self.assertEqual((code, len(j["allocation"]["tries"])), (3, 1))


class Resume(unittest.TestCase):
    """SIGKILL at random moments; the same command again gives the file that an undisturbed run gives."""
    MODEL = MODEL
    KILLS = 5
    WORDS = ("--type", "q4_k", "--max-kld", "100", "--gate-text", SOURCE / "tests/e2e/gate_test.py")

    def test_same_bytes_after_a_kill(self):
        seed = random.randrange(1 << 30)
        rng = random.Random(seed)
        with tempfile.TemporaryDirectory() as folder:
            d = pathlib.Path(folder)
            start = time.monotonic()
            self.assertIn(slm("quantize", self.MODEL, "-o", d / "whole", *self.WORDS).returncode, (0, 3))
            seconds = time.monotonic() - start
            want = hashlib.sha256((d / "whole").read_bytes()).hexdigest()
            taken_over = 0
            for i in range(self.KILLS):
                out = d / f"{i}.gguf"
                for _ in range(rng.choice((1, 1, 3))):
                    p = subprocess.Popen([SLM, "quantize", *map(str, (self.MODEL, "-o", out, *self.WORDS))], stderr=subprocess.DEVNULL)
                    time.sleep(rng.uniform(0, seconds))
                    p.send_signal(signal.SIGKILL)
                    p.wait()
                r = slm("quantize", self.MODEL, "-o", out, *self.WORDS, "--json")
                self.assertIn(r.returncode, (0, 3), f"seed {seed}: {r.stderr}")
                taken_over += json.loads(r.stdout)["taken_over"]
                self.assertEqual(hashlib.sha256(out.read_bytes()).hexdigest(), want, f"seed {seed}, kill {i}")
                self.assertEqual(sorted(p.name for p in d.glob("*.part*")), [], f"seed {seed}")
                out.unlink()
            print(f"{self.KILLS} kills within {seconds:.2f} s, {taken_over} tensors taken over, seed {seed}", file=sys.stderr)


class ResumeSmallest(Resume):
    """The same where types are chosen by sensitivity."""
    KILLS = 2
    WORDS = (*Smallest.WORDS, "--max-kld", "0.02")


if __name__ == "__main__":
    SLM = sys.argv.pop(1)
    unittest.main()
