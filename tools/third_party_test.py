#!/usr/bin/env python3
"""third_party.py: which packages count as linked, on made-up metadata; and THIRD_PARTY.md names the versions of Cargo.lock."""
import re
import unittest

import third_party


def meta():
    """root -> a (normal) -> b (normal), m (macro) -> n; root -> c (build), d (dev); a -> e (build and normal)."""
    kinds = {"m": "proc-macro"}
    edges = {"root": [("a", [None]), ("c", ["build"]), ("d", ["dev"])], "a": [("b", [None]), ("m", [None]), ("e", ["build", None])],
             "m": [("n", [None])]}
    names = ["root", "a", "b", "c", "d", "e", "m", "n"]
    return {"packages": [{"id": i, "name": i, "targets": [{"kind": [kinds.get(i, "lib")]}]} for i in names],
            "resolve": {"root": "root", "nodes": [{"id": i, "deps": [{"pkg": p, "dep_kinds": [{"kind": k} for k in ks]}
                                                                     for p, ks in edges.get(i, [])]} for i in names]}}


class Linked(unittest.TestCase):
    def test_normal_dependencies_only(self):
        self.assertEqual(sorted(p["name"] for p in third_party.linked(meta())), ["a", "b", "e"])


class Page(unittest.TestCase):
    def test_versions_are_those_of_the_lock_file(self):
        lock = (third_party.MANIFEST.parent / "Cargo.lock").read_text()
        locked = set(re.findall(r'name = "([^"]+)"\nversion = "([^"]+)"', lock))
        text = third_party.OUT.read_text().split("## Rust crates")[1]
        rows = [tuple(c.strip() for c in line.split("|")[1:3]) for line in text.splitlines()[4:] if line]
        self.assertGreater(len(rows), 20)
        for row in rows:
            self.assertIn(row, locked, "run tools/third_party.py")
        for name in re.findall(r"^([a-z][a-z0-9_-]*) = ", third_party.MANIFEST.read_text().split("[dependencies]")[1].split("[")[0], re.M):
            self.assertIn(name, dict(rows), "run tools/third_party.py")


if __name__ == "__main__":
    unittest.main()
