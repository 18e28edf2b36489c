"""How each engine is found, started and read. An engine is an object with `name`, `note(model)` and `measure(model, threads)`.

The folder of peers (SLM_PEERS):
  llama-bench*, bin/llama-bench* or llama.cpp/bin/llama-bench*   every such program is a peer of its own
  venv/bin/python                                                may import onnxruntime_genai and openvino_genai
  models/STEM/ort/genai_config.json                              the ONNX Runtime GenAI form of STEM.gguf
  models/STEM/openvino/                                          the OpenVINO form; made here from the GGUF file when it is absent
"""
import os
import pathlib

import process
from figures import DEPTH, PROMPT, SHORT_PROMPT, STEPS

PACKAGE = "slm package"  # its row in the table
WORKER = pathlib.Path(__file__).with_name("python_peer.py")


class Engine:
    """`measure` returns ({key of a figure: value}, [Finished]); it raises process.Failed."""

    def __init__(self, name, program, timeout, prefix):
        self.name, self.program, self.timeout, self.prefix = name, program, timeout, prefix

    def run(self, *arguments):
        return process.run([self.program, *arguments], self.timeout, self.prefix)

    def missing(self, model):  # why this engine cannot run the model, or None
        return None

    def prepare(self, model):  # once before the first round
        pass


def figures_of(run):
    """{figure: value} of one `slm bench --json` with a prompt, a first token, steps and steps at a depth."""
    values = {"rss_mib": run.rss_mib}
    for r in run.records:
        if r["test"].startswith("pp"):
            values.update(pp512=r["tps"]["median"], gops=r["gops"])
        elif r["test"].startswith("ttft"):
            values["ttft32_ms"] = r["ms"]["median"]
        elif r["depth"]:
            values["tg128_d1024"] = r["tps"]["median"]
        else:
            values.update(tg128=r["tps"]["median"], gbps=r["gbps"], bytes_per_token=r["bytes_per_token"], isa=r["isa"])
    return values


class Slm(Engine):
    def start(self, model, threads):
        return self.run("bench", model, "-r", "1", "--threads", threads, "--json", "--no-warmup",
                        "--pp", SHORT_PROMPT, "--tg", "0", "--ttft", "0")

    def measure(self, model, threads):
        start = self.start(model, threads)
        rest = self.run("bench", model, "-r", "1", "--threads", threads, "--json", "--pp", PROMPT, "--tg", STEPS, "--ttft", SHORT_PROMPT,
                        "--depth", f"0,{DEPTH}")
        return {"first_ms": start.wall_ms, **figures_of(rest)}, [start, rest]

    def probe(self, threads):
        """The roofline of this moment: one object of `slm devices --probe`."""
        return self.run("devices", "--probe", "--threads", threads, "--json").records[-1]["roofline"][-1]


class SlmPackage(Slm):
    """The start alone, from the model's package: the form that is made once, as the folders of the Python peers are."""

    def __init__(self, program, timeout, prefix, folder):
        super().__init__(PACKAGE, program, timeout, prefix)
        self.folder, self.packages = pathlib.Path(folder), {}

    def prepare(self, model):
        self.packages[model] = self.folder / f"{len(self.packages)}.slm"
        self.run("export", model, "--to", "package", "-o", self.packages[model])

    def measure(self, model, threads):
        start = self.start(self.packages[model], threads)
        return {"first_ms": start.wall_ms}, [start]


class LlamaBench(Engine):
    def measure(self, model, threads):
        common = ["-m", model, "-t", threads, "-r", "1", "-o", "jsonl"]
        start = self.run(*common, "-p", SHORT_PROMPT, "-n", "0", "--no-warmup")
        runs = [start, self.run(*common, "-p", f"{PROMPT},{SHORT_PROMPT}", "-n", STEPS),
                self.run(*common, "-p", "0", "-n", STEPS, "-d", DEPTH)]
        values = {"first_ms": start.wall_ms, "rss_mib": max(r.rss_mib for r in runs[1:])}
        for r in runs[1].records + runs[2].records:
            if r["n_gen"]:
                values["tg128_d1024" if r.get("n_depth") else "tg128"] = r["avg_ts"]
            elif r["n_prompt"] == PROMPT:
                values["pp512"] = r["avg_ts"]
            else:
                values["ttft32_ms"] = r["avg_ns"] / 1e6
            values["version"] = str(r.get("build_commit"))
        return values, runs


class PythonPeer(Engine):
    """ONNX Runtime GenAI or OpenVINO GenAI through python_peer.py, in a Python that has them."""

    def __init__(self, kind, name, folder, timeout, prefix):
        super().__init__(name, folder / "venv" / "bin" / "python", timeout, prefix)
        self.kind, self.models, self.failed = kind, folder / "models", {}

    def home(self, model):
        return self.models / pathlib.Path(model).stem / self.kind

    def missing(self, model):
        wanted = "genai_config.json" if self.kind == "ort" else "openvino_model.xml"
        return self.failed.get(model) or (None if (self.home(model) / wanted).exists() else f"no {self.home(model) / wanted}")

    def prepare(self, model):
        """OpenVINO reads a GGUF file itself but converts it at every start; the folder holds the converted form."""
        if self.kind != "openvino" or not self.missing(model):
            return
        try:
            self.home(model).mkdir(parents=True, exist_ok=True)
            link = self.home(model) / "model.gguf"
            if not link.exists():
                os.symlink(os.path.abspath(model), link)
            self.run(WORKER, "convert", link)
        except (OSError, process.Failed) as error:
            self.failed[model] = "cannot convert: " + last_line(error)

    def measure(self, model, threads):
        start = self.run(WORKER, self.kind, self.home(model), "--threads", threads, "--first-only")
        rest = self.run(WORKER, self.kind, self.home(model), "--threads", threads)
        values = {"first_ms": start.wall_ms, "rss_mib": rest.rss_mib}
        for record in rest.records:
            values.update(record)
        return values, [start, rest]


def last_line(error):
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip()[:160] if lines else type(error).__name__


def find(peers, timeout, prefix):
    """The engines in the folder `peers` (None: none)."""
    engines, folder = [], pathlib.Path(peers) if peers else None
    if folder is None:
        return engines
    for place in (folder, folder / "bin", folder / "llama.cpp" / "bin"):
        for program in sorted(place.glob("llama-bench*")):
            if os.access(program, os.X_OK) and program.is_file():
                engines.append(LlamaBench("llama.cpp" + program.name[len("llama-bench"):], program, timeout, prefix))
    python = folder / "venv" / "bin" / "python"
    for kind, name, module in (("ort", "ORT GenAI", "onnxruntime_genai"), ("openvino", "OpenVINO", "openvino_genai")):
        if python.exists() and list(folder.glob(f"venv/lib/python*/site-packages/{module}")):
            engines.append(PythonPeer(kind, name, folder, timeout, prefix))
    return engines
