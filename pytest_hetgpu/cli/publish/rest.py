"""Requests of JSON over HTTPS with a token that leaves neither the server nor this process."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from pytest_hetgpu.errors import HetgpuError, UsageError
from pytest_hetgpu.store.text import one_line

TIMEOUT = 30.0
"""Seconds that a server may be silent."""
PER_PAGE = 100
MOST_PAGES = 50
_LONGEST = 32 << 20
_LOCAL = ("localhost", "127.0.0.1", "::1")
_CONTROLS = re.compile(r"[\s\x00-\x20\x7f-\x9f]")


class ForgeError(HetgpuError):
    """A request that a server refused or did not answer; `status` is 0 without an answer."""

    def __init__(self, text: str, status: int = 0) -> None:
        self.status = status
        super().__init__(text)


class RestClient:
    """A server below the address `base`, which needs https unless it is this machine."""

    def __init__(self, base: str, headers: Mapping[str, str]) -> None:
        self.base = check_base(base)
        self._headers = {"Content-Type": "application/json", "User-Agent": "pytest-hetgpu", **headers}
        local = urlsplit(base).hostname in _LOCAL
        proxies = [urllib.request.ProxyHandler({})] if local else []
        self._opener = urllib.request.build_opener(_SameServer(), *proxies)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request and return the answer. Raise ForgeError."""
        data = json.dumps(body).encode("ascii") if body is not None else None
        request = urllib.request.Request(  # noqa: S310 - the address was checked
            f"{self.base}{path}", data, dict(self._headers), method=method
        )
        what = f"{method} {self.base}{path.partition('?')[0]}"
        try:
            with self._opener.open(request, timeout=TIMEOUT) as answer:
                return json.loads(answer.read(_LONGEST) or b"null")
        except urllib.error.HTTPError as error:
            with error:
                raise ForgeError(f"{what}: {error.code} {_reason(error)}", error.code) from None
        except urllib.error.URLError as error:
            raise ForgeError(f"{what}: {one_line(str(error.reason))}") from None
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            raise ForgeError(f"{what}: {one_line(str(error)) or type(error).__name__}") from None

    def user(self, name: str) -> str:
        """Return the name of the token's user. Raise ForgeError."""
        answer = self.call("GET", "/user")
        if not isinstance(answer, dict) or not isinstance(answer.get(name), str):
            raise ForgeError(f"GET {self.base}/user: the answer has no {name}")
        return str(answer[name])

    def pages(self, path: str, **query: str) -> Iterator[Mapping[str, Any]]:
        """Yield the entries of a list, page by page."""
        for page in range(1, MOST_PAGES + 1):
            entries = self.call("GET", f"{path}?{urlencode({**query, 'per_page': PER_PAGE, 'page': page})}")
            if not isinstance(entries, list):
                raise ForgeError(f"GET {self.base}{path}: the answer is no list")
            yield from (entry for entry in entries if isinstance(entry, dict))
            if len(entries) < PER_PAGE:
                return


class _SameServer(urllib.request.HTTPRedirectHandler):
    """Follows a redirection of a reading request to the same server; any other would take the token along."""

    def redirect_request(  # noqa: PLR0913, PLR0917 - as its base has it
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if req.get_method() != "GET" or urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
            raise ForgeError(f"{req.get_method()} {req.full_url}: redirected elsewhere ({code}), which is not followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def check_base(base: str) -> str:
    """Return the address of a server without its last slash. Raise UsageError if a token must not be sent there."""
    if _CONTROLS.search(base):  # urlsplit leaves some of them out, so that another address would be checked
        raise UsageError(f"{one_line(base)}: an address holds no blanks and no control characters")
    parts = urlsplit(base)
    safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOCAL)
    if not safe or not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
        raise UsageError(f"{one_line(base)}: a token is only sent to an https address")
    return base.rstrip("/")


def path_part(text: str) -> str:
    """Quote a text as one part of a path."""
    return quote(text, safe="")


def _reason(error: urllib.error.HTTPError) -> str:
    """Return the message in the answer, else the standard text of the status."""
    try:
        answer = json.loads(error.read(_LONGEST))
        found = answer.get("message") or answer.get("error") or ""
        return one_line(found if isinstance(found, str) else json.dumps(found)) or error.reason
    except (OSError, http.client.HTTPException, ValueError, AttributeError, RecursionError):
        return one_line(error.reason)
