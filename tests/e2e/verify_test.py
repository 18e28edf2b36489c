"""slm verify: golden answers of a package recorded, then broken in every way a package breaks.   verify_test.py SLM [unittest options]

The recorded distributions are held against transformers' logits of the same tiny model (tests/tiny/models/expected.json).
"""
import array
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SLM = ""
ROOT = pathlib.Path(os.environ.get("SLM_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
MODELS = ROOT / "tests/tiny/models"


def slm(*words, code=0):
    run = subprocess.run([SLM, *map(str, words)], capture_output=True, text=True, timeout=120)
    assert run.returncode == code, f"{words}: {run.returncode}\n{run.stdout}{run.stderr}"
    return run


def report(*words, code=0):
    return json.loads(slm("verify", *words, "--json", code=code).stdout.splitlines()[-1])


class VerifyTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.package = pathlib.Path(folder.name, "package")
        self.package.mkdir()
        shutil.copytree(MODELS / "llama", self.package / "float")
        shutil.copy(MODELS / "llama.gguf", self.package / "model.gguf")

    def record(self, *words):
        return report(self.package, "--record", "--tokens", 8, *words)

    def test_recorded_distributions_are_transformers(self):
        case = next(c for c in json.loads((MODELS / "expected.json").read_text())["cases"] if c["name"] == "llama")
        logits = array.array("f")
        logits.frombytes((MODELS / case["logits"]).read_bytes())
        last = logits[-case["vocab"]:]
        log_sum = math.log(sum(math.exp(x) for x in last))
        # The prompt as text: the tiny tokenizer has a token a byte.
        text = subprocess.run([SLM, "tokenize", str(MODELS / case["path"]), "--decode", "--json"], input=json.dumps(case["prompt"]), capture_output=True, text=True, check=False)
        prompts = self.package.parent / "prompts.jsonl"
        decoded = json.loads(text.stdout)["text"] if text.returncode == 0 else ""
        self.assertTrue(decoded, text.stderr)
        prompts.write_text(json.dumps({"text": decoded}) + "\n")
        self.record("--prompts", prompts)
        golden = json.loads((self.package / "golden.json").read_text())
        (answer,) = golden["answers"]
        self.assertEqual(answer["prompt"], case["prompt"])  # its text has no pair of letters that the tokenizer merges
        expected = sorted(range(len(last)), key=lambda i: -last[i])[:16]
        self.assertEqual(answer["steps"][0]["ids"][:4], expected[:4])
        for i, log_prob in zip(answer["steps"][0]["ids"], answer["steps"][0]["log_probs"]):
            self.assertAlmostEqual(log_prob, last[i] - log_sum, delta=1e-4)

    def test_package_passes_and_says_what_it_ran(self):
        recorded = self.record()
        self.assertEqual([a["path"] for a in recorded["artefacts"]], ["float", "model.gguf"])
        first = (self.package / "golden.json").read_bytes()
        got = report(self.package, "--no-latency")
        self.assertTrue(got["passed"])
        for a in got["artefacts"]:
            self.assertEqual((a["verdict"], a["device"]), ("passed", "cpu"))
            self.assertLessEqual(a["kld"], a["max_kld"])
        # The same answers are recorded again; only times differ.
        self.record()
        again = json.loads((self.package / "golden.json").read_bytes())
        self.assertEqual(again["answers"], json.loads(first)["answers"])

    def test_changed_bytes_fail(self):
        self.record()
        weights = self.package / "float/model.safetensors"
        data = bytearray(weights.read_bytes())
        data[-3] ^= 0x10
        weights.write_bytes(data)
        got = report(self.package, "--no-latency", code=3)
        self.assertEqual([a["verdict"] for a in got["artefacts"]], ["failed", "passed"])
        self.assertIn("other bytes than recorded", got["artefacts"][0]["reason"])
        shutil.rmtree(self.package / "float")
        self.assertIn("no such file", report(self.package, "--no-latency", code=3)["artefacts"][0]["reason"])

    def test_other_answers_fail(self):
        self.record()
        path = self.package / "golden.json"
        golden = json.loads(path.read_text())
        for step in golden["answers"][0]["steps"]:
            step["ids"].reverse()
        path.write_text(json.dumps(golden))
        reasons = [a["reason"] for a in report(self.package, "--no-latency", code=3)["artefacts"]]
        for reason in reasons:
            self.assertIn("KLD", reason)

    def test_slow_steps_fail_where_times_are_comparable(self):
        self.record()
        path = self.package / "golden.json"
        golden = json.loads(path.read_text())
        for a in golden["artefacts"]:
            a["p95_ms"] = 1e-6
        golden["artefacts"][1]["cpu"] = "another"
        path.write_text(json.dumps(golden))
        slow, elsewhere = report(self.package, code=3)["artefacts"]
        self.assertEqual((slow["verdict"], elsewhere["verdict"]), ("failed", "passed"))
        self.assertIn("95 % of the steps", slow["reason"])
        self.assertIn("time not judged: recorded on another", elsewhere["reason"])
        self.assertTrue(report(self.package, "--no-latency")["passed"])

    def test_one_model_and_a_base(self):
        model = self.package / "model.gguf"
        report(model, "--record", "--base", MODELS / "llama", "--tokens", 4)
        self.assertTrue((self.package / "model.gguf.golden.json").exists())
        self.assertTrue(report(model, "--no-latency")["passed"])
        run = slm("verify", model, "--record", "--base", MODELS / "qwen2", "--max-kld", "0.001", code=1)
        self.assertIn("no tokenizer", run.stderr)

    def test_only_what_is_named_is_judged_and_nothing_is_left_out(self):
        self.record()
        shutil.copy(self.package / "model.gguf", self.package / "other.gguf")
        rows = {a["path"]: a for a in report(self.package, "--no-latency", code=3)["artefacts"]}
        self.assertEqual({p: a["verdict"] for p, a in rows.items()}, {"float": "passed", "model.gguf": "passed", "other.gguf": "failed"})
        self.assertIn("was not recorded", rows["other.gguf"]["reason"])
        golden = self.package / "golden.json"
        one = report(self.package / "model.gguf", "--golden", golden, "--no-latency")
        self.assertEqual([a["path"] for a in one["artefacts"]], ["model.gguf"])
        run = slm("verify", self.package / "other.gguf", "--golden", golden, code=1)
        self.assertIn("no golden answers of other.gguf", run.stderr)

    def test_files_that_are_read_are_not_written(self):
        base = self.package.parent / "base.gguf"
        shutil.copy(MODELS / "llama.gguf", base)
        prompts = self.package.parent / "prompts.jsonl"
        prompts.write_text('{"text": "in the end"}\n')
        for golden in (base, prompts, self.package / "float/tokenizer.json"):
            before = golden.read_bytes()
            slm("verify", self.package, "--record", "--base", base, "--prompts", prompts, "--golden", golden, code=2)
            self.assertEqual(golden.read_bytes(), before)

    def test_a_pipe_is_no_artefact(self):
        self.record()
        (self.package / "model.gguf").unlink()
        os.mkfifo(self.package / "model.gguf")
        self.assertIn("no regular file", report(self.package, "--no-latency", code=3)["artefacts"][1]["reason"])

    def test_a_budget_that_is_missed_records_nothing(self):
        run = slm("verify", self.package, "--record", "--base", MODELS / "llama", "--max-kld", "0", "--tokens", 4, code=3)
        self.assertIn("--max-kld", run.stderr)
        self.assertFalse((self.package / "golden.json").exists())

    def test_bad_input(self):
        self.assertIn("record them once", slm("verify", self.package, code=1).stderr)
        empty = self.package.parent / "empty"
        empty.mkdir()
        self.assertIn("no model in it", slm("verify", empty, "--record", code=1).stderr)
        golden = self.package / "golden.json"
        self.record()
        good = json.loads(golden.read_text())
        for change, expected in (
                (lambda g: g.update(slm_golden=2), "slm_golden"), (lambda g: g.pop("answers"), "answers is missing"),
                (lambda g: g["answers"][0]["prompt"].append(10**9), "outside the vocabulary"),
                (lambda g: g["answers"][0]["steps"].pop(), "one step a token"),
                (lambda g: g["answers"][0]["steps"][0]["log_probs"].pop(), "one number an id"),
                (lambda g: g["artefacts"][0].update(path="../x"), "leads out of the folder"),
                (lambda g: g["artefacts"][0].update(sha256="zz"), "no sum of 64 digits"),
                (lambda g: g["artefacts"][0].update(max_kld="low"), "max_kld is no number")):
            bad = json.loads(json.dumps(good))
            change(bad)
            golden.write_text(json.dumps(bad))
            run = slm("verify", self.package, code=1)
            self.assertIn(expected, run.stderr)
            self.assertIn("golden.json", run.stderr)
        golden.write_text("{")
        self.assertIn("golden.json", slm("verify", self.package, code=1).stderr)
        prompts = self.package / "p.jsonl"
        prompts.write_text('{"text": "a"}\n{"txt": "b"}\n')
        self.assertIn("line 2 is no prompt", slm("verify", self.package, "--record", "--prompts", prompts, code=1).stderr)
        self.assertIn("are of --record", slm("verify", self.package, "--base", "x", code=2).stderr)


if __name__ == "__main__":
    SLM = sys.argv.pop(1)
    unittest.main()
