"""slm quantize --losses: what rounding loses of single matrices, against formulas written here.   losses_test.py SLM"""
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

SLM = ""
SOURCE = pathlib.Path(os.environ.get("SLM_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
LLAMA = SOURCE / "tests/tiny/models/llama"


def slm(*words):
    return subprocess.run([SLM, *map(str, words)], capture_output=True, text=True, timeout=120)


def losses(source, schemes, *more):
    r = slm("quantize", source, "--losses", ",".join(schemes), *more, "--json")
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def f32(v):
    return struct.unpack("<f", struct.pack("<f", v))[0]


def f16(v):
    return struct.unpack("<e", struct.pack("<e", v))[0]


def nearest(v):
    return math.floor(abs(v) + 0.5) * (1 if v >= 0 else -1)


def q4_0(block):
    """ggml's: the sign of the largest value, codes 0 to 15."""
    top = max(block, key=abs)
    d = top / -8
    return [(min(15, math.floor(x / d + 8.5)) - 8) * f16(d) for x in block] if d else block


def q8_0(block):
    d = max(map(abs, block)) / 127
    return [nearest(x / d) * f16(d) for x in block] if d else block


def mxfp4(block):
    """OCP Microscaling: a power of two, the exponent of the largest value less 2."""
    scale = 2.0 ** (math.floor(math.log2(max(map(abs, block)))) - 2)
    grid = [0, .5, 1, 1.5, 2, 3, 4, 6]
    return [math.copysign(min(grid, key=lambda g: abs(abs(x) / scale - g)) * scale, x) for x in block]


def relative(values, stored):
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(values, stored)) / sum(a * a for a in values))


class Losses(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.d = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def file(self, tensors):
        """A bare safetensors file with the names of no language model."""
        header, at = {}, 0
        for name, (shape, values) in tensors.items():
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * len(values)]}
            at += 4 * len(values)
        text = json.dumps(header).encode()
        path = self.d / "made.safetensors"
        path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(struct.pack(f"<{len(v)}f", *v) for _, v in tensors.values()))
        return path

    def test_formats_by_their_formulas(self):
        values, state = [], 1
        for _ in range(24 * 64):
            state = state * 1103515245 + 12345 & 0x7fffffff
            values.append(f32((state / 0x7fffffff - 0.5) ** 3))
        path = self.file({"encoder.layer.0.attention.self.query.weight": ([24, 64], values), "encoder.bias": ([24], values[:24])})
        j = losses(path, ["q4_0", "q8_0", "mxfp4"], "--search", "rtn")
        self.assertEqual([t["name"] for t in j["tensors"]], ["encoder.layer.0.attention.self.query.weight"])
        for row, formula in zip(j["tensors"][0]["losses"], (q4_0, q8_0, mxfp4)):
            stored = [v for at in range(0, len(values), 32) for v in formula(values[at:at + 32])]
            want = relative(values, stored)
            self.assertAlmostEqual(row["error"] / want, 1, delta=2e-3, msg=row)  # ties and the f32 of the quotient
            self.assertAlmostEqual(row["sqnr_db"], -20 * math.log10(row["error"]), places=9)
        self.assertEqual([row["bits"] for row in j["tensors"][0]["losses"]], [4.5, 8.5, 4.25])
        better = losses(path, ["q4_0"])["tensors"][0]["losses"][0]["error"]  # scales searched
        self.assertLess(better, j["tensors"][0]["losses"][0]["error"])

    def test_what_lies_on_a_grid_is_kept(self):
        values = [(i * 7 % 16 - 8) * 0.5 for i in range(32 * 8)]
        row = losses(self.file({"m": ([8, 32], values)}), ["q4_0"])["tensors"][0]["losses"][0]
        self.assertEqual((row["error"], row["sqnr_db"]), (0, None))

    def test_widths_that_a_scheme_does_not_go_with(self):
        ones = lambda n, k: ([n, k], [f32(math.sin(i)) for i in range(n * k)])
        path = self.file({"a": ones(4, 576), "b": ones(4, 172), "c": ones(4, 256)})
        j = losses(path, ["q4_k", "w4-sym-g128", "w4-sym-channel", "mxfp4"])
        stored = [[row["stored"] for row in t["losses"]] for t in j["tensors"]]
        self.assertEqual(stored, [["q4_1", "w4-sym-g64", "w4-sym-channel", "mxfp4"], ["f16", None, "w4-sym-channel", "f16"],
                                  ["q4_k", "w4-sym-g128", "w4-sym-channel", "mxfp4"]])
        self.assertIn("172", j["tensors"][1]["losses"][1]["why"])
        self.assertEqual([(a["scheme"], a["matrices"]) for a in j["all"]], [("q4_k", 1), ("w4-sym-g128", 1), ("w4-sym-channel", 3), ("mxfp4", 2)])
        # The whole is the powers together.
        channel = [t["losses"][2] for t in j["tensors"]]
        power = [sum(v * v for v in (f32(math.sin(i)) for i in range(4 * t["width"]))) for t in j["tensors"]]
        want = math.sqrt(sum(p * c["error"] ** 2 for p, c in zip(power, channel)) / sum(power))
        self.assertAlmostEqual(j["all"][2]["error"], want, places=9)

    def test_as_quantize_reports(self):
        """A model's matrices lose what the written file lost."""
        out = self.d / "out.gguf"
        r = slm("quantize", LLAMA, "-o", out, "--type", "q5_0", "--head", "q8_0", "--no-gate", "--json")
        self.assertEqual(r.returncode, 0, r.stderr)
        written = {t["name"]: t["error"] for t in json.loads(r.stdout)["tensors"] if t["scheme"] == "Q5_0"}
        j = losses(LLAMA, ["q5_0"])
        got = {t["name"]: t["losses"][0]["error"] for t in j["tensors"]}
        self.assertEqual(written["blk.0.attn_v.weight"], got["model.layers.0.self_attn.v_proj.weight"])
        self.assertEqual(written["blk.1.ffn_gate.weight"], got["model.layers.1.mlp.gate_proj.weight"])
        text = slm("quantize", LLAMA, "--losses", "q5_0,w8-sym-channel")
        self.assertEqual(text.returncode, 0, text.stderr)
        self.assertIn("model.layers.1.mlp.gate_proj.weight", text.stdout)
        self.assertIn(" dB", text.stdout)

    def test_the_same_for_any_number_of_threads(self):
        self.assertEqual(losses(LLAMA, ["q4_0", "nvfp4", "lpbq-g16"], "-t", 1), losses(LLAMA, ["q4_0", "nvfp4", "lpbq-g16"], "-t", 3))

    def test_refusals(self):
        def refused(code, *words, says):
            r = slm("quantize", *words)
            self.assertEqual(r.returncode, code, r.stderr)
            self.assertIn(says, r.stderr)
        refused(2, LLAMA, "--losses", "q4_9", says="q4_0, ")
        refused(2, LLAMA, "--losses", "q4_0", "-o", self.d / "x", says="writes nothing")
        refused(2, "--losses", "q4_0", says="name the source")
        nan = self.file({"m": ([1, 32], [float("nan")] * 32)})
        refused(1, nan, "--losses", "q4_0", says="row 0 holds NaN")
        empty = self.file({"bias": ([32], [1.0] * 32)})
        refused(1, empty, "--losses", "q4_0", says="no matrices of floats")


if __name__ == "__main__":
    SLM = sys.argv.pop(1)
    unittest.main()
