"""The patterns of secrets by form and by context, as a table that `redact` applies. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from pytest_hetgpu.model.credentials import is_secret_name
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.store.redaction.words import WORDS

REDACTED = "[redacted]"

_HEADER = r"(?:proxy-)?authorization|private-token|job-token|x-[a-z-]{0,30}(?:token|key|secret)|set-cookie"
# The header of a request, which holds nothing but cookies.
_HEADER += r"|cookie(?=[\"']?\s{0,4}:\s{0,4}[\"']?[^\s;=\"']{1,200}=)"
_VARIABLE = r"[A-Z0-9_]{0,60}(?:(?:KEY|TOKEN|SECRET|PASS|CREDENTIAL|PWD|AUTH)[A-Z0-9_]{0,60}|CREDS|_PAT|PW|COOKIES?)"
_VARIABLE_TRIGGER = "(?:(?:KEY|TOKEN|SECRET|PASS|CREDENTIAL|PWD|AUTH)[A-Z0-9_]*|CREDS|_PAT|PW|COOKIES?)"
# A time, a rate or a count is no token.
_QUANTITY = (
    r"[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?:\d{1,5}|\d{1,9}\.\d{1,9})(?:\s?(?:[num]?s|%|[kMG]?i?B))?(?![\w+/=-]|\.\w)"
)
_SETTING = (
    r"[a-z0-9_.-]{0,60}(?:passw(?:or)?d|passphrase|secret|credentials|[a-z0-9][_-](?:credential|creds)|(?:bind|root)pw"
    r"|(?:api|access|private|auth|account|secret)[_-]?key"
    rf"|(?:[a-z0-9][_-]token|accesstoken|token(?=\s?=|[\"']\s{{0,4}}:\s{{0,4}}[\"']))(?!{_QUANTITY}))"
)
_OPTION = r"--?[a-z-]{0,40}(?:password|passphrase|token|secret|api-key|access-key|credentials?)"
_VALUE = r"""(?!["']?\[redacted\])(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|["']?(?:(?!\\[nr])[^\s"'])+)"""
_LOGIN = "|".join(map(re.escape, WORDS["login -p"]))
# Output of ssh after its own prompt.
_NOT_SSH_OUTPUT = "(?!Permission denied|Connection (?:closed|reset|refused|timed)|Received disconnect)"
# A lowercase word that is a value: it is longer than the words of sentences, or another option follows.
_PLAIN_WORD = (
    r"(?=[a-z]{15}|(?!(?:after|before|excludes|given|implies|means|needs|overrides|requires|using|without)[ \t])"
    r"[a-z]{5,}[ \t]{1,4}--?[a-z])"
)
# A text in JSON, and a line of source in a traceback, has line ends as two characters. A colour may end in a letter.
_ESCAPED = r"(?<=\\[nrt])|(?<=\[\dm)|(?<=\[\d\dm)|(?<=\[\d;\d\dm)|(?<=\[\d\d;\dm)"
# A token begins at a word's edge. Before it may stand an escape of a URL.
_EDGE = rf"(?:(?<![A-Za-z0-9])|(?<=%[0-9A-Fa-f]{{2}})|{_ESCAPED})"
_EDGES = (r"(?<!\w)", r"(?<![\w-])", r"(?<![\w.-])")
_AFTER = rf"\1{REDACTED}"


class RedactionRule(NamedTuple):
    """A kind of secret: `replacement` replaces each match of `pattern`.

    `trigger` is in RE2's syntax. It matches every text that the pattern matches, as a cheap first search.
    """

    trigger: str
    pattern: re.Pattern[str]
    replacement: str | Callable[[re.Match[str]], str] = REDACTED


@lru_cache(maxsize=1024)
def is_secret_option(word: str) -> bool:
    """Return whether a word of a command line is an option with a secret value."""
    return SECRET_OPTION.fullmatch(word) is not None


def _redact_if_secret_name(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}{REDACTED}" if is_secret_name(found[1]) else found[0]


def _token_rule(trigger: str, pattern: str) -> RedactionRule:
    return RedactionRule(trigger, lazy(_EDGE + pattern))


def _pattern_rule(
    trigger: str, pattern: str, replacement: str | Callable[[re.Match[str]], str] = REDACTED
) -> RedactionRule:
    for edge in _EDGES:
        pattern = pattern.replace(edge, rf"(?:{edge}|{_ESCAPED})")
    return RedactionRule(trigger, lazy(pattern), replacement)


def _prefix_rule(trigger: str, pattern: str) -> RedactionRule:
    return _pattern_rule(trigger, pattern, _AFTER)


SECRET_OPTION = lazy(_OPTION)
BEGINNING = lazy(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
ENDING = lazy(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
KEY_TRIGGER = r"PRIVATE KEY(?: BLOCK)?-----"

RULES = (
    _token_rule("AKIA|ASIA|ABIA|ACCA", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _token_rule("gh[pousr]_[A-Za-z0-9]|github_pat_", r"(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,})"),
    _token_rule(
        "gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat)-",
        r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat)-[\w.-]{16,}",
    ),
    _token_rule("hf_[A-Za-z0-9]|api_org_", r"(?:hf|api_org)_[A-Za-z0-9]{20,}"),
    _token_rule("xox[a-z]-|xapp-", r"(?:xox[a-z]|xapp)-[A-Za-z0-9-]{10,}"),
    _pattern_rule(r"hooks\.slack\.com", r"(?<=hooks\.slack\.com/services/)[\w/]+"),
    _token_rule("AIza|sk-|pypi-AgE", r"(?:AIza[\w-]{35}|sk-(?:[a-z0-9]{2,8}-){0,3}\w{20,}|pypi-AgE[\w-]{20,})"),
    _token_rule("npm_|dckr_pat_", r"(?:npm_[A-Za-z0-9]{36}|dckr_pat_[\w-]{20,})"),
    _token_rule("_live_|_test_", r"(?:sk|rk|pk)_(?:live|test)_\w{16,}"),
    _token_rule(r"SG\.", r"(?<!\.)SG\.[\w-]{16,64}\.[\w-]{16,}"),
    _pattern_rule("key-[0-9a-f]|dapi", r"(?<![\w-])(?:key-|dapi)[0-9a-f]{32}(?!\w)"),
    _token_rule("do[oprt]_v1_", r"do[oprt]_v1_[0-9a-f]{32,}"),
    _token_rule(r"hv[sbr]\.", r"(?<!\.)hv[sbr]\.[\w-]{20,}"),
    _token_rule(r"\.atlasv1\.", r"\w{10,20}\.atlasv1\.[\w-]{20,}"),
    _pattern_rule("/api/webhooks/", r"(?<=/api/webhooks/)[\w/-]+"),
    _pattern_rule(":AA", r"(?<!\w)\d{8,10}:AA[\w-]{30,}"),
    _token_rule(r"ya29\.|rubygems_|lin_api_|glsa_", r"(?:ya29\.|rubygems_|lin_api_|glsa_)[\w-]{20,}"),
    _token_rule("shp(?:at|ca|pa|ss)_", r"shp(?:at|ca|pa|ss)_[0-9a-f]{32}"),
    _token_rule("nvapi-|NRAK-", r"(?:nvapi-|NRAK-)[\w-]{20,}"),
    _pattern_rule("AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[0-9A-Z]{20,}"),
    _pattern_rule("MUNGE:", r"(?<=MUNGE:)[\w+/=]{10,}"),
    _pattern_rule("eyJ", r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
    _pattern_rule(r"://[^\s/:@'\"]*:[^\s/'\"]*@", r"(?<=://)([^\s/:@'\"]*:)[^\s/'\"]*@", f"{_AFTER}@"),
    # A token in place of a user: the name of a user is short, or has no digit.
    _prefix_rule(
        "https?://[A-Za-z0-9_.~%+-]{12,}@",
        r"(https?://)(?=[A-Za-z_.~%+-]{0,60}\d|[A-Za-z0-9_.~%+-]{20})[A-Za-z0-9_.~%+-]{12,}(?=@)",
    ),
    _prefix_rule(
        r"(?i:authorization|(?:private|job)-token|x-[a-z-]*(?:token|key|secret)|cookie)[\"']?\s*[:=]",
        rf"((?<![\w-])(?i:{_HEADER})[\"']?\s{{0,4}}[:=]\s{{0,4}}[\"']?)[^\r\n\"']+",
    ),
    _prefix_rule(
        "(?i:cookie)[\"']?\\s*[:=]",
        r"((?<![\w-])(?i:cookie)[\"']?\s{0,4}[:=]\s{0,4}[\"']?)"
        r"(?!\[redacted\]|0x[0-9a-fA-F]{1,16}(?!\w))[^\s\"']+",
    ),
    _prefix_rule("[Bb]earer", r"((?<![\w-])[Bb]earer\s{1,4})[\w.~+/=-]{12,}"),
    _prefix_rule(r"login\s", r"((?<!\w)login\s{1,8}\S{1,200}\s{1,8}password\s{1,8})\S+"),
    _prefix_rule(
        "(?:password|bindpw)[ \t]",
        r"(?m)(^(?:E|>|\[\S{1,60})?[ \t]{0,80}(?:password|bindpw)[ \t]{1,8})[^\s:=]+(?=[ \t]*$)",
    ),
    _prefix_rule(
        r"\"(?:auth|identitytoken|registrytoken)\"",
        r"(\"(?:auth|identitytoken|registrytoken)\"\s{0,4}:\s{0,4}\")[^\"\n]+",
    ),
    _prefix_rule('"private_key', r"(\"private_key(?:_id)?\"\s{0,4}:\s{0,4}\")[^\"\n]+"),
    _prefix_rule(
        "client-key-data:|token:",
        r"((?<![\w.-])(?<!before )(?<!near )(?<!at )(?<!unexpected )(?:client-key-data|token):\s{1,4})[\w.~+/=-]{16,}",
    ),
    _prefix_rule("sshpass", r"((?<!\w)sshpass\s{1,4}-p\s{0,4})\S+"),
    _prefix_rule("curl", r"((?<!\w)curl(?!\w)[^\n]{0,200}?\s(?:-u|--user)[ =]{0,4}[^\s:]{1,100}:)\S+"),
    _prefix_rule("ipmitool", r"((?<!\w)ipmitool[^\n]{0,200}?\s-P\s{0,4})\S+"),
    _prefix_rule("redis-cli", r"((?<!\w)redis-cli[^\n]{0,200}?\s-a\s{0,4})\S+"),
    _prefix_rule(rf"(?:{_LOGIN})\s", rf"((?<!\w)(?:{_LOGIN})\s{{1,4}}login\s[^\n]{{0,200}}?-p\s{{0,4}})\S+"),
    _prefix_rule("mysql", r"((?<!\w)mysql(?:dump|admin)?\s(?:[^\n]{0,200}?\s)?-p)(?=\S)\S+"),
    _prefix_rule("wandb", r"((?<!\w)wandb\s{1,4}login\s[^\n]{0,100}?)[0-9a-f]{32,}"),
    _prefix_rule(
        "[?&](?i:[a-z0-9_-]*(?:key|token|signature|sig))=",
        r"([?&](?i:[\w-]{0,40}(?:key|token|signature|sig))=)[^\s&\"']+",
    ),
    # The value of an option follows it, unless it is part of a sentence in plain words.
    _prefix_rule(
        r"-(?:password|passphrase|token|secret|api-key|access-key|credentials?)\s",
        rf"((?<![\w-]){_OPTION}[ \t]{{1,4}})(?!\[redacted\]|-)(?:(?=[^\s]*[^a-z\s.,:;()'\"-])|{_PLAIN_WORD})\S+",
    ),
    _pattern_rule(
        rf"{_VARIABLE_TRIGGER}(?:=|[\"']\s*:)",
        rf"(?<!\w)({_VARIABLE})(=|[\"']\s{{0,4}}:\s{{0,4}}(?=[\"'])){_VALUE}",
        _redact_if_secret_name,
    ),
    _prefix_rule(
        r"(?i:passw(?:or)?d|passphrase|secret|credentials?|creds|pw|(?:api|access|private|auth|account|secret)[_-]?key"
        r"|token)[\"']?\s*[:=]",
        rf"((?<![\w.-])(?i:{_SETTING})[\"']?\s{{0,4}}[:=]\s{{0,4}}){_NOT_SSH_OUTPUT}{_VALUE}",
    ),
)
