#!/usr/bin/env python3
"""Greedy ids of `slm` beside another engine's, both in f32: equal, or first different at a near tie.

  tools/compare_greedy.py --slm build/dev/bin/slm --model M.gguf --peer "peer_greedy M-f32.gguf 64 2"

The peer (tools/peer_greedy.cc) reads prompts as ids, one a line, and prints {"ids":[…],"gaps":[…]} for each. Prompts are texts
tokenized by `slm`; the gap is the distance between the peer's two best logits. Exit 1 when a difference is no near tie.
"""
import argparse
import json
import shlex
import subprocess
import sys

PROMPTS = ["The capital of France is", "Once upon a time there was a small", "def fibonacci(n):\n    ",
           "Water boils at 100 degrees because", "Dear Sir or Madam,\n\nI am writing to"]


def run(command, text):
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--slm", required=True), ap.add_argument("--model", required=True), ap.add_argument("--peer", required=True)
    ap.add_argument("-n", type=int, default=64)
    ap.add_argument("--tie", type=float, default=0.01, help="a smaller gap between the two best logits is a near tie")
    o = ap.parse_args()
    ours, prompts = [], []
    for text in PROMPTS:
        ids = json.loads(run([o.slm, "tokenize", o.model, "--json"], text))["ids"]
        out = run([o.slm, "run", o.model, "--raw", "-p", text, "-n", str(o.n), "--ignore-eos", "--compute", "f32", "--kv", "f32", "--ids", "--json"], "")
        result = json.loads(out.splitlines()[-1])
        extra = result["prompt_tokens"] - len(ids)  # a begin token that the model asks for
        if extra not in (0, 1):
            sys.exit(f"{text!r}: {len(ids)} ids, but {result['prompt_tokens']} prompt tokens")
        bos = json.loads(run([o.slm, "inspect", o.model, "--json"], ""))["tokenizer"]["bos_ids"]
        prompts.append(bos[:extra] + ids)
        ours.append(result["ids"])
    theirs = [json.loads(line) for line in run(shlex.split(o.peer), "".join(" ".join(map(str, p)) + "\n" for p in prompts)).splitlines()]
    bad = 0
    for text, mine, peer in zip(PROMPTS, ours, theirs):
        n = next((i for i, (a, b) in enumerate(zip(mine, peer["ids"])) if a != b), None)
        if n is None and len(mine) == len(peer["ids"]):
            print(f"equal    {len(mine)} ids   {text!r}")
        elif n is not None and peer["gaps"][n] < o.tie:
            print(f"near tie at token {n}: ours {mine[n]}, peer {peer['ids'][n]}, gap {peer['gaps'][n]:.5f}   {text!r}")
        else:
            bad += 1
            print(f"DIFFERS  at token {n}: {mine[n:][:4] if n is not None else len(mine)} against {peer['ids'][n:][:4] if n is not None else len(peer['ids'])}"
                  f", gap {peer['gaps'][n] if n is not None else '-'}   {text!r}")
    sys.exit(1 if bad else 0)


main()
