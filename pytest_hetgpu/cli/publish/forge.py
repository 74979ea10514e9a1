"""The interface of a server with issues and comments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, NamedTuple

from pytest_hetgpu.cli.publish.rest import ForgeError, RestClient


class Post(NamedTuple):
    """An issue or a comment; `number` is that of an issue, or the id of a comment."""

    number: int
    author: str
    body: str
    url: str = ""


class Thread(NamedTuple):
    """An issue, or a pull or merge request, and its number."""

    kind: Literal["issue", "request"]
    number: int


class Forge(ABC):
    """One repository of a server."""

    #: the most characters of a text
    longest: ClassVar[int]
    #: a pattern of the names of repositories
    form: ClassVar[str]
    #: the variables that CI jobs have
    api_variable: ClassVar[str]
    repository_variable: ClassVar[str]
    default_api: ClassVar[str]
    access_variable: ClassVar[str]

    def __init__(self, client: RestClient, repository: str) -> None:
        self._client, self._repository = client, repository

    @staticmethod
    @abstractmethod
    def headers(token: str) -> dict[str, str]:
        """Return the headers of every request."""

    @abstractmethod
    def author(self) -> str:
        """Return the name of the token's user."""

    @abstractmethod
    def comments(self, thread: Thread) -> Iterator[Post]:
        """Yield the comments of a thread."""

    @abstractmethod
    def add_comment(self, thread: Thread, body: str) -> Post:
        """Add a comment."""

    @abstractmethod
    def edit_comment(self, thread: Thread, number: int, body: str) -> Post:
        """Replace the text of a comment."""

    @abstractmethod
    def open_issues(self) -> Iterator[Post]:
        """Yield the open issues."""

    @abstractmethod
    def open_issue(self, title: str, body: str) -> Post:
        """Open an issue."""


def read_post(entry: Mapping[str, object], number: str, names: tuple[str, str], texts: tuple[str, str]) -> Post:
    """Return an issue or comment of an answer; arguments are names of fields. Raise ForgeError."""
    try:
        user, name = names
        author = entry.get(user)
        body, url = (str(entry.get(key) or "") for key in texts)
        return Post(int(str(entry[number])), str(author.get(name, "")) if isinstance(author, dict) else "", body, url)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ForgeError(f"the server sent an issue or comment without {error}") from None
