"""Whoever keeps account of what this process starts, so that somebody can remove it should we be killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pytest_hetgpu.model.job import ConnectionInfo

LABEL = "hetgpu.label"
VARIABLE = "HETGPU_OWNER"
OWNER_FILE = ".owner"


class Books:
    """Keeps none. Each method is called before anything is made at that place."""

    label = ""
    """The text that everything made carries; "" where nothing is to carry one."""

    shared = ""
    """The same for what all processes of a run use, and whoever made it may end before the others."""

    def processes(self) -> None:
        """Processes of this machine are about to be started."""

    def engine(self, reach: ConnectionInfo) -> None:
        """Containers and networks are about to be made on the engine of `reach`."""

    def host(self, host: str, reach: ConnectionInfo) -> Callable[[], None]:
        """An agent is about to be started on a host; call what this gives when it has ended by itself."""
        return lambda: None

    def namespace(self, context: str, namespace: str, config: str, kinds: Sequence[str]) -> Callable[[], None]:
        """Objects of these kinds are about to be made in a namespace of Kubernetes (`config`: KUBECONFIG's files).

        Call what this gives when they are gone.
        """
        return lambda: None

    def cleared(self, reach: ConnectionInfo) -> None:
        """Nothing with our label is on the engine of `reach` any more."""


def marked(env: Mapping[str, str], label: str = "") -> dict[str, str]:
    """An environment for a process of this machine, with that label, else ours where there is one."""
    label = label or books().label
    return {**env, VARIABLE: label} if label else dict(env)


class _Kept:
    books = Books()


def keep(books: Books) -> None:
    """From now on everything is told to `books`."""
    _Kept.books = books


def books() -> Books:
    """Who is to be told."""
    return _Kept.books
