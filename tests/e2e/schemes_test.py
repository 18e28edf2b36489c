"""Folders with rounded activations, FP4, LPBQ and BitNet's packing, and rotated models: by the formats' formulas.   schemes_test.py SLM"""
import array
import json
import math
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

from weights_file import read_tensors, write_tensors

SLM = ""
SOURCE = pathlib.Path(os.environ.get("SLM_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
LLAMA = SOURCE / "tests/tiny/models/llama"
LLAMA_GGUF = SOURCE / "tests/tiny/models/llama.gguf"
MATRIX = "model.layers.0.mlp.up_proj"
TEXT = "the thin hat in the tin and the ant in a thing, the cat in an oven\n"
E2M1 = [0, .5, 1, 1.5, 2, 3, 4, 6]


def slm(*words, text=None):
    return subprocess.run([SLM, *map(str, words)], capture_output=True, text=True, timeout=120, input=text)


def tensors(folder):
    return read_tensors(folder / "model.safetensors")


def numbers(t):
    return struct.unpack(f"<{len(t[2]) // {'I8': 1, 'U8': 1, 'F16': 2, 'BF16': 2, 'F32': 4, 'I32': 4, 'I64': 8}[t[0]]}"
                         f"{dict(I8='b', U8='B', F16='e', BF16='H', F32='f', I32='I', I64='q')[t[0]]}", t[2])


def floats(t):
    return [struct.unpack("<f", struct.pack("<I", h << 16))[0] for h in numbers(t)] if t[0] == "BF16" else list(numbers(t))


def f32(v):
    return struct.unpack("<f", struct.pack("<f", v))[0]


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    return (mantissa / 8 * 2 ** -6 if exponent == 0 else (1 + mantissa / 8) * 2 ** (exponent - 7)) * (-1 if code & 128 else 1)


def widened(out):
    """LLAMA with MLPs of 64 channels in place of 48, the new ones 0: every width divides by 32."""
    shutil.copytree(LLAMA, out)
    stored = {}
    for name, (dtype, shape, part) in tensors(out).items():
        rows, size = shape[0], len(part) // shape[0]
        parts = [part[i * size:(i + 1) * size] for i in range(rows)]
        if shape[-1] == 48:
            parts, shape = [row.ljust(size // 48 * 64, b"\0") for row in parts], [rows, 64]
        elif rows == 48:
            parts, shape = parts + [bytes(size)] * 16, [64, *shape[1:]]
        stored[name] = (dtype, shape, b"".join(parts))
    write_tensors(out / "model.safetensors", stored)
    config = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(config | {"intermediate_size": 64}))
    return out


def config_of(folder):
    return json.loads((folder / "config.json").read_text())["quantization_config"]


def bytes_values(folder, name):
    """int-quantized: signed bytes, a scale for each row and group."""
    ts = tensors(folder)
    codes, scales = ts[name + ".weight"], ts[name + ".weight_scale"]
    (n, k), groups = codes[1], scales[1][1]
    q, s = numbers(codes), floats(scales)
    return [f32(s[i // k * groups + i % k * groups // k] * q[i]) for i in range(n * k)]


def fp4_values(folder, name):
    ts = tensors(folder)
    packed, scales = ts[name + ".weight_packed"], ts[name + ".weight_scale"]
    n, k = packed[1][0], packed[1][1] * 2
    groups = scales[1][1]
    if scales[0] == "F8_E4M3":
        shared = numbers(ts[name + ".weight_global_scale"])[0]
        s = [f32(e4m3(b) / shared) for b in scales[2]]
    else:
        s = [2.0 ** (b - 127) for b in scales[2]]
    out = []
    for i in range(n * k):
        code = packed[2][i // 2] >> 4 * (i % 2) & 15
        out.append(f32((-1 if code & 8 else 1) * E2M1[code & 7] * s[i // k * groups + i % k * groups // k]))
    return out


class Schemes(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.d = pathlib.Path(self.folder.name)
        self.text = self.d / "calib.txt"
        self.text.write_text(TEXT * 40)
        self.calib = ("--calib", self.text, "--calib-seqs", "6", "--calib-tokens", "48")

    def tearDown(self):
        self.folder.cleanup()

    def ok(self, *args, **more):
        r = slm(*args, **more)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r

    def refused(self, code, *args, says):
        r = slm(*args)
        self.assertEqual(r.returncode, code, r.stderr)
        self.assertIn(says, r.stderr)

    def quantize(self, source, *more, to="compressed-tensors", out="out"):
        report = self.ok("quantize", source, "-o", self.d / out, "--to", to, *more, "--json")
        return json.loads(report.stdout), self.d / out

    def dump(self, model, name=MATRIX + ".weight"):
        out = self.d / "dump.f32"
        self.ok("dump", model, "--tensor", name, "--out", out)
        values = array.array("f")
        values.frombytes(out.read_bytes())
        return list(values)

    def error_of(self, got, want):
        return math.sqrt(sum((a - b) ** 2 for a, b in zip(got, want)) / sum(b * b for b in want))

    def test_dynamic_activations(self):
        want = self.dump(LLAMA)
        for words, bits, group, most in (((), 8, None, 0.01), (("--bits", "4", "--group", "16"), 4, 16, 0.12)):
            report, out = self.quantize(LLAMA, "--activations", "dynamic", *words, out=f"w{bits}")
            config = config_of(out)
            self.assertEqual(config["format"], "int-quantized")
            scheme = config["config_groups"]["group_0"]
            self.assertEqual(scheme["input_activations"] | {"x": 0},
                             {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "group_size": None, "dynamic": True, "x": 0})
            self.assertEqual((scheme["weights"]["num_bits"], scheme["weights"]["group_size"]), (bits, group))
            self.assertEqual(scheme["weights"]["strategy"], "group" if group else "channel")
            self.assertNotIn(MATRIX + ".input_scale", tensors(out))
            got = self.dump(out)
            self.assertEqual(got, bytes_values(out, MATRIX))
            self.assertLess(self.error_of(got, want), most)
            self.assertEqual(report["activations"], {"bits": 8, "scales": "dynamic"})
            self.ok("run", out, "--raw", "-p", "the", "--max-tokens", "4")
        self.refused(2, "quantize", LLAMA, "-o", self.d / "x", "--to", "awq", "--activations", "dynamic", says="compressed-tensors")
        self.refused(2, "quantize", LLAMA, "-o", self.d / "x", "--activations", "dynamic", says="--to")

    def test_static_activations(self):
        """Without folds the range of the first layer's input is that of its norm over the tokens of the text, computed here."""
        for rule in ("minmax", "percentile", "mse", "entropy", "measured"):
            report, out = self.quantize(LLAMA, "--activations", "static", "--ranges", rule, "--recipe", "default", "--fold", "none",
                                        "--codes", "nearest", "--most-energy", "0", *self.calib, out=rule)
            ts = tensors(out)
            scheme = config_of(out)["config_groups"]["group_0"]
            self.assertEqual((scheme["input_activations"]["strategy"], scheme["input_activations"]["dynamic"]), ("tensor", False))
            scale = {p: numbers(ts[f"model.layers.0.self_attn.{p}_proj.input_scale"]) for p in "qkvo"}
            self.assertEqual(scale["q"], scale["k"])
            self.assertEqual(scale["q"], scale["v"])
            self.assertEqual(ts["model.layers.0.self_attn.q_proj.input_scale"][:2], ("F32", [1]))
            first = report["layers"][0]["ranges"][0]
            self.assertAlmostEqual(first["range"] / 127, scale["q"][0], delta=1e-6 * scale["q"][0])
            source = tensors(LLAMA)
            table, norm = floats(source["model.embed_tokens.weight"]), floats(source["model.layers.0.input_layernorm.weight"])
            most = 0
            ids = json.loads(self.ok("tokenize", LLAMA, "--json", text=TEXT * 2).stdout)["ids"]
            for t in set(ids):
                row = table[32 * t:32 * t + 32]
                root = math.sqrt(sum(x * x for x in row) / 32 + 1e-6)
                most = max(most, max(abs(x / root * w) for x, w in zip(row, norm)))
            if rule == "minmax":
                self.assertAlmostEqual(first["range"], most, delta=1e-5 * most)
            self.assertLessEqual(first["range"], most * (1 + 1e-5))
            self.assertAlmostEqual(first["largest"], most, delta=1e-5 * most)
            self.assertEqual(self.dump(out), bytes_values(out, MATRIX))
            self.assertTrue(any("static ranges" in n for n in report["notes"]))
        self.refused(2, "quantize", LLAMA, "-o", self.d / "x", "--to", "compressed-tensors", "--activations", "static", says="--recipe")
        self.refused(2, "quantize", LLAMA, "-o", self.d / "x", "--to", "compressed-tensors", "--ranges", "mse", says="--activations static")

    def test_smoothing(self):
        """A channel of the activations that is 60 times the others: smoothing moves it into the weights, and the model stays the same."""
        source = self.d / "outlier"
        shutil.copytree(LLAMA, source)
        stored = tensors(source)

        def scale(name, factor, places):
            kind, shape, data = stored[name]
            data = bytearray(data)
            for i in places:
                if kind == "BF16":
                    v = struct.unpack("<f", b"\0\0" + data[2 * i:2 * i + 2])[0] * factor
                    data[2 * i:2 * i + 2] = struct.pack("<f", v)[2:]
                else:
                    code, width = {"F32": ("<f", 4), "F16": ("<e", 2)}[kind]
                    v = struct.unpack_from(code, data, width * i)[0] * factor
                    struct.pack_into(code, data, width * i, v)
            stored[name] = (kind, shape, data)
        for layer in range(2):  # by powers of 2: the float model is the same
            scale(f"model.layers.{layer}.input_layernorm.weight", 64, [5])
            for p in "qkv":
                n = stored[f"model.layers.{layer}.self_attn.{p}_proj.weight"][1][0]
                scale(f"model.layers.{layer}.self_attn.{p}_proj.weight", 1 / 64, [32 * r + 5 for r in range(n)])
        write_tensors(source / "model.safetensors", stored)
        words = ("--activations", "static", "--recipe", "default", "--codes", "nearest", "--weights", "equal", "--ranges", "minmax", *self.calib)
        smooth, out = self.quantize(source, *words, "--fold", "smooth", out="smooth")
        self.assertTrue(all(any("smooth attention_input" in s for s in layer["steps"]) for layer in smooth["layers"]), smooth["layers"])
        for layer in smooth["layers"]:
            self.assertLess(layer["error"], layer["plain_error"] / 4)
        self.ok("run", out, "--raw", "-p", "the", "--max-tokens", "4")
        again = self.quantize(source, *words, "--fold", "smooth", "-t", "1", out="again")[1]
        self.assertEqual((again / "model.safetensors").read_bytes(), (out / "model.safetensors").read_bytes())
        text = self.d / "judge.txt"
        text.write_text(TEXT * 20)
        kld = json.loads(self.ok("eval", out, "kld", "--base", source, "--text", text, "--window", "48", "--windows", "6", "--compute", "f32",
                                 "--json").stdout)["kld"]["mean"]
        self.assertLess(kld, 0.01)

    def test_fp4(self):
        want = self.dump(LLAMA)
        wide = widened(self.d / "wide")
        for name, group, strategy, source in (("nvfp4", 16, "tensor_group", LLAMA), ("mxfp4", 32, "group", wide)):
            calibrated = ("--recipe", "default", *self.calib)
            for recipe in ((), calibrated, (*calibrated, "--fold", "none")):
                report, out = self.quantize(source, "--scheme", name, *recipe, out=name + str(len(recipe)))
                config = config_of(out)
                self.assertEqual(config["format"], name + "-pack-quantized")
                weights = config["config_groups"]["group_0"]["weights"]
                self.assertEqual((weights["num_bits"], weights["type"], weights["strategy"], weights["group_size"]), (4, "float", strategy, group))
                got, from_values = self.dump(out), want if source == LLAMA else self.dump(source)
                self.assertEqual(got, fp4_values(out, MATRIX))
                error = self.error_of(got, from_values)
                if recipe != calibrated:  # a fold scales the matrix itself
                    self.assertLess(error, 0.16)
                self.assertTrue(recipe or abs(next(t["error"] for t in report["tensors"] if t["name"] == MATRIX + ".weight") - error) < 1e-5)
                self.assertEqual(report["scheme"], name)
        gguf = self.d / "m.gguf"
        self.ok("export", self.d / "mxfp40", "--to", "gguf", "-o", gguf)
        self.assertEqual(self.dump(gguf, "blk.0.ffn_up.weight"), self.dump(self.d / "mxfp40"))
        self.refused(2, "quantize", LLAMA, "-o", self.d / "x", "--to", "gptq", "--scheme", "nvfp4", says="compressed-tensors")
        self.refused(1, "quantize", LLAMA, "-o", self.d / "x", "--to", "compressed-tensors", "--scheme", "mxfp4", says="groups of 32")
        self.refused(2, "quantize", LLAMA, "-o", self.d / "x", "--to", "compressed-tensors", "--scheme", "w4", says="mxfp4 or nvfp4")

    def test_mxfp4_in_gguf(self):
        """Blocks of E8M0 and 16 bytes, value i in the low nibble of byte i, 16 + i in the high one (ggml's block_mxfp4)."""
        source = SOURCE / "tests/tiny/models/llama3_rope.gguf"
        out = self.d / "m.gguf"
        report = json.loads(self.ok("quantize", source, "-o", out, "--type", "mxfp4", "--no-gate", "--json").stdout)
        tensor = next(t for t in report["tensors"] if t["name"] == "blk.0.attn_q.weight")
        self.assertEqual(tensor["scheme"], "MXFP4")
        want, got = (self.dump(m, "blk.0.attn_q.weight") for m in (source, out))
        self.assertAlmostEqual(self.error_of(got, want), tensor["error"], delta=1e-5)
        self.assertLess(tensor["error"], 0.16)
        for at in range(0, len(got), 32):  # every block is a power of two times E2M1
            block = got[at:at + 32]
            most = max(map(abs, block))
            if most == 0:
                continue
            self.assertTrue(any(all(abs(v) / s in E2M1 for v in block) for s in (2.0 ** (math.floor(math.log2(most)) - e) for e in range(4))))

    def test_lpbq(self):
        """Scales of the groups are 1 to 16 times one number of the row."""
        report, out = self.quantize(LLAMA, "--scheme", "lpbq-g16")
        self.assertEqual(report["scheme"], "lpbq-g16")
        self.assertTrue(any(t["scheme"] == "lpbq in groups of 16" for t in report["tensors"]))
        scales = tensors(out)[MATRIX + ".weight_scale"]
        self.assertEqual(scales[0], "F32")
        n, groups = scales[1]
        s = numbers(scales)
        for row in range(n):
            mine = s[row * groups:(row + 1) * groups]
            self.assertTrue(any(all(abs(x / (max(mine) / k) - round(x / (max(mine) / k))) < 1e-5 and 1 <= round(x / (max(mine) / k)) <= 16
                                    for x in mine) for k in range(1, 17)))
        words, shape = numbers(tensors(out)[MATRIX + ".weight_packed"]), numbers(tensors(out)[MATRIX + ".weight_shape"])
        k = shape[1]
        values = [f32(s[i // k * groups + i % k * groups // k] * ((words[i // 8] >> 4 * (i % 8) & 15) - 8)) for i in range(n * k)]
        self.assertEqual(self.dump(out), values)

    def test_the_recipe_npu(self):
        """Two groups of the config; every value by the packing's formula, scales of blocks as multiples of one number of their row."""
        report, out = self.quantize(LLAMA, "--recipe", "npu", "--scheme", "lpbq-g16", *self.calib)
        self.assertEqual((report["recipe"], report["scheme"], report["down_projections"]), ("npu", "lpbq-g16", "w8-sym-channel"))
        groups = config_of(out)["config_groups"]
        self.assertEqual([groups[g]["weights"]["num_bits"] for g in ("group_0", "group_1")], [4, 8])
        self.assertEqual((groups["group_0"]["targets"], groups["group_1"]["targets"]), (["Linear"], [f"model.layers.{i}.mlp.down_proj" for i in (0, 1)]))
        self.assertEqual((groups["group_1"]["weights"]["strategy"], groups["group_1"]["weights"]["group_size"]), ("channel", None))
        self.assertEqual([groups[g]["input_activations"] for g in groups], [None, None])
        ts = tensors(out)
        for name, bits, most in ((MATRIX, 4, 0.15), ("model.layers.1.mlp.down_proj", 8, 0.01)):
            s, words = floats(ts[name + ".weight_scale"]), numbers(ts[name + ".weight_packed"])
            n, k = numbers(ts[name + ".weight_shape"])
            per, per_row = 32 // bits, ts[name + ".weight_packed"][1][1]
            groups = len(s) // n
            code = lambda i, j: (words[i * per_row + j // per] >> bits * (j % per) & (1 << bits) - 1) - (1 << bits - 1)
            values = [f32(s[i * groups + j * groups // k] * code(i, j)) for i in range(n) for j in range(k)]
            self.assertEqual(self.dump(out, name + ".weight"), values)
            self.assertLess(self.error_of(values, self.dump(LLAMA, name + ".weight")), most)
            if bits == 4:
                for row in range(n):
                    unit = max(s[row * groups:(row + 1) * groups]) / 16
                    for x in s[row * groups:(row + 1) * groups]:
                        self.assertAlmostEqual(x / unit, round(x / unit), places=4)
        self.assertTrue(any("gptq" in way for layer in report["layers"] for way in layer["ways"] if "up_proj" in way or "q_proj" in way))
        self.ok("run", out, "--raw", "-p", "the", "--max-tokens", "4")

    def test_the_recipe_npu_is_printed_and_overridden(self):
        printed = json.loads(self.ok("quantize", "--recipe", "npu", "--to", "compressed-tensors", "--print-recipe").stdout)
        self.assertEqual((printed["scheme"], printed["down_projections"], printed["symmetric"], printed["activations"]),
                         ("lpbq-g32", "w8-sym-channel", True, None))
        graphs = json.loads(self.ok("export", "--to", "qdq", "--print-recipe").stdout)
        self.assertEqual((graphs["matrices"], graphs["down_projections"]), (printed["scheme"], printed["down_projections"]))
        graphs["calibration"].pop("fold"), printed["calibration"].pop("fold")
        self.assertEqual(graphs["calibration"], printed["calibration"])
        rows = json.loads(self.ok("quantize", "--recipe", "npu", "--to", "compressed-tensors", "--scheme", "w4-sym-channel", "--print-recipe").stdout)
        self.assertEqual((rows["scheme"], rows["down_projections"]), ("w4-sym-channel", "w8-sym-channel"))
        for words, says in ((("--to", "gguf"), "GGUF"), (("--to", "awq"), "awq has one grid"), (("--to", "gptq-v2"), "gptq-v2 has one grid"),
                            (("--to", "compressed-tensors", "--scheme", "w4-zp-g32"), "symmetric"), (("--to", "compressed-tensors", "--scheme", "nvfp4"), "symmetric"),
                            (("--to", "compressed-tensors", "--bits", "8"), "--scheme"), (("--to", "compressed-tensors", "--activations", "static"), "16")):
            self.refused(2, "quantize", LLAMA, "-o", self.d / "x", "--recipe", "npu", *words, says=says)
            self.assertFalse((self.d / "x").exists())

    def test_a_packed_source_keeps_its_own(self):
        _, source = self.quantize(LLAMA, "--bits", "4", "--group", "16", to="awq", out="awq")
        self.refused(1, "quantize", source, "-o", self.d / "x", "--to", "compressed-tensors", "--bits", "8", says="the weights have 4")
        self.refused(1, "quantize", source, "-o", self.d / "x", "--to", "compressed-tensors", "--group", "8", says="groups of 8")
        self.refused(1, "quantize", source, "-o", self.d / "x", "--to", "compressed-tensors", "--sym", says="zero points")
        self.refused(1, "quantize", source, "-o", self.d / "x", "--to", "compressed-tensors", "--scheme", "nvfp4", says="--requantize")
        report, _ = self.quantize(source, "--bits", "4", "--group", "16", out="same")
        self.assertTrue(report["lossless"])

    def bitnet(self, how):
        """LLAMA with ternary matrices, four a byte. -> (folder, {name: values})"""
        folder, values, stored = self.d / ("bitnet-" + how), {}, {}
        shutil.copytree(LLAMA, folder)
        for name, (kind, shape, data) in tensors(LLAMA).items():
            if "_proj" in name:
                rng, (n, k) = random.Random(name), shape
                codes = [rng.choice((-1, 0, 1)) for _ in range(n * k)]
                scale = 2.0 ** rng.randint(-4, -2) * 1.5
                weight = scale if how == "autobitlinear" else f32(1 / scale)
                values[name] = [f32(c * weight) for c in codes]
                data = bytes(sum(codes[(r + q * n // 4) * k + c] + 1 << 2 * q for q in range(4)) for r in range(n // 4) for c in range(k))
                kind, shape = "U8", [n // 4, k]
                stored[name.removesuffix("weight") + "weight_scale"] = ("BF16", [1], struct.pack("<f", scale)[2:])
            stored[name] = (kind, shape, data)
        write_tensors(folder / "model.safetensors", stored)
        config = json.loads((folder / "config.json").read_text())
        config["quantization_config"] = {"quant_method": "bitnet", "linear_class": how, "quantization_mode": "offline"}
        (folder / "config.json").write_text(json.dumps(config))
        return folder, values

    def test_bitnet_folders(self):
        for how in ("bitlinear", "autobitlinear"):
            source, values = self.bitnet(how)
            for name in (MATRIX + ".weight", "model.layers.1.self_attn.o_proj.weight"):
                self.assertEqual(self.dump(source, name), values[name])
            self.ok("run", source, "--raw", "-p", "the", "--max-tokens", "4")
            for to in ("gptq-v2", "compressed-tensors"):
                if how == "bitlinear" and to == "gptq-v2":
                    self.refused(1, "quantize", source, "-o", self.d / "x", "--to", to, says="no f16")
                    continue
                report, out = self.quantize(source, to=to, out=how + to)
                self.assertTrue(report["lossless"])
                self.assertEqual(self.dump(out), values[MATRIX + ".weight"])
            self.refused(1, "quantize", source, "-o", self.d / "x", "--to", "compressed-tensors", "--recipe", "default", says="kept exactly")

    def test_rotation(self):
        """A rotated file of 8 bits is as near to its source as one that was not."""
        text = self.d / "judge.txt"
        text.write_text(TEXT * 20)
        kld = []
        for rotate in ("hadamard", "none"):
            out = self.d / (rotate + ".gguf")
            r = self.ok("quantize", LLAMA, "-o", out, "--type", "q8_0", "--head", "f16", "--rotate", rotate, "--no-gate", "--json")
            self.assertEqual(json.loads(r.stdout)["rotation"], None if rotate == "none" else rotate)
            kld.append(json.loads(self.ok("eval", out, "kld", "--base", LLAMA, "--text", text, "--window", "48", "--windows", "6", "--compute", "f32",
                                          "--json").stdout)["kld"]["mean"])
        self.assertLess(kld[0], 3 * kld[1] + 1e-6)
        self.assertEqual([p.name for p in self.d.iterdir() if "rotated" in p.name], [])
        gemma = SOURCE / "tests/tiny/models/gemma3.gguf"
        self.refused(1, "quantize", gemma, "-o", self.d / "x.gguf", "--rotate", "hadamard", says="leave --rotate out")
        self.refused(2, "quantize", LLAMA, "-o", self.d / "x", "--to", "awq", "--rotate", "hadamard", says="--to gguf")


if __name__ == "__main__":
    SLM = sys.argv.pop(1)
    unittest.main()
