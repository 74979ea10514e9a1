"""GitLab: the requests of its REST API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_hetgpu.cli.publish.forge import Forge, Post, Thread, read_post
from pytest_hetgpu.cli.publish.rest import path_part


class GitLab(Forge):
    """A project of GitLab, by its path or number."""

    longest = 1_000_000
    form = r"\d+|[\w.-]+(?:/[\w.-]+)+"
    api_variable = "CI_API_V4_URL"
    repository_variable = "CI_PROJECT_PATH"
    default_api = "https://gitlab.com/api/v4"
    access_variable = "GITLAB_TOKEN"

    @staticmethod
    def headers(token: str) -> dict[str, str]:
        return {"PRIVATE-TOKEN": token}

    def author(self) -> str:
        return self._client.user("username")

    def comments(self, thread: Thread) -> Iterator[Post]:
        yield from map(_read, self._client.pages(self._notes(thread)))

    def add_comment(self, thread: Thread, body: str) -> Post:
        return _read(self._client.call("POST", self._notes(thread), {"body": body}))

    def edit_comment(self, thread: Thread, number: int, body: str) -> Post:
        return _read(self._client.call("PUT", f"{self._notes(thread)}/{number}", {"body": body}))

    def open_issues(self) -> Iterator[Post]:
        query = {"state": "opened", "scope": "created_by_me"}
        yield from (_read(entry, "iid") for entry in self._client.pages(f"{self._project}/issues", **query))

    def open_issue(self, title: str, body: str) -> Post:
        made = self._client.call("POST", f"{self._project}/issues", {"title": title, "description": body})
        return _read(made, "iid")

    @property
    def _project(self) -> str:
        return f"/projects/{path_part(self._repository)}"

    def _notes(self, thread: Thread) -> str:
        kind = "issues" if thread.kind == "issue" else "merge_requests"
        return f"{self._project}/{kind}/{thread.number}/notes"


def _read(entry: Mapping[str, object], number: str = "id") -> Post:
    # The text of an issue is its description.
    return read_post(entry, number, ("author", "username"), ("description" if number == "iid" else "body", "web_url"))
