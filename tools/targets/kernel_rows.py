"""Rows of a description from lists of registered kernels.

  kernel_rows.py cpu FILE.json           the kernels of the installed onnxruntime's CPU provider
  kernel_rows.py page PAGE.md FILE.json  a provider's part of onnxruntime's docs/OperatorKernels.md
  kernel_rows.py table PAGE.md FILE.json onnxruntime's js/web/docs/webnn-operators.md, or its list of operators for Core ML

Rewrites "operators" and "types" of FILE.json: rows of another source than "kernels" were written by a person; they stay, and come first.
One row a line, so that a change of version shows as a change of lines."""

import json
import pathlib
import re
import sys

NEWEST = 2147483647
KIND = re.compile(r"tensor\((\w+)\)")


def plain(kinds):
    """Element types of tensors; sequences and sparse tensors have no place in a description."""
    found = {m.group(1) for k in kinds if (m := KIND.fullmatch(k))}
    return tuple(sorted(found - {"complex64", "complex128"} | ({"complex64"} & found)))


def cpu_kernels():
    """(domain, op, first, last, [set of each input], [set of each output], variadic)."""
    import onnxruntime.capi.onnxruntime_pybind11_state as state

    schemas = {}
    for s in state.get_all_operator_schema():
        schemas.setdefault((s.domain, s.name), []).append(s)
    for k in state.get_all_opkernel_def():
        first, last = k.version_range
        known = [s for s in schemas.get((k.domain, k.op_name), []) if s.since_version <= first]
        if not known:
            continue
        schema = max(known, key=lambda s: s.since_version)
        kinds = {name: plain(types) for name, types in k.type_constraints.items()}

        def of(parameter):
            if parameter.typeStr in kinds:
                return kinds[parameter.typeStr]
            return plain([parameter.typeStr]) or None

        yield (
            k.domain.replace("ai.onnx", "") if k.domain == "ai.onnx" else k.domain,
            k.op_name,
            first,
            last,
            [of(p) for p in schema.inputs],
            [of(p) for p in schema.outputs],
        )


def page_kernels(path):
    domain = op = parameters = None
    newer = None
    for line in pathlib.Path(path).read_text().splitlines():
        if m := re.search(r"\*\*Operator Domain:\*\* \*([\w.]+)\*", line):
            domain = "" if m.group(1) == "ai.onnx" else m.group(1)
            continue
        cells = line.split("|")[1:-1]
        if domain is None or len(cells) != 4 or not re.match(r"\[?\d", cells[2]):
            continue
        if cells[0]:
            op, parameters, newer = cells[0], cells[1].split("<br><br>or<br><br>")[0], None
        versions = [int(v) for v in re.findall(r"\d+", cells[2])]
        first = versions[0]
        # "13+" means up to the next newer row of the list.
        last = versions[1] if len(versions) > 1 else (NEWEST if newer is None and "+" in cells[2] else (newer - 1 if newer else first))
        newer = first
        kinds = {m.group(1): plain(m.group(2).split(", ")) for m in re.finditer(r"\*\*(\w+)\*\* = (.*?)(?:<br/>|$)", cells[3])}

        def lists(word):
            out = []
            for name in re.findall(rf"\*{word}\* \w+:\*\*(.+?)\*\*", parameters):
                out.append(kinds.get(name) or plain([name]) or None)
            return out

        yield domain, op, first, last, lists("in"), lists("out")


# Inputs that such a page wants constant, where its comment says so.
FIXED = {
    "CumSum": [1],
    "Expand": [1],
    "Reshape": [1],
    "Slice": [1, 2, 3, 4],
    "Split": [1],
    "Squeeze": [1],
    "Tile": [1],
    "Trilu": [1],
    "Gemm": [1],
    "MatMulNBits": [1, 3],
    "GroupQueryAttention": [6],
}


