"""Is this tree slower than another commit of it? Builds both in folders of their own and runs them in turn on one model.

  python3 tools/bench/against.py BASE_REF [-t 1,2] [-r 11] MODEL.gguf

Exit code 1 when a figure is slower by more than 5 % with p < 0.01 (significance.py), 2 when it could not be measured. The head is the
working tree as it stands, with what is not committed.
"""
import argparse
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import engines
import process
import significance
from figures import DEPTH, FIGURES, PROMPT, SHORT_PROMPT, STEPS, digits, spread

MEASURED = [f for f in FIGURES if f.key != "first_ms"]
OPTIONS = ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DSLM_TESTS=OFF", "-DSLM_BENCH=OFF"]


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def unpack(ref, folder):
    """The tree of a commit in `folder`, without touching the checkout. Nothing is rebuilt while the commit stays the same."""
    try:
        commit = output_of("git", "rev-parse", "--verify", "--quiet", ref + "^{commit}")
    except subprocess.CalledProcessError as error:
        raise process.Failed(f"{ref}: no such commit here") from error
    mark = folder / ".commit"
    if not mark.exists() or mark.read_text() != commit:
        shutil.rmtree(folder, ignore_errors=True)  # a file that the commit lacks must not stay
        folder.mkdir(parents=True)
        with subprocess.Popen(["git", "archive", commit], stdout=subprocess.PIPE) as archive:
            # -m: newer than any object of another commit
            subprocess.run(["tar", "-xm", "-C", folder], stdin=archive.stdout, check=True)
        if archive.returncode != 0:
            raise process.Failed(f"git archive {commit} failed")
        mark.write_text(commit)
    return commit


def build(source, folder):
    """The executable of the tree `source`; both sides get the same options."""
    subprocess.run(["cmake", "-S", source, "-B", folder, "-G", "Ninja", *OPTIONS], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", folder, "--target", "slm"], check=True, stdout=sys.stderr)
    return folder / "bin" / "slm"


def measure(slm, model, threads, args):
    """{figure: value} of one process: the median of three repetitions each."""
    run = process.run([slm, "bench", model, "-r", "3", "--threads", threads, "--pp", PROMPT, "--ttft", SHORT_PROMPT, "--tg", STEPS,
                       "--depth", f"0,{DEPTH}", "--json"], args.timeout, shlex.split(args.prefix))
    return engines.figures_of(run)


def compare(rounds, threads):
    """{figure key: Verdict} over the rounds of one thread count: [{"threads", "base": values, "head": values}]."""
    mine = [r for r in rounds if r["threads"] == threads]
    return {f.key: significance.judge([r["base"].get(f.key) for r in mine], [r["head"].get(f.key) for r in mine], f.higher_is_better)
            for f in MEASURED}


def text(rounds, thread_counts):
    lines = [f"{'figure':<22}{'threads':>8}{'base':>10}{'head':>10}{'slower by':>11}{'p slower':>10}{'p faster':>10}  verdict"]
    for threads in thread_counts:
        for f in MEASURED:
            v = compare(rounds, threads)[f.key]
            base, head = (spread([r[side].get(f.key) for r in rounds if r["threads"] == threads]) for side in ("base", "head"))
            cells = [digits(s["median"]) if s else "-" for s in (base, head)]
            lines.append(f"{f.heading + ', ' + f.unit:<22}{threads:>8}{cells[0]:>10}{cells[1]:>10}{v.slowdown:>11.1%}"
                         f"{v.p_slower:>10.4f}{v.p_faster:>10.4f}  {v.word}")
    return "\n".join(lines)


def parse(arguments):
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("base", help="commit, tag or branch to compare with")
    args.add_argument("model", help="GGUF file")
    args.add_argument("-t", "--threads", default="2,1")
    args.add_argument("-r", "--rounds", type=int, default=11)
    args.add_argument("--prefix", default="", help='put before every measured program, e.g. "chrt -r 50"')
    args.add_argument("--timeout", type=int, default=600)
    args.add_argument("--work", type=pathlib.Path, default=pathlib.Path("build/against"), help="folder for the two builds")
    args.add_argument("--json", help="writes everything raw here")
    args = args.parse_args(arguments)
    if args.rounds < significance.FEWEST_PAIRS:
        args.rounds = significance.FEWEST_PAIRS
        print(f"against: {args.rounds} rounds, fewer cannot be significant", file=sys.stderr)
    return args


def main(arguments=None):
    args, root = parse(arguments), pathlib.Path(__file__).resolve().parents[2]
    os.chdir(root)
    thread_counts, rounds = [int(t) for t in args.threads.split(",")], []
    try:
        commit = unpack(args.base, args.work / "base_source")
        sides = {"base": build(args.work / "base_source", args.work / "base"), "head": build(root, args.work / "head")}
        for number in range(args.rounds):
            for threads in thread_counts:
                result = {"threads": threads, "round": number, "load": os.getloadavg()[0]}
                for side in sorted(sides, reverse=number % 2 == 1):
                    result[side] = measure(sides[side], args.model, threads, args)
                rounds.append(result)
            print(f"round {number + 1} of {args.rounds} done", file=sys.stderr, flush=True)
    except (subprocess.CalledProcessError, process.Failed, KeyError) as error:
        print(f"against: {error}", file=sys.stderr)
        return 2
    print(f"base {args.base} ({commit[:12]}), head {output_of('git', 'describe', '--always', '--dirty')}, {os.path.basename(args.model)}, "
          f"{args.rounds} rounds in turn\n\n{text(rounds, thread_counts)}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"base": commit, "rounds": rounds}, indent=1) + "\n", encoding="utf-8")
    slower = [f.heading for t in thread_counts for f in MEASURED if compare(rounds, t)[f.key].word == "SLOWER"]
    print(f"\n{'slower: ' + ', '.join(dict.fromkeys(slower)) if slower else 'no figure is slower'}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
