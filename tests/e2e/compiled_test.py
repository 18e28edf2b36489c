#!/usr/bin/env python3
"""What slm compile made of a folder of static graphs is loaded when it fits, and never changes an answer.   compiled_test.py SLM

Needs Qualcomm's provider, whose library SLM_ORT_QNN names, and the package onnx: skipped without, a failure with SLM_NEED_ORT=1. Simulated:
nothing here says what a device does.
"""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import ort_test
from ort_test import ON_HTP, QNN, document, has_package, has_runtime, slm
from static_test import LLAMA, PROMPT

COMPILE_ON_HTP = tuple(w for w in ON_HTP if w != "--no-fallback")


class Compiled(unittest.TestCase):
    """What does not fit is compiled at load instead."""

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.d = pathlib.Path(cls.temporary.name)
        os.environ["SLM_HOME"], cls.home = str(cls.d / "store"), os.environ.get("SLM_HOME")
        cls.folder = cls.d / "w8"
        made = slm("export", LLAMA, "--to", "qdq", "--weights", "w8", "-o", cls.folder, "--chunk", 32, "--calib-seqs", 8, "--calib-tokens", 64)
        assert made.returncode == 0, made.stderr
        cls.plain = cls.ids_on_htp()["ids"]
        cls.compiled = document("compile", cls.folder, *COMPILE_ON_HTP)
        cls.other_soc = document("compile", cls.folder, *COMPILE_ON_HTP, "--ep-option", "QNNExecutionProvider:soc_model=57")
        cls.contexts = {g["file"]: pathlib.Path(g["model"]).parent for g in cls.compiled["graphs"]}
        cls.kept = {}
        for g in cls.compiled["graphs"] + cls.other_soc["graphs"]:
            cls.kept[g["context"]] = cls.d / "kept" / g["context"]
            shutil.copytree(pathlib.Path(g["model"]).parent, cls.kept[g["context"]])

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()
        os.environ.pop("SLM_HOME")
        if cls.home:
            os.environ["SLM_HOME"] = cls.home

    @classmethod
    def ids_on_htp(cls, *words):
        return document("run", cls.folder, *ON_HTP, *words, "--raw", "-p", PROMPT, "-n", 3, "--ids")

    def setUp(self):
        store = self.d / "store/contexts"
        shutil.rmtree(store, ignore_errors=True)
        store.mkdir(parents=True)
        for name, folder in self.kept.items():
            shutil.copytree(folder, store / name)

    def test_both_graphs_are_loaded(self):
        self.assertEqual([g["cached"] for g in self.compiled["graphs"]], [False, False])
        self.assertEqual([g["cached"] for g in document("compile", self.folder, *COMPILE_ON_HTP)["graphs"]], [True, True])
        listed = json.loads((self.folder / "compiled.json").read_text())["targets"]
        self.assertEqual(sorted(len(rows) for rows in listed.values()), [2, 2])
        self.assertTrue(any("soc_model=57" in target for target in listed))
        got = self.ids_on_htp()
        self.assertEqual(got["ids"], self.plain)
        self.assertEqual([c["graph"] for c in got["compiled"]], ["prefill.onnx", "decode.onnx"])
        for c in got["compiled"]:
            self.assertEqual(pathlib.Path(c["context"]).parent, self.contexts[c["graph"]])
            self.assertIsNone(c["why"])
        self.assertEqual([(row["op"], row["count"], row["kernel"]) for row in got["placement"]["ops"]], [("EPContext", 2, "QNNExecutionProvider")])
        self.assertGreater(got["load_ms"], 0)
        text = slm("run", self.folder, *ON_HTP, "--raw", "-p", "x", "-n", 1).stderr
        self.assertRegex(text, r"graph    prefill.onnx compiled before: .*contexts")
        self.assertIn("EPContext", text)

    def test_other_verbs_load_them(self):
        text = self.d / "text"
        text.write_text(" ".join(f"{PROMPT} {i}." for i in range(10)))
        verbs = (("bench", self.folder, "--pp", 8, "--tg", 2, "--ttft", 4, "-r", 1),
                 ("eval", self.folder, "ppl", "--text", text, "--window", 32, "--windows", 1, "--bos", "always"))
        shutil.rmtree(self.contexts["decode.onnx"])
        for words in verbs:
            said = slm(*words, *ON_HTP)
            self.assertEqual(said.returncode, 0, said.stderr)
            self.assertRegex(said.stderr, "decode.onnx: .*compiled at load")
            self.assertNotIn("prefill.onnx: ", said.stderr)

    def test_beside_the_graphs(self):
        shutil.rmtree(self.d / "store")
        here = self.folder / "contexts"
        document("compile", self.folder, *COMPILE_ON_HTP, "--cache", here)
        got = self.ids_on_htp()
        shutil.rmtree(here)
        self.assertEqual(got["ids"], self.plain)
        self.assertEqual({str(pathlib.Path(c["context"]).parents[1]) for c in got["compiled"]}, {str(here)})

    def test_foreign_and_stale(self):
        for words, says in ((("--ep-option", "QNNExecutionProvider:soc_model=69"), "another soc_model"),
                            (("--ep-option", "QNNExecutionProvider:vtcm_mb=4"), "another vtcm_mb")):
            got = self.ids_on_htp(*words)
            self.assertEqual(got["ids"], self.plain)
            for c in got["compiled"]:
                self.assertIsNone(c["context"])
                self.assertIn(says, c["why"])
        # A folder that is not the one that was compiled, with its sums.
        other = self.d / "other"
        made = slm("export", LLAMA, "--to", "qdq", "--weights", "w8", "-o", other, "--chunk", 32, "--ctx", 48, "--calib-seqs", 8, "--calib-tokens", 64)
        self.assertEqual(made.returncode, 0, made.stderr)
        shutil.copy(self.folder / "compiled.json", other)
        got = document("run", other, *ON_HTP, "--raw", "-p", "x", "-n", 1)
        self.assertEqual([c["context"] for c in got["compiled"]], [None, None])
        self.assertIn("another model_sha256", got["compiled"][0]["why"])

    def damages(self):
        """Name of a damage, and what it does to the folder of one graph's compiled form."""
        binary = lambda f: next(f.glob("*.bin"))
        record = lambda f: json.loads((f / "record.json").read_text())

        def change(name, edit):
            def damage(f):
                path = binary(f) if name == "bin" else f / name
                data = bytearray(path.read_bytes())
                path.write_bytes(edit(data) or data)
            return damage

        def flip(at):
            def edit(data):
                data[int(at * (len(data) - 1))] ^= 1
            return edit

        def rewrite(edit):
            def damage(f):
                j = record(f)
                edit(j)
                (f / "record.json").write_text(json.dumps(j))
            return damage

        def replace_by(name):
            def damage(f):
                other = self.kept[name(f)]
                shutil.rmtree(f)
                shutil.copytree(other, f)
            return damage

        def own_sums(f):
            """A changed binary whose record was made to fit is still of other options."""
            binary(f).write_bytes(binary(self.kept[foreign(f)]).read_bytes())
            j = record(f)
            for each in j["files"]:
                each["sha256"] = hashlib.sha256((f / each["name"]).read_bytes()).hexdigest()
            j["options"]["soc_model"] = "57"
            (f / "record.json").write_text(json.dumps(j))

        def as_a_file(f):
            shutil.rmtree(f)
            f.write_bytes(b"x")

        def emptied(f):
            shutil.rmtree(f)
            f.mkdir()

        def half_written(f):
            f.rename(f.with_name(f.name + ".part"))
            (f.with_name(f.name + ".part") / "record.json").unlink()
            (f.with_name(f.name + ".part") / ".slmkit.lock").touch()

        file_of = lambda f: next(name for name, folder in self.contexts.items() if folder == f)
        sibling = lambda f: next(g["context"] for g in self.compiled["graphs"] if g["file"] != file_of(f))
        foreign = lambda f: next(g["context"] for g in self.other_soc["graphs"] if g["file"] == file_of(f))
        for at in (0, 0.01, 0.3, 0.5, 0.9, 1):
            yield f"bin, a bit at {at}", change("bin", flip(at))
        for at in (0, 0.5, 1):
            yield f"model.onnx, a bit at {at}", change("model.onnx", flip(at))
        yield "bin cut", change("bin", lambda d: d[:len(d) // 2])
        yield "bin longer", change("bin", lambda d: d + b"x")
        yield "bin empty", change("bin", lambda d: d.clear())
        yield "bin gone", lambda f: binary(f).unlink()
        yield "bin of the other graph", lambda f: binary(f).write_bytes(binary(self.kept[sibling(f)]).read_bytes())
        yield "bin of another SoC", lambda f: binary(f).write_bytes(binary(self.kept[foreign(f)]).read_bytes())
        yield "model.onnx cut", change("model.onnx", lambda d: d[:len(d) // 2])
        yield "model.onnx gone", lambda f: (f / "model.onnx").unlink()
        yield "model.onnx not in the record", rewrite(lambda j: j.update(files=[x for x in j["files"] if x["name"] != "model.onnx"]))
        yield "no files in the record", rewrite(lambda j: j.update(files=[]))
        yield "record cut", change("record.json", lambda d: d[:len(d) // 2])
        yield "record gone", lambda f: (f / "record.json").unlink()
        yield "record of another schema", rewrite(lambda j: j.update(schema=2))
        yield "record of another provider", rewrite(lambda j: j.update(provider_version="0.0.1"))
        yield "record of another library", rewrite(lambda j: j.update(provider_sha256="0" * 64))
        yield "record of another runtime", rewrite(lambda j: j.update(runtime="1.0.0"))
        yield "record of other weights", rewrite(lambda j: j["data"][0].update(sha256="0" * 64))
        yield "whole, of the other graph", replace_by(sibling)
        yield "whole, of another SoC", replace_by(foreign)
        yield "of another SoC, sums made to fit", own_sums
        yield "a file in its place", as_a_file
        yield "an empty folder", emptied
        yield "half written", half_written

    def test_no_damage_changes_an_answer(self):
        n = 0
        for name, damage in self.damages():
            victim = ("prefill.onnx", "decode.onnx")[n % 2]
            with self.subTest(name, graph=victim):
                self.setUp()
                damage(self.contexts[victim])
                got = self.ids_on_htp()
                self.assertEqual(got["ids"], self.plain)
                for c in got["compiled"]:
                    self.assertEqual(c["context"] is None, c["graph"] == victim, c)
                    self.assertEqual(c["why"] is None, c["graph"] != victim, c)
            n += 1
        self.assertGreaterEqual(n, 20)
        anew = document("compile", self.folder, *COMPILE_ON_HTP)
        self.assertEqual([c["context"] is None for c in self.ids_on_htp()["compiled"]], [False, False], anew)

    def test_killed_while_it_writes(self):
        for after in (0.05, 0.2, 0.4, 0.7, 1.0):
            shutil.rmtree(self.d / "store", ignore_errors=True)
            process = subprocess.Popen([ort_test.SLM, "compile", str(self.folder), *COMPILE_ON_HTP], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                process.wait(after)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self.assertEqual(self.ids_on_htp()["ids"], self.plain)
        document("compile", self.folder, *COMPILE_ON_HTP)
        self.assertEqual([c["context"] is None for c in self.ids_on_htp()["compiled"]], [False, False])

    def test_two_at_the_same_time(self):
        """One compiles; the other waits for nothing: it uses what is there, or says who is writing."""
        shutil.rmtree(self.d / "store")
        words = [ort_test.SLM, "compile", str(self.folder), *COMPILE_ON_HTP, "--json"]
        runs = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        said = [run.communicate(timeout=200) for run in runs]
        self.assertIn(0, [run.returncode for run in runs], said)
        for run, (out, err) in zip(runs, said):
            if run.returncode != 0:
                error = json.loads(out.splitlines()[-1])["error"]
                self.assertEqual((error["code"], error["hint"]), ("unavailable", "wait for it, or choose another folder"), err)
        self.assertEqual([c["context"] is None for c in self.ids_on_htp()["compiled"]], [False, False])

    def test_every_refused_graph_is_reported(self):
        """Of the first, Qualcomm's provider takes no node; the second is compiled all the same."""
        import onnx
        from onnx import TensorProto, helper
        folder = self.d / "refused"
        shutil.copytree(self.folder, folder)
        value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 16])
        erf = helper.make_graph([helper.make_node("Erf", ["x"], ["y"])], "g", [value("x")], [value("y")])
        onnx.save(helper.make_model(erf, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]), str(folder / "prefill.onnx"))
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["files"]["prefill.onnx"] = hashlib.sha256((folder / "prefill.onnx").read_bytes()).hexdigest()
        (folder / "manifest.json").write_text(json.dumps(manifest))
        run = slm("compile", folder, *COMPILE_ON_HTP, "--json")
        self.assertEqual(run.returncode, 1, run.stderr)
        graphs = {g["file"]: g for g in json.loads(run.stdout.splitlines()[-1])["graphs"]}
        self.assertIn("prefill.onnx", graphs["prefill.onnx"]["error"]["message"])
        self.assertIn("prefill.onnx", run.stderr)
        self.assertTrue(graphs["decode.onnx"]["model"].endswith("model.onnx"))


if __name__ == "__main__":
    ort_test.SLM = sys.argv.pop(1)
    if not QNN or not has_package("onnx") or not has_runtime():
        print("needs ONNX Runtime with Qualcomm's provider (./dev ort qnn) and the package onnx", file=sys.stderr)
        sys.exit(1 if ort_test.NEEDED else 77)
    unittest.main()
