"""Ternary GGUF files (TQ1_0, TQ2_0): they run, and become types whose blocks hold their grid without losing a value.   ternary_test.py SLM

The file is written here: a Llama of one layer, matrices of the layer as TQ2_0 by the layout of ggml, tokenizer and keys of a tiny model."""
import array
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unittest

SLM = ""
SOURCE = pathlib.Path(os.environ.get("SLM_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
DONOR = SOURCE / "tests/tiny/models/llama.gguf"
E, VOCAB = 256, 264
SIZES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
KEYS = {"llama.embedding_length": E, "llama.feed_forward_length": E, "llama.block_count": 1, "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2, "llama.rope.dimension_count": 64, "llama.attention.key_length": 64, "llama.attention.value_length": 64}
F32, TQ1_0, TQ2_0 = 0, 34, 35


def slm(*words):
    return subprocess.run([SLM, *map(str, words)], capture_output=True, text=True, timeout=120)


def keys_of(data):
    """[(name, type, raw bytes of the value)] of a GGUF file."""
    at, out = 24, []

    def text():
        nonlocal at
        n = struct.unpack_from("<Q", data, at)[0]
        at += 8 + n
        return data[at - n:at].decode()

    def value(kind):
        nonlocal at
        if kind == 8:
            text()
        elif kind == 9:
            kind, n = struct.unpack_from("<IQ", data, at)
            at += 12
            for _ in range(n):
                value(kind)
        else:
            at += struct.calcsize(SIZES[kind])
    for _ in range(struct.unpack_from("<Q", data, 16)[0]):
        name = text()
        kind = struct.unpack_from("<I", data, at)[0]
        at += 4
        begin = at
        value(kind)
        out.append((name, kind, data[begin:at]))
    return out


def ternary(rng, rows, kind):
    """Blocks of 256 values d * {-1, 0, 1}, and the values."""
    blocks, values = b"", array.array("f")
    for _ in range(rows * E // 256):
        d = struct.unpack("<e", struct.pack("<e", rng.uniform(0.01, 0.05)))[0]
        t = [rng.randint(-1, 1) for _ in range(256)]
        values.extend(d * x for x in t)
        if kind == TQ2_0:
            for half in (0, 128):
                blocks += bytes(sum((t[half + 32 * plane + i] + 1) << 2 * plane for plane in range(4)) for i in range(32))
        else:
            def digits(begin, n, count):
                out = b""
                for i in range(n):
                    number = 0
                    for d_idx in range(5):
                        number = 3 * number + (t[begin + d_idx * n + i] + 1 if d_idx < count else 0)
                    out += bytes([(number * 256 + 242) // 243])
                return out
            blocks += digits(0, 32, 5) + digits(160, 16, 5) + digits(240, 4, 4)
        blocks += struct.pack("<e", d)
    return blocks, values


def write_model(path, kind):
    rng = random.Random(kind)
    tensors, values = [("token_embd.weight", [E, VOCAB], F32, struct.pack(f"<{E * VOCAB}f", *(rng.gauss(0, 1) for _ in range(E * VOCAB))))], {}
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        tensors.append((name + ".weight", [E], F32, struct.pack(f"<{E}f", *[1.0] * E)))
    for name, rows in (("attn_q", E), ("attn_k", E // 2), ("attn_v", E // 2), ("attn_output", E), ("ffn_gate", E), ("ffn_up", E), ("ffn_down", E)):
        blocks, values[f"blk.0.{name}.weight"] = ternary(rng, rows, kind)
        tensors.append((f"blk.0.{name}.weight", [E, rows], kind, blocks))
    out, keys = b"", keys_of(DONOR.read_bytes())
    for name, key_type, raw in keys:
        if name in KEYS:
            raw = struct.pack("<" + SIZES[key_type], KEYS[name])
        out += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", key_type) + raw
    at = 0
    for name, dims, tensor_type, data in tensors:
        out += struct.pack("<Q", len(name)) + name.encode() + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, tensor_type, at)
        at += (len(data) + 31) // 32 * 32
    out = struct.pack("<IIQQ", 0x46554747, 3, len(tensors), len(keys)) + out
    out += b"\0" * (-len(out) % 32)
    for _, _, _, data in tensors:
        out += data + b"\0" * (-len(data) % 32)
    path.write_bytes(out)
    return values


class Ternary(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.d = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def ok(self, *args):
        r = slm(*args)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r

    def dump(self, model, name):
        self.ok("dump", model, "--tensor", name, "--out", self.d / "values")
        return array.array("f", (self.d / "values").read_bytes())

    def test_kept_exactly_where_the_type_holds_it(self):
        for kind in (TQ1_0, TQ2_0):
            source = self.d / f"{kind}.gguf"
            want = write_model(source, kind)
            for name, values in want.items():
                self.assertEqual(self.dump(source, name), values, "as the layout says")
            answers = {self.ok("run", source, "--raw", "-p", "the cat", "-n", "8", "--temp", "0").stdout}
            for to in ("q4_0", "q4_1", "q5_0", "q8_0"):
                with self.subTest(kind=kind, to=to):
                    out = self.d / "out.gguf"
                    report = json.loads(self.ok("quantize", source, "-o", out, "--type", to, "--no-gate", "--json").stdout)
                    self.assertEqual({t["error"] for t in report["tensors"] if t["scheme"] == to.upper() and "blk" in t["name"]}, {0})
                    for name, values in want.items():
                        self.assertEqual(self.dump(out, name), values)
            self.ok("quantize", source, "-o", self.d / "same.gguf", "--type", "q4_0", "--head", "f16", "--no-gate")
            answers.add(self.ok("run", self.d / "same.gguf", "--raw", "-p", "the cat", "-n", "8", "--temp", "0").stdout)
            self.assertEqual(len(answers), 1, "the same answer from the same values")

    def test_refused_where_it_would_lose(self):
        source = self.d / "t.gguf"
        write_model(source, TQ2_0)
        for words, says in ((("--type", "q4_k"), "--type q4_0 keeps its values"), (("--type", "q4_0", "--recipe", "default"), "trained for"),
                            (("--type", "q4_0", "--search", "rtn"), "already TQ2_0")):
            r = slm("quantize", source, "-o", self.d / "no.gguf", *words)
            self.assertEqual(r.returncode, 1, r.stderr)
            self.assertIn(says, r.stderr)
        self.ok("quantize", source, "-o", self.d / "yes.gguf", "--type", "q4_k", "--requantize", "--no-gate")


if __name__ == "__main__":
    SLM = sys.argv.pop(1)
    unittest.main()
