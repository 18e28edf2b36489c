"""From the raw rounds to a summary (plain data, goes into the JSON) and from that to text of at most 120 columns.

A round: {"model", "threads", "round", "load", "roofline": {...}, "values": {engine: {figure: value, ...}}}.
"""
import os
import statistics

from engines import PACKAGE
from figures import FIGURES, digits, paired_ratio, spread

NAME_WIDTH, CELL_WIDTH = 15, 17


def summarise(rounds, engines, absent, forced_isa=None):
    """One group for each model and thread count, in the order they were measured. `absent`: {(engine, model): why}."""
    groups = []
    for model, threads in dict.fromkeys((r["model"], r["threads"]) for r in rounds):
        mine = [r for r in rounds if (r["model"], r["threads"]) == (model, threads)]
        columns = {e: {f.key: [r["values"].get(e, {}).get(f.key) for r in mine] for f in FIGURES} for e in engines}
        present = [e for e in engines if any(v is not None for c in columns[e].values() for v in c)]
        peers = [e for e in present if e not in ("slm", PACKAGE)]
        ratios = {p: {f.key: paired_ratio(f, columns["slm"][f.key], columns[p][f.key]) for f in FIGURES} for p in peers}
        groups.append({
            "model": model, "threads": threads, "rounds": len(mine),
            "load": spread([r["load"] for r in mine]),
            "engines": {e: {f.key: spread(columns[e][f.key]) for f in FIGURES} for e in present},
            "ratios": ratios,
            "best_peer": {f.key: best_peer(f, columns, peers) for f in FIGURES},
            "package_best_peer": {f.key: best_peer(f, columns, peers, PACKAGE) for f in FIGURES},
            "roofline": roofline(mine, forced_isa),
            "absent": {e: why for (e, m), why in absent.items() if m == model},
        })
    return groups


def best_peer(figure, columns, peers, ours="slm"):
    """{"engine", "ratio"} of the peer that `ours` beats by the least, or None."""
    ratios = {p: paired_ratio(figure, columns[ours][figure.key], columns[p][figure.key]) for p in peers}
    ratios = {p: r for p, r in ratios.items() if r is not None}
    return min(({"engine": p, "ratio": r} for p, r in ratios.items()), key=lambda x: x["ratio"]) if ratios else None


def roofline(rounds, forced_isa):
    """What slm reached of the ceilings that were measured in the same round; medians of the rounds' own shares."""
    pairs = [(r["roofline"], r["values"]["slm"]) for r in rounds if r.get("roofline") and r["values"].get("slm", {}).get("tg128")]
    if not pairs:
        return None

    def peak(probe):  # the unit that a forced tier may use, else the widest of the machine
        tiers = probe["int8_gops"]
        return max((t for t in tiers.items() if forced_isa in (None, t[0])), key=lambda t: t[1], default=("none", 0.0))

    def median(of):
        found = [v for v in (of(p, v) for p, v in pairs) if v is not None]
        return statistics.median(found) if found else None
    in_cache = all(p["cache_gbps"] and v["bytes_per_token"] <= p["cache_buffer_bytes"] for p, v in pairs)
    ceiling = "cache_gbps" if in_cache else "memory_gbps"
    return {
        "bytes_per_token": pairs[0][1]["bytes_per_token"], "kernels": pairs[0][1]["isa"], "ceiling": ceiling,
        "memory_gbps": median(lambda p, v: p["memory_gbps"]), "cache_gbps": median(lambda p, v: p["cache_gbps"]),
        "int8_isa": peak(pairs[-1][0])[0], "int8_gops": median(lambda p, v: peak(p)[1]),
        "gbps": median(lambda p, v: v["gbps"]), "gbps_share": median(lambda p, v: v["gbps"] / p[ceiling]),
        "gops": median(lambda p, v: v["gops"]), "gops_share": median(lambda p, v: v["gops"] / peak(p)[1] if peak(p)[1] else None),
    }


def cell(s):
    return f"{digits(s['median'])} ({digits(s['min'])}-{digits(s['max'])})" if s else "-"


def row(name, cells):
    return (name.ljust(NAME_WIDTH) + "".join((c + " ").ljust(CELL_WIDTH) for c in cells)).rstrip()


def times(ratio):
    return f"{digits(ratio)} x" if ratio is not None else "-"


def text(groups, machine):
    lines = [f"{machine['cpu']}, {machine['cpus']} CPUs, {machine['features']}"]
    for g in groups:
        lines += ["", f"{os.path.basename(g['model'])}, {g['threads']} thread{'s' * (g['threads'] > 1)}: median (lowest-highest) of "
                  f"{g['rounds']} interleaved rounds; load {digits(g['load']['median'])}", "",
                  row("", [f.heading for f in FIGURES]),
                  row("", [f"{f.unit}, {'higher' if f.higher_is_better else 'lower'}" for f in FIGURES])]
        lines += [row(e, [cell(s[f.key]) for f in FIGURES]) for e, s in g["engines"].items()]
        if g["ratios"]:
            lines.append("slm is better by the factor (median of the rounds' own ratios)")
            lines += [row("  " + p, [times(r[f.key]) for f in FIGURES]) for p, r in g["ratios"].items()]
            for name, best in (("  best peer", g["best_peer"]), ("  package, best", g["package_best_peer"])):
                lines.append(row(name, [times(best[f.key]["ratio"]) if best[f.key] else "-" for f in FIGURES]))
        lines += roofline_text(g["roofline"])
        lines += [f"  {e}: {why}" for e, why in g["absent"].items()]
    return "\n".join(lines)


def roofline_text(r):
    if r is None:
        return []
    where = "the last cache" if r["ceiling"] == "cache_gbps" else "memory"
    cache = f"; from the last cache {digits(r['cache_gbps'])}" if r["cache_gbps"] and where == "memory" else ""
    lines = ["slm of the roofline measured in the same rounds",
             f"  tg128  {r['bytes_per_token'] / 1e6:.1f} MB a token, {digits(r['gbps'])} GB/s = {r['gbps_share']:.0%} of "
             f"{digits(r[r['ceiling']])} GB/s read from {where}{cache}"]
    if r["gops_share"] is not None:
        lines.append(f"  pp512  {digits(r['gops'])} GOP/s = {r['gops_share']:.0%} of {digits(r['int8_gops'])} GOP/s, "
                     f"int8 products of {r['int8_isa']}; kernels {r['kernels']}")
    return lines
