"""A hub on 127.0.0.1, as far as uploading and downloading models and reading data sets goes, kept in memory.

Written from what the client asks for: create, preupload, commit, info, tree, resolve. Every file arrives in its commit;
small text files are listed as git blobs, all else as LFS, as on the real one. Faults can be switched on: see `Hub`.
"""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, unquote, urlsplit

REPO = r"/api/(?P<kind>models|datasets)/(?P<repo>[^/]+/[^/]+)"
TEXT = (".json", ".md", ".py", ".txt", ".gitattributes")


class Hub:
    """Repositories by name, data sets' as ``datasets/user/name``: a list of commits, each a dict of files.

    Attributes:
        damaged: paths whose content is sent with its last byte changed.
    """

    def __init__(self):
        self.repos: dict[str, list[dict[str, bytes]]] = {}
        self.damaged: set[str] = set()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"hub": self}))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        Thread(target=self.server.serve_forever, args=[0.01], daemon=True).start()

    def environment(self, home: Path, **more: str) -> dict[str, str]:
        """Of a process for which this is the Hub, with its cache in ``home``."""
        return os.environ | {
            "HF_ENDPOINT": self.url, "HF_TOKEN": "hf_token", "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(home),
            "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_TELEMETRY": "1", "OMP_NUM_THREADS": "1",
        } | more  # fmt: skip

    def run(self, home: Path, *arguments: object, **environment: str) -> str:
        """What a process of Python prints in the folder of ``home``."""
        result = subprocess.run(
            [sys.executable, *map(str, arguments)], capture_output=True, encoding="utf-8", cwd=home.parent,
            env=self.environment(home, **environment),
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        return result.stdout

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def commit_of(self, repo: str, revision: str) -> tuple[str, dict[str, bytes]]:
        commits = self.repos[repo]
        names = [hashlib.sha1(f"{repo} {number}".encode()).hexdigest() for number in range(len(commits))]
        number = names.index(revision) if revision in names else len(commits) - 1
        return names[number], commits[number]


def is_large(path: str) -> bool:
    return not path.endswith(TEXT) or path == "tokenizer.json"


def git_oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def entry(path: str, content: bytes) -> dict:
    large = {"oid": sha256(content), "size": len(content), "pointerSize": 130}
    listed = {"type": "file", "path": path, "size": len(content), "oid": git_oid(content)}
    return listed | ({"lfs": large} if is_large(path) else {})


class Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, content: dict | list | bytes, status: int = 200, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, code: str, status: int = 404) -> None:
        self.answer({"error": code}, status, X_Error_Code=code, X_Error_Message=code)

    def route(self, *patterns) -> None:
        path = unquote(urlsplit(self.path).path)
        for pattern, answer in patterns:
            if match := re.fullmatch(pattern, path):
                found = match.groupdict()
                if found.pop("kind", None) in ("datasets", "datasets/"):
                    found["repo"] = f"datasets/{found['repo']}"
                known = "repo" not in found or found["repo"] in self.hub.repos
                return answer(**found) if known else self.refuse("RepoNotFound")
        return self.refuse("EntryNotFound")

    def do_GET(self) -> None:
        self.route(
            (REPO, self.info),
            (REPO + r"/revision/(?P<revision>.+)", self.info),
            (REPO + r"/tree/(?P<revision>[^/]+)(?P<folder>/.*)?", self.tree),
            (r"/(?P<kind>datasets/)?(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)", self.resolve),
        )

    do_HEAD = do_GET

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.route(
            (r"/api/repos/create", lambda: self.create(**json.loads(body))),
            (r"/api/validate-yaml", lambda: self.answer({"errors": [], "warnings": []})),
            (REPO + r"/preupload/.+", lambda repo: self.preupload(repo, json.loads(body))),
            (REPO + r"/commit/.+", lambda repo: self.commit(repo, [json.loads(line) for line in body.splitlines()])),
        )  # fmt: skip

    def create(self, name: str, organization: str | None = None, **_) -> None:
        repo = f"{organization or 'user'}/{name}"
        if repo in self.hub.repos:
            return self.answer({"error": "exists", "url": f"{self.hub.url}/{repo}"}, 409)
        self.hub.repos[repo] = [{}]
        self.answer({"url": f"{self.hub.url}/{repo}", "name": repo, "id": repo})

    def preupload(self, repo: str, asked: dict) -> None:
        known = {path: git_oid(content) for path, content in self.hub.commit_of(repo, "main")[1].items()}
        mode = {"uploadMode": "regular", "shouldIgnore": False}
        self.answer({"files": [mode | {"path": f["path"], "oid": known.get(f["path"])} for f in asked["files"]]})

    def commit(self, repo: str, lines: list[dict]) -> None:
        files = dict(self.hub.commit_of(repo, "main")[1])
        for line in lines:
            if line["key"] == "file":
                files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        self.hub.repos[repo].append(files)
        oid = self.hub.commit_of(repo, "main")[0]
        self.answer({"success": True, "commitOid": oid, "commitUrl": f"{self.hub.url}/{repo}/commit/{oid}"})

    def info(self, repo: str, revision: str = "main") -> None:
        oid, files = self.hub.commit_of(repo, revision)
        siblings = [{"rfilename": path} for path in files]
        self.answer({"id": repo, "sha": oid, "siblings": siblings, "private": False, "tags": [], "downloads": 0})

    def tree(self, repo: str, revision: str, folder: str | None = None) -> None:
        oid, files = self.hub.commit_of(repo, revision)
        inside = f"{folder.strip('/')}/" if folder else ""
        if inside and not any(path.startswith(inside) for path in files):
            return self.refuse("EntryNotFound")
        entries = {path: entry(path, files[path]) for path in files if path.startswith(inside)}
        if parse_qs(urlsplit(self.path).query).get("recursive", ["false"])[0].lower() != "true":
            for path in list(entries):
                child, _, deeper = path.removeprefix(inside).partition("/")
                if deeper:
                    folder = inside + child
                    entries[folder] = {"type": "directory", "path": folder, "oid": git_oid(folder.encode())}
                    del entries[path]
        self.answer(list(entries.values()), X_Repo_Commit=oid)

    def resolve(self, repo: str, revision: str, path: str) -> None:
        oid, files = self.hub.commit_of(repo, revision)
        if path not in files:
            return self.answer(b"", 404, X_Error_Code="EntryNotFound", X_Repo_Commit=oid)
        content = files[path]
        tag = sha256(content) if is_large(path) else git_oid(content)
        if path in self.hub.damaged:
            content = content[:-1] + bytes([content[-1] ^ 1])
        self.answer(content, X_Repo_Commit=oid, ETag=f'"{tag}"', X_Linked_Size=str(len(content)))
