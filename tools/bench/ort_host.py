"""ONNX Runtime under two hosts on the same exported folder: `slm chat` and ONNX Runtime GenAI, turn by turn.

  VENV/bin/python tools/bench/ort_host.py --slm build/dev/bin/slm -t 2 -r 21 FOLDER

VENV has onnxruntime-genai; the folder is one of `slm export MODEL --to genai --ctx 2048`. Both are loaded once; each round evaluates a fresh
prompt of some 460 tokens and 64 greedy steps in one host and then in the other, the order turning. So both meet the same neighbours on the
machine. Printed: medians, and the median of the rounds' ratios (above 1: slm is faster).
"""
import argparse
import json
import random
import shlex
import statistics
import subprocess
import time

WORDS = ("time year people way day man thing life child world school state group student country hand part place week company system work "
         "number night point home water room mother area money story fact month lot right study book eye word side kind head house").split()
STEPS, MESSAGE_WORDS, CONTEXT = 64, 430, 1024


class Slm:
    def __init__(self, program, folder, threads, prefix):
        command = [*prefix, program, "chat", folder, "--backend", "ort", "--json", "-n", STEPS, "--ignore-eos", "-t", threads, "--ctx", CONTEXT]
        self.chat = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self, numbers):
        """(tokens of the prompt, its tokens a second, steps a second)"""
        self.chat.stdin.write("/clear\n" + " ".join(numbers.choice(WORDS) for _ in range(MESSAGE_WORDS)) + "\n")
        self.chat.stdin.flush()
        d = json.loads(self.chat.stdout.readline())
        return d["prompt_tokens"] - d["cached_tokens"], d["prefill_tps"], d["decode_tps"]


class GenAi:
    def __init__(self, folder, threads):
        import onnxruntime_genai
        self.genai = onnxruntime_genai
        config = onnxruntime_genai.Config(folder)
        config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}}))
        self.model = onnxruntime_genai.Model(config)

    def measure(self, numbers, n):
        params = self.genai.GeneratorParams(self.model)
        params.set_search_options(max_length=CONTEXT, min_length=CONTEXT, do_sample=False)
        generator = self.genai.Generator(self.model, params)
        ids = [numbers.randrange(3, 30000) for _ in range(n)]
        start = time.perf_counter()
        generator.append_tokens(ids)
        generator.generate_next_token()
        first = time.perf_counter()
        for _ in range(STEPS - 1):
            generator.generate_next_token()
        return n / (first - start), (STEPS - 1) / (time.perf_counter() - first)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("folder")
    args.add_argument("--slm", required=True)
    args.add_argument("-t", "--threads", type=int, default=2)
    args.add_argument("-r", "--rounds", type=int, default=21)
    args.add_argument("--prefix", default="", help="command before slm, such as \"chrt -r 50\"; start this script with the same")
    args = args.parse_args()
    numbers = random.Random(1)
    slm, genai = Slm(args.slm, args.folder, args.threads, shlex.split(args.prefix)), GenAi(args.folder, args.threads)
    n = slm.measure(numbers)[0]
    genai.measure(numbers, n)
    ours, theirs = [], []
    for number in range(args.rounds):
        if number % 2:
            theirs.append(genai.measure(numbers, n))
        ours.append(slm.measure(numbers)[1:])
        if number % 2 == 0:
            theirs.append(genai.measure(numbers, n))
    slm.chat.stdin.close()
    for i, name in enumerate((f"prompt of {n}", f"decode {STEPS}")):
        a, b = [x[i] for x in ours], [x[i] for x in theirs]
        print(f"{name}: slm {statistics.median(a):.1f} tok/s, GenAI {statistics.median(b):.1f}, "
              f"median of the ratios {statistics.median(x / y for x, y in zip(a, b)):.3f}")


if __name__ == "__main__":
    main()
