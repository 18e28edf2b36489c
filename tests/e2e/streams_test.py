"""Standard streams and signals of slm: full disks, closed descriptors, terminals, hang-ups.   streams_test.py SLM [unittest options]"""
import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SLM = ""
ROOT = pathlib.Path(os.environ.get("SLM_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
MODEL = str(ROOT / "tests/tiny/models/llama")


def slm(*words, timeout=60, **more):
    return subprocess.run([SLM, *map(str, words)], stderr=subprocess.PIPE, timeout=timeout, **more)


class StreamsTest(unittest.TestCase):
    def test_a_full_disk_is_an_error(self):
        for words in (("help",), ("inspect", MODEL), ("inspect", MODEL, "--json"), ("run", MODEL, "-p", "hi", "-n", "3")):
            with open("/dev/full", "wb") as full:
                r = slm(*words, stdout=full)
            self.assertEqual(r.returncode, 1, r.stderr)
            self.assertIn(b"slm: stdout: No space left on device: ", r.stderr)

    def test_a_closed_stdout_is_an_error_and_no_other_file(self):
        r = slm("devices", "--json", preexec_fn=lambda: os.close(1))
        self.assertEqual((r.returncode, r.stderr.count(b"slm: stdout: Bad file descriptor")), (1, 1), r.stderr)
        with tempfile.TemporaryDirectory() as d:
            out = pathlib.Path(d) / "t"
            r = slm("dump", MODEL, "--tensor", "model.norm.weight", "-o", out, "--json", preexec_fn=lambda: os.close(1))
            self.assertEqual(r.returncode, 1)
            self.assertNotIn(b"shape", out.read_bytes())

    def test_a_closed_pipe_is_quiet(self):
        read, write = os.pipe()
        os.close(read)
        r = slm("inspect", MODEL, stdout=write)
        os.close(write)
        self.assertEqual((r.returncode, r.stderr), (141, b""))

    def test_a_terminal_gets_no_control_codes(self):
        with tempfile.TemporaryDirectory() as d:
            template = pathlib.Path(d) / "t.jinja"
            template.write_text("a\x1b[31mb\x9bc\nd", encoding="utf-8")
            messages = pathlib.Path(d) / "m.json"
            messages.write_text("[]")
            master, terminal = pty.openpty()
            words = ("render", template, "--messages", messages)
            self.assertEqual(slm(*words, stdout=terminal).returncode, 0)
            os.close(terminal)
            self.assertEqual(os.read(master, 1000), b"a[31mbc\r\nd")
            os.close(master)
            self.assertEqual(slm(*words, stdout=subprocess.PIPE).stdout, template.read_bytes())

    def test_a_hang_up_is_answered_like_ctrl_c(self):
        for name in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            read, write = os.pipe()
            run = subprocess.Popen([SLM, "render", "/dev/null", "--messages", f"/proc/self/fd/{read}", "--json"], pass_fds=[read],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            time.sleep(0.5)
            run.send_signal(name)
            out, _ = run.communicate(timeout=30)
            os.close(read)
            os.close(write)
            self.assertEqual((run.returncode, json.loads(out)["error"]["code"]), (130, "cancelled"))

    def test_ignored_signals_stay_ignored(self):
        def ignore():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

        read, write = os.pipe()
        run = subprocess.Popen([SLM, "render", "/dev/null", "--messages", f"/proc/self/fd/{read}", "--json"], pass_fds=[read],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=ignore)
        time.sleep(0.5)
        run.send_signal(signal.SIGINT)
        run.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        self.assertIsNone(run.poll())
        run.send_signal(signal.SIGTERM)
        out, _ = run.communicate(timeout=30)
        os.close(read)
        os.close(write)
        self.assertEqual((run.returncode, json.loads(out)["error"]["code"]), (130, "cancelled"))


if __name__ == "__main__":
    # A shell may have started us with it ignored, which children inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    SLM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
