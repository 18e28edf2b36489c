"""slm inspect and slm dump on the tiny models, bare files and files that cannot run.   inspect_test.py SLM"""
import json
import os
import pathlib
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

from weights_file import read_tensors

SLM = ""
SOURCE = pathlib.Path(os.environ.get("SLM_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
TINY, SEEDS = SOURCE / "tests/tiny/models", SOURCE / "tests/corpus"


def slm(*words):
    return subprocess.run([SLM, *map(str, words)], capture_output=True, text=True, timeout=60)


def inspect(path, *words):
    r = slm("inspect", path, "--json", *words)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def as_f32(dtype, data):
    if dtype == "BF16":
        return b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    values = struct.unpack(f"<{len(data) // (2 if dtype == 'F16' else 4)}{'e' if dtype == 'F16' else 'f'}", data)
    return struct.pack(f"<{len(values)}f", *values)


class Inspect(unittest.TestCase):
    def test_both_containers_of_one_model(self):
        for path, form in ((TINY / "llama", "hf"), (TINY / "llama.gguf", "gguf")):
            j = inspect(path, "--ctx", 32)
            config = json.loads((TINY / "llama/config.json").read_text())
            self.assertEqual((j["format"], j["arch"], j["runnable"]), (form, "llama", True))
            self.assertEqual(j["config"]["vocab_size"], config["vocab_size"])
            n, size = sum(self.product(t["shape"]) for t in j["tensors"]), sum(t["bytes"] for t in j["tensors"])
            self.assertEqual((j["n_params"], j["memory"]["weights_bytes"]), (n, size))
            self.assertAlmostEqual(j["bpw"], 8 * size / n)
            head = config["hidden_size"] // config["num_attention_heads"]
            self.assertEqual(j["memory"]["kv_bytes"], 2 * 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * head * 32)
            self.assertGreater(j["memory"]["activations_bytes"], 0)

    @staticmethod
    def product(shape):
        n = 1
        for d in shape:
            n *= d
        return n

    def test_local_layers_have_their_own_rope(self):
        j = inspect(TINY / "gemma3")["config"]
        self.assertEqual(j["layers"]["local"], 2)
        self.assertNotEqual(j["rope"]["theta"], j["rope_local"]["theta"])

    def test_vocabulary_only_and_unknown_architecture(self):
        j = inspect(SEEDS / "gguf_fuzz/vocabulary.gguf")
        self.assertEqual((j["runnable"], j["tokenizer"]["n_tokens"], j["tensors"]), (False, 8, []))
        j = inspect(SEEDS / "gguf_fuzz/types.gguf")
        self.assertIn("unknown architecture", j["reason"])
        self.assertIn("IQ2_XXS", [t["dtype"] for t in j["types"]])

    def test_a_bare_safetensors_file(self):
        self.assertEqual(inspect(SEEDS / "safetensors_fuzz/types.safetensors")["format"], "safetensors")

    def test_text_is_for_people_and_errors_name_the_way_out(self):
        self.assertIn("2 layers", slm("inspect", TINY / "llama").stdout)
        r = slm("inspect", TINY / "llama", "--ctx", 100000)
        self.assertEqual(r.returncode, 2)
        self.assertIn("100000", r.stderr)
        with tempfile.TemporaryDirectory() as d:
            cut = pathlib.Path(d) / "cut.gguf"
            cut.write_bytes((TINY / "llama.gguf").read_bytes()[:-1000])
            r = slm("inspect", cut, "--json")
            self.assertEqual(r.returncode, 1)
            self.assertEqual(json.loads(r.stdout)["error"]["code"], "corrupt")
            self.assertEqual(len(r.stderr.splitlines()), 1)


class Dump(unittest.TestCase):
    def test_values_and_shape(self):
        with tempfile.TemporaryDirectory() as d:
            out = pathlib.Path(d) / "t.f32"
            name = "model.layers.1.mlp.down_proj.weight"
            r = slm("dump", TINY / "llama", "--tensor", name, "--out", out, "--json")
            dtype, shape, want = read_tensors(TINY / "llama/model.safetensors")[name]
            self.assertEqual(json.loads(r.stdout), {"name": name, "dtype": dtype, "shape": shape})
            self.assertEqual(out.read_bytes(), as_f32(dtype, want))

    def test_refusals(self):
        with tempfile.TemporaryDirectory() as d:
            out = pathlib.Path(d) / "t.f32"
            r = slm("dump", TINY / "llama.gguf", "--tensor", "output_norm.wieght", "--out", out)
            self.assertEqual(r.returncode, 1)
            self.assertIn("did you mean output_norm.weight", r.stderr)
            r = slm("dump", SEEDS / "gguf_fuzz/types.gguf", "--tensor", "q16", "--out", out)
            self.assertIn("IQ2_XXS", r.stderr)
            self.assertEqual(r.returncode, 1)
            self.assertFalse(out.exists())

    def test_never_onto_the_model(self):
        with tempfile.TemporaryDirectory() as d:
            d = pathlib.Path(d)
            for name in ("m.gguf", "n.gguf"):
                shutil.copyfile(TINY / "llama.gguf", d / name)
            shutil.copytree(TINY / "llama", d / "folder")
            (d / "hard").hardlink_to(d / "m.gguf")
            (d / "soft").symlink_to("m.gguf")
            folder = d / "folder"
            (d / "config").hardlink_to(folder / "config.json")
            before = {p: p.read_bytes() for p in d.rglob("*") if p.is_file()}
            for model, name, out in [(d / "m.gguf", "output_norm.weight", d / n) for n in ("m.gguf", "n.gguf", "hard", "soft")] + \
                                    [(d / "hard", "output_norm.weight", d / "m.gguf"), (d / "folder", "model.norm.weight", d / "config"),
                                     (folder / "model.safetensors", "model.norm.weight", folder / "model.safetensors")] + \
                                    [(folder, "model.norm.weight", folder / n) for n in ("model.safetensors", "tokenizer.json")]:
                r = slm("dump", model, "--tensor", name, "-o", out)
                self.assertEqual(r.returncode, 2, (out, r.stderr))
                self.assertIn("of the model itself", r.stderr)
            self.assertEqual(before, {p: p.read_bytes() for p in d.rglob("*") if p.is_file()})

    def test_an_output_appears_whole_or_not_at_all(self):
        with tempfile.TemporaryDirectory() as d:
            d = pathlib.Path(d)
            out, link = d / "t.f32", d / "link"
            out.write_bytes(b"old")
            out.chmod(0o640)
            link.symlink_to("t.f32")
            words = ("dump", TINY / "llama.gguf", "--tensor", "token_embd.weight", "-o")

            def small():
                resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

            r = subprocess.run([SLM, *map(str, words), str(out)], capture_output=True, text=True, timeout=60, preexec_fn=small,
                               restore_signals=False)
            self.assertEqual((r.returncode, out.read_bytes()), (1, b"old"), r.stderr)
            self.assertIn(f"{out}: File too large", r.stderr)
            self.assertEqual(slm(*words, link).returncode, 0)
            self.assertTrue(link.is_symlink())
            self.assertEqual(stat.S_IMODE(out.stat().st_mode), 0o640)
            self.assertGreater(out.stat().st_size, 1000)
            self.assertEqual(sorted(p.name for p in d.iterdir()), ["link", "t.f32"])  # nothing is left beside it
            self.assertEqual(slm(*words, "/dev/null").returncode, 0)
            self.assertIn("No space left", slm(*words, "/dev/full").stderr)
            self.assertEqual(slm(*words, d).returncode, 2)
            self.assertEqual(slm(*words, d / "absent" / "t.f32").returncode, 1)


if __name__ == "__main__":
    SLM = sys.argv.pop(1)
    unittest.main()
