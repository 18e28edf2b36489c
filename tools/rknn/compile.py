#!/usr/bin/env python3
"""Compiles the graphs of a float static folder with Rockchip's rknn-toolkit2 and compares its simulator with ONNX Runtime's CPU provider.

  compile.py FOLDER -o NEW [--slm PATH] [--platform rk3588] [--limit 0.02] [--text TEXT]

FOLDER: of `slm export --to qdq --weights f32`. NEW gets, for each graph, what was made for the toolkit, the .rknn file and the toolkit's
log. Nothing runs on a device. Packages: README.md. Exit code 1: a graph was refused; 3: the logits differ by more than --limit.
"""
import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
NEWEST_OPSET = 19  # rknn-toolkit2 2.5.0: "Unsupport onnx opset 23, need <= 19!"
TEXT = "The river was low that summer, and the boats lay on their sides in the mud."


def check_packages():
    wrong = [] if importlib.util.find_spec("torch") else ["torch is absent, which the toolkit imports"]
    for line in (HERE / "requirements.txt").read_text().splitlines():
        if pin := re.fullmatch(r"([\w.-]+)==(\S+)", line):
            found = next((d.version for d in importlib.metadata.distributions(name=pin[1])), "absent")
            if found != pin[2]:
                wrong.append(f"{pin[1]} is {found}, tested with {pin[2]}")
    if wrong:
        sys.exit("compile.py: " + "; ".join(wrong) + ": see tools/rknn/README.md")


@contextlib.contextmanager
def output_to(path):
    """The toolkit writes pages of progress, partly past Python's own streams."""
    kept = os.dup(1), os.dup(2)
    with open(path, "a") as log:
        try:
            os.dup2(log.fileno(), 1), os.dup2(log.fileno(), 2)
            yield
        finally:
            sys.stdout.flush(), sys.stderr.flush()
            for to, fd in enumerate(kept, 1):
                os.dup2(fd, to), os.close(fd)


def lowered(graph, stem, slm):
    """The graph in operators that the toolkit reads, then as one of its newest operator set."""
    import onnx
    legal, out = stem.with_suffix(".legal.onnx"), stem.with_suffix(".onnx")
    command = [slm, "legalize", graph, "--target", HERE / "rk3588.json", "--no-fallback", "-o", legal]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    model = onnx.version_converter.convert_version(onnx.load(str(legal)), NEWEST_OPSET)
    onnx.checker.check_model(model)
    onnx.save(model, str(out))
    return out


class Simulated:
    """A compiled graph on the toolkit's simulator, in the form of a session of ONNX Runtime."""

    def __init__(self, model, platform):
        import onnx
        from rknn.api import RKNN
        graph = onnx.load(str(model), load_external_data=False).graph
        self.inputs, self.outputs = graph.input, graph.output
        self.log, self.file = model.with_suffix(".log"), model.with_suffix(".rknn")
        with output_to(self.log):
            self.rknn = RKNN(verbose=False)
            begin = time.monotonic()
            self.call("config", target_platform=platform)
            self.call("load_onnx", model=str(model))
            self.call("build", do_quantization=False)  # float16
            self.seconds = time.monotonic() - begin
            self.call("export_rknn", export_path=str(self.file))
            self.call("init_runtime")

    def call(self, what, **arguments):
        if (code := getattr(self.rknn, what)(**arguments)) != 0:
            raise RuntimeError(f"{what} gave {code}")

    def get_outputs(self):
        return self.outputs

    def run(self, _, feeds):
        with output_to(self.log):
            return self.rknn.inference(inputs=[feeds[i.name] for i in self.inputs], data_format="nchw")


def logits(host, ids):
    """Of all tokens: the last two calls are of the decode graph, the others of prefill."""
    ids, step = host.begin(ids), host.step
    return [row for part in (ids[:-2 * step], ids[-2 * step:-step], ids[-step:]) for row in host.feed(part)]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("-o", "--out", type=lambda path: pathlib.Path(path).resolve(), required=True)
    p.add_argument("--slm", default="slm")
    p.add_argument("--platform", default="rk3588")
    p.add_argument("--limit", type=float, default=0.02, help="most rms of the logits' difference, relative to their rms")
    p.add_argument("--text", default=TEXT)
    args = p.parse_args()
    check_packages()
    import numpy as np
    sys.path.insert(0, str(HERE.parents[1] / "tests" / "e2e"))
    import static_folder
    manifest = json.loads((args.folder / "manifest.json").read_text())
    if manifest["recipe"]["weights"] != "f32":
        sys.exit("compile.py: the toolkit quantizes by itself: export with --weights f32")
    args.out.mkdir(parents=True)
    made, refused = {}, []
    for graph in manifest["graphs"]:
        stem, name = args.out / pathlib.Path(graph["file"]).stem, f"{graph['file']} of {graph['tokens']} tokens"
        try:
            path = lowered(args.folder / graph["file"], stem, args.slm)
            session = made[path] = Simulated(path, args.platform)
            print(f"{name}: {session.file.stat().st_size} bytes of .rknn, built in {session.seconds:.1f} s", flush=True)
        except Exception as e:  # the toolkit raises whatever stopped it
            refused.append(name)
            stem.with_suffix(".refusal.txt").write_text(str(e))
            print(f"{name} refused: {str(e).strip().splitlines()[-1]} (all of it: {stem}.refusal.txt)", flush=True)
    if refused:
        sys.exit(1)
    if (args.folder / "tokenizer.json").exists():
        done = subprocess.run([args.slm, "tokenize", args.folder, "--json"], input=args.text, text=True, check=True, stdout=subprocess.PIPE)
        ids = json.loads(done.stdout)["ids"]
    else:
        ids = np.random.default_rng(0).integers(0, manifest["model"]["vocab_size"], 60).tolist()
    ids = manifest["prefix"]["tokens"] + ids[:manifest["context"] - 1]
    files = {g["file"]: path for g, path in zip(manifest["graphs"], made)}
    base = np.array(logits(static_folder.Host(args.folder), ids))
    for what, other in (("lowered graphs, ONNX Runtime", logits(static_folder.Host(args.folder, files=files), ids)),
                        (f"{args.platform}, simulated", logits(static_folder.Host(args.folder, made.__getitem__, files), ids))):
        other = np.array(other)
        rms = np.sqrt(((other - base) ** 2).mean() / (base ** 2).mean())
        same = (other.argmax(-1) == base.argmax(-1)).mean()
        print(f"{what}: {len(base)} tokens, logits within {rms:.2g} rms of ONNX Runtime's, same most likely token in {same:.1%}")
    sys.exit(0 if rms <= args.limit else 3)


if __name__ == "__main__":
    main()
