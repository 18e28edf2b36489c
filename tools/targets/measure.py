"""Asks a compiler which operators it takes: each graph goes through ONNX Runtime with an execution provider, whose own word is kept.

  measure.py --provider cpu|qnn|webgpu|openvino [--soc 60] [--graphs FOLDER] [--dim NAME=N] --out FILE.json

Without --graphs the graphs are those of cases.py, one operator each (node "asked"). With it, every .onnx file of the folder, all nodes.
Needs the packages onnxruntime 1.31.1 and, for the provider, onnxruntime-qnn 2.7.0, onnxruntime-ep-webgpu 0.4.0 (with a Vulkan
driver, and ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER=1 for a software one) or onnxruntime-ep-openvino 1.8.1. Optimizers of the runtime are
off, so that the nodes are the file's. QNN compiles for the HTP on any x86-64 machine; "native" then means that its compiler accepted the
node."""

import argparse
import importlib
import importlib.metadata
import json
import multiprocessing
import pathlib
import tempfile

PACKAGES = {
    "qnn": ("onnxruntime_qnn", "QNNExecutionProvider"),
    "webgpu": ("onnxruntime_ep_webgpu", "WebGpuExecutionProvider"),
    "openvino": ("onnxruntime_ep_openvino", "OpenVINOExecutionProvider"),
}


def qnn_trace(folder):
    """Node name -> verdict from the framework trace."""
    files = list(pathlib.Path(folder).glob("qnn_op_trace*.json"))
    if not files:
        return None
    trace = json.loads(files[0].read_text())
    found = {}
    for part in trace["subgraph_traces"]:
        for mapping in part["op_mappings"]:
            for source in mapping["sources"]:
                if source["type"] == "OP":
                    found.setdefault(source["name"], {"verdict": "native", "as": []})["as"].append(mapping["dst_qnn_op_type"])
    for node in trace["unsupported_nodes"]:
        found[node["node_name"]] = {"verdict": "fallback", "reason": node["reason"]}
    return found


def assigned(session, provider):
    return {
        n.name or f"{n.op_type} {i}": {"verdict": "native" if part.ep_name == provider else "fallback", "op": n.op_type}
        for part in session.get_provider_graph_assignment_info()
        for i, n in enumerate(part.get_nodes())
    }


def asked(found):
    """The verdict of one-operator graphs. A runtime may replace the node (a function by its body, a layout by another): then of all."""
    if "asked" in found or not found:
        verdict = dict(found.get("asked", {}))
        verdict.pop("op", None)
        return verdict
    inner = [v for k, v in found.items() if v.get("op") not in ("QuantizeLinear", "DequantizeLinear")]
    bad = [v for v in inner if v["verdict"] != "native"]
    return {"verdict": "fallback" if bad else "native", "expanded": sorted({v.get("op", "?") for v in inner})}


def worker(provider, soc, dims, jobs, results):
    import onnxruntime as ort

    ort.set_default_logger_severity(4)
    devices = []
    if provider in PACKAGES:
        package, name = PACKAGES[provider]
        module = importlib.import_module(package)
        ort.register_execution_provider_library(name, module.get_library_path())
        devices = [d for d in ort.get_ep_devices() if d.ep_name == name][:1]
    while (job := jobs.get()) is not None:
        case, data = job
        with tempfile.TemporaryDirectory() as folder:
            options = ort.SessionOptions()
            options.log_severity_level = 4
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            for name, size in dims.items():
                options.add_free_dimension_override_by_name(name, size)
            options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
            found, error = {}, None
            if provider == "qnn":
                options.add_provider_for_devices(
                    devices,
                    {"backend_type": "htp", "soc_model": str(soc), "enable_framework_op_trace": "1", "framework_op_trace_dir": folder},
                )
            elif provider != "cpu":
                options.add_provider_for_devices(devices, {})
            try:
                path = data
                if isinstance(data, bytes):
                    path = pathlib.Path(folder) / "m.onnx"
                    path.write_bytes(data)
                session = (
                    ort.InferenceSession(str(path), options, enable_fallback=False)
                    if provider != "cpu"
                    else ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
                )
                name = PACKAGES.get(provider, ("", "CPUExecutionProvider"))[1]
                found = assigned(session, name)
            except Exception as problem:  # the provider's own errors have no common class
                error = str(problem).replace(folder, "").strip()[:300]
            if provider == "qnn":
                for node, verdict in (qnn_trace(folder) or {}).items():
                    found[node] = {**found.get(node, {}), **verdict}
        results.put((case, found, error))


def graphs(folder):
    if folder:
        for path in sorted(pathlib.Path(folder).glob("*.onnx")):
            yield path.stem, path  # it may have data beside it
    else:
        import cases

        for name, model in cases.all_cases():
            yield name, model.SerializeToString()


def measure(provider, soc, folder, dims):
    context = multiprocessing.get_context("spawn")
    rows, process = {}, None
    for case, data in graphs(folder):
        if process is None or not process.is_alive():
            jobs, results = context.Queue(), context.Queue()
            process = context.Process(target=worker, args=(provider, soc, dims, jobs, results), daemon=True)
            process.start()
        jobs.put((case, data))
        for _ in range(240):
            try:
                _, found, error = results.get(timeout=0.5)
                break
            except Exception:
                if not process.is_alive():
                    found, error = {}, "the process ended"
                    break
        else:
            found, error = {}, "no answer in two minutes"
            process.kill()
        rows[case] = {"nodes": found} if folder else asked(found)
        if error:
            rows[case]["error"] = error
        print(case, rows[case] if not folder else error or "", flush=True)
    if process:
        jobs.put(None)
    return rows


def versions(provider):
    names = ["onnxruntime", "onnx"] + ([PACKAGES[provider][0].replace("_", "-")] if provider in PACKAGES else [])
    return {n: importlib.metadata.version(n) for n in names}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--provider", required=True, choices=["cpu", *PACKAGES])
    parser.add_argument("--soc", type=int, default=60)
    parser.add_argument("--graphs")
    parser.add_argument("--dim", action="append", default=[], help="NAME=N: fixes an open dimension")
    parser.add_argument("--out", required=True)
    o = parser.parse_args()
    dims = {name: int(size) for name, size in (d.split("=") for d in o.dim)}
    document = {"provider": o.provider, "versions": versions(o.provider)}
    if o.provider == "qnn":
        document["soc_model"] = o.soc
    if dims:
        document["dims"] = dims
    document["graphs" if o.graphs else "cases"] = measure(o.provider, o.soc, o.graphs, dims)
    part = "graphs" if o.graphs else "cases"
    head = {k: v for k, v in document.items() if k != part}
    lines = ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in document[part].items())
    pathlib.Path(o.out).write_text(json.dumps(head)[:-1] + f', "{part}": {{\n{lines}\n}}}}\n')
