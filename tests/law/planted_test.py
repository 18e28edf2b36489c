"""Every check of the law finds the violation planted for it, and leaves the clean tree alone."""
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import floors
import kernels
import words
from tree import Tree

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLEAN = {
    "src/base/base.h": "#pragma once\n",
    "src/graph/graph.h": '#pragma once\n#include "base/base.h"\n#include "model/model.h"\n',
    "src/model/config.h": "#pragma once\n",
    "src/graph/ir.h": "#pragma once\n",
    "src/graph/testing/interpreter.h": "#pragma once\n",
    "src/model/model.h": "#pragma once\n// q: [T, V] f32\n",
    "src/model/calibrated.h": "#pragma once\n",
    "src/model/json.h": "#pragma once\n",
    "src/model/quoted.h": "#pragma once\n",
    "src/model/hf/folder.h": "#pragma once\n",
    "src/model/hf/keys.h": "#pragma once\n",
    "src/model/gguf/writer.h": "#pragma once\n",
    "src/model/gguf/package.h": "#pragma once\n",
    "src/model/gguf/folder/view.h": "#pragma once\n",
    "src/model/grouped/grouped.h": "#pragma once\n",
    "src/model/grouped/pack.h": "#pragma once\n",
    "src/model/hf/packed/writing.h": "#pragma once\n",
    "src/model/safetensors/writer.h": "#pragma once\n",
    "src/kernels/packed/tiles.h": "#pragma once\n",
    "src/kernels/norm/avx2.cc": '#include <immintrin.h>\n#include "kernels/norm/contract.h"\n',
    "src/kernels/norm/contract.h": "static constexpr int kRows = 4;\nint F(int);\n",
    "WORDS.md": "| `T` | tokens |\n| `V` | vocabulary |\n",
    "README.md": "[words](WORDS.md) [site](https://example.org)\n",
}


