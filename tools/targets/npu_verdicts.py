"""What an offline compile of cases.py's graphs by OpenVINO's NPU compiler said, as a file like measure.py's.

  npu_verdicts.py PLATFORM RAW.json OUT.json

RAW.json: case -> "OK", or what the compiler printed. The compiler comes with OpenVINO's Windows package, which also runs under Wine: a
program of openvino/c/openvino.h that sets NPU_COMPILER_TYPE to PLUGIN and NPU_PLATFORM, then reads and compiles each graph for NPU.
"""

import json
import re
import sys


def reason(text):
    for pattern in (
        r"No conversion rule found for operations: (\S+)",
        r"failed : ([^\n]+)",
        r"Input data type not supported for \w+",
        r"Upper bounds are not specified",
        r"Compiler returned msg: ([^\n]+)",
        r"Check '([^']+)'",
    ):
        if m := re.search(pattern, text):
            return m.group(0)[:160].strip()
    return text[:120].replace("\n", " ")


if __name__ == "__main__":
    platform, raw, out = sys.argv[1:]
    cases = {
        k: {"verdict": "native"} if v == "OK" else {"verdict": "fallback", "reason": reason(v)} for k, v in json.load(open(raw)).items()
    }
    lines = ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in cases.items())
    head = json.dumps({"provider": "OpenVINO NPU compiler 8.4", "versions": {"openvino": "2026.4.1"}, "platform": platform})
    open(out, "w").write(head[:-1] + f', "cases": {{\n{lines}\n}}}}\n')
