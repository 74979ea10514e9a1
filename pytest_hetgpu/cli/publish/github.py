"""GitHub: the requests of its REST API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_hetgpu.cli.publish.forge import Forge, Post, Thread, read_post
from pytest_hetgpu.cli.publish.rest import ForgeError


class GitHub(Forge):
    """A repository `OWNER/NAME` of GitHub, whose pull requests have the comments of issues."""

    longest = 65_536
    form = r"[\w.-]+/[\w.-]+"
    api_variable = "GITHUB_API_URL"
    repository_variable = "GITHUB_REPOSITORY"
    default_api = "https://api.github.com"
    access_variable = "GITHUB_TOKEN"

    @staticmethod
    def headers(token: str) -> dict[str, str]:
        accept = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
        return {"Authorization": f"Bearer {token}", **accept}

    def author(self) -> str:
        try:
            return self._client.user("login")
        except ForgeError as error:
            # The token of GitHub Actions is an app's, which may not ask who it is.
            if error.status not in (403, 404):
                raise
            return "github-actions[bot]"

    def comments(self, thread: Thread) -> Iterator[Post]:
        yield from map(_read, self._client.pages(f"{self._issues}/{thread.number}/comments"))

    def add_comment(self, thread: Thread, body: str) -> Post:
        return _read(self._client.call("POST", f"{self._issues}/{thread.number}/comments", {"body": body}))

    def edit_comment(self, thread: Thread, number: int, body: str) -> Post:
        return _read(self._client.call("PATCH", f"{self._issues}/comments/{number}", {"body": body}))

    def open_issues(self) -> Iterator[Post]:
        for entry in self._client.pages(self._issues, state="open"):
            if "pull_request" not in entry:
                yield _read(entry, "number")

    def open_issue(self, title: str, body: str) -> Post:
        return _read(self._client.call("POST", self._issues, {"title": title, "body": body}), "number")

    @property
    def _issues(self) -> str:
        return f"/repos/{self._repository}/issues"


def _read(entry: Mapping[str, object], number: str = "id") -> Post:
    return read_post(entry, number, ("user", "login"), ("body", "html_url"))
