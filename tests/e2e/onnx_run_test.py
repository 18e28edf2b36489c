"""Decoders in ONNX run by slm: the same answers as the model that they were made from; broken folders.   onnx_run_test.py SLM"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SLM = ""
SOURCE = pathlib.Path(os.environ.get("SLM_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
LLAMA, DECODERS = SOURCE / "tests/tiny/models/llama", SOURCE / "tests/tiny/onnx_decoders"


def slm(*words):
    return subprocess.run([SLM, *map(str, words)], capture_output=True, text=True, timeout=120)


class Case(unittest.TestCase):
    def setUp(self):
        self.top = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.top)
        self.d = self.top / "model"

    def copy(self, name):
        shutil.copytree(DECODERS / name, self.d)
        return self.d

    def with_tokenizer(self):
        self.copy("plain_f32")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(LLAMA / name, self.d)
        return self.d

    def refused(self, *says, words=("bench",)):
        r = slm(*words, self.d, "--json") if words[0] != "export" else slm(*words, self.d, "-o", self.top / "out")
        self.assertEqual(r.returncode, 1, r.stderr)
        for word in says:
            self.assertIn(word, r.stderr)


class Runs(Case):
    def test_answers_of_the_model_that_it_was_made_from(self):
        folder = self.with_tokenizer()
        words = ("--raw", "-p", "abc", "-n", 16, "--compute", "f32", "--json")
        want, got = (json.loads(slm("run", m, *words).stdout) for m in (LLAMA, folder))
        self.assertEqual((got["text"], got["generated_tokens"]), (want["text"], want["generated_tokens"]))
        # The file named alone finds what lies beside it, and so does its subfolder "onnx".
        self.assertEqual(json.loads(slm("run", folder / "model.onnx", *words).stdout)["text"], want["text"])
        (folder / "onnx").mkdir()
        shutil.move(folder / "model.onnx", folder / "onnx/model.onnx")
        self.assertEqual(json.loads(slm("run", folder, *words).stdout)["text"], want["text"])

    def test_perplexity_is_that_of_the_model(self):
        folder, text = self.with_tokenizer(), self.top / "text"
        text.write_text("The cat sat on the mat and thought of nothing at all. " * 4)
        a, b = (json.loads(slm("eval", m, "ppl", "--text", text, "--window", 32, "--compute", "f32", "--json").stdout) for m in (LLAMA, folder))
        self.assertLess(abs(a["ppl"] - b["ppl"]), 1e-4 * a["ppl"])

    def test_bench_and_inspect(self):
        folder = self.with_tokenizer()
        r = slm("bench", folder, "--pp", 16, "--tg", 4, "--ttft", 0, "-r", 1, "--json")
        self.assertEqual(r.returncode, 0, r.stderr)
        j = json.loads(slm("inspect", folder, "--json").stdout)
        self.assertEqual((j["format"], j["runnable"], j["reason"]), ("onnx", True, None))
        self.assertEqual((j["config"]["n_layers"], j["config"]["n_heads"], j["config"]["n_kv_heads"], j["config"]["head_dim"]), (2, 4, 2, 8))
        self.assertIsNotNone(j["memory"]["kv_bytes"])
        self.assertIn("by tables of the graph", slm("inspect", folder).stdout)
        j = json.loads(slm("inspect", DECODERS / "builder_int4", "--json").stdout)
        self.assertEqual((j["format"], j["runnable"], j["config"]["tied_head"]), ("genai", True, True))

    def test_what_other_verbs_say(self):
        folder = self.with_tokenizer()
        r = slm("quantize", folder, "-o", self.top / "out.gguf", "--type", "q8_0")
        self.assertNotEqual(r.returncode, 0)
        self.assertFalse((self.top / "out.gguf").exists())


class Broken(Case):
    def test_data_is_missing(self):
        self.copy("builder_int4")
        (self.d / "model.onnx.data").unlink()
        self.refused("model.onnx", "model.onnx.data", "missing")

    def test_data_is_cut(self):
        data = self.copy("builder_int4") / "model.onnx.data"
        data.write_bytes(data.read_bytes()[:-64])
        self.refused("model.onnx.data", "past the end")

    def test_data_elsewhere(self):
        graph = self.copy("builder_int4") / "model.onnx"
        shutil.move(self.d / "model.onnx.data", self.top / "x.data")
        graph.write_bytes(graph.read_bytes().replace(b"model.onnx.data", b"../././././x.da"))
        self.refused("not a relative path inside the model's folder")

    def test_graph_is_cut(self):
        graph = self.copy("builder_f32") / "model.onnx"
        whole = graph.read_bytes()
        for at in range(0, len(whole), max(1, len(whole) // 40)):
            graph.write_bytes(whole[:at])
            r = slm("inspect", self.d)
            self.assertIn(r.returncode, (0, 1), r.stderr)
            r = slm("bench", self.d, "--json")
            self.assertEqual(r.returncode, 1, f"cut at {at}")
            self.assertIn("model.onnx", r.stderr)

    def test_unknown_operator(self):
        graph = self.copy("builder_int4") / "model.onnx"
        graph.write_bytes(graph.read_bytes().replace(b"MatMulNBits", b"MatMulWBits"))
        self.refused("model.onnx", "com.microsoft.MatMulWBits", "layers/0")
        j = json.loads(slm("inspect", self.d, "--json").stdout)
        self.assertEqual(j["runnable"], False)
        self.assertIn("MatMulWBits", j["reason"])

    def test_several_graphs(self):
        config = self.copy("builder_f32") / "genai_config.json"
        j = json.loads(config.read_text())
        shutil.copy(self.d / "model.onnx", self.d / "embeddings.onnx")
        j["model"]["decoder"]["pipeline"] = [{"embeddings": {"filename": "embeddings.onnx"}}]
        config.write_text(json.dumps(j))
        self.refused("several graphs", "embeddings.onnx")

    def test_config_and_graph_disagree(self):
        config = self.copy("builder_f32") / "genai_config.json"
        config.write_text(config.read_text().replace("past_key_values.%d.key", "cache.%d.key"))
        self.refused("model.onnx", "past_key_values.0.key")

    def test_more_context_than_tables(self):
        self.copy("builder_f32")
        r = slm("inspect", self.d, "--ctx", 100)
        self.assertEqual(r.returncode, 2, r.stderr)
        self.assertIn("64 tokens", r.stderr)


if __name__ == "__main__":
    SLM = sys.argv.pop(1)
    unittest.main()