def table_rows(path):
    for line in pathlib.Path(path).read_text().splitlines():
        cells = [c.strip() for c in line.strip()[1:-1].split("|")]
        if m := re.match(r"(ai\.onnx|com\.microsoft):(\w+)$", cells[0]):
            found, op, note = [(m.group(1), None)], {"Argmax": "ArgMax"}.get(m.group(2), m.group(2)), cells[1]
        elif len(cells) > 3 and "(" in cells[1]:
            found = re.findall(r"(ai\.onnx|com\.microsoft)\(([^)]*)\)", cells[1])
            op, note = cells[0], cells[-1]
        else:
            continue
        for domain, versions in found:
            row = {"op": op}
            if domain != "ai.onnx":
                row["domain"] = domain
            elif versions:
                row["opset"] = [int(re.match(r"\d+", versions).group(0))]
            if re.search(r"(should|must) be (a )?constant|is constant|be constants", note):
                fixed = FIXED.get(op, [1] if op.startswith("Reduce") else None)
                if fixed:
                    row["constant"] = fixed
            if op == "MatMulNBits" and "bits=4" in note:
                row["with"] = {"bits": 4}
            if op.startswith("Scatter") and "reduction" in note:
                row["with"] = {"reduction": ["none", None]}
            if op == "GatherND" and "batch_dims" in note:
                row["with"] = {"batch_dims": [0, None]}
            yield {**row, "source": "kernels"}


def rows(kernels, source):
    """Kernels with the same types as one row over their versions; names for long sets."""
    found, names = {}, {}
    for domain, op, first, last, ins, outs in kernels:
        found.setdefault((domain, op), []).append((first, last, ins, outs))

    def short(kinds, op):
        if kinds is None:
            return None
        if len(kinds) <= 3:
            return list(kinds) if len(kinds) != 1 else kinds[0]
        return names.setdefault(kinds, f"as {op}")

    def listed(row, key, sets, op):
        """One set for all, or one a position."""
        if not sets:
            return
        if any(s != sets[0] for s in sets):
            row[key + "_each"] = [short(s, op) for s in sets]
        elif (value := short(sets[0], op)) is not None:
            row[key] = value

    out = []
    for (domain, op), versions in sorted(found.items()):
        merged = []
        for first, last, ins, outs in sorted(versions, key=lambda v: (v[0], v[1])):
            # Kernels of one version for several types are one row each in the registry.
            if merged and merged[-1][0] == first and merged[-1][1] == last and len(merged[-1][2]) == len(ins):
                join = lambda a, b: None if a is None or b is None else tuple(sorted({*a, *b}))
                merged[-1][2] = [join(a, b) for a, b in zip(merged[-1][2], ins)]
                merged[-1][3] = [join(a, b) for a, b in zip(merged[-1][3], outs)]
            else:
                merged.append([first, last, list(ins), list(outs)])
        joined = []
        for row in merged:
            if joined and joined[-1][2:] == row[2:] and joined[-1][1] + 1 >= row[0]:
                joined[-1][1] = row[1]
            else:
                joined.append(row)
        for first, last, ins, outs in reversed(joined):
            row = {"op": op}
            if domain:
                row["domain"] = domain
            if first > 1 or last != NEWEST:
                row["opset"] = [first] if last == NEWEST else [first, last]
            listed(row, "in", ins, op)
            listed(row, "out", outs, op)
            if row.get("out") == row.get("in"):
                row.pop("out", None)
            row["source"] = source
            out.append(row)
    return out, {name: list(kinds) for kinds, name in names.items()}


def write(path, made, types, source):
    document = json.loads(path.read_text())
    document.pop("types", None)
    if types:
        document["types"] = types
    document["operators"] = [r for r in document.get("operators", []) if r["source"] != source] + made
    lines = []
    for key, value in document.items():
        if (
            isinstance(value, (list, dict))
            and value
            and key in ("operators", "types", "sources", "weights", "activations", "limits", "fused")
        ):
            pairs = value.items() if isinstance(value, dict) else [(None, v) for v in value]
            body = ",\n".join("    " + (json.dumps(k) + ": " if k is not None else "") + json.dumps(v) for k, v in pairs)
            lines.append(
                f"  {json.dumps(key)}: {'{' if isinstance(value, dict) else '['}\n{body}\n  {'}' if isinstance(value, dict) else ']'}"
            )
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    if sys.argv[1] == "table":
        made, types = list(table_rows(sys.argv[2])), {}
    else:
        made, types = rows(cpu_kernels() if sys.argv[1] == "cpu" else page_kernels(sys.argv[2]), "kernels")
    write(pathlib.Path(sys.argv[-1]), made, types, "kernels")
    print(len(made), "rows,", len(types), "named sets")
