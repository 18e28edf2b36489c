"""Makes the tokenizer fixtures of this folder with Hugging Face's libraries; the tests compare ids with what is written here.

  pip install tokenizers==0.23.3 jinja2 && python src/text/testdata/make_fixtures.py

bpe.json: a byte-level BPE trained on the lines below (tokenizer.json) and cases. spm.json: a SentencePiece-style vocabulary with
scores; its merge list is built as transformers.convert_slow_tokenizer.generate_merges does. chat.json: templates and what
Jinja2 makes of them.
"""
import json, pathlib, random
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent
CORPUS = ["The quick brown fox jumps over the lazy dog.", "the theory of the thing, then the other thing", "naïve café, déjà vu — über",
          "東京は日本の首都です。", "def main(args):\n    return sum(x * 2 for x in args)\n", "1234567890 3.14159 2,718", "it's we're they'll I'd",
          "один два три четыре", "🙂🚀 emoji 👩‍👩‍👧‍👦", "spaces   and\ttabs\n\n\nlines"] * 4
WORDS = "the thing quick naïve 東京 один 🚀 👩‍👩‍👧 it's 123 4,5 def main() \n \n\n \t   . — ﬁ é e\u0301 <|end|> <|start|> <think> ▁ <0x41> ÿ \u0085 \u200b zzz".split(" ")


def texts(n):
    r = random.Random(5)
    fixed = ["", " ", "  ", "\n", "Hello", " Hello world", "a\u0000b", "<|end|>", "x<|end|> y", "<|end|><|start|>", "<|en", "<think>hm</think>", "  <pad>  x"]
    return fixed + ["".join(r.choice(WORDS) + r.choice(["", " ", "  "]) for _ in range(r.randint(1, 14))) for _ in range(n)]


def cases(t, plain):
    out = []
    for s in texts(120):
        case = {"text": s, "ids": t.encode(s, add_special_tokens=False).ids}
        if plain:
            t.encode_special_tokens = True
            case["plain"] = t.encode(s, add_special_tokens=False).ids
            t.encode_special_tokens = False
        out.append(case)
    return out


def bpe():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|start|>", "<|end|>"]))
    t.add_special_tokens([AddedToken("<pad>", lstrip=True, rstrip=True, normalized=False)])
    t.add_tokens([AddedToken("<think>", normalized=False), AddedToken("zzz", single_word=True, normalized=True)])
    t.post_processor = processors.TemplateProcessing(single="<|start|> $A <|end|>", special_tokens=[("<|start|>", 0), ("<|end|>", 1)])
    return {"tokenizer": json.loads(t.to_str()), "cases": cases(t, True), "framed": {"text": "Hello", "ids": t.encode("Hello").ids}}


def generate_merges(vocab, scores):
    merges = []
    for piece, score in scores.items():
        local = [(piece[:i], piece[i:], score) for i in range(1, len(piece)) if piece[:i] in vocab and piece[i:] in vocab]
        merges += sorted(local, key=lambda x: (vocab[x[0]], vocab[x[1]]))
    merges = sorted(merges, key=lambda v: (v[2], len(v[0]), len(v[1])), reverse=True)
    return [(a, b) for a, b, _ in merges]


def spm():
    seed = Tokenizer(models.BPE())
    seed.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    seed.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300))
    order = sorted(seed.get_vocab().items(), key=lambda kv: (len(kv[0]) == 1, kv[1]))
    tokens = [("<unk>", 2, 0.0), ("<|start|>", 3, 0.0), ("<|end|>", 3, 0.0)] + [(f"<0x{b:02X}>", 6, 0.0) for b in range(256)]
    # Equal scores on purpose: the order of the rest must be the one transformers gives.
    tokens += [(p, 1, -float(i // 3)) for i, (p, _) in enumerate(order)] + [("<think>", 4, 0.0)]
    vocab = {t: i for i, (t, _, _) in enumerate(tokens)}
    scores = {t: s for t, k, s in tokens if k == 1}
    t = Tokenizer(models.BPE(vocab, generate_merges(vocab, scores), unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.add_special_tokens(["<unk>", "<|start|>", "<|end|>"])
    t.add_tokens([AddedToken("<think>", normalized=False)])
    return {"tokens": [t for t, _, _ in tokens], "kinds": [k for _, k, _ in tokens], "scores": [s for _, _, s in tokens], "cases": cases(t, True)}


def chat():
    import datetime
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    now = datetime.datetime(2024, 2, 29, 17, 5, 9)
    env.globals["strftime_now"] = now.strftime
    m = [{"role": "user", "content": " Hi <there> & \"you\" \u00e9\u2028😀 ", "n": 1.0, "big": 1e22, "tiny": 1e-7, "int": 12345678901234567890, "none": None, "yes": True, "list": [1, "a'b", {"k": [0.1]}], "empty": [], "map": {}}]
    sources = [
        "{% for m in messages %}{{ m['role'] }}: {{ m.content | trim }}\n{% endfor %}", "{{ messages | tojson }}", "{{ messages[0] | tojson(indent=2) }}",
        "{{ messages[0] | tojson(ensure_ascii=True, sort_keys=True, separators=(',', ':')) }}", "{{ messages[0].list }} {{ messages[0].yes }} {{ messages[0].none }} {{ messages[0].n }}",
        "{{ messages[0].big }} {{ messages[0].tiny }} {{ messages[0].map }} {{ tools }} {{ nothing }}", "{%- for i in range(10) -%}{%- if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }},{%- endfor %}",
        "  {% if true %}\n  x\n  {% endif %}\ny {#- c -#} z", "{{ strftime_now('%Y-%m-%d %H:%M:%S %A %a %B %b %j %y %I %p %U %W %V %u %w %e %-d %D %T %%') }}",
        "{% set ns = namespace(a=1) %}{% for m in messages %}{% set ns.a = ns.a + 1 %}{% endfor %}{{ ns.a }}", "{{ tools is none }} {{ tools is iterable }} {{ tools is defined }} {{ nothing is defined }}",
        "{{ messages[0].content.strip().split(' ')[-1] }} {{ 'a,b'.split(',') }} {{ 'x' ~ 1 ~ true }}", "{{ messages | map(attribute='role') | join('-') }} {{ messages[::-1] | length }} {{ 'abc'[1:] }}"]
    return {"messages": m, "now": now.strftime("%Y-%m-%d %H:%M:%S"),
            "cases": [{"source": s, "text": env.from_string(s).render(messages=m, tools=None)} for s in sources]}


for name, make in (("bpe", bpe), ("spm", spm), ("chat", chat)):
    (HERE / f"{name}.json").write_text(json.dumps(make(), ensure_ascii=True, separators=(",", ":")) + "\n", encoding="utf-8")
print("tokenizers", tokenizers.__version__)
