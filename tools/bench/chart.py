"""The summary as an SVG picture: a row of panels for each model and thread count, a panel a figure, a bar an engine.

A panel has its own scale from zero. The thin line on a bar runs from the lowest to the highest round. Under the figure's name stands
which direction is good; the number of the engine that leads is bold.
"""
import os
from xml.sax.saxutils import escape

from figures import FIGURES, digits

LEFT, PANEL, GAP, BAR, STEP, HEAD, TOP = 96, 150, 16, 13, 18, 52, 58
COLOURS = ("#1f5fa8", "#d98c2b", "#6a9f58", "#a5679f", "#7f7f7f", "#c0504d")  # slm first


def label(x, y, words, size=11, anchor="start", fill="#222", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}" font-weight="{weight}">'
            f"{escape(words)}</text>")


def panel(figure, x, y, summaries):
    """One figure: `summaries` is [(engine, spread or None, colour)]."""
    out = [label(x, y, figure.heading, 12, weight="bold"),
           label(x, y + 14, f"{figure.unit}, {'higher' if figure.higher_is_better else 'lower'} is better", 10, fill="#666")]
    known = [s for _, s, _ in summaries if s]
    if not known:
        return out + [label(x, y + 36, "not measured", fill="#666")]
    longest = PANEL - 44  # leaves room for the number
    scale = longest / max(s["max"] for s in known)
    lead = (max if figure.higher_is_better else min)(s["median"] for s in known)
    for i, (_, s, colour) in enumerate(summaries):
        top = y + 24 + i * STEP
        if not s:
            out.append(label(x, top + BAR - 2, "-", fill="#666"))
            continue
        middle = top + BAR / 2
        out.append(f'<rect x="{x:.1f}" y="{top:.1f}" width="{max(1, s["median"] * scale):.1f}" height="{BAR}" fill="{colour}"/>')
        out.append(f'<path d="M{x + s["min"] * scale:.1f} {middle}H{x + s["max"] * scale:.1f}" stroke="#222" stroke-width="1.2"/>')
        weight = "bold" if s["median"] == lead else "normal"
        out.append(label(x + s["max"] * scale + 4, top + BAR - 2, digits(s["median"]), weight=weight))
    return out


def draw(groups, machine):
    """The picture as text. Engines keep their colour through all groups."""
    engines = list(dict.fromkeys(e for g in groups for e in g["engines"]))
    colour = {e: COLOURS[i % len(COLOURS)] for i, e in enumerate(engines)}
    width = LEFT + len(FIGURES) * (PANEL + GAP)
    body, y = [], TOP
    for g in groups:
        name = f"{os.path.basename(g['model'])}, {g['threads']} thread{'s' * (g['threads'] > 1)}, {g['rounds']} rounds"
        body.append(label(10, y, name, 14, weight="bold"))
        y += 24
        for i, e in enumerate(g["engines"]):
            body.append(label(LEFT - 8, y + 24 + i * STEP + BAR - 2, e, anchor="end"))
        for i, f in enumerate(FIGURES):
            body += panel(f, LEFT + i * (PANEL + GAP), y, [(e, s[f.key], colour[e]) for e, s in g["engines"].items()])
        y += len(g["engines"]) * STEP + HEAD
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" viewBox="0 0 {width} {y}" '
            'font-family="Liberation Sans, DejaVu Sans, Helvetica, Arial, sans-serif">',
            f'<rect width="{width}" height="{y}" fill="white"/>',
            label(10, 26, f"{machine['cpu']}, {machine['cpus']} CPUs, {machine['date']}; medians of interleaved rounds, "
                          "the thin line from lowest to highest", 12, fill="#444")]
    return "\n".join(head + body + ["</svg>", ""])
