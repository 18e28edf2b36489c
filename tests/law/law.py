"""The law of the house, read over the source tree and, with --objects, over what a build made of it.

  python3 tests/law/law.py [--root DIR] [--objects BUILD_DIR]

Prints one line a finding, closes with a count, exit code 1 on any finding. planted_test.py proves that each check can fail.
"""
import argparse
import pathlib
import sys

import floors
import kernels
import words
from tree import Tree


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    args.add_argument("--objects", type=pathlib.Path, help="build folder, without sanitizers")
    options = args.parse_args()
    tree = Tree(options.root)
    if not tree.glob("src/*"):
        sys.exit(f"law: {options.root} has no src/: not a checkout of this project")
    broken = 0
    checks = [(c.__name__, lambda c=c: c(tree)) for c in floors.CHECKS + kernels.CHECKS + words.CHECKS]
    if options.objects:
        checks.append(("check_objects", lambda: kernels.check_objects(options.objects)))
    for name, run in checks:
        findings = list(run())
        for finding in findings:
            print(f"{finding}  [{name}]")
        broken += bool(findings)
    print(f"law: {len(checks) - broken} passed, {broken} failed over {len(tree.paths)} files")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
