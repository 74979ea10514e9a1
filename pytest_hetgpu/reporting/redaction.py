"""Takes secrets out of everything that goes into a report.

A secret is known by its own form (a private key, a cloud or forge token), by what stands before it (`password=`,
`Authorization:`, the user part of a URL), or by the name of the variable that holds it; `[redacted]` takes its place.
Patterns start at a word's edge or a fixed mark and are bounded, so that a line of 1 MB takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from pytest_hetgpu.regex import lazy

REDACTED = "[redacted]"
_SHORTEST = 20  # no token known by its own form is shorter

_SECRET_NAME = lazy(r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|_PWD$|(?:^|_)(?:PASS|AUTH)$")
# Settings of UCX, NCCL and Hugging Face that only look secret: partition keys, memory keys, counts, switches.
_HARMLESS = lazy(r"(?:IB|OPENIB)_PKEY|(?:^|_)[LMR]KEY(?=_|$)|KEYVAL|TOKENIZERS_|MAX_TOKENS")
_SECRET_OPTION = lazy(r"--?[a-z-]*(?:password|passphrase|token|secret|api-key|access-key|credentials?)")
_TELLING_WORDS = 6
_VALUE_FOLLOWS = ("-env", "-genv")
_names: ContextVar[Callable[[str], str] | None] = ContextVar("_names", default=None)
_IDENTITY = ("matrix", "scenario", "label", "axes")

_HEADER = r"(?:proxy-)?authorization|private-token|job-token|x-[a-z-]{0,30}(?:token|key|secret)|(?:set-)?cookie"
_VARIABLE = r"[A-Z0-9_]{0,60}(?:KEY|TOKEN|SECRET|PASS|CREDENTIAL|PWD|AUTH)[A-Z0-9_]{0,60}"
_SETTING = (
    r"[a-z0-9_.-]{0,60}(?:passw(?:or)?d|passphrase|secret|credentials?|(?:api|access|private|auth|account)[_-]?key"
    r"|[a-z0-9][_-]token|accesstoken|token(?=\s?=))"
)
_VALUE = r"""(?!["']?\[redacted\])(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|["']?[^\s"']+)"""
_WORDS = "key token secret pass credential pwd auth"


class _Rule(NamedTuple):
    """`triggers` are lower-case texts one of which must be there for the pattern to match: a cheap first look."""

    triggers: tuple[str, ...]
    pattern: re.Pattern[str]
    replacement: str | Callable[[re.Match[str]], str]


def _rule(triggers: str, pattern: str, replacement: str | Callable[[re.Match[str]], str] = REDACTED) -> _Rule:
    return _Rule(tuple(triggers.split()), lazy(pattern), replacement)


def _by_name(found: re.Match[str]) -> str:
    return f"{found[1]}={REDACTED}" if is_secret_name(found[1]) else found[0]


_AFTER = rf"\1{REDACTED}"
_END = r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_RULES = (
    _rule("private", rf"-----BEGIN [A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:{_END}|\Z)"),
    _rule("private", rf"\A(?:[A-Za-z0-9+/=]+\s+)*{_END}"),
    _rule("akia asia abia acca", r"(?<![A-Za-z0-9])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _rule("ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,})"),
    _rule("gl", r"(?<![A-Za-z0-9])gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat)-[\w.-]{16,}"),
    _rule("hf_", r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{20,}"),
    _rule("xox xapp-", r"(?<![A-Za-z0-9])(?:xox[a-z]|xapp)-[A-Za-z0-9-]{10,}"),
    _rule("hooks.slack.com", r"(?<=hooks\.slack\.com/services/)[\w/]+"),
    _rule("aiza sk- pypi-", r"(?<![A-Za-z0-9])(?:AIza[\w-]{35}|sk-(?:[a-z0-9]{2,8}-){0,3}\w{20,}|pypi-AgE[\w-]{20,})"),
    _rule("npm_ dckr_pat_", r"(?<![A-Za-z0-9])(?:npm_[A-Za-z0-9]{36}|dckr_pat_[\w-]{20,})"),
    _rule("_live_ _test_", r"(?<![A-Za-z0-9])(?:sk|rk|pk)_(?:live|test)_\w{16,}"),
    _rule("sg.", r"(?<![\w.])SG\.[\w-]{16,64}\.[\w-]{16,}"),
    _rule("key- dapi", r"(?<![\w-])(?:key-|dapi)[0-9a-f]{32}(?!\w)"),
    _rule("_v1_", r"(?<![A-Za-z0-9])do[oprt]_v1_[0-9a-f]{32,}"),
    _rule("hvs. hvb. hvr.", r"(?<![\w.])hv[sbr]\.[\w-]{20,}"),
    _rule(".atlasv1.", r"(?<![A-Za-z0-9])\w{10,20}\.atlasv1\.[\w-]{20,}"),
    _rule("/api/webhooks/", r"(?<=/api/webhooks/)[\w/-]+"),
    _rule(":aa", r"(?<!\w)\d{8,10}:AA[\w-]{30,}"),
    _rule("ya29. rubygems_ lin_api_ glsa_", r"(?<![A-Za-z0-9])(?:ya29\.|rubygems_|lin_api_|glsa_)[\w-]{20,}"),
    _rule("shp", r"(?<![A-Za-z0-9])shp(?:at|ca|pa|ss)_[0-9a-f]{32}"),
    _rule("nvapi- nrak-", r"(?<![A-Za-z0-9])(?:nvapi-|NRAK-)[\w-]{20,}"),
    _rule("age-secret-key-", r"AGE-SECRET-KEY-1[0-9A-Z]{20,}"),
    _rule("munge:", r"(?<=MUNGE:)[\w+/=]{10,}"),
    _rule("eyj", r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
    _rule("://", r"(?<=://)([^\s/:@'\"]*:)[^\s/'\"]*@", rf"{_AFTER}@"),
    _rule(_WORDS + " cookie", rf"((?<![\w-])(?i:{_HEADER})[\"']?\s{{0,4}}[:=]\s{{0,4}}[\"']?)[^\r\n\"']+", _AFTER),
    _rule("bearer", r"((?<![\w-])[Bb]earer\s{1,4})[\w.~+/=-]{12,}", _AFTER),
    _rule("password", r"((?<!\w)login\s{1,8}\S{1,200}\s{1,8}password\s{1,8})\S+", _AFTER),
    _rule("password", r"(?m)(^[ \t]{0,80}password[ \t]{1,8})[^\s:=]+(?=[ \t]*$)", _AFTER),
    _rule("auth token", r"(\"(?:auth|identitytoken|registrytoken)\"\s{0,4}:\s{0,4}\")[^\"\n]+", _AFTER),
    _rule("private_key", r"(\"private_key(?:_id)?\"\s{0,4}:\s{0,4}\")[^\"\n]+", _AFTER),
    _rule("client-key-data token:", r"((?<![\w.-])(?:client-key-data|token):\s{1,4})[\w.~+/=-]{16,}", _AFTER),
    _rule("sshpass", r"((?<!\w)sshpass\s{1,4}-p\s{0,4})\S+", _AFTER),
    _rule("curl", r"((?<!\w)curl(?!\w)[^\n]{0,200}?\s(?:-u|--user)[ =]{0,4}[^\s:]{1,100}:)\S+", _AFTER),
    _rule("ipmitool", r"((?<!\w)ipmitool[^\n]{0,200}?\s-P\s{0,4})\S+", _AFTER),
    _rule("redis-cli", r"((?<!\w)redis-cli[^\n]{0,200}?\s-a\s{0,4})\S+", _AFTER),
    _rule("wandb", r"((?<!\w)wandb\s{1,4}login\s[^\n]{0,100}?)[0-9a-f]{32,}", _AFTER),
    _rule("key= token= signature= sig=", r"([?&](?i:[\w-]{0,40}(?:key|token|signature|sig))=)[^\s&\"']+", _AFTER),
    _rule(_WORDS, rf"(?<!\w)({_VARIABLE})={_VALUE}", _by_name),
    _rule(_WORDS, rf"((?<![\w.-])(?i:{_SETTING})[\"']?\s{{0,4}}[:=]\s{{0,4}}){_VALUE}", _AFTER),
)


@contextmanager
def standing_in(names: Callable[[str], str]) -> Iterator[None]:
    """Whatever is redacted meanwhile goes through `names`, too."""
    before = _names.set(names)
    try:
        yield
    finally:
        _names.reset(before)


def redact(text: str) -> str:
    """The text without its secrets. Redacting twice changes nothing."""
    text = _without_secrets(text)
    names = _names.get()
    return names(text) if names else text


def _without_secrets(text: str) -> str:
    if len(text) < _SHORTEST and "=" not in text and ":" not in text:
        return text
    lower = text.lower()
    for rule in _RULES:
        if any(trigger in lower for trigger in rule.triggers):
            text = rule.pattern.sub(rule.replacement, text)
    return text


def redact_env(env: Mapping[str, str]) -> dict[str, str]:
    """An environment without the values whose name or own form says that they are secret."""
    return {name: REDACTED if value and is_secret_name(name) else redact(value) for name, value in env.items()}


def redact_argv(argv: Sequence[str]) -> list[str]:
    """A command line without secrets, token by token: `TOKEN=...`, `--password ...`, MPICH's `-genv NAME VALUE`."""
    out: list[str] = []
    whole = " ".join(argv)
    telling = redact(whole) != whole  # else no token is told by others, and most command lines have no secret
    for place, token in enumerate(argv):
        before = argv[place - 1] if place else ""
        named = place > 1 and argv[place - 2] in _VALUE_FOLLOWS and is_secret_name(before)
        name, equals, value = token.partition("=")
        if named or _SECRET_OPTION.fullmatch(before):
            out.append(REDACTED)
        elif value and name.replace("_", "a").isalnum() and is_secret_name(name):
            out.append(f"{name}{equals}{REDACTED}")
        else:
            out.append(_redact_word(argv, place) if telling else redact(token))
    return out


def _redact_word(argv: Sequence[str], place: int) -> str:
    """A token without secrets, also one that the tokens before it tell: `curl -u me:...`, `sshpass -p ...`."""
    token = argv[place]
    alone = redact(token)
    if alone != token or " " in token or not place:
        return alone
    before = " ".join(argv[max(0, place - _TELLING_WORDS) : place])
    return redact(f"{before} {token}").rpartition(" ")[2]


def redact_json(value: Any) -> Any:
    """JSON data without secrets; objects under the name `env` are environments, lists of text are command lines.

    Names of cells (`matrix`, `scenario`, `label`, `axes`) stay: what was written of a cell must find it again.
    """
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        texts = all(isinstance(item, str) for item in value)
        return redact_argv(value) if texts else [redact_json(item) for item in value]
    if isinstance(value, dict):
        return {name: _redact_member(name, item) for name, item in value.items()}
    return value


def _redact_member(name: str, value: Any) -> Any:
    if name in _IDENTITY:
        return value
    if name == "env" and isinstance(value, dict):
        return redact_env({key: str(item) for key, item in value.items()})
    return redact_json(value)


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret, as far as a name can tell."""
    return _SECRET_NAME.search(_HARMLESS.sub("", name.upper())) is not None
