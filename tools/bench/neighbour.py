"""What a busy neighbour costs: decode alone and beside a process that keeps as many threads busy, in turn.

  python3 tools/bench/neighbour.py --slm build/dev/bin/slm [-t 2] [-r 5] MODEL.gguf

Fair shares leave half of the speed. Exit code 1 when decode falls by more than 60 % (median of the rounds) or does not end. Run it at
the same priority as the neighbour, on a machine that is otherwise quiet.
"""
import argparse
import contextlib
import multiprocessing
import os
import statistics
import sys
import time

import process
from figures import STEPS, digits

LARGEST_FALL = 0.60


def spin():
    while True:
        pass


@contextlib.contextmanager
def busy(n):
    """n processes that never wait, while the block runs."""
    workers = [multiprocessing.Process(target=spin, daemon=True) for _ in range(n)]
    for w in workers:
        w.start()
    time.sleep(0.2)
    try:
        yield
    finally:
        for w in workers:
            w.kill()
            w.join()


def decode(slm, model, threads, timeout):
    run = process.run([slm, "bench", model, "-r", "3", "--threads", threads, "--pp", "0", "--ttft", "0", "--tg", STEPS, "--json"], timeout)
    return run.records[0]["tps"]["median"]


def main(arguments=None):
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("model", help="GGUF file")
    args.add_argument("--slm", required=True)
    args.add_argument("-t", "--threads", type=int, default=2)
    args.add_argument("-n", "--neighbours", type=int, default=2, help="busy threads beside it")
    args.add_argument("-r", "--rounds", type=int, default=5)
    args.add_argument("--timeout", type=int, default=120, help="seconds; a run that takes longer hangs")
    args = args.parse_args(arguments)
    kept = []
    try:
        for number in range(args.rounds):
            alone = decode(args.slm, args.model, args.threads, args.timeout)
            with busy(args.neighbours):
                beside = decode(args.slm, args.model, args.threads, args.timeout)
            kept.append(beside / alone)
            print(f"round {number + 1}: {digits(alone)} tok/s alone, {digits(beside)} beside {args.neighbours} busy threads = "
                  f"{kept[-1]:.0%}; load {os.getloadavg()[0]:.1f}", flush=True)
    except (process.Failed, KeyError, IndexError) as error:
        print(f"neighbour: {error}", file=sys.stderr)
        return 1
    fall = 1 - statistics.median(kept)
    print(f"decode falls by {fall:.0%} (limit {LARGEST_FALL:.0%}), rounds {1 - max(kept):.0%} to {1 - min(kept):.0%}")
    return 1 if fall > LARGEST_FALL else 0


if __name__ == "__main__":
    sys.exit(main())
