"""conformance.py: unnamed failures, stale exceptions and silent runners are failures."""
import unittest

from conformance import exceptions, judge

CLOSE = "3 passed, 1 failed, 0 skipped"


class Judge(unittest.TestCase):
    def test_clean(self):
        self.assertEqual(judge({}, ["3 passed, 0 failed, 2 skipped"])[:3], (3, 0, 0))

    def test_unnamed_failure(self):
        self.assertEqual(judge({}, ["FAIL gguf bad_magic: accepted", CLOSE])[1], 1)

    def test_named_failure(self):
        self.assertEqual(judge({"gptq_*": "why"}, ["FAIL x gptq_b4/w: exit 1: no", CLOSE])[:3], (3, 0, 1))

    def test_exception_without_a_failure(self):
        self.assertEqual(judge({"gptq_*": "why"}, ["3 passed, 0 failed"])[1], 1)

    def test_silence(self):
        self.assertEqual(judge({}, [])[1], 1)

    def test_nothing_passed(self):
        self.assertEqual(judge({}, ["0 passed, 0 failed, 9 skipped"])[1], 1)

    def test_count_that_disagrees(self):
        self.assertEqual(judge({}, ["3 passed, 2 failed"])[1], 1)

    def test_table(self):
        self.assertEqual(exceptions("a", "# c\na x* two words\nb y z\n"), {"x*": "two words"})


if __name__ == "__main__":
    unittest.main()
