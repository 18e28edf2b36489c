"""Packed folders (AWQ, GPTQ, compressed-tensors) and folders as GGUF files: written, read back by formulas, converted.   formats_test.py SLM

The formulas are those of the formats, written here without the executable's help."""
import array
import fcntl
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from weights_file import read_tensors, write_tensors

SLM = ""
SOURCE = pathlib.Path(os.environ.get("SLM_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
LLAMA, GROUPED = SOURCE / "tests/tiny/models/llama", SOURCE / "tests/tiny/grouped"
FORMATS = ("awq", "gptq", "gptq-v2", "compressed-tensors")
MATRIX = "model.layers.0.mlp.up_proj"


def slm(*words):
    return subprocess.run([SLM, *map(str, words)], capture_output=True, text=True, timeout=120)


def tensors(folder):
    return read_tensors(folder / "model.safetensors")


def words(t):
    return struct.unpack(f"<{len(t[2]) // 4}I", t[2])


def halves(t):
    return struct.unpack(f"<{len(t[2]) // 2}e", t[2])


def decode(folder, name):
    """Values [n][k] of a packed matrix by its format's formula."""
    config, ts = json.loads((folder / "config.json").read_text())["quantization_config"], tensors(folder)
    method = config["quant_method"]
    if method == "compressed-tensors":
        codes, scales, zeros = (ts.get(f"{name}.{p}") for p in ("weight_packed", "weight_scale", "weight_zero_point"))
        n, k = struct.unpack("<2q", ts[name + ".weight_shape"][2])
        w, s, g = words(codes), halves(scales), scales[1][1]
        per = 8

        def zero(row, group):
            return words(zeros)[row // per * g + group] >> 4 * (row % per) & 15 if zeros else 8
        return [[s[r * g + c * g // k] * ((w[r * (k // per) + c // per] >> 4 * (c % per) & 15) - zero(r, c * g // k)) for c in range(k)]
                for r in range(n)]
    codes, scales, zeros = (ts[f"{name}.{p}"] for p in ("qweight", "scales", "qzeros"))
    w, s, z, (g, n) = words(codes), halves(scales), words(zeros), scales[1]
    if method == "awq":
        k, nibble = codes[1][0], [0, 4, 1, 5, 2, 6, 3, 7]
        return [[s[c * g // k * n + r] * ((w[c * (n // 8) + r // 8] >> 4 * nibble[r % 8] & 15) -
                                          (z[c * g // k * (n // 8) + r // 8] >> 4 * nibble[r % 8] & 15)) for c in range(k)] for r in range(n)]
    k, plus = codes[1][0] * 8, 1 if config["checkpoint_format"] == "gptq" else 0
    of = struct.unpack(f"<{k}i", ts[name + ".g_idx"][2])
    return [[s[of[c] * n + r] * ((w[c // 8 * n + r] >> 4 * (c % 8) & 15) - (z[of[c] * (n // 8) + r // 8] >> 4 * (r % 8) & 15) - plus)
             for c in range(k)] for r in range(n)]


def trained_folder(folder, dtype, scale_of, code_of, group):
    """LLAMA with matrices of the layers on a grid: scale_of(g) * code_of(i), a scale for `group` columns (0: one for the matrix). -> {name: values}"""
    shutil.copytree(LLAMA, folder)
    values, stored = {}, {}
    for name, (kind, shape, data) in tensors(LLAMA).items():
        if "_proj" in name:
            rng, kind = random.Random(name), dtype
            per = group or shape[0] * shape[1]
            scales = [scale_of(rng) for _ in range(0, shape[0] * shape[1], per)]
            # One product, rounded to the type that the file has.
            floats = [struct.unpack("<f", struct.pack("<f", scales[i // per] * code_of(rng)))[0] for i in range(shape[0] * shape[1])]
            data = struct.pack(f"<{len(floats)}f", *floats)
            if dtype == "BF16":
                data = b"".join(data[i + 2:i + 4] for i in range(0, len(data), 4))  # the caller's values need no more
            values[name] = array.array("f", floats)
        stored[name] = (kind, shape, data)
    write_tensors(folder / "model.safetensors", stored)
    return values


def half_scale(rng):
    return struct.unpack("<e", struct.pack("<e", rng.uniform(0.01, 0.1)))[0]


def power_scale(rng):
    return 2.0 ** rng.randint(-8, -4)


class Formats(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.d = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def ok(self, *args):
        r = slm(*args)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r

    def quantize(self, source, to, *more, out=None):
        out = self.d / (out or to)
        return json.loads(self.ok("quantize", source, "-o", out, "--to", to, *more, "--json").stdout), out

    def dump(self, model, name=MATRIX + ".weight"):
        out = self.d / "dump.f32"
        self.ok("dump", model, "--tensor", name, "--out", out)
        values = array.array("f")
        values.frombytes(out.read_bytes())
        return values

    def refused(self, code, *args, says):
        r = slm(*args)
        self.assertEqual(r.returncode, code, r.stderr)
        self.assertIn(says, r.stderr)
        self.assertNotIn("Traceback", r.stderr)

    def test_every_format_means_what_its_formula_says(self):
        want = self.dump(LLAMA)
        for to in FORMATS:
            with self.subTest(to=to):
                report, out = self.quantize(LLAMA, to)
                self.assertFalse(report["lossless"])
                got = self.dump(out)
                formula = [v for row in decode(out, MATRIX) for v in row]
                self.assertEqual(list(got), list(array.array("f", formula)))
                error = sum((a - b) ** 2 for a, b in zip(got, want)) / sum(b * b for b in want)
                self.assertLess(error ** 0.5, 0.1)
                reported = next(t["error"] for t in report["tensors"] if t["name"] == MATRIX + ".weight")
                self.assertAlmostEqual(error ** 0.5, reported, places=5)
                self.assertEqual((out / "tokenizer.json").read_bytes(), (LLAMA / "tokenizer.json").read_bytes())
                self.ok("run", out, "--raw", "-p", "the", "--max-tokens", "4")

    def test_calibrated_folders(self):
        text = self.d / "calib.txt"
        text.write_text("the thin hat in the tin and the ant in a thing, the cat in an oven\n" * 40)
        words = ("--recipe", "default", "--calib", text, "--calib-seqs", "6", "--calib-tokens", "48")
        for to in FORMATS:
            with self.subTest(to=to):
                report, out = self.quantize(LLAMA, to, *words)
                self.assertEqual(list(self.dump(out)), list(array.array("f", [v for row in decode(out, MATRIX) for v in row])))
                for layer in report["layers"]:
                    self.assertLessEqual(layer["error"], layer["plain_error"])
                self.assertTrue(any(" gptq " in way for layer in report["layers"] for way in layer["ways"]))
                own = json.loads((out / "config.json").read_text())["slmkit"]
                self.assertEqual(own["recipe"], "default")
                self.assertEqual(own["calibration"]["sha256"], hashlib.sha256(text.read_bytes()).hexdigest())
                self.assertEqual(own["calibration"]["sequences"], 6)
                again = self.quantize(LLAMA, to, *words, "-t", "1", out="again-" + to)[1]
                for name in ("model.safetensors", "config.json"):
                    self.assertEqual((again / name).read_bytes(), (out / name).read_bytes(), "any number of threads")
                self.ok("run", out, "--raw", "-p", "the", "--max-tokens", "4")
        # How its values were made stays known when another format takes them.
        _, other = self.quantize(self.d / "awq", "compressed-tensors", out="other")
        self.assertEqual(json.loads((other / "config.json").read_text())["slmkit"]["calibration"]["sequences"], 6)
        self.refused(1, "quantize", self.d / "awq", "-o", self.d / "x", "--to", "gptq-v2", "--recipe", "best", says="kept exactly")
        self.refused(2, "quantize", LLAMA, "-o", self.d / "x", "--to", "awq", "--calib", text, says="not calibrated: fast")
        self.refused(3, "quantize", LLAMA, "-o", self.d / "x", "--to", "awq", *words, "--mem", "1M", says="--calib-seqs")
        self.assertFalse((self.d / "x").exists())

    def test_folds_of_every_family_keep_the_model(self):
        """A fold is exact but for the rounding after it: with 8 bits the folder is as near to its source as one without folds."""
        text = self.d / "text.txt"
        text.write_text("the thin hat in the tin and the ant in a thing " * 60)
        letters = {c: i + 4 for i, c in enumerate(" abcdefghijklmnopqrstuvwxyz")}
        tokenizer = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
                     "model": {"type": "BPE", "vocab": letters, "merges": []}}
        for name in ("gemma2", "gemma3", "phi3", "qwen2", "qwen3", "llama_bias"):
            with self.subTest(name=name):
                source = self.d / ("source-" + name)
                shutil.copytree(SOURCE / "tests/tiny/models" / name, source)
                (source / "tokenizer.json").write_text(json.dumps(tokenizer))
                words = ("--bits", "8", "--no-gate")
                calib = ("--recipe", "default", "--codes", "nearest", "--calib", text, "--calib-seqs", "6", "--calib-tokens", "48")
                report, folded = self.quantize(source, "compressed-tensors", *words, *calib, out=name)
                self.assertTrue(any(layer["steps"] for layer in report["layers"]), "nothing was folded")
                _, plain = self.quantize(source, "compressed-tensors", *words, out="plain-" + name)
                kld = [json.loads(self.ok("eval", out, "kld", "--base", source, "--text", text, "--window", "48", "--windows", "8", "--compute",
                                          "f32", "--json").stdout)["kld"]["mean"] for out in (folded, plain)]
                self.assertLess(kld[0], 2 * kld[1] + 1e-9)

    def test_weights_on_a_grid_stay_where_they_are(self):
        """Checkpoints trained for a low-bit grid, made here from their definition: scale times whole number."""
        cases = {"int4 in groups": ("F32", half_scale, lambda r: r.randint(-8, 7), 16),
                 "ternary": ("BF16", power_scale, lambda r: r.randint(-1, 1), 0),
                 "ternary of f32": ("F32", half_scale, lambda r: r.randint(-1, 1), 0)}
        for case, (dtype, scale_of, code_of, group) in cases.items():
            source = self.d / case
            want = trained_folder(source, dtype, scale_of, code_of, group)
            for to, sym in (*((f, ()) for f in FORMATS), ("compressed-tensors", ("--sym",)), ("gptq", ("--sym",))):
                with self.subTest(case=case, to=to, sym=sym):
                    report, out = self.quantize(source, to, "--group", "16", *sym, "--no-gate", out=f"{case}-{to}-{len(sym)}")
                    self.assertEqual(max(t["error"] for t in report["tensors"]), 0)
                    self.assertTrue(any("grids of at most 16 values" in note for note in report["notes"]))
                    for name, values in want.items():
                        self.assertEqual(self.dump(out, name), values)
            if group != 16:  # blocks of 32 have one scale
                for kind in ("q4_0", "q4_1", "q5_0", "q8_0"):
                    with self.subTest(case=case, kind=kind):
                        out = self.d / f"{case}-{kind}.gguf"
                        report = json.loads(self.ok("quantize", source, "-o", out, "--type", kind, "--no-gate", "--json").stdout)
                        layers = [t for t in report["tensors"] if t["scheme"] == kind.upper() and t["name"].startswith("blk.")]
                        self.assertGreater(len(layers), 5)
                        self.assertEqual(max(t["error"] for t in layers), 0)
            for more in (("--to", "gptq-v2"), ("--type", "q4_0")):
                self.refused(1, "quantize", source, "-o", self.d / "no", *more, "--recipe", "default", says="lie on grids of at most 16 values")
        text = self.d / "text.txt"
        text.write_text("the thin hat in the tin and the ant in a thing\n" * 40)
        self.quantize(self.d / "ternary", "awq", "--recipe", "default", "--requantize", "--calib", text, "--calib-tokens", "48", out="moved")
        report, _ = self.quantize(LLAMA, "awq", "--no-gate", out="float")
        self.assertFalse([n for n in report["notes"] if "grids" in n], "weights like any others")

    def test_the_gate_of_a_folder(self):
        report, out = self.quantize(LLAMA, "awq")
        mean = report["gate"]["kld"]["mean"]
        self.assertGreater(mean, 0)
        self.assertNotIn("gate", json.loads((out / "config.json").read_text()).get("slmkit", {}))
        page = self.d / "page.html"
        report, out = self.quantize(LLAMA, "awq", "--max-kld", mean * 1.01, "--report", page, out="passed")
        self.assertTrue(report["gate"]["passed"])
        self.assertRegex(json.loads((out / "config.json").read_text())["slmkit"]["gate"], r"^passed: mean KLD \S+ \+- .*[0-9a-f]{16}$")
        for part in (MATRIX, "same top token", "<svg", str(out)):
            self.assertIn(part, page.read_text())
        out = self.d / "missed"
        r = slm("quantize", LLAMA, "-o", out, "--to", "awq", "--max-kld", mean * 0.99, "--report", page, "--json")
        self.assertEqual(r.returncode, 3, r.stderr)
        self.assertFalse(json.loads(r.stdout)["gate"]["passed"])
        self.assertTrue(json.loads((out / "config.json").read_text())["slmkit"]["gate"].startswith("missed: "))
        self.assertEqual((out / "model.safetensors").read_bytes(), (self.d / "passed/model.safetensors").read_bytes())
        self.ok("run", out, "--raw", "-p", "the", "--max-tokens", "4")
        report, out = self.quantize(LLAMA, "awq", "--no-gate", out="plain")
        self.assertIsNone(report["gate"])
        self.assertEqual((out / "config.json").read_bytes(), (self.d / "awq/config.json").read_bytes(), "measuring changes no byte")
        # The figures are those of the verb that measures, of the folder under its final name.
        held_out = self.d / "held-out"
        held_out.write_text("the cat in an oven " * 60)
        gate = self.quantize(LLAMA, "awq", "--gate-text", held_out, out="held")[0]["gate"]
        r = self.ok("eval", self.d / "held", "kld", "--base", LLAMA, "--text", held_out, "--window", gate["ctx"], "--windows",
                    2048 // gate["ctx"], "--bos", "never" if gate["bos"] is None else "always", "--json")
        self.assertEqual(json.loads(r.stdout)["kld"], gate["kld"])
        # A gate that cannot be measured leaves no folder.
        short = self.d / "short"
        short.write_text("the cat")
        self.refused(2, "quantize", LLAMA, "-o", self.d / "none", "--to", "awq", "--max-kld", "1", "--gate-text", short, says="one window")
        self.assertEqual([p.name for p in self.d.glob("none*")], [])

    def test_a_folder_appears_whole_or_not_at_all(self):
        out, part = self.d / "out", self.d / "out.part"
        part.mkdir()
        (part / "mine").write_text("x")
        self.refused(2, "quantize", LLAMA, "-o", out, "--to", "awq", says="in the way")
        self.assertEqual((part / "mine").read_text(), "x")
        (part / ".slmkit.lock").write_text("")  # as a run that was killed leaves it
        with open(part / ".slmkit.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.refused(1, "quantize", LLAMA, "-o", out, "--to", "awq", says="another slm is writing")
        out.mkdir()
        self.ok("quantize", LLAMA, "-o", str(out) + "/", "--to", "awq")
        self.assertFalse(part.exists())
        self.assertEqual(sorted(p.name for p in out.iterdir()), sorted(p.name for p in self.quantize(LLAMA, "awq")[1].iterdir()))
        self.assertNotIn("mine", [p.name for p in out.iterdir()])
        # Interrupted while it calibrates.
        text = self.d / "calib.txt"
        text.write_text("the thin hat in the tin and the ant in a thing\n" * 3000)
        p = subprocess.Popen([SLM, "quantize", str(LLAMA), "-o", str(self.d / "late"), "--to", "awq", "--recipe", "best", "--calib", str(text),
                              "--calib-seqs", "2000"], stderr=subprocess.PIPE, text=True)
        while not (self.d / "late.part").exists() and p.poll() is None:
            time.sleep(0.01)
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.wait(timeout=60), 130, p.stderr.read())
        p.stderr.close()
        self.assertEqual([x.name for x in self.d.glob("late*")], [])

    def test_conversions_keep_every_value(self):
        _, source = self.quantize(LLAMA, "awq")
        want = {t: self.dump(source, t) for t in (MATRIX + ".weight", "model.layers.1.self_attn.k_proj.weight")}
        for to in ("gptq-v2", "compressed-tensors", "gptq", "awq"):
            report, source = self.quantize(source, to, out="next-" + to)
            self.assertTrue(report["lossless"], to)
            self.assertEqual(max(t["error"] for t in report["tensors"]), 0)
            for name, values in want.items():
                self.assertEqual(self.dump(source, name), values, to)
        self.assertEqual(tensors(source), tensors(self.d / "awq"), "the same bytes after a round trip")

    def test_conversions_that_would_lose_are_refused(self):
        self.refused(1, "quantize", GROUPED / "gptq_act", "-o", self.d / "a", "--to", "awq", says="order of activations")
        self.refused(1, "quantize", GROUPED / "gptq8", "-o", self.d / "b", "--to", "awq", says="8 bits")
        self.refused(1, "quantize", GROUPED / "ct4_zero", "-o", self.d / "c", "--to", "gptq-v2", says="no f16")
        self.refused(1, "quantize", GROUPED / "awq", "-o", self.d / "d", "--to", "gptq", says="gptq-v2")
        self.refused(2, "quantize", LLAMA, "-o", LLAMA, "--to", "awq", says="is there already")
        self.assertFalse((self.d / "a").exists())
        report, out = self.quantize(GROUPED / "gptq_act", "awq", "--requantize", "--group", "16")
        self.assertFalse(report["lossless"])
        self.assertGreater(max(t["error"] for t in report["tensors"]), 0)

    def test_order_of_activations_survives(self):
        want = self.dump(GROUPED / "gptq_act")
        _, other = self.quantize(GROUPED / "gptq_act", "compressed-tensors")
        self.assertEqual(self.dump(other), want)
        _, back = self.quantize(other, "gptq-v2")
        mine, theirs = tensors(back), tensors(GROUPED / "gptq_act")
        for part in ("qweight", "qzeros", "scales", "g_idx"):
            self.assertEqual(mine[f"{MATRIX}.{part}"], theirs[f"{MATRIX}.{part}"], part)

    def test_a_folder_as_gguf_is_the_same_model(self):
        text = self.d / "text.txt"
        text.write_text("the thin hat in the tin and the ant in a thing\n" * 12)
        out = self.d / "m.gguf"
        self.ok("export", LLAMA, "--to", "gguf", "-o", out)
        self.assertEqual([p.name for p in self.d.iterdir() if "keys" in p.name], [], "nothing is left beside the file")
        a, b = (json.loads(self.ok("eval", m, "ppl", "--text", text, "--window", "32", "--compute", "f32", "--kv", "f32", "--json").stdout)
                for m in (LLAMA, out))
        self.assertEqual(a["tokens"], b["tokens"])
        self.assertAlmostEqual(a["ppl"], b["ppl"], delta=1e-4 * a["ppl"])
        ids = [json.loads(subprocess.run([SLM, "tokenize", str(m), "--json"], input="the <|bos|> ünder 12\n", capture_output=True,
                                         text=True, check=True).stdout)["ids"] for m in (LLAMA, out)]
        self.assertEqual(*ids)
        small = self.d / "q.gguf"
        report = json.loads(self.ok("quantize", LLAMA, "-o", small, "--type", "q8_0", "--json").stdout)
        self.assertLess(report["bpw"], 10)
        self.ok("run", small, "--raw", "-p", "the", "--max-tokens", "4")

    def test_packed_folders_run_as_packages_too(self):
        _, folder = self.quantize(LLAMA, "awq")
        self.ok("export", folder, "-o", self.d / "m.slm")
        answers = [self.ok("run", m, "--raw", "-p", "the", "--max-tokens", "8", "--temp", "0").stdout for m in (folder, self.d / "m.slm")]
        self.assertEqual(*answers)


if __name__ == "__main__":
    SLM = sys.argv.pop(1)
    unittest.main()
