#!/usr/bin/env python3
"""Writes THIRD_PARTY.md: what is compiled into the executable from elsewhere, with version and licence.

  tools/third_party.py            writes the file
  tools/third_party.py --check    exit 1 when the file is out of date

The crates are those that `cargo metadata` resolves from Cargo.lock for normal dependencies on the platforms of PLATFORMS;
procedural macros and build scripts run during the build and leave nothing of their own in it. Licences are what the crates declare
(SPDX); one that declares none stops the script. HEADERS lists the C++ libraries of which headers are compiled in; the others are
shared libraries of the system.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MANIFEST = ROOT / "rust/slm_text/Cargo.toml"
OUT = ROOT / "THIRD_PARTY.md"
PLATFORMS = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"]
HEADERS = [("nlohmann json", "3.11", "MIT"), ("CLI11", "2.1", "BSD-3-Clause"), ("fmt", "9.1", "MIT (with its exception for object code)"),
           ("Protocol Buffers (headers, code made by protoc)", "3.21", "BSD-3-Clause"), ("ONNX's onnx-ml.proto (code made of it)", "1.23.2", "Apache-2.0"),
           ("ONNX Runtime's C API (headers)", "1.29", "MIT"),
           ("Rust's standard library", "of the compiler", "MIT OR Apache-2.0"),
           ("libstdc++ and libgcc (headers, start files)", "of the compiler", "GPL-3.0-or-later WITH GCC-exception-3.1")]


def metadata(platform):
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--manifest-path", str(MANIFEST), "--filter-platform", platform]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def linked(meta):
    """Packages that the root reaches over normal dependencies, itself and procedural macros left out."""
    packages = {p["id"]: p for p in meta["packages"]}
    nodes = {n["id"]: n for n in meta["resolve"]["nodes"]}
    root = meta["resolve"]["root"]
    seen, todo = {root}, [root]
    while todo:
        for dep in nodes[todo.pop()]["deps"]:
            macro = any("proc-macro" in t["kind"] for t in packages[dep["pkg"]]["targets"])
            if dep["pkg"] not in seen and not macro and any(k["kind"] is None for k in dep["dep_kinds"]):
                seen.add(dep["pkg"])
                todo.append(dep["pkg"])
    return [packages[i] for i in seen - {root}]


def crates():
    rows = set()
    for platform in PLATFORMS:
        for p in linked(metadata(platform)):
            if not p["license"]:
                sys.exit(f"{p['name']} {p['version']} declares no licence; read its {p['license_file']} and decide")
            rows.add((p["name"], p["version"], p["license"].replace("/", " OR ")))
    return sorted(rows)


def page():
    lines = ["# Third-party code in the executable", "",
             "Written by `tools/third_party.py` from `Cargo.lock`; do not edit. Libraries that are linked at run time, and tools of the build,",
             "are in [docs/dependencies.md](docs/dependencies.md).", "", "## Headers and run-time support", "", "| library | version | licence |", "|---|---|---|"]
    lines += [f"| {n} | {v} | {licence} |" for n, v, licence in HEADERS]
    lines += ["", "## Rust crates", "", "| crate | version | licence |", "|---|---|---|"]
    lines += [f"| {n} | {v} | {licence} |" for n, v, licence in crates()]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check, text = parser.parse_args().check, page()
    if not check:
        OUT.write_text(text)
        return 0
    if OUT.exists() and OUT.read_text() == text:
        return 0
    print("THIRD_PARTY.md is out of date: run tools/third_party.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
