"""Rows of a description from what measure.py found.

  survey_rows.py tests/tiny/targets/measured/NAME.json targets/NAME.json [--units]

--units: the target takes an operator between DequantizeLinear and QuantizeLinear as one operator on codes ("quantized_units"). Rows that
a person wrote (another source than "survey") stay, and come first: they say what one-operator graphs cannot, such as which operand must be
constant."""

import json
import pathlib
import re
import sys

from kernel_rows import write

TYPES = {
    "f32": "float",
    "f16": "float16",
    "u16": "q.uint16",
    "u8": "q.uint8",
    "s16": "q.int16",
    "s8": "q.int8",
    "i32": "int32",
    "i64": "int64",
    "bool": "bool",
}
CODES = ("u16", "u8", "s16", "s8")
PLAIN = {"f32": "float", "f16": "float16", "i32": "int32", "i64": "int64", "bool": "bool", "u8": "uint8", "i8": "int8", "f64": "double"}
# Only their first input has values; the rest are sizes and indices.
FIRST_ONLY = {
    "Reshape",
    "Slice",
    "Squeeze",
    "Unsqueeze",
    "Expand",
    "Tile",
    "Flatten",
    "Split",
    "Pad",
    "Trilu",
    "Transpose",
    "TopK",
    "CumSum",
    "ArgMax",
    "OneHot",
    "ConstantOfShape",
    "Range",
    "Shape",
    "Size",
    "NonZero",
    "If",
    "Loop",
    "LSTM",
    "GRU",
    "Compress",
    "Unique",
} | {"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"}
# Whose first input is no value of the form.
UNTYPED = ("If", "Loop", "OneHot", "ConstantOfShape", "Range", "GatherBlockQuantized")
FIRST_FLOAT = ("RMSNormalization", "SimplifiedLayerNormalization", "LayerNormalization", "Conv", "Clip", "RotaryEmbedding")
INDEXED = {"Gather": 1, "GatherElements": 1, "GatherND": 1, "ScatterND": 1, "ScatterElements": 1}
# Written by hand for each target: what matters there is more than a type.
BY_HAND = ("MatMul", "QuantizeLinear", "DequantizeLinear", "ms.GroupQueryAttention", "dynamic", "MatMulInteger", "DynamicQuantizeLinear")
VARIANTS = re.compile(r"-(tanh|\d+|1x1|no-ids|mask|past|dynamic-weight|axis1|zeros)(?=-|$)")


def parse(case):
    name, _, rest = case.partition("/")
    domain = "com.microsoft" if name.startswith("ms.") else ""
    return domain, name.removeprefix("ms."), rest


def is_native(verdict):
    return verdict.get("verdict") == "native"


def words(verdict):
    text = verdict.get("reason") or verdict.get("error") or "not taken"
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text).replace("`asked`", "").replace("  ", " ")
    text = re.sub(r"\.(?=\w+ node )", ". ", text)
    return text.split(" node will not")[0].rsplit(". ", 1)[0] if "will not be assigned" in text else text[:160]


def invalid(verdict):
    """Graphs that ONNX does not allow say nothing of a target."""
    return "invalid model" in verdict.get("error", "") or "INVALID_GRAPH" in verdict.get("error", "")


def rows(cases, units):
    taken, refused, casts, bits = {}, {}, {}, {}
    for case, verdict in cases.items():
        domain, name, rest = parse(case)
        if invalid(verdict) or any(case.startswith(h) for h in BY_HAND) or "rank" in rest:
            continue
        if name == "Conv1D":
            name = "Conv"
        if name.startswith("MatMulNBits"):
            if is_native(verdict):
                bits.setdefault(int(name[12]), set()).add(rest)
            continue
        if name == "Cast":
            source, target = rest.split("-")
            if is_native(verdict):
                casts.setdefault(source, []).append(PLAIN[target])
            continue
        axis1 = name.endswith("axis1")
        name = VARIANTS.sub("", VARIANTS.sub("", name))
        if name == "GatherBlockQuantized" or axis1:
            name = name.removesuffix("-axis1")
        form, _, ids = rest.partition("/ids-")
        if form in CODES and not units:
            continue
        key = (domain, name)
        if axis1:
            if not is_native(verdict):
                refused.setdefault(("axis", *key), words(verdict))
            continue
        if is_native(verdict):
            taken.setdefault(key, {}).setdefault(form, set()).add(ids)
        else:
            refused.setdefault(key, words(verdict))
    out = []
    groups = {}
    for (domain, name), forms in taken.items():
        kinds = tuple(TYPES[f] for f in TYPES if f in forms)
        row = {}
        if name in INDEXED:
            ids = sorted({PLAIN[i] for found in forms.values() for i in found})
            row["in_each"] = [list(kinds), ids] + ([list(kinds)] if name.startswith("Scatter") else [])
        elif name == "Where":
            row["in_each"] = ["bool", list(kinds), list(kinds)]
        elif name in UNTYPED:
            pass
        elif name in FIRST_ONLY or name in FIRST_FLOAT:
            row["in_each"] = [list(kinds)]
        else:
            row["in"] = list(kinds)
        if ("axis", domain, name) in refused:
            row["with"] = {"axis": ["last", None]}
        groups.setdefault(json.dumps([domain, row]), []).append(name)
    for key, names in sorted(groups.items(), key=lambda g: g[1]):
        domain, row = json.loads(key)
        made = {"op": sorted(names) if len(names) > 1 else names[0]}
        if domain:
            made["domain"] = domain
        out.append({**made, **{k: v for k, v in row.items() if v is not None}, "source": "survey"})
    for source, targets in casts.items():
        out.append({"op": "Cast", "in": PLAIN[source], "out": sorted(targets), "source": "survey"})
    if bits:
        kinds = [TYPES[f] for f in ("f32", "f16") if any(f in forms for forms in bits.values())]
        out.append(
            {
                "op": "MatMulNBits",
                "domain": "com.microsoft",
                "in_each": [kinds, "uint8", kinds],
                "with": {"bits": sorted(bits)},
                "source": "survey",
            }
        )
    for key, why in sorted((k, v) for k, v in refused.items() if len(k) == 2 and k not in taken):
        made = {"op": key[1]}
        if key[0]:
            made["domain"] = key[0]
        out.append({**made, "native": False, "reason": why, "source": "survey"})
    return out


if __name__ == "__main__":
    units = "--units" in sys.argv
    measured, path = [a for a in sys.argv[1:] if a != "--units"]
    document = json.loads(pathlib.Path(path).read_text())
    explained = {
        (r.get("domain", ""), op)
        for r in document["operators"]
        if r["source"] != "survey" and not r.get("native", True)
        for op in ([r["op"]] if isinstance(r["op"], str) else r["op"])
    }
    made = [
        r
        for r in rows(json.loads(pathlib.Path(measured).read_text())["cases"], units)
        if r.get("native", True) or (r.get("domain", ""), r["op"]) not in explained
    ]
    write(pathlib.Path(path), made, document.get("types", {}), "survey")
    print(len(made), "rows")
