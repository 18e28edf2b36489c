"""ONNX Runtime under two hosts on the same exported folder: `slm --backend ort` and ONNX Runtime GenAI, in turn.

  python3 tools/bench/ort_host.py --slm build/dev/bin/slm --python VENV/bin/python -t 2 -r 5 FOLDER

VENV has onnxruntime-genai; the folder is one of `slm export MODEL --to genai --ctx 2048`. The order of the two turns from round to round.
Printed: median (lowest-highest) of each figure, and how many times better slm is by the medians.
"""
import argparse
import pathlib
import shlex

import engines
import figures
import process

WORKER = pathlib.Path(__file__).with_name("python_peer.py")


class GenAi(engines.Engine):
    def measure(self, folder, threads):
        start = self.run(WORKER, "ort", folder, "--threads", threads, "--first-only")
        rest = self.run(WORKER, "ort", folder, "--threads", threads)
        values = {"first_ms": start.wall_ms, "rss_mib": rest.rss_mib}
        for record in rest.records:
            values.update(record)
        return values, [start, rest]


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("folder")
    args.add_argument("--slm", required=True)
    args.add_argument("--python", required=True)
    args.add_argument("-t", "--threads", type=int, default=2)
    args.add_argument("-r", "--rounds", type=int, default=5)
    args.add_argument("--timeout", type=float, default=600)
    args.add_argument("--prefix", default="", help="command before each program, such as \"chrt -r 50\"")
    args = args.parse_args()
    prefix = shlex.split(args.prefix)
    hosts = [engines.Slm("slm", args.slm, args.timeout, prefix), GenAi("GenAI", args.python, args.timeout, prefix)]
    values = {h.name: [] for h in hosts}
    for number in range(args.rounds):
        for host in hosts if number % 2 == 0 else reversed(hosts):
            values[host.name].append(host.measure(args.folder, args.threads)[0])
    print(f"{'':<16}{'slm':>26}{'GenAI':>26}  slm is better by")
    for f in figures.FIGURES:
        both = [figures.spread([v.get(f.key) for v in values[h.name]]) for h in hosts]
        texts = [f"{figures.digits(s['median'])} ({figures.digits(s['min'])}-{figures.digits(s['max'])})" for s in both]
        print(f"{f.heading:<16}{texts[0]:>26}{texts[1]:>26}  {f.ratio(both[0]['median'], both[1]['median']):.2f}")


if __name__ == "__main__":
    try:
        main()
    except process.Failed as error:
        raise SystemExit(str(error)) from error
