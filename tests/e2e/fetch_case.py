"""What the tests of slm fetch share: the hub, a store of their own, and the way `slm` is started."""
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

from hub_server import Hub, Repo

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


class FetchCase(unittest.TestCase):
    executable = ""

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
        run = subprocess.run([self.executable, *words], capture_output=True, text=True, env=self.environment(**(env or {})), timeout=timeout)
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


def main():
    FetchCase.executable = os.path.abspath(sys.argv.pop(1))
    unittest.main()
