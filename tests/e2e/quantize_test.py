"""slm quantize on a tiny float model: the file, the report, what is refused.   quantize_test.py SLM

With the `gguf` package installed, its values of the written blocks are compared to ours bit by bit; SLM_NEED_GGUF=1: without it that fails."""
import array
import hashlib
import importlib.util
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SLM = ""
SOURCE = pathlib.Path(os.environ.get("SLM_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
TINY = SOURCE / "tests/tiny/models"
TYPES = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q6_k", "f16")

needs_gguf = unittest.skipUnless(os.environ.get("SLM_NEED_GGUF") or importlib.util.find_spec("gguf"),
                                 "needs the gguf package (tools/requirements.txt)")


def slm(*words):
    return subprocess.run([SLM, *map(str, words)], capture_output=True, text=True, timeout=120)


class Quantize(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.d = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def quantize(self, *words, source=TINY / "llama.gguf", out="out.gguf"):
        r = slm("quantize", source, "-o", self.d / out, *words, "--json")
        self.assertEqual(r.returncode, 0, r.stderr)
        return json.loads(r.stdout), self.d / out

    def refused(self, code, *words, says, source=TINY / "llama.gguf"):
        out = self.d / "refused.gguf"
        r = slm("quantize", source, "-o", out, *words)
        self.assertEqual(r.returncode, code, r.stderr)
        for part in says:
            self.assertIn(part, r.stderr)
        self.assertEqual(list(self.d.glob("refused*")), [], "nothing is left behind")

    def dump(self, path, tensor):
        r = slm("dump", path, "--tensor", tensor, "-o", self.d / "values")
        self.assertEqual(r.returncode, 0, r.stderr)
        return array.array("f", (self.d / "values").read_bytes())

    def test_report_and_file(self):
        j, out = self.quantize("--type", "q4_1")
        self.assertEqual(j["bytes"], out.stat().st_size)
        self.assertEqual((j["recipe"], j["type"], j["head"], j["search"], j["gate"]["passed"]), ("fast", "q4_1", "q8_0", "refit", None))
        self.assertGreater(j["peak_rss_bytes"], 0)
        listed = {t["name"]: t for t in json.loads(slm("inspect", out, "--json").stdout)["tensors"]}
        for t in j["tensors"]:
            self.assertEqual(listed[t["name"]]["dtype"], t["scheme"])
            a, b = self.dump(TINY / "llama.gguf", t["name"]), self.dump(out, t["name"])
            error = math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)) / sum(x * x for x in a))
            self.assertAlmostEqual(error, t["error"], delta=1e-7)
        r = slm("run", out, "--raw", "-p", "the cat", "-n", "4", "--temperature", "0")
        self.assertEqual(r.returncode, 0, r.stderr)

    def test_a_search_loses_less_than_rounding(self):
        for kind in ("q4_0", "q4_1", "q5_0"):
            errors = []
            for search in ("rtn", "refit"):
                j, _ = self.quantize("--type", kind, "--search", search)
                errors.append(sum(t["error"] for t in j["tensors"] if t["scheme"] == kind.upper()))
            self.assertLess(errors[1], 0.98 * errors[0], kind)

    def test_same_bytes_for_any_threads(self):
        files = {self.quantize("-t", n, out=f"{n}.gguf")[1].read_bytes() for n in (1, 2, 3)}
        self.assertEqual(len(files), 1)

    def test_print_recipe(self):
        r = slm("quantize", "--print-recipe", "--bits", 8)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(json.loads(r.stdout)["type"], "q8_0")
        self.assertIsNone(json.loads(r.stdout)["allocation"])
        r = slm("quantize", "--print-recipe", "--recipe", "default", "--max-kld", 0.02, "--types", "q4_0,q8_0")
        j = json.loads(r.stdout)
        self.assertEqual((j["type"], j["body_bpw_limit"], j["allocation"]["candidates"], j["allocation"]["most_kld"]), ("measured", None, ["q4_0", "q8_0"], 0.02))

    def calibrated(self, *words, out="out.gguf", source=TINY / "llama.gguf"):
        return self.quantize("--recipe", "default", "--type", "q4_0", *words, out=out, source=source)

    def test_calibrated_on_the_built_in_text(self):
        j, out = self.calibrated("--calib-seqs", 8, "--calib-tokens", 64)
        text = j["calibration"]["text"]
        self.assertEqual((text["source"], text["sequences"], text["tokens"], text["seed"]), ("built-in", 8, 512, 1))
        mix = (SOURCE / "apps/cli/calibration_mix.jsonl").read_bytes()
        self.assertEqual(text["sha256"], hashlib.sha256(mix).hexdigest())
        self.assertEqual([layer["layer"] for layer in j["layers"]], [0, 1])
        for layer in j["layers"]:
            self.assertLessEqual(layer["error"], layer["plain_error"])
        metadata = json.loads(slm("inspect", out, "--json").stdout)["metadata"]
        self.assertEqual(metadata["slmkit.quantize.recipe"], "default")
        self.assertEqual(metadata["slmkit.quantize.calibration.sha256"], text["sha256"])
        r = slm("run", out, "--raw", "-p", "the cat", "-n", "4", "--temperature", "0")
        self.assertEqual(r.returncode, 0, r.stderr)

    def test_calibrated_bytes(self):
        small = ("--calib-seqs", 4, "--calib-tokens", 32)
        files = {self.calibrated(*small, "-t", n, out=f"{n}.gguf")[1].read_bytes() for n in (1, 2, 3)}
        self.assertEqual(len(files), 1, "any number of threads")
        other = self.calibrated(*small, "--seed", 2, out="seed.gguf")[1].read_bytes()
        self.assertNotEqual(other, files.pop(), "another draw")

    SMALL = ("--recipe", "default", "--calib-seqs", 8, "--calib-tokens", 48)

    def test_types_by_sensitivity(self):
        j, out = self.quantize(*self.SMALL, "--body-bpw", 7)
        a = j["allocation"]
        self.assertEqual((j["type"], a["candidates"][0], a["tokens"]), ("measured", "q4_0", 8 * 48))
        self.assertLessEqual(j["body_bpw"], 7)
        self.assertGreater(j["body_bpw"], 6.5, "the budget is spent")
        listed = {t["name"]: t["dtype"] for t in json.loads(slm("inspect", out, "--json").stdout)["tensors"]}
        found, expected = {}, 0
        for t in j["tensors"]:
            self.assertEqual(listed[t["name"]], t["scheme"])
            s = t["sensitivity"]
            if t["name"].startswith("blk") and "norm" not in t["name"]:
                found[t["scheme"].lower()] = found.get(t["scheme"].lower(), 0) + 1
            if s:
                self.assertGreater(s["errors"]["q4_0"], s["errors"]["q8_0"])
                self.assertAlmostEqual(s["loss"], s["kld"] * s["errors"][t["scheme"].lower()], delta=1e-12)
                expected += s["loss"]
        self.assertEqual(found, a["types"])
        self.assertGreater(len([t for t in found if t != "f16"]), 1, "matrices differ in what they cost")
        self.assertAlmostEqual(expected, a["expected"]["kld"], delta=1e-9)
        klds = [p["kld"] for p in a["curve"]]
        self.assertEqual(klds, sorted(klds, reverse=True))
        self.assertTrue(any("types by sensitivity: " in note for note in j["notes"]), j["notes"])

    def test_more_bits_by_sensitivity_diverge_less(self):
        kld = [self.quantize(*self.SMALL, "--body-bpw", bits)[0]["gate"]["kld"]["mean"] for bits in (7, 8, 10)]
        self.assertGreater(kld[0], kld[1])
        self.assertGreater(kld[1], kld[2])

    def test_types_to_choose_among(self):
        j, _ = self.quantize(*self.SMALL, "--bpw", 8.2, "--types", "q4_0,q8_0")
        self.assertLessEqual(set(j["allocation"]["types"]), {"q4_0", "q8_0", "f16"})
        self.assertLessEqual(j["bpw"], 8.2)
        j, _ = self.quantize(*self.SMALL, "--bpw", 8.8, "--type", "q5_0")
        self.assertEqual(j["allocation"]["candidates"], ["q5_0", "q5_1", "q8_0", "q6_k"], "no smaller than --type")
        self.assertIsNone(self.calibrated(*self.SMALL[2:])[0]["allocation"], "--type alone is no choice")

    def test_types_of_embedding_and_head(self):
        """Under a budget of the whole file they are chosen with the layers' matrices: no other choice loses less."""
        types = ("--types", "q4_0,q8_0")
        j = self.quantize(*self.SMALL, *types, "--bpw", 7)[0]
        self.assertEqual(j["head"], "measured")
        self.assertLessEqual(j["bpw"], 7)
        measured = [t for t in j["tensors"] if t["sensitivity"]]
        vocabulary = {t["name"]: t["scheme"].lower() for t in measured if not t["name"].startswith("blk.")}
        self.assertEqual(j["allocation"]["vocabulary"], vocabulary)
        self.assertIn("token_embd.weight", vocabulary)
        options = []
        for t in measured:
            values = t["bytes"] / {"Q4_0": 18, "Q8_0": 34}[t["scheme"]]
            s = t["sensitivity"]
            options.append([(values * size, s["kld"] * s["errors"][kind]) for kind, size in (("q4_0", 18), ("q8_0", 34))])
        budget = sum(t["bytes"] for t in j["tensors"]) / j["bpw"] * 7 - sum(t["bytes"] for t in j["tensors"] if not t["sensitivity"])
        sums = [(0, 0)]  # of bytes and loss: every combination that no smaller one beats
        for of_one in options:
            more = sorted((b + ob, l + ol) for b, l in sums for ob, ol in of_one if b + ob <= budget)
            sums, least = [], math.inf
            for b, l in more:
                if l < least:
                    sums.append((b, l))
                    least = l
        self.assertLessEqual(sum(t["sensitivity"]["loss"] for t in measured), 1.02 * sums[-1][1])
        self.assertGreaterEqual(sum(t["sensitivity"]["loss"] for t in measured), 0.999999 * sums[-1][1])

    def test_head_by_hand(self):
        j, _ = self.quantize(*self.SMALL, "--bpw", 8.2, "--head", "q5_0")
        self.assertEqual((j["head"], j["allocation"]["vocabulary"]), ("q5_0", {}))
        self.assertEqual({t["scheme"] for t in j["tensors"] if t["name"] in ("token_embd.weight", "output.weight")}, {"Q5_0"})
        j, _ = self.quantize(*self.SMALL, "--body-bpw", 7)
        self.assertEqual(j["head"], "q8_0", "a budget of the layers says nothing of the head")
        r = slm("quantize", "--print-recipe", "--recipe", "default", "--bpw", 5)
        self.assertEqual(json.loads(r.stdout)["head"], "measured")

    def test_types_by_sensitivity_for_any_threads(self):
        for budget in ("--body-bpw", "--bpw"):
            files = {self.quantize(*self.SMALL, budget, 7, "-t", n, out=f"{n}.gguf")[1].read_bytes() for n in (1, 2, 3)}
            self.assertEqual(len(files), 1)

    def test_what_no_type_can_meet(self):
        self.refused(3, *self.SMALL, "--body-bpw", 4, says=["--body-bpw 4.000", "bits per weight at least"])
        self.refused(2, "--types", "q4_0,q8_0", says=["nothing chooses among them"])
        self.refused(2, *self.SMALL, "--type", "q4_0", "--types", "q8_0", says=["--type"])
        self.refused(2, *self.SMALL, "--types", "q4_0,q9", says=["q9"])

    def test_values_on_a_grid_are_told(self):
        """What was dequantized loses nothing in its own blocks; that is said, and --types leaves them out."""
        _, four = self.quantize("--type", "q4_0")
        _, floats = self.quantize("--requantize", "--type", "f16", source=four, out="floats.gguf")
        j, _ = self.quantize(*self.SMALL, "--requantize", source=floats, out="again.gguf")
        self.assertTrue(any("lie on the grid of q4_0" in note for note in j["notes"]), j["notes"])

    def test_calibrated_on_files(self):
        plain = self.d / "plain.txt"
        plain.write_text("The quick brown fox jumps over the lazy dog. " * 20)
        lines = self.d / "lines.jsonl"
        lines.write_text(json.dumps({"text": "a text of some words " * 8}) + "\n\n" +
                         json.dumps({"messages": [{"role": "user", "content": "hello " * 20}, {"role": "assistant", "content": "yes " * 20}]}))
        for path in (plain, lines):
            j, _ = self.calibrated("--calib", path, "--calib-seqs", 2, "--calib-tokens", 32)
            self.assertEqual(j["calibration"]["text"]["source"], str(path))
            self.assertEqual(j["calibration"]["text"]["sha256"], hashlib.sha256(path.read_bytes()).hexdigest())

    def test_kept_matrices_take_no_factors(self):
        """Up and v that stay in their block type: no fold divides them."""
        _, again = self.quantize("--recipe", "default", "--requantize", "--calib-seqs", 2, "--calib-tokens", 32, source=TINY / "quantized.gguf", out="again.gguf")
        self.assertEqual(slm("run", again, "--raw", "-p", "the", "-n", 2).returncode, 0)

    def test_calibration_that_would_not_count_is_refused(self):
        text = self.d / "text.txt"
        text.write_text("the cat in an oven " * 200)
        self.refused(2, "--calib", text, says=["fast", "--recipe"])
        self.refused(2, "--calib-seqs", 4, says=["not calibrated"])
        self.refused(3, "--recipe", "default", "--calib-tokens", 65, says=["65", "context is 64"])
        r = slm("quantize", TINY / "llama.gguf", "-o", text, "--recipe", "default", "--calib", text)
        self.assertEqual((r.returncode, text.read_text()[:7]), (2, "the cat"), r.stderr)
        for option in ("--bpw", "--body-bpw", "--damping", "--most-energy"):
            self.refused(2, option, "nan", says=["nan"])
        self.refused(2, "--recipe", "default", "--seed", "-1", says=["-1"])

    def test_types_that_fit_no_width(self):
        """Widths of 32 and 48: super-blocks of 256 divide none."""
        for types in (("--types", "q4_k,q6_k"), ("--types", "q6_k", "--body-bpw", 7)):
            self.refused(2, "--recipe", "default", *types, says=["width", "q4_0"])

    def test_calibration_refusals(self):
        bad = self.d / "bad.jsonl"
        bad.write_text('{"text": "fine"}\n{"txt": "not"}\n')
        recipe = ("--recipe", "default", "--type", "q4_0")
        self.refused(1, *recipe, "--calib", bad, says=["bad.jsonl: line 2", '"text"', '"messages"'])
        bad.write_text(json.dumps({"messages": [{"role": "user", "content": "hi"}, {"role": "user"}]}) + "\n")
        self.refused(1, *recipe, "--calib", bad, says=["bad.jsonl: line 1", "message 1", "content"])
        short = self.d / "short.txt"
        short.write_text("x")
        self.refused(2, *recipe, "--calib", short, says=["short.txt", "too few"])
        self.refused(1, *recipe, "--calib", self.d / "absent.txt", says=["absent.txt"])
        self.refused(3, *recipe, "--mem", "8M", says=["--mem 8M", "are needed", "--calib-seqs"])

    def test_refusals(self):
        self.refused(1, source=TINY / "quantized.gguf", says=["is already Q", "--requantize"])
        self.refused(3, "--mem", "1M", says=["--mem 1M", "are needed"])
        self.refused(3, "--bpw", "2", "--type", "q4_0", says=["2.000", "--bpw"])
        self.refused(2, "--group", "128", says=["groups of 32"])
        self.refused(2, "--type", "q4_2", says=["q4_2"])
        self.refused(2, "--type", "q4_0", "--bits", "4", says=["--bits"])
        copy = self.d / "model.gguf"
        copy.write_bytes((TINY / "llama.gguf").read_bytes())
        before = copy.read_bytes()
        r = slm("quantize", copy, "-o", copy)
        self.assertEqual(r.returncode, 2)
        self.assertIn("the model itself", r.stderr)
        self.assertEqual(copy.read_bytes(), before)
        self.assertEqual(slm("quantize", copy).returncode, 2)

    def test_an_older_output_is_replaced_and_a_shard_is_not(self):
        for n in (1, 2):
            (self.d / f"m-0000{n}-of-00002.gguf").write_bytes((TINY / "llama.gguf").read_bytes())
        first, second = sorted(self.d.glob("m-*"))
        for out, code in ((self.d / "old.gguf", 0), (self.d / "old.gguf", 0), (second, 2), (self.d / "m-00003-of-00007.gguf", 0)):
            self.assertEqual(slm("quantize", first, "-o", out).returncode, code, out)

    def test_files_beside_the_output_are_not_its(self):
        for name, words, source in (("a.gguf.rotated", ("--rotate", "hadamard"), TINY / "llama.gguf"), ("a.gguf.keys", (), TINY / "llama")):
            mine = self.d / name
            mine.write_text("mine")
            self.quantize("--type", "q8_0", "--no-gate", *words, source=source, out="a.gguf")
            self.assertEqual(mine.read_text(), "mine")
        self.assertEqual(sorted(p.name for p in self.d.iterdir()), ["a.gguf", "a.gguf.keys", "a.gguf.rotated"])

    @needs_gguf
    def test_the_gguf_package_reads_the_same_values(self):
        import gguf
        for kind in TYPES:
            _, out = self.quantize("--type", kind, "--head", kind)
            for t in gguf.GGUFReader(out).tensors:
                theirs = gguf.dequantize(t.data, t.tensor_type).astype("<f4").tobytes()
                self.assertEqual(theirs, self.dump(out, t.name).tobytes(), f"{kind} {t.name}")

    @needs_gguf
    def test_plain_rounding_is_that_of_the_gguf_package(self):
        """A few codes differ: the package divides by the scale as it was before it became f16. No tensor is further from the source."""
        import gguf
        source = {t.name: t.data.astype("f4") for t in gguf.GGUFReader(TINY / "llama.gguf").tensors}
        for kind in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0"):
            _, out = self.quantize("--type", kind, "--head", kind, "--search", "rtn")
            rounded = [t for t in gguf.GGUFReader(out).tensors if t.tensor_type.name == kind.upper()]
            self.assertGreater(len(rounded), 10)
            same = total = 0
            for t in rounded:
                theirs = gguf.quantize(source[t.name], t.tensor_type)
                ours, other = (((gguf.dequantize(d, t.tensor_type) - source[t.name]).astype("f8") ** 2).sum() for d in (t.data, theirs))
                self.assertLessEqual(ours, other * (1 + 1e-6), f"{kind} {t.name}")
                same, total = same + int((t.data == theirs).sum()), total + theirs.size
            self.assertGreater(same, 0.98 * total, kind)


if __name__ == "__main__":
    SLM = sys.argv.pop(1)
    unittest.main()