class Planted(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        self.plant("cmake/rooms.txt", (ROOT / "cmake/rooms.txt").read_text())
        for path, text in CLEAN.items():
            self.plant(path, text)

    def plant(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def findings(self, *checks):
        tree = Tree(self.root)
        return [f for check in checks for f in check(tree)]

    def expect(self, check, path, text):
        """One finding in `path` once `text` stands there, none before."""
        self.assertEqual(self.findings(check), [])
        self.plant(path, text)
        found = self.findings(check)
        self.assertEqual([f.path for f in found], [path], [str(f) for f in found])

    def test_clean_tree_passes_everything(self):
        self.assertEqual(self.findings(*floors.CHECKS, *kernels.CHECKS, *words.CHECKS), [])

    def test_include_upwards(self):
        self.expect(floors.check_includes, "src/model/gguf/reader.cc", '#include "graph/graph.h"\n')

    def test_include_sideways(self):
        self.expect(floors.check_includes, "src/text/text.h", '#include "model/model.h"\n')

    def test_include_past_the_door(self):
        self.expect(floors.check_includes, "src/backend/cpu/lower.cc", '#include "model/gguf/reader.h"\n')

    def test_app_past_the_door(self):
        self.expect(floors.check_includes, "apps/cli/run.cc", '#include "kernels/packed/table.h"\n')

    def test_include_by_dots(self):
        self.expect(floors.check_includes, "src/graph/build/decoder.cc", '#include "../../model/model.h"\n')

    def test_room_without_a_row(self):
        self.assertEqual(self.findings(floors.check_map), [])
        self.plant("src/cellar/cellar.h", "\n")
        self.assertEqual(len(self.findings(floors.check_map)), 1)

    def test_door_that_is_not_there(self):
        self.assertEqual(self.findings(floors.check_map), [])
        (self.root / "src/graph/ir.h").unlink()
        self.assertEqual(len(self.findings(floors.check_map)), 1)

    def test_row_that_grants_an_upper_floor(self):
        table = (self.root / "cmake/rooms.txt").read_text()
        self.plant("cmake/rooms.txt", table.replace("| base model  ", "| base decode ", 1))
        self.assertEqual(len(self.findings(floors.check_map)), 1)

    def test_long_file(self):
        self.expect(floors.check_sizes, "src/graph/long.cc", "\n" * 601)

    def test_waiver_needs_a_reason_and_a_need(self):
        self.plant("src/graph/long.cc", "\n" * 601)
        self.plant("tools/size_waivers.txt", "src/graph/long.cc one table\n")
        self.assertEqual(self.findings(floors.check_sizes), [])
        self.plant("tools/size_waivers.txt", "src/graph/long.cc\n")
        self.assertEqual(len(self.findings(floors.check_sizes)), 1)
        self.plant("src/graph/long.cc", "\n")
        self.plant("tools/size_waivers.txt", "src/graph/long.cc one table\n")
        self.assertEqual(len(self.findings(floors.check_sizes)), 1)

    def test_std_header_in_an_isa_file(self):
        self.expect(kernels.check_isa_includes, "src/kernels/rope/avx512vnni.cc", "#include <algorithm>\n")

    def test_base_header_in_an_isa_file(self):
        self.expect(kernels.check_isa_includes, "src/kernels/rope/avx2.cc", '#include "base/float16.h"\n')

    def test_long_kernel_name(self):
        self.expect(kernels.check_kernel_names, "src/kernels/norm/table.inc", f'K("{"n" * 44}_avx2")\n')

    def test_weak_symbol_and_initialiser(self):
        folder = self.root / "build/src/kernels/CMakeFiles/slm_kernels.dir/norm"
        folder.mkdir(parents=True)
        for source, name in (("int f(int x) { return x; }", "clean"), ("inline int g() { return 1; } int (*p)() = g;", "avx2"),
                             ("int h(); int x = h();", "norm"), ("#include <iostream>\nint k() { return 1; }", "stream"),
                             ("#include <iostream>\nint h(); int x = h();", "both")):
            (folder / "x.cc").write_text(source)
            subprocess.run(["c++", "-O1", "-ffunction-sections", "-fdata-sections", "-c", folder / "x.cc", "-o", folder / f"{name}.cc.o"], check=True)
        found = list(kernels.check_objects(self.root / "build"))
        self.assertEqual(sorted(pathlib.Path(f.path).name for f in found), ["avx2.cc.o", "both.cc.o", "norm.cc.o"])

    def test_no_objects_is_a_finding(self):
        self.assertEqual(len(list(kernels.check_objects(self.root / "build"))), 1)

    def test_machine_path(self):
        self.expect(words.check_forbidden, "docs/x.md", "see /ro" + "ot/notes\n")

    def test_registry_host(self):
        self.expect(words.check_forbidden, "tools/x.py", "# https://py" + "pi.org/simple\n")

    def test_unfinished(self):
        self.expect(words.check_forbidden, "src/graph/x.cc", "// TO" + "DO finish\n")

    def test_empty_name(self):
        self.expect(words.check_code, "src/graph/x.h", "class GraphMan" + "ager {\n")

    def test_mutable_static(self):
        self.expect(words.check_code, "src/graph/x.cc", "static int calls = 0;\n")

    def test_mutable_thread_local(self):
        self.expect(words.check_code, "src/graph/x.cc", "thread_local int calls;\n")

    def test_constants_and_static_functions_are_fine(self):
        self.plant("src/graph/x.cc", "static const int kA = 0;\nstatic constexpr int kB[2] = {};\nstatic int F(int x);\nstatic bool G() {\n")
        self.assertEqual(self.findings(words.check_code), [])

    def test_model_name_in_generic_code(self):
        self.expect(words.check_code, "src/graph/build/decoder.cc", 'if (arch == "ge' + 'mma3") {\n')

    def test_model_name_in_its_table(self):
        self.plant("src/model/architectures.cc", 'Row("ge' + 'mma3")\n')
        self.assertEqual(self.findings(words.check_code), [])

    def test_dead_link(self):
        self.expect(words.check_links, "docs/x.md", "[nowhere](gone.md)\n")

    def test_unknown_letter(self):
        self.expect(words.check_letters, "src/graph/x.h", "// logits: [T, Z] f32\n")


class RoomMacro(unittest.TestCase):
    """cmake/room.cmake refuses an illegal edge when CMake configures."""

    def configure(self, call):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "CMakeLists.txt").write_text(
                "cmake_minimum_required(VERSION 3.25)\nproject(t LANGUAGES CXX)\nadd_library(slm_warnings INTERFACE)\n"
                "add_library(slm_model INTERFACE)\nadd_library(slm_graph INTERFACE)\n"
                f'include("{ROOT}/cmake/room.cmake")\n{call}\n')
            (root / "x.cc").write_text("int x();\n")
            run = subprocess.run(["cmake", "-S", root, "-B", root / "b"], capture_output=True, text=True, check=False)
            return run.returncode, " ".join(run.stderr.split())

    def test_legal_edge(self):
        code, err = self.configure("slm_room(exporter FLOOR 3 DEPS graph model)")
        self.assertEqual(code, 0, err)

    def test_edge_upwards(self):
        code, err = self.configure("slm_room(model FLOOR 1 DEPS graph)")
        self.assertNotEqual(code, 0)
        self.assertIn("may not depend on graph", err)

    def test_wrong_floor(self):
        code, err = self.configure("slm_room(kv FLOOR 2)")
        self.assertNotEqual(code, 0)
        self.assertIn("the map says 1", err)

    def test_unknown_room(self):
        code, err = self.configure("slm_room(cellar FLOOR 1)")
        self.assertNotEqual(code, 0)
        self.assertIn("no such room", err)


if __name__ == "__main__":
    unittest.main()
