"""slm fetch against a hub that behaves, misbehaves and lies.   fetch_test.py SLM [unittest options]"""
import hashlib
import json
import signal
import subprocess
import time

from fetch_case import FILES, TOKEN, WEIGHTS, FetchCase, main
from hub_server import Repo


class FetchTest(FetchCase):
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
        process = subprocess.Popen([self.executable, "fetch", "hf:o/m:model.safetensors", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment())
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
        first = subprocess.Popen([self.executable, "fetch", "hf:o/m:model.safetensors"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment())
        while not self.hub.seen("storage", "GET"):
            time.sleep(0.02)
        removal = self.slm("rm", "o--m", "--json")
        self.assertEqual((removal.returncode, json.loads(removal.stdout)["error"]["code"]), (1, "unavailable"))
        waiting = [self.executable, "fetch", "hf:o/m:model.safetensors", "--json"]
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


if __name__ == "__main__":
    main()
