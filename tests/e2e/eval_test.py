"""slm eval MODEL kld and tasks on tiny models: what they print, the gate, what is refused.   eval_test.py SLM [unittest options]"""
import hashlib
import json
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
MODEL = MODELS / "llama"  # 264 tokens, 64 of context, a tokenizer that asks for no begin token
TEXT = "the cat in an oven " * 20


class Eval(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.d = pathlib.Path(self.folder.name)
        self.text = self.d / "text"
        self.text.write_text(TEXT, encoding="utf-8")

    def tearDown(self):
        self.folder.cleanup()

    def slm(self, *words):
        return subprocess.run([SLM, "eval", *map(str, words), "--text", str(self.text), "--window", "32"], capture_output=True, text=True, timeout=120)

    def kld(self, model, base, *words, code=0):
        r = self.slm(model, "kld", "--base", base, *words, "--json")
        self.assertEqual(r.returncode, code, r.stderr)
        return json.loads(r.stdout)

    def refused(self, *words, says):
        r = self.slm(*words)
        self.assertEqual((r.returncode, r.stdout), (2, ""), r.stderr)
        for part in says:
            self.assertIn(part, r.stderr)

    def copy(self, name, edit):
        folder = self.d / name
        shutil.copytree(MODEL, folder)
        edit(folder)
        return folder

    def scaled(self):
        """The model with logits four times as far apart: its last norm is multiplied."""
        def edit(folder):
            file = folder / "model.safetensors"
            data = bytearray(file.read_bytes())
            size = int.from_bytes(data[:8], "little")
            header = json.loads(data[8:8 + size])
            begin, end = header["model.norm.weight"]["data_offsets"]
            self.assertEqual(header["model.norm.weight"]["dtype"], "BF16")
            for at in range(8 + size + begin, 8 + size + end, 2):
                bits = int.from_bytes(data[at:at + 2], "little")
                data[at:at + 2] = (bits + (2 << 7)).to_bytes(2, "little")  # two more in the exponent: four times
            file.write_bytes(data)
        return self.copy("scaled", edit)

    def test_a_model_against_itself(self):
        j = self.kld(MODEL, MODEL)
        ids = json.loads(subprocess.run([SLM, "tokenize", str(MODEL), "--json"], input=TEXT, capture_output=True, text=True, check=True).stdout)["ids"]
        n = len(ids) // 32
        self.assertGreater(n, 4)
        self.assertEqual((j["tokens"], j["windows"], j["ctx"], j["bos"]), (n * 31, n, 32, None))
        self.assertEqual(j["text_sha256"], hashlib.sha256(TEXT.encode()).hexdigest())
        for key in ("mean", "sigma", "p50", "p90", "p95", "p99", "p999", "max"):
            self.assertEqual(j["kld"][key], 0, key)
        self.assertEqual((j["top1"], j["dlnppl"]["mean"], j["dlnppl"]["sigma"], j["delta_p"]["rms"]), (1, 0, 0, 0))
        self.assertEqual(j["ppl"], j["base"]["ppl"])
        self.assertAlmostEqual(j["dlnppl"]["correlation"], 1, 9)
        self.assertNotIn("passed", j)

    def test_ppl_and_kld_agree(self):
        base = self.scaled()
        for words in ([], ["--bos", "always"], ["--protocol", "llama.cpp"], ["--protocol", "llama.cpp", "--bos", "always"]):
            j = self.kld(MODEL, base, *words)
            for path, ppl in ((MODEL, j), (base, j["base"])):
                r = self.slm(path, "ppl", *words, "--json")
                self.assertEqual(r.returncode, 0, r.stderr)
                one = json.loads(r.stdout)
                self.assertAlmostEqual(one["ppl"], ppl["ppl"], delta=1e-9 * one["ppl"])
                self.assertAlmostEqual(one["ppl_sigma"], ppl["ppl_sigma"], delta=1e-9 * one["ppl"])
                self.assertEqual((one["tokens"], one["bos"]), (j["tokens"], j["bos"]))
            self.assertEqual(j["bos"], 262 if "always" in words else None)
            self.assertGreater(j["kld"]["mean"], 0)

    def test_the_gate(self):
        base = self.scaled()
        mean = self.kld(MODEL, base)["kld"]["mean"]
        passed, failed = self.kld(MODEL, base, "--max-kld", mean * 1.01), self.kld(MODEL, base, "--max-kld", mean * 0.99, code=3)
        self.assertEqual((passed["passed"], failed["passed"]), (True, False))
        self.assertEqual(failed["kld"]["mean"], mean)
        self.assertEqual(self.kld(MODEL, MODEL, "--max-kld", "0")["passed"], True)
        r = self.slm(MODEL, "kld", "--base", base, "--max-kld", "1e-9")
        self.assertEqual(r.returncode, 3)
        self.assertIn("more than the budget", r.stderr)
        self.assertIn("KLD ", r.stdout)

    def test_vocabularies_must_be_the_same(self):
        def rename(folder):
            tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
            token = next(t for t, i in tokenizer["model"]["vocab"].items() if i == 17)
            vocab = {("q" * 7 if i == 17 else t): i for t, i in tokenizer["model"]["vocab"].items()}
            self.assertNotEqual(token, "q" * 7)
            tokenizer["model"]["vocab"] = vocab
            (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
        self.refused(MODEL, "kld", "--base", self.copy("renamed", rename), says=["264 and 264", "token 17", "qqqqqqq"])

        def narrow(folder):  # another model's weights, 96 tokens wide, under this tokenizer
            for name in ("config.json", "model.safetensors"):
                shutil.copy(MODELS / "qwen3" / name, folder / name)
        self.refused(MODEL, "kld", "--base", self.copy("narrow", narrow), says=["264", "96", "same vocabulary"])

    def test_both_must_want_the_same_begin(self):
        def begins(folder):
            tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
            begin = tokenizer["added_tokens"][0]
            name = begin["content"]
            sequence = [{"SpecialToken": {"id": name, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
            tokenizer["post_processor"] = {"type": "TemplateProcessing", "single": sequence, "pair": sequence + [{"Sequence": {"id": "B", "type_id": 0}}],
                                           "special_tokens": {name: {"id": name, "ids": [begin["id"]], "tokens": [name]}}}
            (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
        base = self.copy("begins", begins)
        self.refused(MODEL, "kld", "--base", base, says=["no begin token", "begin token 262", "--bos always"])
        self.assertEqual(self.kld(MODEL, base, "--bos", "never")["kld"]["max"], 0)
        self.assertEqual(self.kld(MODEL, base, "--bos", "always")["bos"], 262)

    def test_options(self):
        self.refused(MODEL, "kld", says=["--base"])
        self.refused(MODEL, "tasks", says=["--text does not go with tasks"])
        self.refused(MODEL, "kld", "--base", MODEL, "--items", 3, says=["--items does not go with kld"])
        self.refused(MODEL, "ppl", "--base", MODEL, says=["--base does not go with ppl"])
        self.refused(MODEL, "ppl", "--max-kld", "1", says=["--max-kld does not go with ppl"])
        for wrong in ("-1", "nan", "inf", "x", "1x"):
            self.refused(MODEL, "kld", "--base", MODEL, f"--max-kld={wrong}", says=["is not a number from 0 on"])
        self.refused(MODEL, "ppl", "--bos", "sometimes", says=["sometimes"])
        self.refused(MODEL, "kld", "--base", MODEL, "--base-compute", "f64", says=["f64"])

        def nameless(folder):
            (folder / "tokenizer_config.json").unlink()
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            config.pop("bos_token_id", None)
            (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        self.refused(self.copy("nameless", nameless), "ppl", "--bos", "always", says=["names no begin token"])

    def tasks(self, lines, *words):
        file = self.d / "questions.jsonl"
        file.write_text("\n".join(json.dumps(x) if isinstance(x, dict) else x for x in lines), encoding="utf-8")
        return subprocess.run([SLM, "eval", str(MODEL), "tasks", "--file", str(file), *map(str, words)], capture_output=True, text=True, timeout=120)

    def test_choices(self):
        questions = [{"prompt": "the cat", "choices": [" in an oven", " the"], "answer": i % 2} for i in range(6)]
        r = self.tasks(questions, "--base", MODEL, "--json")
        self.assertEqual(r.returncode, 0, r.stderr)
        j = json.loads(r.stdout)
        # The same question with either answer: half are right, whatever the model finds.
        self.assertEqual((j["items"], j["acc"]["right"], j["acc"]["share"], j["acc_norm"]["share"]), (6, 3, 0.5, 0.5))
        self.assertAlmostEqual(j["acc"]["low"] + j["acc"]["high"], 1, 12)
        self.assertEqual(j["base"]["acc"], j["acc"])
        self.assertEqual(j["flips"]["acc"], {"share": 0, "lost": 0, "gained": 0})
        self.assertEqual(json.loads(self.tasks(questions, "--items", 5, "--json").stdout)["items"], 5)
        # A choice's likelihood is exp(-nll) of the text it makes: three tokens less likely than the first of them alone.
        nested = [{"prompt": "the cat", "choices": [" in an oven in an oven", " in an oven"], "answer": 1}]
        self.assertEqual(json.loads(self.tasks(nested, "--json").stdout)["acc"]["right"], 1)

        scaled = self.tasks(questions, "--base", self.scaled())
        self.assertEqual(scaled.returncode, 0, scaled.stderr)
        self.assertIn("flips, by length", scaled.stdout)

    def test_answers_spare_what_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            model, questions = os.path.join(folder, "m.gguf"), os.path.join(folder, "q.jsonl")
            shutil.copy(MODELS / "llama.gguf", model)
            pathlib.Path(questions).write_text('{"prompt": "the cat", "choices": [" in", " the"], "answer": 0}\n')
            for out in (model, questions):
                before = pathlib.Path(out).read_bytes()
                r = self.slm(model, "tasks", "--file", questions, "--answers", out)
                self.assertEqual(r.returncode, 2, r.stderr)
                self.assertEqual(pathlib.Path(out).read_bytes(), before)

    def test_bad_questions_are_named(self):
        for code, lines, words, says in ((1, [{"prompt": "p", "choices": ["a", "b"], "answer": 0}, "{"], (), ["questions.jsonl: line 2", "not JSON"]),
                                         (2, [" "], (), ["no question"]),
                                         (2, [{"prompt": "", "choices": ["a", "b"], "answer": 0}], (), ["question 1", "--bos always"]),
                                         (3, [{"prompt": "the cat " * 90, "choices": ["a", "b"], "answer": 0}], (), ["question 1", "64"]),
                                         (2, [{"prompt": "p", "choices": ["a", "b"], "answer": 0}], ("--max-kld", "1"), ["--max-kld does not go with tasks"])):
            r = self.tasks(lines, *words)
            self.assertEqual((r.returncode, r.stdout), (code, ""), r.stderr)
            for part in says:
                self.assertIn(part, r.stderr)
        r = self.tasks([{"prompt": "", "choices": ["a", "b"], "answer": 0}], "--bos", "always")
        self.assertEqual(r.returncode, 0, r.stderr)

    def test_the_budget_of_memory_is_for_both(self):
        r = self.slm(MODEL, "kld", "--base", MODEL, "--mem", "600K")
        self.assertEqual(r.returncode, 3, r.stderr)
        self.assertEqual(self.slm(MODEL, "ppl", "--mem", "600K").returncode, 0)
        self.assertEqual(self.slm(MODEL, "kld", "--base", MODEL, "--mem", "8M").returncode, 0)


if __name__ == "__main__":
    SLM = sys.argv.pop(1)
    unittest.main()
