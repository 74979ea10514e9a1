"""The choice of a server and a repository, by options and by the variables of a CI job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from pytest_hetgpu.cli.publish.forge import Forge
from pytest_hetgpu.cli.publish.github import GitHub
from pytest_hetgpu.cli.publish.gitlab import GitLab
from pytest_hetgpu.cli.publish.rest import RestClient
from pytest_hetgpu.errors import UsageError

FORGES: Mapping[str, type[Forge]] = {"github": GitHub, "gitlab": GitLab}


class Destination(NamedTuple):
    """The server, its API address, the repository (maybe "") and the pull request (maybe 0) of a post."""

    forge: type[Forge]
    api: str
    repository: str
    number: int

    def connect(self, environ: Mapping[str, str]) -> Forge:
        """Return the repository. Raise UsageError without a token or a repository."""
        variable = self.forge.access_variable
        token = environ.get(variable, "").strip()
        if not token:
            raise UsageError(f"--send needs a token in the variable {variable}, which is not set")
        if not re.fullmatch(r"[!-~]+", token):
            raise UsageError(f"{variable} is no token: it has white space or unprintable characters")
        if not self.repository:
            raise UsageError("--send needs --repository OWNER/NAME, as this is no CI job that sets it")
        return self.forge(RestClient(self.api, self.forge.headers(token)), self.repository)


def choose(forge: str, repository: str, number: int, environ: Mapping[str, str]) -> Destination:
    """Return the destination by options, else by the variables that a CI job has. Raise UsageError."""
    kind = FORGES[forge or ("gitlab" if environ.get("GITLAB_CI") else "github")]
    found = repository or environ.get(kind.repository_variable, "")
    if found and (not re.fullmatch(kind.form, found) or ".." in found):
        raise UsageError(f"--repository: {found!r} is not OWNER/NAME")
    api = environ.get(kind.api_variable) or kind.default_api
    return Destination(kind, api, found, number or _request_number(environ))


def _request_number(environ: Mapping[str, str]) -> int:
    """Return the number of the pull or merge request that CI runs for; 0 if there is none."""
    found = re.fullmatch(r"refs/pull/(\d+)/\w+", environ.get("GITHUB_REF", ""))
    text = found[1] if found else environ.get("CI_MERGE_REQUEST_IID") or environ.get("CHANGE_ID") or ""
    return int(text) if text.isascii() and text.isdigit() else 0


def ci_link(environ: Mapping[str, str]) -> str:
    """Return the address of this job in CI; "" if there is none."""
    server, repository, run = (environ.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    if server and repository and run:
        return f"{server}/{repository}/actions/runs/{run}"
    return environ.get("CI_JOB_URL") or environ.get("BUILD_URL") or ""
