"""Origin and content of a log line: launchers and log collectors prefix it with rank, host and time."""

from __future__ import annotations

import re

from pytest_hetgpu.extensions.signatures.base import LogLine
from pytest_hetgpu.model.lazy_regex import lazy

_LONGEST = 1 << 16
_MOST_PREFIXES = 4

# CSI, OSC and APC sequences and changes of the character set (ECMA-48), and their remains in a pager's output.
_ESCAPES = lazy(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b(?:[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\([0-9A-B]|[@-Z\\-_])")
_CONTROLS = lazy(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

# pdsh and clush: a name and a colon are too common in programs' own words to be taken without more.
_PDSH = (
    r"(?!\w*(?:Error|Exception|Warning|Interrupt|Exit|Timeout)\b)(?P<host>[A-Za-z][\w.-]*): "
    r"(?=\[(?:\d{4}-\d\d-\d\d |rank\d|default\d|[\w.-]+:\d)"
    r"|Traceback \(|\s+File \"|\s{4,}\S|\d{4}-\d\d-\d\d |[WEIF]\d{4} )"
)

# By the kind of character that a prefix begins with, so that few are tried on a line.
_FORMS = {
    "digit": (
        # kubectl logs --timestamps, GitHub Actions, CRI-O's and containerd's own files
        r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)) (?:std(?:out|err) [FP] )?",
        # tqdm's bar, if another process writes into its line
        r" {0,3}\d{1,3}%\|[^|]{0,200}\| *\d+/\d+ \[[^\[\]]{0,60}\](?=\S)",
        # srun --label and flux run --label-io
        r" {0,6}(?P<rank>\d{1,7}):(?!\d\d:\d\d) ?(?=\S|\s*$| )",
    ),
    "bracket": (
        # mpirun --tag-output of Open MPI 4 and 5
        r"\[(?:[\w.-]+@)?\d+,(?P<rank>\d{1,7})\]\S{0,80}<std(?:out|err|diag)>: ?",
        # mpiexec -prepend-rank of Hydra and Intel MPI
        r"\[(?P<rank>\d{1,7})\] (?!\S+(?:\(|\[0x))",
        # torch.distributed: its own logging's prefix, and torchrun --tee with or without its log-line prefix template
        r"\[rank(?P<rank>\d{1,7})\]:(?: |(?=\[[A-Z]\d{4} ))?",
        r"\[(?:default|trainer|worker)\d+\]: ?",
        # kubectl logs --prefix
        r"\[pod/(?P<host>[\w.-]+)/[\w.-]+\] ",
    ),
    "letter": (
        # docker compose
        r"(?P<host>[\w.-]+) +\| ",
        # mpirun --timestamp-output of Open MPI
        r"\w{3} \w{3} [ \d]\d [\d:]{8} \d{4}(?=\[[^\[\]]{1,80}\]\S{0,80}<std)",
        _PDSH,
    ),
    # Ray
    "parenthesis": (r"\(\w*[Ww]orker\w* pid=\d+(?:, ip=(?P<host>[\d.:a-f]+))?\) ",),
}
# The host, rank and time of an envelope's field, before each line of its message (`envelopes`).
_ENVELOPE = re.compile("\x1e([^\x1e\x1f]*)\x1f([0-9]{0,7})\x1f([^\x1e\x1f]*)\x1e")
FACTS = re.compile("[\x1e\x1f\r\n]")
"""Characters that a fact of an envelope must not hold."""
_PREFIXES = {kind: tuple(map(lazy, forms)) for kind, forms in _FORMS.items()}
_KINDS = {"[": "bracket", "(": "parenthesis", " ": "digit"}


def parse_line(raw: bytes | str, number: int, learned: re.Pattern[str] | None = None) -> LogLine:
    """Return the line without its prefixes: that learned from the log, and known ones.

    Never raises, whatever the bytes are.
    """
    whole = raw.decode(errors="replace") if isinstance(raw, bytes) else raw
    whole = whole[:_LONGEST].replace("\0", "").rstrip("\r\n")
    rank, host, time = None, None, None
    text = whole.rpartition("\r")[2]
    if text.startswith("\x1e") and (facts := _ENVELOPE.match(text)):
        host, rank, time = facts[1] or None, int(facts[2]) if facts[2] else None, facts[3] or None
        whole = text = text[facts.end() :]
    if not text.isprintable():
        text = strip_controls(text)
    for _ in range(_MOST_PREFIXES):
        found = learned.match(text) if learned else None
        if found and found.end():
            learned = None
        else:
            found = known_prefix(text)
        if found is None or not found.end():
            break
        groups = found.groupdict()
        rank = int(groups["rank"]) if groups.get("rank") else rank
        host = groups.get("host") or host
        time = time or groups.get("time")
        text = text[found.end() :]
    return LogLine(text, number, rank, host, whole, time)


def without_facts(text: str) -> str:
    """Return a line of an envelope's message without the facts before it."""
    return _ENVELOPE.sub("", text) if "\x1e" in text else text


def strip_controls(text: str) -> str:
    """Return a text without escape sequences and control characters."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def known_prefix(text: str) -> re.Match[str] | None:
    """Return the match of a known prefix at the start of a text, None without one."""
    first = text[:1]
    kind = _KINDS.get(first) or ("digit" if first.isdigit() else "letter")
    for pattern in _PREFIXES[kind]:
        found = pattern.match(text)
        if found:
            return found
    return None
