"""A hub on loopback: repositories are made, files uploaded, small ones in the commit and weights by LFS, and read."""

import base64
import contextlib
import hashlib
import http.server
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

COMMIT = "c" * 40


@dataclass
class Hub:
    """What was asked of the server and what it holds."""

    url: str = ""
    token: str = "hf_test"
    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    branches: list[str] = field(default_factory=list)
    commits: list[dict] = field(default_factory=list)


def _handler(hub: Hub) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, status: int, value: object = None) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))

        def do_POST(self) -> None:
            body, path = self.body(), self.path.partition("?")[0]
            if not path.endswith("/validate-yaml") and self.headers.get("Authorization") != f"Bearer {hub.token}":
                self.answer(401, {"error": "Invalid username or password."})
            elif path == "/api/repos/create":
                asked = json.loads(body)
                name = f"{asked.get('organization') or 'me'}/{asked['name']}"
                if name in hub.repos:
                    self.answer(409, {"error": "You already created this model repo", "url": f"{hub.url}/{name}"})
                else:
                    hub.repos[name] = {}
                    self.answer(200, {"url": f"{hub.url}/{name}", "name": name})
            elif path.endswith("/validate-yaml"):
                self.answer(200, {"warnings": [], "errors": []})
            elif found := re.fullmatch(r"/api/models/(.+)/branch/(.+)", path):
                hub.branches.append(found[2])
                self.answer(200, {})
            elif re.fullmatch(r"/api/models/.+/preupload/.+", path):
                files = json.loads(body)["files"]
                modes = [("lfs" if f["path"].endswith(".safetensors") else "regular", f["path"]) for f in files]
                self.answer(200, {"files": [{"path": p, "uploadMode": m, "shouldIgnore": False} for m, p in modes]})
            elif path.endswith("/info/lfs/objects/batch"):
                actions = [
                    {**of, "actions": {"upload": {"href": f"{hub.url}/blob/{of['oid']}"}}}
                    for of in json.loads(body)["objects"]
                ]
                self.answer(200, {"transfer": "basic", "objects": actions})
            elif found := re.fullmatch(r"/api/models/(.+)/commit/(.+)", path):
                for line in map(json.loads, body.splitlines()):
                    value = line["value"]
                    if line["key"] == "header":
                        hub.commits.append({"revision": found[2], "query": self.path.partition("?")[2], **value})
                    elif line["key"] == "file":
                        hub.repos[found[1]][value["path"]] = base64.b64decode(value["content"])
                    else:
                        hub.repos[found[1]][value["path"]] = hub.blobs[value["oid"]]
                address = f"{hub.url}/{found[1]}/commit/{COMMIT}"
                pull = {"pullRequestUrl": f"{hub.url}/{found[1]}/discussions/1"} if "create_pr" in self.path else {}
                self.answer(200, {"success": True, "commitOid": COMMIT, "commitUrl": address, **pull})
            else:
                self.answer(404, {"error": path})

        def do_GET(self, body: bool = True) -> None:
            path = self.path.partition("?")[0]
            if found := re.fullmatch(r"/api/models/(.+)/revision/.+", path):
                names = [{"rfilename": name} for name in hub.repos.get(found[1], ())]
                self.answer(200 if names else 404, {"id": found[1], "sha": COMMIT, "siblings": names})
            elif found := re.fullmatch(r"/api/models/(.+)/tree/.+", path):
                rows = [
                    {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                    for name, data in hub.repos[found[1]].items()
                ]
                self.answer(200, rows)
            elif (found := re.fullmatch(r"/(.+)/resolve/[^/]+/(.+)", path)) and found[2] in hub.repos.get(found[1], ()):
                data = hub.repos[found[1]][found[2]]
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
                self.send_header("X-Repo-Commit", COMMIT)
                self.end_headers()
                if body:
                    self.wfile.write(data)
            else:
                self.answer(404, {"error": path})

        def do_HEAD(self) -> None:
            self.do_GET(body=False)

        def do_PUT(self) -> None:
            data, oid = self.body(), self.path.rpartition("/")[2]
            assert hashlib.sha256(data).hexdigest() == oid
            hub.blobs[oid] = data
            self.answer(200)

        def log_message(self, *args: object) -> None:
            pass

    return Handler


@contextlib.contextmanager
def serving() -> Iterator[Hub]:
    """A hub while the block runs."""
    hub = Hub()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
