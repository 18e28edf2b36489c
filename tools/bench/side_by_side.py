"""Measures `slm` and the installed peers in turn on the same models; prints one table, writes JSON with everything raw and a chart.

  python3 tools/bench/side_by_side.py --slm build/dev/bin/slm --peers DIR -t 2,1 -r 5 --json b.json --svg b.svg MODEL.gguf...

Interleaved: a round measures the roofline of the moment and then runs every engine once, for each model and thread count; the order of
the engines turns from round to round, so that clocks, heat, caches and neighbours touch all alike. A peer that cannot run a model is
named with its reason; slm that cannot is an error.
"""
import argparse
import datetime
import json
import os
import platform
import shlex
import sys
import tempfile

import chart
import engines
import process
import report

SCHEMA = 1


def machine_of(slm):
    """What the JSON says of the machine: facts read, nothing guessed."""
    backend = slm.run("devices", "--json").records[-1]["backends"][0]
    return {"cpu": backend["device"], "features": " ".join(backend["features"]), "isa": backend["isa"], "cpus": os.cpu_count(),
            "kernel": platform.release(), "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")}


def measure_round(number, model, threads, own, peers, absent):
    """One round of one model and thread count; peers that fail go into `absent` and are left out from then on."""
    slm, order = own[0], [*own, *(p for p in peers if (p.name, model) not in absent)]
    turn = number % len(order)
    result = {"model": model, "threads": threads, "round": number, "load": os.getloadavg()[0], "roofline": slm.probe(threads),
              "values": {}, "runs": []}
    for engine in order[turn:] + order[:turn]:
        try:
            values, runs = engine.measure(model, threads)
        except (process.Failed, KeyError, TypeError, ValueError) as error:
            if engine in own:
                raise
            absent[engine.name, model] = engines.last_line(error)
            continue
        result["values"][engine.name] = values
        result["runs"].append({"engine": engine.name, "processes": [r.as_json() for r in runs]})
    return result


def write(path, text):
    if path:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)


def parse(arguments):
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("models", nargs="+", help="GGUF files")
    args.add_argument("--slm", required=True)
    args.add_argument("--peers", help="folder of peers, laid out as docs/bench.md says")
    args.add_argument("--only", help="names of peers to run, separated by commas")
    args.add_argument("-t", "--threads", default="2,1", help="thread counts, separated by commas")
    args.add_argument("-r", "--rounds", type=int, default=5)
    args.add_argument("--prefix", default="", help='put before every measured program, e.g. "chrt -r 50"')
    args.add_argument("--timeout", type=int, default=900, help="seconds for one run of one program")
    args.add_argument("--json", help="writes everything raw here")
    args.add_argument("--svg", help="writes the chart here")
    args = args.parse_args(arguments)
    if args.rounds < 1:
        sys.exit("bench: -r must be at least 1")
    return args


def main(arguments=None):
    args = parse(arguments)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(args.slm)), prefix="bench-") as packages:
        compare(args, packages)


def compare(args, packages):
    """`packages`: a folder for the models in the form that starts fastest."""
    prefix = shlex.split(args.prefix)
    slm = engines.Slm("slm", args.slm, args.timeout, prefix)
    own = [slm, engines.SlmPackage(args.slm, args.timeout, prefix, packages)]
    peers = engines.find(args.peers, args.timeout, prefix)
    if args.only is not None:
        peers = [p for p in peers if p.name in args.only.split(",")]
    if not peers:
        print(f"bench: no peer found in {args.peers or 'SLM_PEERS (not set)'}: our figures only", file=sys.stderr)
    try:
        machine, rounds, absent = machine_of(slm), [], {}
        for engine in own + peers:
            for model in args.models:
                engine.prepare(model)
                if why := engine.missing(model):
                    absent[engine.name, model] = why
        for number in range(args.rounds):
            for model in args.models:
                for threads in map(int, args.threads.split(",")):
                    rounds.append(measure_round(number, model, threads, own, peers, absent))
            print(f"round {number + 1} of {args.rounds} done, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    except (process.Failed, KeyError, IndexError, ValueError) as error:
        sys.exit(f"bench: slm: {error}")
    groups = report.summarise(rounds, [e.name for e in own + peers], absent, os.environ.get("SLM_FORCE_ISA"))
    versions = {e: v["version"] for r in rounds for e, v in r["values"].items() if "version" in v}
    print(report.text(groups, machine))
    write(args.json, json.dumps({"schema": SCHEMA, "machine": machine, "versions": versions, "arguments": vars(args), "summary": groups,
                                 "rounds": rounds}, indent=1) + "\n")
    write(args.svg, chart.draw(groups, machine))


if __name__ == "__main__":
    main()
