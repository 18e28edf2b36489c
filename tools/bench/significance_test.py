"""The decision over paired rounds: exact probabilities known by hand and from tables, and made-up samples with known truth."""
import itertools
import random
import unittest

import significance
from significance import judge, p_greater


class SignedRank(unittest.TestCase):
    def test_by_hand(self):
        self.assertEqual(p_greater([]), 1)
        self.assertEqual(p_greater([0, 0]), 1)
        self.assertEqual(p_greater([3]), 0.5)
        self.assertEqual(p_greater([-3]), 1)
        self.assertEqual(p_greater([1, 2, 3]), 1 / 8)          # one of eight sign patterns
        self.assertEqual(p_greater([-1, 2, 3]), 2 / 8)         # rank sums 5 and 6 of at most 6
        self.assertEqual(p_greater([1, 1]), 1 / 4)             # a tie shares rank 1.5
        self.assertEqual(p_greater([1, 2, 3, 0]), 1 / 8)       # no change says nothing either way

    def test_published_critical_values(self):
        # One-sided 0.01, smallest sum of the ranks with the other sign that is still significant: n = 8: 1, n = 10: 5, n = 12: 9
        # (Wilcoxon and Wilcox 1964, table of the signed-rank test).
        for n, critical in ((8, 1), (10, 5), (12, 9)):
            def p_with_negative_sum(total, n=n):
                for k in range(n + 1):
                    for chosen in itertools.combinations(range(1, n + 1), k):
                        if sum(chosen) == total:
                            return p_greater([-r if r in chosen else r for r in range(1, n + 1)])
                raise AssertionError
            self.assertLessEqual(p_with_negative_sum(critical), 0.01, n)
            self.assertGreater(p_with_negative_sum(critical + 1), 0.01, n)

    def test_against_counting_all_patterns(self):
        numbers = random.Random(7)
        for _ in range(30):
            d = [numbers.choice((-1, 1)) * numbers.randrange(1, 6) for _ in range(numbers.randrange(1, 9))]
            order = sorted(abs(x) for x in d)
            ranks = [order.index(abs(x)) + 1 + (order.count(abs(x)) - 1) / 2 for x in d]
            seen = sum(r for r, x in zip(ranks, d) if x > 0)
            patterns = list(itertools.product((0, 1), repeat=len(d)))
            expected = sum(sum(r for r, s in zip(ranks, signs) if s) >= seen for signs in patterns) / len(patterns)
            self.assertAlmostEqual(p_greater(d), expected, msg=str(d))


def rounds(seed, n, slowdown, noise):
    """Paired tokens per second: a speed that drifts from round to round for both, a slow-down of the head, noise of each."""
    numbers = random.Random(seed)
    base, head = [], []
    for _ in range(n):
        machine = 100 * numbers.uniform(0.6, 1.0)  # a busy machine: far more than what is to be found
        base.append(machine * numbers.lognormvariate(0, noise))
        head.append(machine / (1 + slowdown) * numbers.lognormvariate(0, noise))
    return base, head


class Judge(unittest.TestCase):
    def words(self, slowdown, noise, n=11, trials=200):
        return [judge(*rounds(seed, n, slowdown, noise), True).word for seed in range(trials)]

    def test_a_slower_head_is_found(self):
        self.assertGreater(self.words(0.15, 0.02).count("SLOWER"), 195)
        self.assertGreater(self.words(0.08, 0.01).count("SLOWER"), 190)

    def test_no_change_is_not_called_slower(self):
        for noise in (0.005, 0.02, 0.05, 0.2):
            self.assertLessEqual(self.words(0.0, noise).count("SLOWER"), 4, noise)  # 1 % of 200, and chance

    def test_a_small_change_is_within_the_limit(self):
        self.assertEqual(set(self.words(0.02, 0.005)), {"no change"})

    def test_faster(self):
        self.assertGreater(self.words(-0.15, 0.02).count("faster"), 195)

    def test_direction_of_times(self):
        base, head = rounds(1, 11, 0.2, 0.01)
        as_ms = judge([1 / b for b in base], [1 / h for h in head], False)
        self.assertEqual(as_ms.word, "SLOWER")
        self.assertAlmostEqual(as_ms.slowdown, judge(base, head, True).slowdown)

    def test_one_wild_round_decides_nothing(self):
        base = [100.0] * 11
        self.assertNotEqual(judge(base, [100.0] * 10 + [1.0], True).word, "SLOWER")

    def test_too_few_rounds(self):
        self.assertEqual(judge([100] * 6, [50] * 6, True).word, "too few rounds")
        self.assertEqual(judge([100] * 7, [50] * 7, True).word, "SLOWER")
        self.assertEqual(judge([100] * 7 + [None], [50] * 6 + [None, 3], True).pairs, 6)
        self.assertEqual(judge([], [], True).word, "too few rounds")
        self.assertLess(0.5 ** significance.FEWEST_PAIRS, significance.ALPHA)


if __name__ == "__main__":
    unittest.main()
