#!/usr/bin/env python3
"""Writes scores.json: answers and references with their BLEU (sacrebleu), ROUGE-L (rouge-score) and SQuAD exact match and F1.

  python src/eval/testdata/make_scores.py        needs the packages sacrebleu and rouge-score; versions go into the file

SQuAD's two scores are computed here after the published definition (small letters, no punctuation, no articles, bags of words).
"""
import collections
import json
import pathlib
import random
import re
import string

import sacrebleu
from rouge_score.rouge_scorer import RougeScorer

HANDMADE = [
    ("The cat sat on the mat.", ["The cat sat on the mat."]),
    ("the cat sat on mat", ["The cat is sitting on the mat.", "A cat sat on a mat."]),
    ("It costs $1,234.50, roughly 3.5% more than in 2019-2020.", ["It costs $1,234.50 - about 3.5% more than in 2019 - 2020."]),
    ("Hello, world! (a test) [x] {y} a/b e-mail: me@home.org", ["Hello world, a test: a / b, e-mail me@home.org"]),
    ("well-known facts -- and \"quotes\" & 'ticks'", ["Well known facts &amp; &quot;quotes&quot; &lt;b&gt;"]),
    ("", ["nothing"]),
    ("something", [""]),
    ("a an the", ["the"]),
    ("yes", ["Yes.", "yes"]),
    ("one two three four five six seven eight", ["one two three nine five six seven ten eight"]),
    ("Zürich is nice, Genève too.", ["Zurich is nice; Genève, too."]),
    ("line one\nline two", ["line one line two"]),
    ("9.5.2020,x.,y 5-3 1-a a-1", ["9.5.2020, x., y 5 - 3 1 - a a-1"]),
    ("repeat repeat repeat repeat repeat", ["repeat once repeat twice"]),
]


def normalised(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def f1(answer, reference):
    a, r = normalised(answer), normalised(reference)
    if not a or not r:
        return float(a == r)
    same = sum((collections.Counter(a) & collections.Counter(r)).values())
    return 2 * same / (len(a) + len(r))


def made_up(rng):
    words = "the a of old river bridge runs under 12 3.5 , . ; slowly and stones water never".split()
    reference = [rng.choice(words) for _ in range(rng.randint(3, 24))]
    answer = [w if rng.random() < 0.75 else rng.choice(words) for w in reference if rng.random() < 0.9]
    other = [w if rng.random() < 0.6 else rng.choice(words) for w in reference]
    return " ".join(answer), [" ".join(reference), " ".join(other)][:rng.randint(1, 2)]


def main():
    rng = random.Random(3)
    rows = HANDMADE + [made_up(rng) for _ in range(40)]
    rouge = RougeScorer(["rougeL"], use_stemmer=False)
    # sacrebleu takes streams of references; where an answer has fewer, its first one stands in again.
    most = max(len(refs) for _, refs in rows)
    streams = [[refs[i] if i < len(refs) else refs[0] for _, refs in rows] for i in range(most)]
    out = {"sacrebleu": sacrebleu.__version__, "rouge_score": "0.1.2", "corpus_bleu": sacrebleu.corpus_bleu([a for a, _ in rows], streams).score, "rows": []}
    for answer, references in rows:
        bleu = sacrebleu.sentence_bleu(answer, references, use_effective_order=False)
        out["rows"].append({
            "answer": answer, "references": references, "matched": bleu.counts, "possible": bleu.totals, "bleu": bleu.score,
            "rouge_l": [rouge.score(r, answer)["rougeL"].fmeasure for r in references],
            "exact": [normalised(answer) == normalised(r) for r in references], "f1": [f1(answer, r) for r in references]})
    path = pathlib.Path(__file__).with_name("scores.json")
    path.write_text(json.dumps(out, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


main()
