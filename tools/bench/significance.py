"""Is the new program slower? A decision over paired rounds, in which both ran within the same minute.

Wilcoxon's signed-rank test (F. Wilcoxon, Biometrics Bulletin 1, 1945), one-sided, exact by counting all sign patterns: it needs no
normal distribution, which timings on a shared machine do not have, and one wild round cannot decide it.
"""
import dataclasses
import math
import statistics

LIMIT, ALPHA = 0.05, 0.01  # slower by more than this counts, with less than this probability of chance
FEWEST_PAIRS = 7           # the smallest p that n pairs can give is 2^-n: 6 could never reach ALPHA


def p_greater(differences):
    """Probability that `differences` (symmetric around 0 if nothing changed) show so much or more of an excess above 0 by chance."""
    nonzero = sorted((d for d in differences if d != 0), key=abs)
    if not nonzero:
        return 1.0
    # Twice the middle rank of each group of equal sizes, so that ranks stay whole numbers.
    ranks, i = [], 0
    while i < len(nonzero):
        j = i
        while j < len(nonzero) and math.isclose(abs(nonzero[j]), abs(nonzero[i]), rel_tol=1e-12):
            j += 1
        ranks += [i + 1 + j] * (j - i)
        i = j
    seen = sum(r for r, d in zip(ranks, nonzero) if d > 0)
    ways = {0: 1}  # sum of the ranks with a positive sign -> number of sign patterns
    for rank in ranks:
        after = dict(ways)
        for total, count in ways.items():
            after[total + rank] = after.get(total + rank, 0) + count
        ways = after
    return sum(count for total, count in ways.items() if total >= seen) / 2 ** len(ranks)


@dataclasses.dataclass(frozen=True)
class Verdict:
    slowdown: float  # median of the rounds' own slow-downs: 0.10 is a tenth slower, negative is faster
    p_slower: float
    p_faster: float
    pairs: int

    @property
    def word(self):
        if self.pairs < FEWEST_PAIRS:
            return "too few rounds"
        if self.slowdown > LIMIT and self.p_slower < ALPHA:
            return "SLOWER"
        if self.slowdown < -LIMIT and self.p_faster < ALPHA:
            return "faster"
        return "no change" if abs(self.slowdown) <= LIMIT else "not significant"


def judge(base, head, higher_is_better):
    """base[i] and head[i] are one figure of the same round; pairs with a missing value are left out."""
    pairs = [(b, h) for b, h in zip(base, head) if b and h]
    if not pairs:
        return Verdict(0.0, 1.0, 1.0, 0)
    logs = [math.log(b / h) if higher_is_better else math.log(h / b) for b, h in pairs]
    return Verdict(math.exp(statistics.median(logs)) - 1, p_greater(logs), p_greater([-x for x in logs]), len(pairs))
