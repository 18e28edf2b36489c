"""A model hub for tests: the public HTTP protocol of the hub, with faults on demand. Python standard library only.

Two servers on two ports stand for two hosts: the hub (API, small files, redirects) and its storage (large files). What every
request carried is kept in `log`, so that a test can see that no token reached the storage.

By hand:  python3 hub_server.py FOLDER     serves FOLDER as the repository test/model and prints the endpoint
"""
import collections
import hashlib
import json
import os
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LFS_BYTES = 4096  # files of this size or more live in the storage


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repo:
    def __init__(self, files, license="apache-2.0", token=None, gated=False, commit="c" * 40, revisions=("main",)):
        self.files, self.license, self.token, self.gated = dict(files), license, token, gated
        self.commit, self.revisions = commit, revisions
        self.announced = {}  # file name -> etag that is told instead of the true one
        self.sizes = {}      # file name -> size that is told instead of the true one
        self.names = None    # list of names in the API's answer instead of the true one


# A fault is used up by one request. kind: status, cut, stall, slow, extra, no_range, wrong_range, location
Fault = collections.namedtuple("Fault", "kind value headers", defaults=(None, {}))
Seen = collections.namedtuple("Seen", "server method path headers")


class Hub:
    def __init__(self):
        self.repos, self.log, self.faults, self.renamed = {}, [], collections.defaultdict(list), {}
        self.lock = threading.Lock()
        self.storage_etag = '"v1"'
        self.servers = [self._serve(HubHandler), self._serve(StorageHandler)]
        self.endpoint = "http://127.0.0.1:%d" % self.servers[0].server_port
        self.storage = "http://127.0.0.1:%d" % self.servers[1].server_port

    def _serve(self, handler):
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        server.hub = self
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    def close(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def fault(self, where, kind, value=None, times=1, headers=None):
        """`where` is "api", "head", or "get": the next `times` requests of that kind meet the fault."""
        self.faults[where] += [Fault(kind, value, headers or {})] * times

    def take_fault(self, where):
        with self.lock:
            return self.faults[where].pop(0) if self.faults[where] else None

    def seen(self, server=None, method=None):
        return [s for s in self.log if server in (None, s.server) and method in (None, s.method)]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    name = ""

    def log_message(self, *args):
        pass

    def handle(self):
        try:
            super().handle()
        except (ConnectionError, OSError):
            pass  # the client under test may go away at any time

    def answer(self, status, body=b"", headers=None):
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        if "Content-Length" not in (headers or {}):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def start(self):
        with self.server.hub.lock:
            self.server.hub.log.append(Seen(self.name, self.command, self.path, dict(self.headers)))

    def refuse(self, status, code=None, message=None):
        headers = {}
        if code:
            headers["X-Error-Code"] = code
        if message:
            headers["X-Error-Message"] = message
        self.answer(status, json.dumps({"error": message or code}).encode(), headers)

    def send_file(self, data, etag):
        """The bytes of a file, with ranges, If-Range and the faults of "get"."""
        fault = self.server.hub.take_fault("get")
        kind = fault.kind if fault else None
        if kind == "status":
            return self.answer(fault.value, b"fault", fault.headers)
        headers, status, body = {"ETag": etag, "Accept-Ranges": "bytes"}, 200, data
        asked = self.headers.get("Range", "")
        if_range = self.headers.get("If-Range")
        if asked.startswith("bytes=") and kind != "no_range" and if_range in (None, etag):
            first = int(asked[6:].split("-")[0])
            if first >= len(data):
                return self.answer(416, b"", {"Content-Range": "bytes */%d" % len(data)})
            if kind == "wrong_range":
                first = max(0, first - 7)
            body, status = data[first:], 206
            headers["Content-Range"] = "bytes %d-%d/%d" % (first, len(data) - 1, len(data))
        headers["Content-Length"] = str(len(body))
        if kind == "extra":
            body += b"x" * 100
            headers["Content-Length"] = str(len(body))
        if kind == "short":  # claims to be complete
            body = body[:fault.value]
            headers["Content-Length"] = str(len(body))
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if kind == "cut":
            self.wfile.write(body[:fault.value])
            self.wfile.flush()
            self.close_connection = True
        elif kind == "stall":
            self.wfile.write(body[:fault.value])
            self.wfile.flush()
            time.sleep(30)
        elif kind == "slow":
            step = max(1, len(body) // 20)
            for at in range(0, len(body), step):
                self.wfile.write(body[at:at + step])
                self.wfile.flush()
                time.sleep(fault.value / 20)
        else:
            self.wfile.write(body)


class HubHandler(Handler):
    name = "hub"

    def do_GET(self):
        self.start()
        path = urllib.parse.urlsplit(self.path).path
        if path.startswith("/api/models/"):
            return self.api(path[len("/api/models/"):])
        self.resolve(path)

    do_HEAD = do_GET

    def repo(self, name):
        hub = self.server.hub
        if name in hub.renamed:
            target = self.path.replace(name, hub.renamed[name], 1)
            self.answer(307, b"", {"Location": target})
            return None
        if name not in hub.repos:
            self.refuse(401, "RepoNotFound", "Repository not found")
            return None
        repo = hub.repos[name]
        if repo.token and self.headers.get("Authorization") != "Bearer " + repo.token:
            self.refuse(401, "GatedRepo" if repo.gated else "RepoNotFound", "Access to model is restricted" if repo.gated else None)
            return None
        return repo

    def api(self, rest):
        fault = self.server.hub.take_fault("api")
        if fault and fault.kind == "status":
            return self.answer(fault.value, b"fault", fault.headers)
        if fault and fault.kind == "body":
            return self.answer(200, fault.value)
        name, _, revision = rest.partition("/revision/")
        repo = self.repo(name)
        if repo is None:
            return
        revision = urllib.parse.unquote(revision)
        if revision not in repo.revisions and revision != repo.commit:
            return self.refuse(404, "RevisionNotFound", "Invalid rev id: " + revision)
        siblings = [{"rfilename": n} for n in (repo.names if repo.names is not None else sorted(repo.files))]
        body = {"id": name, "sha": repo.commit, "siblings": siblings, "tags": ["license:" + repo.license], "cardData": {"license": repo.license}}
        self.answer(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def resolve(self, path):
        hub = self.server.hub
        name, _, rest = path[1:].partition("/resolve/")
        repo = self.repo(name)
        if repo is None:
            return
        revision, _, file = rest.partition("/")
        file = urllib.parse.unquote(file)
        if urllib.parse.unquote(revision) not in repo.revisions + (repo.commit,):
            return self.refuse(404, "RevisionNotFound")
        if file not in repo.files:
            return self.refuse(404, "EntryNotFound", "Entry not found")
        data = repo.files[file]
        if self.command == "HEAD":
            fault = hub.take_fault("head")
            if fault and fault.kind == "status":
                return self.answer(fault.value, b"", fault.headers)
        else:
            fault = next((f for f in hub.faults["get"] if f.kind == "location"), None)
            if fault:
                hub.faults["get"].remove(fault)
                return self.answer(302, b"", {"Location": fault.value})
        common = {"X-Repo-Commit": repo.commit}
        if len(data) < LFS_BYTES:
            etag = '"%s"' % repo.announced.get(file, git_sha1(data))
            if self.command == "HEAD":
                return self.answer(200, b"", dict(common, **{"ETag": etag, "Content-Length": str(repo.sizes.get(file, len(data)))}))
            return self.send_file(data, etag)
        etag = repo.announced.get(file, hashlib.sha256(data).hexdigest())
        common.update({"X-Linked-Etag": '"%s"' % etag, "X-Linked-Size": str(repo.sizes.get(file, len(data))),
                       "Location": "%s/%s?file=%s&Signature=s3cr3t" % (hub.storage, name, urllib.parse.quote(file))})
        self.answer(302, b"", common)


class StorageHandler(Handler):
    name = "storage"

    def do_GET(self):
        self.start()
        parts = urllib.parse.urlsplit(self.path)
        file = urllib.parse.parse_qs(parts.query).get("file", [""])[0]
        repo = self.server.hub.repos.get(parts.path[1:])
        if repo is None or file not in repo.files:
            return self.answer(404)
        if "Authorization" in self.headers:
            return self.answer(400, b"signed addresses take no token")
        self.send_file(repo.files[file], self.server.hub.storage_etag)


def main():
    hub = Hub()
    folder = sys.argv[1]
    files = {}
    for base, _, names in os.walk(folder):
        for n in names:
            path = os.path.join(base, n)
            with open(path, "rb") as f:
                files[os.path.relpath(path, folder).replace(os.sep, "/")] = f.read()
    hub.repos["test/model"] = Repo(files)
    print("slm fetch hf:test/model --endpoint", hub.endpoint, flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        hub.close()


if __name__ == "__main__":
    main()
