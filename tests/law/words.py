"""Words: what must not stand in the tree, what must stand in one table only, links that resolve, letters that mean one thing."""
import pathlib
import re

from tree import Finding

# Written with classes so that this file does not find itself.
MACHINE = re.compile(r"/w[o]rk/|/o[p]t/w/|/r[o]ot/|/f[a]rm/|[.]librar[y]/|/t[m]p/bash_jobs|/h[o]me/[a-z]+/")
REGISTRY = re.compile(r"d[e]b\.debian\.org|p[y]pi\.org|p[y]thonhosted|s[t]atic\.crates\.io|i[n]dex\.crates\.io|registry\.n[p]mjs")
UNFINISHED = re.compile(r"\b(T[O]DO|F[I]XME|X[X]X|for n[o]w)\b")
EMPTY_NAME = re.compile(r"\b(?:class|struct)\s+(?:\[\[\w+\]\]\s+)?(\w*(?:M[a]nager|H[e]lper|U[t]ils?|I[m]pl))\b")
MUTABLE = re.compile(r"^\s*(?:thread_local\b|static\s+(?!const\b|constexpr\b|constinit const\b|inline\b|_assert|auto\s+\w+\()[\w:<>,\s*&]+\s\**\w+(?:\[[^\]]*\])?\s*(?:=|;|\{))")
MODEL = re.compile(r'"[^"]*(?:l[l]ama(?!\.cpp)|q[w]en|g[e]mma|s[m]ollm|m[i]stral|\bphi-?[0-9])[^"]*"', re.IGNORECASE)
# Where such names are data: the table of architectures, and the readers of tokenizer kinds, which GGUF's keys and the tokenizer
# classes of transformers spell after model families.
MODEL_TABLES = re.compile(r"src/model/architectures[^/]*|src/text/(pieces|tokenizer|tokenizer_json|vocabulary)\.cc|src/model/\w+/tokenizer\.cc")
# Process-wide state that a reason was found for.
STATEFUL = {"src/telemetry/zones.cc": "head of the list of zone sites; stays empty unless SLM_ZONES compiles zones in"}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
LETTER_ROW = re.compile(r"^\| `([A-Z][a-z]{0,2})` \|")
# A shape in a comment: brackets around letters, numbers and their products, such as [T, Hq * D].
SHAPE = re.compile(r"\[((?:[A-Z][a-z]{0,2}|[0-9]+)(?:[ ,*/+]+(?:[A-Z][a-z]{0,2}|[0-9]+))*)\](?!\()")
OWN = ("LICENSE", "*Cargo.lock", "*package-lock.json")


def code(tree):
    return tree.glob("src/*.h", "src/*.cc", "src/*.inc", "apps/*.h", "apps/*.cc", "apps/*.inc", "api/*")


def is_test(path):
    return re.search(r"_(test|bench|fuzz)\.(cc|py)$|_for_test\.h$|/test|^tests/", path) is not None


def check_forbidden(tree):
    """No path of a developer's machine, no registry host, nothing unfinished."""
    for path in set(tree.paths) - set(tree.glob(*OWN)):
        for number, line in enumerate(tree.lines(path), 1):
            for what, pattern in (("a path of one machine", MACHINE), ("a registry's host name", REGISTRY), ("unfinished", UNFINISHED)):
                if match := pattern.search(line):
                    yield Finding(path, number, f"{what}: {match.group(0)!r}")


def check_code(tree):
    """Names that say nothing, mutable statics, model names outside their tables."""
    for path in code(tree):
        for number, line in enumerate(tree.lines(path), 1):
            text = line.split("//")[0]
            if match := EMPTY_NAME.search(text):
                yield Finding(path, number, f"{match.group(1)}: a name that does not say what the thing does")
            if path not in STATEFUL and not is_test(path) and MUTABLE.match(text):
                yield Finding(path, number, f"a mutable static: {text.strip()}")
            if path.startswith("src/") and not is_test(path) and not MODEL_TABLES.fullmatch(path):
                if match := MODEL.search(text):
                    yield Finding(path, number, f"the model name {match.group(0)} outside src/model/architectures*")


def check_links(tree):
    """Relative links of the Markdown files lead to a file or folder of the tree."""
    for path in tree.glob("*.md"):
        for number, line in enumerate(tree.lines(path), 1):
            for link in LINK.findall(line):
                target = link.split("#")[0]
                if target and "://" not in target and not target.startswith("mailto:"):
                    if not (tree.root / pathlib.Path(path).parent / target).exists():
                        yield Finding(path, number, f"dead link {link}")


def check_letters(tree):
    """Dimension letters of shapes in comments (`logits [T, V] f32`) stand in WORDS.md."""
    known = {m.group(1) for line in tree.lines("WORDS.md") if (m := LETTER_ROW.match(line))} if "WORDS.md" in tree.paths else set()
    for path in code(tree):
        for number, line in enumerate(tree.lines(path), 1):
            for shape in SHAPE.findall(line.partition("//")[2]):
                for letter in re.findall(r"[A-Z][a-z]{0,2}", shape):
                    if letter not in known:
                        yield Finding(path, number, f"dimension {letter} in [{shape}] is not in WORDS.md")


CHECKS = (check_forbidden, check_code, check_links, check_letters)
