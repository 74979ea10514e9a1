"""A real HTTP server on this machine that speaks the endpoints of GitHub and GitLab which are used."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "glpat-0123456789abcdefghij"
BOT = "hetgpu-bot"


class ForgeServer:
    """The threads, issues and requests of one repository `o/r`."""

    def __init__(self, kind: str, address: str) -> None:
        self.kind, self.address = kind, address
        #: comments by thread: `merge_requests/7`, `issues/1`; GitHub has `issues` alone
        self.comments: dict[str, list[dict[str, Any]]] = {}
        self.issues: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        #: an answer instead of the real one: status, text, headers
        self.instead: tuple[int, str, dict[str, str]] | None = None
        self.user_status = 200
        self._number = 100

    @property
    def environ(self) -> dict[str, str]:
        """The variables of a CI job of pull request 7."""
        if self.kind == "github":
            own = {"GITHUB_API_URL": self.address, "GITHUB_REPOSITORY": "o/r", "GITHUB_REF": "refs/pull/7/merge"}
            return {**own, "GITHUB_TOKEN": TOKEN}
        own = {"CI_API_V4_URL": self.address, "CI_PROJECT_PATH": "o/r", "CI_MERGE_REQUEST_IID": "7", "GITLAB_CI": "1"}
        return {**own, "GITLAB_TOKEN": TOKEN}

    @property
    def request_comments(self) -> list[dict[str, Any]]:
        """The comments of pull request 7."""
        return self.comments.setdefault("issues/7" if self.kind == "github" else "merge_requests/7", [])

    def post(self, text: str, author: str = BOT, **more: Any) -> dict[str, Any]:
        """Make an issue or a comment of a user."""
        self._number += 1
        user = {"user": {"login": author}} if self.kind == "github" else {"author": {"username": author}}
        url = {"html_url" if self.kind == "github" else "web_url": f"https://forge/{self._number}"}
        numbers = {"id": self._number, "number": self._number, "iid": self._number}
        made = {**numbers, **user, **url, "body": text, "description": text, **more}
        return {**made, "body": made["body"] or made["description"]}

    def answer(self, method: str, target: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Answer a request."""
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.requests.append((method, parts.path))
        if parts.path == "/user":
            return self.user_status, {"login": BOT, "username": BOT}
        prefix = "/repos/o/r/" if self.kind == "github" else "/projects/o%2Fr/"
        if not parts.path.startswith(prefix):
            return 404, {"message": "Not Found"}
        return self._of_repository(method, unquote(parts.path[len(prefix) :]), query, body)

    def _of_repository(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        comments = "comments" if self.kind == "github" else "notes"
        if path == "issues":
            return self._listed(method, self.issues, query, body)
        if found := re.fullmatch(rf"(issues|merge_requests)/(\d+)/{comments}", path):
            return self._listed(method, self.comments.setdefault(f"{found[1]}/{found[2]}", []), query, body)
        edited = r"issues/comments/(\d+)" if self.kind == "github" else r"(?:issues|merge_requests)/\d+/notes/(\d+)"
        if method == ("PATCH" if self.kind == "github" else "PUT") and (found := re.fullmatch(edited, path)):
            every = (post for several in self.comments.values() for post in several)
            post = next(post for post in every if post["id"] == int(found[1]))
            post.update(body)
            return 200, post
        return 404, {"message": "Not Found"}

    def _listed(
        self, method: str, posts: list[dict[str, Any]], query: dict[str, str], body: dict[str, Any]
    ) -> tuple[int, Any]:
        if method == "POST":
            posts.append(self.post("", **body))
            return 201, posts[-1]
        page, size = int(query["page"]), int(query["per_page"])
        return 200, posts[(page - 1) * size : page * size]


@contextmanager
def serving(kind: str) -> Iterator[ForgeServer]:
    """Serve a repository inside the context."""

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            forge.headers.append({name.lower(): value for name, value in self.headers.items()})
            status, text, headers = forge.instead or (0, "", {})
            if not forge.instead:
                status, answer = forge.answer(self.command, self.path, body)
                text = json.dumps(answer)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base has it
            """Print nothing."""

    for method in ("GET", "POST", "PATCH", "PUT"):
        setattr(Handler, f"do_{method}", Handler.handle_any)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    forge = ForgeServer(kind, f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield forge
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
