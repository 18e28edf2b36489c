"""slm export on tiny models: what it reports, that the package answers as its source does, what is refused.   export_test.py SLM"""
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
TINY = SOURCE / "tests/tiny/models"


def slm(*words):
    return subprocess.run([SLM, *map(str, words)], capture_output=True, text=True, timeout=120)


class Export(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.d = pathlib.Path(self.folder.name)
        self.out = self.d / "model.slm"

    def tearDown(self):
        self.folder.cleanup()

    def export(self, source, *words):
        r = slm("export", source, "-o", self.out, *words, "--json")
        self.assertEqual(r.returncode, 0, r.stderr)
        return json.loads(r.stdout)

    def refused(self, source, out, code, *says):
        before = out.read_bytes() if out.exists() else None
        r = slm("export", source, "-o", out)
        self.assertEqual((r.returncode, r.stdout), (code, ""), r.stderr)
        for part in says:
            self.assertIn(part, r.stderr)
        self.assertEqual(out.read_bytes() if out.exists() else None, before)
        self.assertEqual([p.name for p in self.d.rglob("*.part")], [], "nothing is left behind")

    def answer(self, model):
        r = slm("run", model, "--raw", "-p", "the cat in an oven", "-n", "12", "--temperature", "0", "--json")
        self.assertEqual(r.returncode, 0, r.stderr)
        return json.loads(r.stdout.splitlines()[-1])

    def test_report(self):
        for source, lossless in (("llama.gguf", True), ("llama", True), ("quantized.gguf", True)):
            j = self.export(TINY / source)
            self.assertEqual(set(j), {"files", "bytes", "weights_bytes", "matrices", "lossless", "notes"})
            self.assertEqual((j["files"], j["bytes"]), ([str(self.out)], self.out.stat().st_size))
            self.assertTrue(0 < j["weights_bytes"] < j["bytes"])
            self.assertGreater(j["matrices"], 0)
            self.assertEqual((j["lossless"], j["notes"]), (lossless, []))
            self.assertEqual(json.loads(slm("inspect", self.out, "--json").stdout)["format"], "package")

    def test_without_json_nothing_is_on_stdout(self):
        r = slm("export", TINY / "llama.gguf", "-o", self.out)
        self.assertEqual((r.returncode, r.stdout), (0, ""), r.stderr)
        self.assertIn("matrices packed", r.stderr)

    def test_same_bytes_for_any_threads(self):
        files = set()
        for n in (1, 2, 3):
            self.export(TINY / "quantized.gguf", "-t", n)
            files.add(self.out.read_bytes())
        self.assertEqual(len(files), 1)

    # Greedy, so that the text stands for the ids.
    def test_the_package_answers_as_its_source(self):
        for source in ("llama.gguf", "llama", "quantized.gguf"):
            want = self.answer(TINY / source)
            self.assertGreater(want["generated_tokens"], 0)
            self.export(TINY / source)
            got = self.answer(self.out)
            for key in ("text", "finish_reason", "prompt_tokens", "generated_tokens"):
                self.assertEqual(got[key], want[key], f"{source} {key}")

    def test_a_file_of_the_source_is_no_output(self):
        model = self.d / "copy.gguf"
        shutil.copy(TINY / "llama.gguf", model)
        self.refused(model, model, 2, "file of the model itself")
        folder = self.d / "folder"
        shutil.copytree(TINY / "llama", folder)
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            self.refused(folder, folder / name, 2, "file of the model itself")
        link = self.d / "link.slm"
        link.symlink_to(folder / "model.safetensors")
        self.refused(folder, link, 2, "file of the model itself")
        self.assertTrue(link.is_symlink())

    def test_another_shard_is_no_output(self):
        for n in (1, 2):
            shutil.copy(TINY / "llama.gguf", self.d / f"m-0000{n}-of-00002.gguf")
        self.refused(self.d / "m-00001-of-00002.gguf", self.d / "m-00002-of-00002.gguf", 2, "file of the model itself")

    def test_a_package_is_no_source(self):
        self.export(TINY / "quantized.gguf")
        self.refused(self.out, self.d / "second.slm", 1, "model.slm", "a package")
        for form in ("genai", "qdq"):
            r = slm("export", self.out, "--to", form, "-o", self.d / form)
            self.assertEqual((r.returncode, "a package" in r.stderr), (1, True), r.stderr)
        for words in (("check", self.out, "--target", "webgpu"), ("quantize", self.out, "--losses", "q4_0")):
            r = slm(*words)
            self.assertEqual((r.returncode, "a package" in r.stderr), (1, True), r.stderr)

    def test_the_recipe_of_graphs_for_npus(self):
        """Printed without a model; what the manifest says was done is what is printed for the same options."""
        def printed(*words):
            r = slm("export", "--to", "qdq", "--print-recipe", *words)
            self.assertEqual(r.returncode, 0, r.stderr)
            return json.loads(r.stdout)
        usual = printed()
        self.assertEqual({k: usual[k] for k in ("recipe", "matrices", "down_projections", "head", "codes", "activations", "cache")},
                         {"recipe": "npu", "matrices": "lpbq-g32", "down_projections": "w8-sym-channel", "head": "w8-sym-channel", "codes": "gptq",
                          "activations": "uint16", "cache": "int16"})
        self.assertIn("prefix left out", usual["ranges"]["rule"])
        self.assertEqual(usual, printed("--recipe", "npu"))
        self.assertEqual(printed("--weights", "w4-channel")["matrices"], "w4-sym-channel")
        eight = printed("--weights", "w8", "--range-margin", 2, "--calib-seqs", 3)
        self.assertEqual((eight["matrices"], eight["codes"], eight["ranges"]["margin"], eight["sequences"]), ("w8-sym-channel", "refit", 2, 3))
        for words in ((), ("--weights", "w8", "--range-margin", 2)):
            out = self.d / f"q{len(words)}"
            small = ("--calib-seqs", 4, "--calib-tokens", 32, "--chunk", 32)
            r = slm("export", TINY / "llama.gguf", "--to", "qdq", "-o", out, *words, *small, "--json")
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertEqual(json.loads((out / "manifest.json").read_text())["recipe"], printed(*words, *small))
            self.assertEqual(any("360 million" in n for n in json.loads(r.stdout)["notes"]), words == ())
        r = slm("export", TINY / "llama.gguf", "-o", self.out, "--recipe", "npu")
        self.assertEqual(r.returncode, 2, r.stderr)

    def test_bad_words(self):
        self.refused(self.d / "none.gguf", self.out, 1, "none.gguf")
        self.assertEqual(slm("export", TINY / "llama.gguf").returncode, 2)
        self.assertEqual(slm("export", "-o", self.out).returncode, 2)
        self.assertEqual(slm("export", TINY / "llama.gguf", "-o", self.out, "--to", "npz").returncode, 2)


if __name__ == "__main__":
    SLM = sys.argv.pop(1)
    unittest.main()
