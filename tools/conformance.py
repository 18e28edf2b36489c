#!/usr/bin/env python3
"""Runs one outside suite and holds it to the named exceptions.

  tools/conformance.py SUITE RUNNER.py [ARGUMENTS OF THE RUNNER]

RUNNER prints `FAIL kind case: why` for each failure and closes with `N passed, N failed, N skipped`. A failure that
conformance_exceptions.txt names is printed as an exception; exit 1 on any other, on an exception that nothing needs, and on a
runner that did not come to its closing line.
"""
import fnmatch
import pathlib
import re
import subprocess
import sys

CLOSING = re.compile(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$")
FAIL = re.compile(r"FAIL (\S+) (.*?): ")
EXCEPTIONS = pathlib.Path(__file__).with_name("conformance_exceptions.txt")


def exceptions(suite, text):
    """{glob: reason} of one suite."""
    rows = (line.split(None, 2) for line in text.splitlines() if line and not line.startswith("#"))
    return {glob: reason for name, glob, reason in rows if name == suite}


def judge(allowed, lines):
    """(passed, failed, excepted, complaints) of a runner's output."""
    used, excepted, failures, closing = set(), 0, [], None
    for line in lines:
        if match := FAIL.match(line):
            case = match.group(2)
            glob = next((g for g in allowed if fnmatch.fnmatch(case, g) or fnmatch.fnmatch(case, g + "/*")), None)
            if glob:
                used.add(glob)
                excepted += 1
            else:
                failures.append(line)
        closing = CLOSING.search(line) or closing
    if closing is None:
        return 0, 1, 0, ["the runner did not come to its closing line"]
    complaints = failures + [f"exception {glob!r} is not needed any more" for glob in allowed if glob not in used]
    if int(closing.group(2)) != len(failures) + excepted:
        complaints.append(f"the runner counts {closing.group(2)} failures, {len(failures) + excepted} were printed")
    if int(closing.group(1)) == 0:
        complaints.append("no case passed")
    return int(closing.group(1)), len(complaints), excepted, complaints


def main():
    suite, command = sys.argv[1], sys.argv[2:]
    allowed = exceptions(suite, EXCEPTIONS.read_text(encoding="utf-8"))
    run = subprocess.run([sys.executable, *command], stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, check=False)
    passed, failed, excepted, complaints = judge(allowed, run.stdout.splitlines())
    print("\n".join(complaints[:40]))
    for glob, reason in allowed.items():
        print(f"exception {glob}: {reason}")
    print(f"{suite}: {passed} passed, {failed} failed, {excepted} excepted")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
