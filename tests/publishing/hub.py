"""A stand-in of the Hugging Face hub's API, for one repository at a time, on loopback.

Written from the OpenAPI description of the hub (huggingface.co/.well-known/openapi.json): create, preupload, LFS batch,
commit, tree, paths-info and resolve.
"""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "c" * 40


class Hub(ThreadingHTTPServer):
    """Repositories as dictionaries of their files."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.stored: dict[str, bytes] = {}
        self.commits: list[list[str]] = []
        self.cards: list[str] = []
        self.calls: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            content = b""
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return content
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, content: object, status: int = 200, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _entries(self, files: dict[str, bytes]) -> list[dict[str, object]]:
        return [
            {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
            for name, content in files.items()
        ]

    def do_POST(self) -> None:
        path, body = urlsplit(self.path).path, self._body()
        self.server.calls.append(f"POST {path}")
        if path == "/api/validate-yaml":
            self.server.cards.append(json.loads(body)["content"])
            return self._answer({"errors": [], "warnings": []})
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            if name in self.server.repositories:
                url = f"{self.server.endpoint}/{name}"
                return self._answer(
                    {"error": "exists", "url": url}, 409, X_Error_Message="You already created this model repo"
                )
            self.server.repositories[name] = {".gitattributes": b""}
            self.server.private[name] = asked.get("visibility") == "private" or bool(asked.get("private"))
            return self._answer({"url": f"{self.server.endpoint}/{name}", "name": name})
        if path.endswith("/info/lfs/objects/batch"):
            objects = [
                {
                    **one,
                    "actions": {"upload": {"href": f"{self.server.endpoint}/store/{one['oid']}"}},
                }
                for one in json.loads(body)["objects"]
            ]
            return self._answer({"transfer": "basic", "objects": objects})
        name, _, action = path.removeprefix("/api/models/").rpartition("/main")[0].rpartition("/")
        files = self.server.repositories[name]
        if action == "preupload":
            asked = json.loads(body)["files"]
            mode = {True: "lfs", False: "regular"}
            return self._answer(
                {
                    "files": [
                        {
                            "path": one["path"],
                            "uploadMode": mode[one["path"].endswith((".safetensors", ".copies"))],
                            "shouldIgnore": False,
                            "oid": None,
                        }
                        for one in asked
                    ]
                }
            )
        if action == "commit":
            lines = [json.loads(line) for line in body.splitlines()]
            added = {}
            for line in lines:
                value = line["value"]
                if line["key"] == "file":
                    added[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    added[value["path"]] = self.server.stored[value["oid"]]
            files.update(added)
            self.server.commits.append(sorted(added))
            return self._answer({"success": True, "commitOid": COMMIT, "commitUrl": f"{self.server.endpoint}/{name}"})
        if action == "paths-info":
            asked = parse_qs(body.decode())["paths"] if body[:1] != b"{" else json.loads(body)["paths"]
            return self._answer([one for one in self._entries(files) if one["path"] in asked])
        return self._answer({"error": path}, 404)

    def do_PUT(self) -> None:
        content = self._body()
        digest = self.path.rpartition("/")[2]
        assert hashlib.sha256(content).hexdigest() == digest
        self.server.stored[digest] = content
        self._answer(b"")

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.calls.append(f"{self.command} {path}")
        name = "/".join(path.removeprefix("/api/models/").strip("/").split("/")[:2])
        files = self.server.repositories.get(name)
        if files is None:
            return self._answer({"error": "no"}, 404, X_Error_Code="RepoNotFound", X_Error_Message="no such repository")
        if "/resolve/" in path:
            content = files.get(path.split("/resolve/", 1)[1].partition("/")[2])
            if content is None:
                return self._answer({}, 404, X_Error_Code="EntryNotFound", X_Error_Message="no such file")
            return self._answer(content, ETag=f'"{hashlib.sha1(content).hexdigest()}"', X_Repo_Commit=COMMIT)
        if "/tree/" in path:
            below = path.split("/tree/", 1)[1].partition("/")[2]
            wanted = {key: one for key, one in files.items() if not below or key.startswith(f"{below}/")}
            return self._answer(self._entries(wanted))
        siblings = [{"rfilename": key} for key in files]
        return self._answer({"id": name, "_id": "x", "sha": COMMIT, "siblings": siblings, "private": True, "tags": []})

    do_HEAD = do_GET


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Run the stand-in while the block runs."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
