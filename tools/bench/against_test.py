"""What is compared and how it is told, on made-up rounds; unpacking of a commit on a made-up repository."""
import os
import pathlib
import subprocess
import tempfile
import unittest

import against
import process


def rounds(base, head, n=9):
    return [{"threads": 1, "round": i, "base": {k: v * (1 + 0.001 * i) for k, v in base.items()},
             "head": {k: v * (1 + 0.001 * (n - i)) for k, v in head.items()}} for i in range(n)]


class Against(unittest.TestCase):
    def test_verdicts(self):
        base = {"pp512": 100.0, "ttft32_ms": 20.0, "tg128": 50.0, "tg128_d1024": 40.0, "rss_mib": 200.0}
        made = rounds(base, {**base, "pp512": 80.0, "ttft32_ms": 15.0, "rss_mib": 240.0})
        verdicts = {key: v.word for key, v in against.compare(made, 1).items()}
        self.assertEqual(verdicts, {"pp512": "SLOWER", "ttft32_ms": "faster", "tg128": "no change", "tg128_d1024": "no change",
                                    "rss_mib": "SLOWER"})
        table = against.text(made, [1]).splitlines()
        self.assertEqual(len(table), 6)
        self.assertLessEqual(max(map(len, table)), 120)
        self.assertTrue(table[1].startswith("pp512, tok/s") and table[1].endswith("SLOWER"), table[1])

    def test_unpack(self):
        with tempfile.TemporaryDirectory() as folder:
            back = os.getcwd()
            self.addCleanup(os.chdir, back)
            os.chdir(folder)

            def commit(name, text):
                pathlib.Path("a.cc").write_text(text)
                pathlib.Path(name).write_text(text)
                subprocess.run(["git", "add", "-A"], check=True)
                subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", text], check=True)
            subprocess.run(["git", "init", "-q"], check=True)
            pathlib.Path(".gitignore").write_text("out\n")
            commit("old.cc", "one")
            subprocess.run(["git", "rm", "-q", "old.cc"], check=True)
            commit("new.cc", "two")
            out = pathlib.Path("out")
            first = against.unpack("HEAD~1", out)
            self.assertTrue((out / "old.cc").exists())
            self.assertNotEqual(against.unpack("HEAD", out), first)
            self.assertEqual(((out / "a.cc").read_text(), (out / "old.cc").exists()), ("two", False))
            with self.assertRaisesRegex(process.Failed, "no such commit"):
                against.unpack("nowhere", out)
            os.chdir(back)


if __name__ == "__main__":
    unittest.main()
