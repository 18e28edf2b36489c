"""ONNX files: slm inspect, slm export --to onnx, slm op-test; attacks through external data.   onnx_test.py SLM

Files are written here, field by field, from ONNX's description of its messages. With the `onnx` package installed, it checks and reads
what we wrote; SLM_NEED_ONNX=1: without it that fails."""
import importlib.util
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

SLM = ""
SOURCE = pathlib.Path(os.environ.get("SLM_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
NODES = SOURCE / "tests/tiny/onnx_nodes"
FLOAT, INT64 = 1, 7


def slm(*words):
    return subprocess.run([SLM, *map(str, words)], capture_output=True, text=True, timeout=60)


def varint(n):
    out, n = b"", n % 2**64
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def number(field, value):
    return varint(field << 3) + varint(value)


def block(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def tensor(name, dims, data=b"", kind=FLOAT, **external):
    """A TensorProto; location, offset, length: where the data lies outside."""
    out = b"".join(number(1, d) for d in dims) + number(2, kind) + block(8, name)
    if external:
        out += b"".join(block(13, block(1, k) + block(2, str(v))) for k, v in external.items()) + number(14, 1)
    return out + (b"" if external else block(9, data))


def value(name, *dims):
    shape = b"".join(block(1, number(1, d) if isinstance(d, int) else block(2, d)) for d in dims)
    return block(1, name) + block(2, block(1, number(1, FLOAT) + block(2, shape)))


def node(op, inputs, outputs, domain="", name=""):
    return b"".join(block(1, i) for i in inputs) + b"".join(block(2, o) for o in outputs) + block(3, name) + block(4, op) + block(7, domain)


def model(nodes, tensors=(), inputs=(value("x", "T", 4),), outputs=(value("y", "T", 4),), opset=21, functions=()):
    graph = b"".join(block(1, n) for n in nodes) + block(2, "g") + b"".join(block(5, t) for t in tensors)
    graph += b"".join(block(11, i) for i in inputs) + b"".join(block(12, o) for o in outputs)
    return number(1, 10) + block(2, "tests") + block(8, number(2, opset)) + block(7, graph) + b"".join(block(25, f) for f in functions)


ADD = node("Add", ["x", "w"], ["y"])
FOUR = struct.pack("<4f", 1, 2, 3, 4)


class Case(unittest.TestCase):
    def setUp(self):
        self.top = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.top)
        self.d = self.top / "m"
        self.d.mkdir()

    def write(self, data, name="model.onnx"):
        (self.d / name).write_bytes(data)
        return self.d / name

    def refused(self, data, *words):
        r = slm("inspect", self.write(data), "--json")
        self.assertEqual(r.returncode, 1, r.stdout)
        for word in ("model.onnx", *words):
            self.assertIn(word, r.stderr)
        self.assertTrue(json.loads(r.stdout)["error"]["hint"])
        self.assertNotIn("SECRET", r.stdout + r.stderr)

    def inspect(self, path):
        r = slm("inspect", path, "--json")
        self.assertEqual(r.returncode, 0, r.stderr)
        return json.loads(r.stdout)


class Inspect(Case):
    def test_what_is_in_a_file(self):
        (self.d / "w.bin").write_bytes(bytes(16) + FOUR)
        path = self.write(model([ADD, node("Relu", ["y"], ["z"])], [tensor("w", [4], location="w.bin", offset=16, length=16), tensor("v", [2], bytes(16), INT64)]))
        j = self.inspect(path)
        self.assertEqual((j["format"], j["n_params"], j["file_bytes"], j["name"]), ("onnx", 6, path.stat().st_size + 32, "g"))
        self.assertEqual(j["types"], [{"dtype": "FLOAT", "tensors": 1, "n_params": 4, "bytes": 16}, {"dtype": "INT64", "tensors": 1, "n_params": 2, "bytes": 16}])
        self.assertEqual([(t["name"], t["shape"], t["file"]) for t in j["tensors"]], [("w", [4], "w.bin"), ("v", [2], "model.onnx")])
        g = j["graphs"][0]
        self.assertEqual(g["opsets"], [{"domain": "", "version": 21}])
        self.assertEqual((g["producer"], g["ir_version"], g["nodes"]), ("tests", 10, 2))
        self.assertEqual(g["inputs"], [{"name": "x", "type": "FLOAT", "shape": ["T", 4]}])
        self.assertEqual([(o["op"], o["count"]) for o in g["operators"]], [("Add", 1), ("Relu", 1)])
        self.assertEqual(g["external_files"], [{"name": "w.bin", "bytes": 32}])
        text = slm("inspect", path).stdout
        for word in ("Add", "x FLOAT [T, 4]", "ai.onnx 21", "w.bin (32 B)"):
            self.assertIn(word, text)

    def test_packed_weights_count_as_what_they_stand_for(self):
        n = node("MatMulNBits", ["x", "b", "s"], ["y"], "com.microsoft")
        for name, v in (("N", 3), ("K", 40), ("bits", 4), ("block_size", 32)):
            n += block(5, block(1, name) + number(3, v) + number(20, 2))
        data = model([n], [tensor("b", [3, 2, 16], bytes(96), 2), tensor("s", [6], bytes(24))], [value("x", "T", 40)], [value("y", "T", 3)])
        j = self.inspect(self.write(data))
        self.assertEqual(j["n_params"], 120)
        self.assertAlmostEqual(j["bpw"], 8 * 120 / 120)

    def test_a_genai_folder(self):
        self.write(model([ADD], [tensor("w", [4], FOUR)]), "decoder.onnx")
        config = {"model": {"type": "qwen2", "context_length": 64, "vocab_size": 9, "eos_token_id": [1, 2], "decoder": {
            "filename": "decoder.onnx", "num_hidden_layers": 2, "inputs": {"past_key_names": "past.%d.key"}}}}
        (self.d / "genai_config.json").write_text(json.dumps(config))
        j = self.inspect(self.d)
        self.assertEqual((j["format"], j["arch"], j["n_params"]), ("genai", "qwen2", 4))
        self.assertEqual((j["genai"]["n_layers"], j["genai"]["max_context"], j["genai"]["eos_ids"]), (2, 64, [1, 2]))
        self.assertEqual(j["graphs"][0]["role"], "decoder")
        self.assertIn("qwen2", slm("inspect", self.d).stdout)
        for bad in ("past.%s", "past.%d.%d", "%n"):
            config["model"]["decoder"]["inputs"]["past_key_names"] = bad
            (self.d / "genai_config.json").write_text(json.dumps(config))
            self.assertEqual(slm("inspect", self.d).returncode, 1, bad)

    def test_names_and_numbers_that_contradict_each_other(self):
        w = tensor("w", [4], FOUR)
        self.refused(model([ADD], [w, w]), "two initializers", '"w"')
        self.refused(model([ADD, ADD], [w]), 'output "y"', "node 1")
        self.refused(model([node("Add", ["x", "b"], ["a"], name="first"), node("Add", ["a", "x"], ["b"], name="second")], [w]), "cycle", '"first"')
        self.refused(model([ADD]), 'input "w" is made nowhere')
        self.refused(model([ADD], [tensor("w", [-4], FOUR)]), "negative dimension")
        self.refused(model([ADD], [tensor("w", [2**40, 2**40], FOUR)]), "more values than can be counted")
        self.refused(model([ADD], [tensor("w", [5], FOUR)]), "needs 20")
        self.refused(model([ADD], [tensor("w", [4], FOUR, 99)]), "element type 99")
        self.refused(model([ADD], [w], inputs=[value("x", 4), value("x", 4)]), "two inputs")
        calls = [block(1, a) + block(4, "p") + block(5, "q") + block(7, node(b, ["p"], ["q"], "own")) + block(10, "own") for a, b in (("F", "G"), ("G", "F"))]
        self.refused(model([ADD], [w], functions=calls), "calls itself")


class External(Case):
    def data(self, **external):
        return model([ADD], [tensor("w", [4], **external)])

    def test_places_outside_the_folder(self):
        (self.top / "secret.bin").write_bytes(b"SECRET" * 10)
        (self.d / "out").symlink_to("..")
        (self.d / "link.bin").symlink_to("../secret.bin")
        for place in (self.top / "secret.bin", "../secret.bin", "out/secret.bin", "link.bin", "./../secret.bin", "..\\secret.bin", "C:\\x", "", "missing.bin", "out",
                      "/dev/zero", "file:///etc/passwd"):
            self.refused(self.data(location=place), 'tensor "w"', "external data")
        os.link(self.top / "secret.bin", self.d / "hard.bin")
        self.refused(self.data(location="hard.bin"), "hard link")
        (self.top / "secret.bin").unlink()
        self.inspect(self.write(self.data(location="hard.bin")))  # the only name that is left
        os.mkfifo(self.d / "pipe")
        self.refused(self.data(location="pipe"), "external data")

    def test_numbers(self):
        (self.d / "w.bin").write_bytes(bytes(24))
        for bad in ({"offset": 16}, {"offset": -1}, {"offset": "0x0"}, {"offset": 2**64}, {"offset": 2**64 - 8}, {"length": 12}, {"length": 2**63}, {"length": ""}):
            self.refused(self.data(location="w.bin", **bad), "external data")
        for good in ({}, {"offset": 8}, {"length": 16}, {"offset": 3, "length": 16}):
            self.inspect(self.write(self.data(location="w.bin", **good)))

    def test_links_inside_the_folder_and_shared_bytes(self):
        (self.d / "real.bin").write_bytes(FOUR)
        (self.d / "link.bin").symlink_to("real.bin")
        os.link(self.d / "real.bin", self.d / "hard.bin")
        two = model([ADD], [tensor("w", [4], location="link.bin"), tensor("v", [2], location="hard.bin", offset=4)])
        self.assertEqual(len(self.inspect(self.write(two))["tensors"]), 2)

    def test_the_cache_of_a_hub(self):
        blobs, snapshot = self.d / "blobs", self.d / "snapshots/abc/onnx"
        blobs.mkdir(), snapshot.mkdir(parents=True)
        (blobs / "1").write_bytes(self.data(location="model.onnx_data"))
        (blobs / "2").write_bytes(FOUR)
        (snapshot / "model.onnx").symlink_to("../../../blobs/1")
        (snapshot / "model.onnx_data").symlink_to("../../../blobs/2")
        self.assertEqual(self.inspect(snapshot / "model.onnx")["n_params"], 4)


class Export(Case):
    SIZES = {"small": 3, "first": 300, "large": 300000, "last": 256}

    def export(self):
        tensors = [tensor(name, [n], struct.pack(f"<{n}f", *range(n))) for name, n in self.SIZES.items()]
        path = self.write(model([ADD], [tensor("w", [4], FOUR), *tensors]))
        out = self.d / "out.onnx"
        r = slm("export", path, "--to", "onnx", "-o", out, "--json")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(json.loads(r.stdout)["files"], [str(out), str(out) + ".data"])
        return path, out, pathlib.Path(str(out) + ".data")

    def test_values_and_alignment(self):
        path, out, data = self.export()
        j, raw = self.inspect(out), data.read_bytes()
        self.assertEqual([(t["name"], t["shape"]) for t in j["tensors"]], [(t["name"], t["shape"]) for t in self.inspect(path)["tensors"]])
        self.assertEqual([t["name"] for t in j["tensors"] if t["file"] == "out.onnx.data"], ["first", "large", "last"])
        end = 65536 + 4 * 300000
        for begin, n in ((0, 300), (65536, 300000), (-(-end // 4096) * 4096, 256)):
            self.assertEqual(raw[begin:begin + 4 * n], struct.pack(f"<{n}f", *range(n)))
        first = out.read_bytes(), raw
        self.assertEqual(slm("export", path, "--to", "onnx", "-o", out).returncode, 0)
        self.assertEqual((out.read_bytes(), data.read_bytes()), first)

    def test_own_files_are_not_overwritten(self):
        _, out, data = self.export()
        before = data.read_bytes()
        for target in (out, data):
            self.assertEqual(slm("export", out, "--to", "onnx", "-o", target).returncode, 2, target)
        self.assertEqual(data.read_bytes(), before)
        self.assertEqual(slm("export", SOURCE / "tests/tiny/models/llama.gguf", "--to", "onnx", "-o", self.d / "x.onnx").returncode, 2)

    @unittest.skipUnless(os.environ.get("SLM_NEED_ONNX") or importlib.util.find_spec("onnx"), "needs the onnx package (tools/requirements.txt)")
    def test_the_onnx_package_reads_it(self):
        import onnx
        path, out, _ = self.export()
        onnx.checker.check_model(str(out), full_check=False)
        ours, theirs = onnx.load(str(out)), onnx.load(str(path))
        for a, b in zip(ours.graph.initializer, theirs.graph.initializer, strict=True):
            self.assertEqual((a.name, list(a.dims), a.data_type, a.raw_data), (b.name, list(b.dims), b.data_type, b.raw_data))
        for seed in ("types", "control", "sparse", "containers"):
            source = SOURCE / f"tests/corpus/onnx_fuzz/{seed}.onnx"
            out = self.d / f"{seed}.onnx"
            self.assertEqual(slm("export", source, "--to", "onnx", "-o", out).returncode, 0)
            ours, theirs = onnx.load(str(out)), onnx.load(str(source))
            for t in [*ours.graph.initializer, *theirs.graph.initializer]:
                values = t.string_data[:] if t.data_type == onnx.TensorProto.STRING else onnx.numpy_helper.to_array(t).tobytes()
                name, dims, kind = t.name, t.dims[:], t.data_type
                t.Clear()  # the same values may stand in another field
                t.name, t.doc_string, t.data_type = name, repr(values), kind
                t.dims.extend(dims)
            for s in [*ours.graph.sparse_initializer, *theirs.graph.sparse_initializer]:
                for t in (s.values, s.indices):
                    t.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(t), t.name))
            self.assertEqual(ours, theirs, seed)


class OpTest(Case):
    def test_node_tests(self):
        cases = sorted(NODES.iterdir())
        self.assertGreater(len(cases), 40)
        for case in cases:
            with self.subTest(case.name):
                r = slm("op-test", case, "--json")
                self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
                self.assertEqual(json.loads(r.stdout)["verdict"], "agrees")

    def copy(self, name):
        shutil.copytree(NODES / name, self.d / "case")
        return self.d / "case"

    def test_a_difference_says_where(self):
        case = self.copy("matmul_1d_3d")
        data = bytearray((case / "test_data_set_0/output_0.pb").read_bytes())
        at = data.rindex(struct.pack("<f", 1.0)) if struct.pack("<f", 1.0) in data else len(data) - 8
        data[at + 3] ^= 0x80  # the sign of a value
        (case / "test_data_set_0/output_0.pb").write_bytes(data)
        r = slm("op-test", case, "--json")
        self.assertEqual(r.returncode, 1)
        self.assertRegex(json.loads(r.stdout)["where"], r"output 0 .* at \[.*\]: .*, expected")
        self.assertIn("differs", r.stderr)

    def test_the_tolerance_is_that_of_the_case(self):
        case = self.copy("ms_matmul_nbits")
        path = case / "test_data_set_0/output_0.pb"
        data = bytearray(path.read_bytes())
        (last,) = struct.unpack("<f", data[-4:])  # raw values stand last
        data[-4:] = struct.pack("<f", last + 0.25)
        path.write_bytes(data)
        for text, code in (('{"rtol": 0, "atol": 0.1}', 1), ('{"rtol": 0, "atol": 0.3}', 0), ('{"rtol": "x"}', 1), ("[" * 999, 1)):
            (case / "tolerance.json").write_text(text)
            self.assertEqual(slm("op-test", case).returncode, code, text)

    def test_refusals_name_the_operator(self):
        case = self.copy("clip")
        for op, opset, words in (("Mystery", 21, "operator Mystery"), ("Relu", 999, "operator set 999"), ("CumSum", 10, "CumSum of operator set 10")):
            (case / "model.onnx").write_bytes(model([node(op, ["x"], ["y"])], opset=opset))
            r = slm("op-test", case)
            self.assertEqual(r.returncode, 2, r.stderr)
            self.assertIn("unsupported", r.stderr)
            self.assertIn(words, r.stderr)

    def test_nodes_that_are_wrong(self):
        case = self.copy("matmul_1d_3d")
        for op, inputs in (("MatMul", ["a"]), ("Reshape", ["a", "b"]), ("Gather", ["a", "b"]), ("Slice", ["a"]), ("Attention", ["a", "b", "b"]), ("Conv", ["a"])):
            given = [value("a", 3), value("b", 4, 3, 2)]
            (case / "model.onnx").write_bytes(model([node(op, inputs, ["y"])], inputs=given, opset=25))
            r = slm("op-test", case)
            self.assertIn(r.returncode, (1, 2), op)
            self.assertIn(op, r.stderr)
        self.assertEqual(slm("op-test", self.d / "nowhere").returncode, 1)


if __name__ == "__main__":
    SLM = sys.argv.pop(1)
    unittest.main()
