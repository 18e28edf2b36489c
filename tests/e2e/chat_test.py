"""slm chat over a pipe, on a tiny random model: commands, history in the cache, blocks of lines.   chat_test.py SLM [unittest options]

The model has 64 tokens of context; message "hi" makes a prompt of 20 (transformers' count).
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SLM = ""
ROOT = pathlib.Path(os.environ.get("SLM_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
MODEL = str(ROOT / "tests/tiny/models/llama")


def chat(lines, *words):
    return subprocess.run([SLM, "chat", MODEL, "--compute", "f32", "--kv", "f32", *words], input=lines.encode(), capture_output=True, timeout=60)


def answers(lines, *words):
    run = chat(lines, "--json", *words)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.decode().splitlines()]


class ChatTest(unittest.TestCase):
    def test_history_stays_in_the_cache(self):
        first, second = answers("hi\nyo\n", "-n", "2", "--logit-bias", "65=1000")
        self.assertEqual((first["prompt_tokens"], first["cached_tokens"]), (20, 0))
        # The first prompt and the answer's first token are reused; its last token was never evaluated.
        self.assertEqual(second["cached_tokens"], 21)
        self.assertGreater(second["prompt_tokens"], 22)

    def test_clear_forgets(self):
        first, second = answers("hi\n/clear\nhi\n", "-n", "2")
        self.assertEqual(second["prompt_tokens"], 20)
        self.assertEqual(second["text"], first["text"])

    def test_blocks_and_continued_lines(self):
        (block,) = answers('"""a\nb"""\n', "-n", "1")
        (joined,) = answers("a\\\nb\n", "-n", "1")
        self.assertEqual(block["prompt_tokens"], 21)  # "hi" and "a\nb": one byte more
        self.assertEqual((block["prompt_tokens"], block["text"]), (joined["prompt_tokens"], joined["text"]))

    def test_set_save_load(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "talk.json")
            run = chat(f"/set max_tokens 1\n/set system be\nhi\n/save {path}\n/set\n/set top_p x\n/nonsense\n"
                       "/set top_p 2\n/set max_tokens -1\n/set\n")
            self.assertEqual(run.returncode, 0, run.stderr)
            notes = run.stderr.decode()
            for expected in ("saved to", "max_tokens 1", "system be", "'x' is not a number for top_p", "no command '/nonsense'", "top_p must be", "max_tokens is less than 0"):
                self.assertIn(expected, notes)
            self.assertEqual((notes.count("\ntop_p 1\n"), notes.count("\nmax_tokens 1\n")), (2, 2), "what was refused changes nothing")
            saved = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
            self.assertEqual([m["role"] for m in saved], ["system", "user", "assistant"])
            self.assertEqual(saved[1]["content"], "hi")
            (got,) = answers(f"/load {path}\nyo\n", "-n", "1")
            self.assertGreater(got["prompt_tokens"], 32)
            pathlib.Path(path).write_text('{"not": "a list"}')
            self.assertIn("not a list of messages", chat(f"/load {path}\n").stderr.decode())
            self.assertNotEqual(chat("", "--load", path).returncode, 0)

    def test_a_refused_command_is_a_line_of_json(self):
        refused = answers("/set top_p x\n/set colour red\n/nonsense\n/load\n", "-n", "1")
        self.assertEqual(["error" in line for line in refused], [True] * 4)
        self.assertIn("'x' is not a number for top_p", refused[0]["error"]["message"])

    def test_without_commands_every_line_is_a_message(self):
        lines = answers("/bye\n/x\n", "-n", "1", "--no-commands")
        self.assertEqual(["text" in line for line in lines], [True] * 2, lines)

    def test_save_spares_the_model_and_earlier_files(self):
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "model")
            shutil.copytree(MODEL, model)
            weights = pathlib.Path(model, "model.safetensors")
            before = weights.read_bytes()
            run = subprocess.run([SLM, "chat", model, "-n", "1"], input=f"hi\n/save {weights}\nhi\n".encode(), capture_output=True, timeout=60)
            self.assertIn("is a file of the model itself", run.stderr.decode())
            self.assertEqual(weights.read_bytes(), before)
            talk = pathlib.Path(folder, "talk.json")
            talk.write_text("earlier")
            talk.chmod(0o400)
            chat(f"hi\n/save {folder}\n", "-n", "1")  # a folder: refused, too
            self.assertEqual(talk.read_text(), "earlier")
            self.assertEqual(sorted(os.listdir(folder)), ["model", "talk.json"])

    def test_json_errors_of_commands_are_lines(self):
        run = chat("/load absent.json\n", "--json")
        (line,) = run.stdout.decode().splitlines()
        self.assertIn("absent.json", json.loads(line)["error"]["message"])

    def test_a_message_too_long_is_taken_back(self):
        run = chat("x" * 100 + "\nhi\n", "-n", "1", "--stats")
        self.assertEqual(run.returncode, 3, run.stderr)  # the code of the first failure, although the second message was answered
        self.assertIn("context holds 64", run.stderr.decode())
        self.assertIn("/clear", run.stderr.decode())
        self.assertIn("prompt   20 tokens", run.stderr.decode())

    def test_json_failures_are_lines_and_an_exit_code(self):
        run = chat("hi\n" + "x" * 100 + "\n", "-n", "1", "--json")
        answer, error = [json.loads(line) for line in run.stdout.decode().splitlines()]
        self.assertEqual((run.returncode, error["error"]["code"]), (3, "limit"))
        self.assertEqual(answer["generated_tokens"], 1)

    def test_a_full_context_is_named(self):
        run = chat("hi\n", "--ignore-eos")
        self.assertIn("the context of 64 tokens is full", run.stderr.decode())

    def test_leaving(self):
        self.assertEqual(chat("/bye\nhi\n").stdout, b"")
        self.assertIn("/save FILE", chat("/help\n").stderr.decode())
        self.assertIn("no answer yet", chat("/stats\n").stderr.decode())

    def test_ctrl_c_twice_at_the_prompt_leaves(self):
        run = subprocess.Popen([SLM, "chat", MODEL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        run.stdin.write(b"/help\n")
        run.stdin.flush()
        time.sleep(1)
        run.send_signal(signal.SIGINT)
        time.sleep(0.6)
        self.assertIsNone(run.poll())
        run.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(timeout=10), 130)
        for stream in (run.stdin, run.stdout, run.stderr):
            stream.close()

    def test_a_model_without_a_template_is_refused(self):
        run = subprocess.run([SLM, "chat", str(ROOT / "tests/tiny/models/qwen2")], input=b"", capture_output=True, timeout=30)
        self.assertEqual(run.returncode, 1)


if __name__ == "__main__":
    SLM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
