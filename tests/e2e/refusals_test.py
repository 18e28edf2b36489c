"""What eval, bench, render, devices and --mem say about input that cannot work.   refusals_test.py SLM [unittest options]"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SLM = ""
ROOT = pathlib.Path(os.environ.get("SLM_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
MODEL = str(ROOT / "tests/tiny/models/llama")  # 64 tokens of context


class Refusals(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.d = pathlib.Path(self.folder.name)
        self.text = self.d / "text"
        self.text.write_text("the cat in an oven " * 100, encoding="utf-8")

    def tearDown(self):
        self.folder.cleanup()

    def refused(self, code, *words, says=(), never=()):
        r = subprocess.run([SLM, *map(str, words)], capture_output=True, text=True, timeout=60)
        self.assertEqual(r.returncode, code, r.stderr)
        self.assertEqual(r.stdout, "")
        for part in says:
            self.assertIn(part, r.stderr)
        for part in never:
            self.assertNotIn(part, r.stderr)

    def eval(self, code, *words, text=None, **more):
        self.refused(code, "eval", MODEL, "ppl", "--text", text or self.text, *words, **more)

    def test_ids_that_are_none(self):
        for text in ("abc", "[1.5]", "[5", "[1e99]", "1 x", '{"no": [1]}', "[-1]", "99999999999999999999", "[18446744073709551615]"):
            r = subprocess.run([SLM, "tokenize", MODEL, "--decode"], input=text, capture_output=True, text=True, timeout=60)
            self.assertEqual((r.returncode, r.stdout), (2, ""), text)
            self.assertIn("token ids", r.stderr)
        for text in ("5 7\n", "[5, 7]", '{"ids": [5, 7]}'):
            r = subprocess.run([SLM, "tokenize", MODEL, "--decode"], input=text, capture_output=True, text=True, timeout=60)
            self.assertEqual(r.returncode, 0, text + r.stderr)

    def test_windows_that_score_nothing(self):
        for window in (2, 3):
            self.eval(2, "--protocol", "llama.cpp", "--window", window, says=["llama.cpp", "at least 4"])

    def test_the_llama_protocol_cuts_a_text_that_begins(self):
        # "hello, world" is 12 tokens for transformers; with a begin token 13, so that a window of 13 fits.
        model = self.d / "begins"
        shutil.copytree(MODEL, model)
        tokenizer = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))
        begin = tokenizer["added_tokens"][0]
        name = begin["content"]
        sequence = [{"SpecialToken": {"id": name, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
        tokenizer["post_processor"] = {"type": "TemplateProcessing", "single": sequence, "pair": sequence + [{"Sequence": {"id": "B", "type_id": 0}}],
                                       "special_tokens": {name: {"id": name, "ids": [begin["id"]], "tokens": [name]}}}
        (model / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
        self.text.write_text("hello, world", encoding="utf-8")
        for folder, protocol, more, bos in ((model, "llama.cpp", [], begin["id"]), (model, "gptq", [], None), (MODEL, "llama.cpp", [], None),
                                            (model, "llama.cpp", ["--bos", "never"], None)):
            words = ["eval", folder, "ppl", "--text", self.text, "--window", 13, "--protocol", protocol, *more]
            r = subprocess.run([SLM, *map(str, words), "--json"], capture_output=True, text=True, timeout=60)
            if bos is None:
                self.assertEqual(r.returncode, 2)
                self.assertIn("the text has 12 tokens", r.stderr)
            else:
                self.assertEqual(r.returncode, 0, r.stderr)
                j = json.loads(r.stdout)
                self.assertEqual((j["windows"], j["tokens"], j["bos"]), (1, 6, bos))  # 13 / 2 + 1 ... 12

    def test_a_context_nobody_typed_is_not_blamed(self):
        self.eval(2, "--window", 512, says=["--window 512 needs 513 tokens", "made for 64", "lower --window"], never=["--ctx"])
        self.eval(2, "--ctx", 100, says=["--ctx 100", "use --ctx 64"])
        self.refused(2, "bench", MODEL, says=["the longest test needs 512 tokens", "made for 64", "--pp"], never=["--ctx"])

    def test_texts(self):
        pipe, large, empty = self.d / "pipe", self.d / "large", self.d / "empty"
        os.mkfifo(pipe)
        empty.touch()
        with open(large, "wb") as f:
            f.truncate((256 << 20) + 1)
        self.eval(2, text=large, says=[str(large), "256 MiB"])
        self.eval(2, text=pipe, says=[str(pipe)])
        self.eval(2, text=self.d, says=[str(self.d)])
        self.eval(2, text=empty, says=[str(empty), "empty"])
        self.eval(1, text=self.d / "absent", says=["absent"])

    def test_broken_conversations_name_their_file_and_option(self):
        template = self.d / "t.jinja"
        template.write_text("{{ messages | length }}")
        good = self.d / "good.json"
        good.write_text("[]")
        broken = {"cut.json": b"[{", "text.json": b"hello", "object.json": b'{"a": 1}', "bytes.json": b'["\xff"]', "deep.json": b"[" * 100000,
                  "list.json": b"[1"}
        for name, content in broken.items():
            path = self.d / name
            path.write_bytes(content)
            for option in ("--messages", "--tools"):
                others = [] if option == "--messages" else ["--messages", good]
                for source in (template, MODEL):
                    self.refused(1, "render", source, option, path, *others, says=[f"{path}: {option}: "])
            if name != "object.json":
                for source in (template, MODEL):
                    self.refused(1, "render", source, "--messages", good, "--vars", path, says=[f"{path}: --vars: "])
        self.refused(1, "render", template, "--messages", self.d, says=[str(self.d), "folder"])
        self.refused(1, "render", template, "--messages", self.d / "absent", says=["absent"])

    def test_a_template_must_be_a_file(self):
        good, pipe = self.d / "good.json", self.d / "pipe"
        good.write_text("[]")
        os.mkfifo(pipe)
        for source in (pipe, "/dev/null"):
            self.refused(2, "render", source, "--messages", good, says=[str(source)])

    def test_budgets_are_printed_as_they_were_given(self):
        self.refused(3, "run", MODEL, "-p", "hi", "--mem", "1", says=["the budget is 1 B"], never=["0 MiB"])
        self.refused(3, "run", MODEL, "-p", "hi", "--mem", "1.5K", says=["the budget is 1.5 KiB"])

    def test_sensors_of_nowhere(self):
        self.refused(1, "devices", "--sysfs", self.d / "absent", says=["absent", "--sysfs"])

    def test_bench_is_interrupted_inside_a_repetition(self):
        words = [SLM, "bench", MODEL, "--compute", "f32", "--pp", "0", "--ttft", "0", "--tg", "60", "-r", "1000"]
        run = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(0.5)
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=10)
        self.assertIn(run.returncode, (0, 130), err)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started us with it ignored, which children inherit
    SLM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
