"""slm run on a tiny random model: ids, streaming, JSON, limits, interrupts.   run_test.py SLM [unittest options]

Expected ids and token counts are transformers' (5.24, greedy, f32) on the same folder; the smallest gap between its two best
logits on the way is 0.02, far above f32 rounding.
"""
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import termios
import time
import unittest

SLM = ""
ROOT = pathlib.Path(os.environ.get("SLM_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
MODEL = str(ROOT / "tests/tiny/models/llama")
GREEDY = {
    "the cat in an oven": (14, [262, 115, 33, 29, 74, 162, 212, 74, 162, 237, 168, 56, 237, 51, 251, 142]),
    "in the end": (6, [237, 193, 102, 63, 80, 70, 51, 251, 238, 117, 212, 79, 172, 80, 101, 117]),
    "hello, world": (12, [237, 51, 41, 93, 166, 41, 150, 176, 43, 136, 115, 179, 10, 52, 41, 93]),
}
FIELDS = ("text finish_reason stop_string prompt_tokens cached_tokens generated_tokens ttft_ms prefill_tps decode_tps itl_ms load_ms "
          "peak_rss_bytes memory context device isa threads placement energy temperature speculation").split()


def slm(*words, text_in="", env=None, timeout=60):
    return subprocess.run([SLM, "run", *words], input=text_in.encode(), capture_output=True, timeout=timeout,
                          env=dict(os.environ, **(env or {})))


def document(*words, **more):
    run = slm(*words, "--json", **more)
    assert run.returncode == 0, run.stderr.decode()
    lines = run.stdout.decode().splitlines()
    assert len(lines) == 1, lines
    return json.loads(lines[0])


def raw(prompt, *more, kv="f32", **env):
    return document(MODEL, "--raw", "--ids", "--compute", "f32", "--kv", kv, "-n", "16", "-p", prompt, *more, **env)


class RunTest(unittest.TestCase):
    def test_greedy_ids_are_transformers(self):
        for prompt, (n, ids) in GREEDY.items():
            for more in ([], ["--passes-off", "all"], ["-t", "2"]):
                got = raw(prompt, *more)
                self.assertEqual(got["prompt_tokens"], n, prompt)
                self.assertEqual(got["ids"], ids, (prompt, more))
                self.assertEqual(got["finish_reason"], "length")

    def test_gguf_of_the_same_model_gives_the_same_ids(self):
        for prompt, (_, ids) in GREEDY.items():
            got = document(MODEL + ".gguf", "--raw", "--ids", "--compute", "f32", "--kv", "f32", "-n", "16", "-p", prompt)
            self.assertEqual(got["ids"], ids, prompt)

    def test_int8_cache(self):
        """The gap of the first token's logits is far above what int8 rounds; later ones of this random model are near ties."""
        for prompt, (_, ids) in GREEDY.items():
            got = raw(prompt, kv="int8")
            self.assertEqual(got["ids"][:1], ids[:1], prompt)
            self.assertEqual(got["memory"]["kv_type"], "int8")
            whole = raw(prompt, kv="f16")
            self.assertEqual(whole["memory"]["kv_type"], "f16")
            self.assertLess(got["memory"]["kv_bytes"], 0.8 * whole["memory"]["kv_bytes"])
            self.assertEqual(raw(prompt, "-t", "2", kv="int8")["ids"], got["ids"])

    def test_unknown_cache_type_names_the_known_ones(self):
        run = slm(MODEL, "-p", "hi", "--kv", "int4")
        self.assertEqual(run.returncode, 2)
        for name in ("--kv", "int4", "f16", "f32", "int8"):
            self.assertIn(name, run.stderr.decode())

    def test_chat_template_is_the_default(self):
        got = document(MODEL, "-p", "hi", "-n", "8", "--ids", "--compute", "f32", "--kv", "f32")
        self.assertEqual((got["prompt_tokens"], got["ids"]), (20, [248, 89, 155, 142, 246, 106, 89, 176]))
        got = document(MODEL, "-p", "hi", "--system", "be", "-n", "8", "--ids", "--compute", "f32", "--kv", "f32")
        self.assertEqual((got["prompt_tokens"], got["ids"]), (32, [94, 155, 74, 214, 144, 117, 172, 94]))

    def test_text_of_the_user_is_never_a_special_token(self):
        # One token when asked; seven characters otherwise, in a template or without.
        self.assertEqual(raw("<|eos|>", "--parse-special")["prompt_tokens"], 1)
        self.assertEqual(raw("<|eos|>")["prompt_tokens"], 7)
        self.assertEqual(document(MODEL, "-p", "<|eos|>", "-n", "1")["prompt_tokens"], 20 - 2 + 7)

    def test_all_fields(self):
        got = raw("in the end")
        for field in FIELDS:
            self.assertIn(field, got)
        self.assertEqual(set(got["itl_ms"]), {"mean", "p50", "p95", "p99"})
        self.assertLessEqual(got["itl_ms"]["p50"], got["itl_ms"]["p99"])
        self.assertGreater(got["ttft_ms"], 0)
        self.assertEqual(got["device"], "cpu")
        self.assertTrue(got["placement"]["ops"])
        self.assertEqual(set(got["placement"]["devices"]), {"cpu"})
        self.assertIsNone(got["speculation"])
        for sensor in ("energy", "temperature"):
            self.assertTrue(got[sensor] is None or got[sensor]["source"], sensor)

    def test_text_and_stream_agree(self):
        whole = raw("in the end")["text"]
        plain = slm(MODEL, "--raw", "--compute", "f32", "--kv", "f32", "-n", "16", "-p", "in the end")
        self.assertEqual(plain.stdout.decode(), whole + "\n")
        self.assertIn("first token after", plain.stderr.decode())
        quiet = slm(MODEL, "--raw", "-q", "-n", "2", "-p", "in the end")
        self.assertEqual(quiet.stderr, b"")
        run = slm(MODEL, "--raw", "--compute", "f32", "--kv", "f32", "-n", "16", "-p", "in the end", "--json", "--stream")
        lines = [json.loads(line) for line in run.stdout.decode().splitlines()]
        self.assertEqual("".join(line["delta"] for line in lines[:-1]), whole)
        self.assertEqual(lines[-1]["text"], whole)

    def test_prompt_from_stdin_and_file(self):
        expected = raw("in the end")["ids"]
        got = document(MODEL, "--raw", "--ids", "--compute", "f32", "--kv", "f32", "-n", "16", text_in="in the end\n")
        self.assertEqual(got["ids"], expected)

    def test_stop_string_and_bias(self):
        text = raw("in the end")["text"]
        at = text.index("`")
        got = raw("in the end", "--stop", "`q")
        self.assertEqual((got["text"], got["finish_reason"], got["stop_string"]), (text[:at], "stop", "`q"))
        self.assertEqual(raw("in the end", "--logit-bias", "237=-inf")["ids"].count(237), 0)
        self.assertEqual(raw("in the end", "--logit-bias", "65=1000")["ids"], [65] * 16)

    def test_seed(self):
        a, b, c = (raw("in the end", "--temperature", "1.5", "--seed", s)["ids"] for s in ("1", "1", "2"))
        self.assertEqual(a, b)
        self.assertNotEqual(a, c)

    def test_limits(self):
        long = slm(MODEL, "--raw", "-p", "x" * 65, "--json")
        self.assertEqual(long.returncode, 3)
        error = json.loads(long.stdout)["error"]
        self.assertEqual(error["code"], "limit")
        self.assertIn("65 tokens", error["message"])
        self.assertIn("64", error["message"])
        full = document(MODEL, "--raw", "-p", "x" * 60, "-n", "100", "--ignore-eos")
        self.assertEqual((full["finish_reason"], full["generated_tokens"]), ("context", 5))
        self.assertEqual(document(MODEL, "--raw", "-p", "xy", "--ctx", "16", "-n", "1")["context"], 16)
        self.assertEqual(slm(MODEL, "-p", "x", "--ctx", "65").returncode, 2)
        self.assertEqual(slm(MODEL, "-p", "x", "--mem", "1K").returncode, 3)
        self.assertEqual(document(MODEL, "--raw", "-p", "xy", "-n", "0")["generated_tokens"], 0)

    def test_refusals(self):
        for words, code in ((["-p", "x", "--temperature", "-1"], 2), (["-p", "x", "--top-p", "7"], 2), (["-p", "x", "--logit-bias", "9"], 2),
                            (["-p", "x", "--logit-bias", "999999=1"], 2), (["-p", "x", "--stop", ""], 2), (["-p", ""] + ["--raw"], 2),
                            (["-p", "x", "--raw", "--chat"], 2), (["-p", "x", "--stream"], 2), (["-p", "x", "--raw", "--system", "s"], 2),
                            (["-p", "x", "--device", "npu"], 1), (["-p", "x", "--passes-off", "no_such_pass"], 2),
                            (["-f", "/no/such/file"], 1)):
            run = slm(MODEL, *words)
            self.assertEqual(run.returncode, code, (words, run.stderr))
            self.assertTrue(run.stderr.startswith(b"slm: run: "), run.stderr)
            self.assertEqual(run.stdout, b"", words)
        self.assertEqual(slm("/no/such/model", "-p", "x").returncode, 1)
        self.assertEqual(slm(MODEL, "-p", "x", env={"SLM_FORCE_ISA": "nonsense"}).returncode, 2)
        self.assertEqual(slm(MODEL, "-p", "x", "--device", "cpu", "--no-fallback", "-n", "1").returncode, 0)

    def test_scalar_kernels_give_the_same_ids(self):
        for prompt, (_, ids) in GREEDY.items():
            got = raw(prompt, env={"SLM_FORCE_ISA": "scalar"})
            self.assertEqual((got["isa"], got["ids"]), ("scalar", ids))

    def test_options_without_an_engine_are_not_ignored(self):
        for option in ("--json-schema", "--grammar", "--draft"):
            run = slm(MODEL, "-p", "x", option, "some.file", "--json")
            self.assertEqual(run.returncode, 1, run.stderr)
            error = json.loads(run.stdout)["error"]
            self.assertEqual(error["code"], "unavailable")
            self.assertIn(option + ": this build has no", error["message"])
            self.assertEqual(slm(MODEL, "-p", "x", option, "").returncode, 2)

    def test_endless_input_is_a_limit(self):
        for words in (["run", MODEL, "-f", "/dev/zero"], ["run", MODEL], ["tokenize", MODEL], ["render", MODEL, "--messages", "/dev/zero"]):
            with open("/dev/zero", "rb") as zero:
                run = subprocess.run([SLM, *words], stdin=zero, capture_output=True, timeout=60)
            self.assertEqual(run.returncode, 3, (words, run.stderr))
            self.assertIn(b"more than 64 MiB", run.stderr)

    def test_inputs_that_cannot_be_read(self):
        for words in (["run", MODEL, "-f"], ["render", MODEL, "--messages"]):
            for path, says in (("/no/such/file", b"No such file"), (str(ROOT), b"not a folder")):
                run = subprocess.run([SLM, *words, path], stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
                self.assertEqual(run.returncode, 1, (words, run.stderr))
                self.assertIn(path.encode() + b": cannot be read: ", run.stderr)
                self.assertIn(says, run.stderr)

    def test_closed_stdout_ends_quietly(self):
        run = subprocess.Popen([SLM, "run", MODEL, "--raw", "-p", "in the end", "--ignore-eos", "-n", "58"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
        run.stdout.close()
        err = run.stderr.read()
        run.stderr.close()
        self.assertEqual(run.wait(timeout=30), 141, err)


class InterruptTest(unittest.TestCase):
    def test_one_ctrl_c_while_waiting_for_input(self):
        for verb in ("run", "tokenize"):
            run = subprocess.Popen([SLM, verb, MODEL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            run.stdin.write(b"x")
            run.stdin.flush()
            for _ in range(1000):  # until it has taken the byte, so it waits for more
                left = fcntl.ioctl(run.stdin, termios.FIONREAD, b"\0" * 4)
                if left == b"\0" * 4:
                    break
                time.sleep(0.02)
            run.send_signal(signal.SIGINT)
            self.assertEqual(run.wait(timeout=20), 130, verb)
            self.assertIn(b"interrupted", run.stderr.read())
            self.assertEqual(run.stdout.read(), b"")
            for stream in (run.stdin, run.stdout, run.stderr):
                stream.close()


if __name__ == "__main__":
    SLM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
