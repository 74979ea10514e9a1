"""Errors of the Open MPI launchers: no start, a lost daemon, a stopped job; mpirun of 4.x, prterun of 5.x.

Recognised by the first lines of orte's and PRRTE's help-*.txt, which name the file in the comments below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_hetgpu.extensions.signatures._messages.launch import DAEMONS, FILES, MAPPING, OPTIONS
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority, slug, token
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.verdict import Kind

_LAUNCH = Kind.LAUNCH_FAILURE
_NETWORK = Kind.NETWORK_FAILURE
_LONGEST_HOST = 100
# Release 5 names an option, release 4 its purpose.
_POLICIES = {"mapby": "mapping", "bindto": "binding", "rankby": "ranking"}
_NO_REPORT, _REMOTE = "A daemon failed to report back after being spawned", "  Remote host: "
_START = "unable to launch the specified application"


def _all(texts: tuple[str, ...]) -> tuple[MatchRule, ...]:
    """Return one rule per text that occurs in one line only and names itself."""
    return tuple(MatchRule(text, _LAUNCH, "{trigger}@mpirun") for text in texts)


_PLACES: tuple[MatchRule, ...] = (
    MatchRule(
        "There are not enough ",
        _LAUNCH,
        "no-{what}@mpirun",
        pattern=r"There are (?P<detail>not enough (?P<what>slots|nodes|resources)) (?:available|in your|on the)",
    ),
    MatchRule(
        "of the requested hosts ",
        _LAUNCH,
        "no-host@mpirun",
        pattern=r"requested hosts (?:are|is) not included in the current",
        then=r"requested host: +(?P<host>[\w.-]+)",
        within=6,
    ),
    MatchRule(
        " is not recognized:",
        _LAUNCH,
        "bad-{what}@mpirun",
        pattern=r"The specified (?P<what>\S+)(?: \w+)? (?:policy|directive) is not recognized",
        then=r"^\s+(?P<detail>(?:Policy|Directive): +\S+)",
        within=5,
    ),
    MatchRule(
        "A request was made to bind", _LAUNCH, "overload@mpirun", pattern="that would (?:result in binding|require)"
    ),
    MatchRule(
        "A request was made to bind", _LAUNCH, "no-binding@mpirun", pattern=r"^A request was made to bind (?:to|a) "
    ),
    MatchRule("we found no available cpus on", _LAUNCH, "no-cpus@mpirun", then=r"Node: +(?P<host>[\w.-]+)", within=4),
    MatchRule("Open MPI tried to bind a new process, but", _LAUNCH, "no-binding@mpirun"),
    MatchRule("Open MPI tried to bind memory for a new process but", _LAUNCH, "no-binding@mpirun"),
    MatchRule(
        "detected a bad parameter in the hostfile",
        _LAUNCH,
        "bad-hostfile@mpirun",
        then=r"^(?P<detail>The \w+ parameter is less than .*)",
        within=4,
        quote_then=True,
    ),
    MatchRule(
        "detected a parse error in the hostfile",
        _LAUNCH,
        "bad-hostfile@mpirun",
        then=r"^(?P<detail>It occured on line number .*)",
        within=4,
        quote_then=True,
    ),
    MatchRule(
        "Error: ", _LAUNCH, "bad-option@mpirun", pattern=r'Error: (?P<detail>unknown option "|option ".* did not have)'
    ),
    MatchRule(
        "An unrecognized option was included on the",
        _LAUNCH,
        "bad-option@mpirun",
        then=r"^\s+(?P<detail>Option: +\S+)",
        within=5,
    ),
    MatchRule(
        " directive contains an unrecognized qualifier",
        _LAUNCH,
        "bad-{what}@mpirun",
        pattern=r"The (?P<what>\S+) directive contains",
        then=r"^\s+(?P<detail>Qualifier: +\S+)",
        within=4,
    ),
    MatchRule(
        "request contains", _LAUNCH, "bad-{what}@mpirun", pattern=r"The (?P<what>mapping|binding) request contains"
    ),
    # Release 4 goes on without the file.
    MatchRule("Unable to locate the variable file", _LAUNCH, "no-file@mpirun", fatal=False),
    *_all((*MAPPING, *FILES, *OPTIONS)),
)

_PROGRAMS: tuple[MatchRule, ...] = (
    MatchRule(
        "unable to find the specified executable",
        _LAUNCH,
        "no-program@{program}",
        then=r"^\s*Executable: +(?P<detail>(?P<program>\S+))",
        within=14,
        quote_then=True,
    ),
    MatchRule(
        _START,
        _LAUNCH,
        "no-program@{program}",
        then=(
            r"^\s*Executable: +(?P<detail>(?P<program>\S+))|^\s*Working directory: +(?P<folder>\S+)|"
            r"^\s*Error: +(?P<reason>\S.*?)\s*$"
        ),
        quote_then=True,
    ),
    MatchRule(
        'via the "execve" system call but',
        _LAUNCH,
        "exec@{detail}",
        then=r"^\s+Error:\s+(?P<detail>\S.*?)\s*$",
        within=14,
        quote_then=True,
    ),
    MatchRule(
        "unable to start the specified application as it",
        _LAUNCH,
        "failed-to-start@mpirun",
        Priority.RELAYED,
        then=r"^\s*Error name: +(?P<detail>(?!\(null\))\S.*?)\s*$",
        within=6,
    ),
    MatchRule("unable to start the specified application.  An", _LAUNCH, "failed-to-start@mpirun", Priority.RELAYED),
    MatchRule(
        "total processes failed to start",
        _LAUNCH,
        "failed-to-start@mpirun",
        Priority.UNSPECIFIC,
        r"^(?P<detail>\d+ total processes failed to start)",
    ),
)

_DVM: tuple[MatchRule, ...] = (
    MatchRule(
        "has detected an attempt to run as root",
        _LAUNCH,
        "run-as-root@mpirun",
        detail="refuses to run as root: set OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
    ),
    # plm_ssh_module.c of PRRTE, help-errmgr-base.txt, help-plm-base.txt
    MatchRule(
        _NO_REPORT,
        _LAUNCH,
        "no-daemon@mpirun",
        Priority.RELAYED,
        then=r"(?P<detail>Daemon exit status: +(?P<status>\d+))",
        within=14,
    ),
    # Its row before that; nothing of itself.
    MatchRule(_REMOTE),
    MatchRule("unable to reliably start one or more daemons", _LAUNCH, "no-daemon@mpirun", Priority.RELAYED),
    MatchRule("daemon has unexpectedly failed after launch and before", _LAUNCH, "no-daemon@mpirun", Priority.RELAYED),
    MatchRule(
        "A daemon died unexpectedly ",
        _LAUNCH,
        "no-daemon@mpirun",
        Priority.RELAYED,
        r"A daemon died unexpectedly (?P<detail>(?:with status|on signal) \d+)",
    ),
    MatchRule('was not able to find the executable "orted"', _LAUNCH, "no-program@orted"),
    MatchRule("The singleton application was not able to find an executable", _LAUNCH, "no-program@prte"),
    MatchRule(
        '_agent" was set to a path',
        _LAUNCH,
        "no-program@{program}",
        then=r"^\s*plm_[rs]sh_agent: +(?P<detail>(?P<program>\S+))",
        within=5,
    ),
    MatchRule(
        "plm:",
        _LAUNCH,
        "no-program@{program}",
        pattern=r"plm:[rs]sh: execv of (?P<program>\S+) failed with errno=(?P<detail>[^()]+)",
    ),
    MatchRule(
        "appears to have been direct launched using",
        _LAUNCH,
        "no-pmi@{launcher}",
        pattern=r'direct launched using "(?P<launcher>\w+)"',
        detail="Open MPI was built without what this launcher speaks",
    ),
    MatchRule(
        "detected a mismatch in versions between two processes",
        _LAUNCH,
        "version-mismatch@openmpi",
        then=r"(?P<detail>Peer Open MPI version: +\S+)",
        within=20,
    ),
    MatchRule(
        "received different version from",
        _LAUNCH,
        "version-mismatch@openmpi",
        pattern=r"(?P<detail>received different version from .*)",
    ),
    MatchRule(
        "has lost communication with a remote daemon",
        _NETWORK,
        "lost@daemon",
        Priority.RELAYED,
        then=r"Remote daemon: .* on node (?P<host>[\w.-]+)",
        within=5,
    ),
    # A dead node takes its daemon along; the message about the node is more specific.
    *(
        MatchRule(text, _NETWORK, "lost@daemon", Priority.RELAYED, then=r"Node: +(?P<host>[\w.-]+)")
        for text in (
            "has detected that a required daemon terminated during execution",
            "A critical communication path was lost to",
            "failed to receive scheduled heartbeat",
        )
    ),
    MatchRule(
        "is unable to establish a communication connection to the",
        _LAUNCH,
        "no-connection@daemon",
        Priority.RELAYED,
        then=r"target node: +(?P<host>[\w.-]+)",
    ),
    MatchRule(
        "tcp_peer_send_connect_ack to proc",
        _NETWORK,
        "no-connection@daemon",
        Priority.SYMPTOM,
        r"tcp_peer_send_connect_ack to proc .* failed: (?P<detail>.*)",
    ),
    MatchRule(
        "does not know how to route a message to the specified daemon", _LAUNCH, "no-route@daemon", Priority.SYMPTOM
    ),
    MatchRule("An attempt was made to send a message to a process whose", _LAUNCH, "no-route@daemon", Priority.SYMPTOM),
    *_all(DAEMONS),
)

_STOPPED: tuple[MatchRule, ...] = (
    # help-orterun.txt, help-prun.txt
    MatchRule(
        "time limit for job execution has been reached",
        Kind.TIMEOUT,
        "time-limit@mpirun",
        Priority.LIMIT,
        then=r"Timeout: +(?P<detail>\d+ seconds)",
        within=4,
    ),
    # orte/mca/ess/hnp/ess_hnp_module.c, src/tools/prte/prte.c: a signal stopped the launcher, from a user or a limit
    MatchRule(
        "Abort is in progress...hit ctrl-c again",
        Kind.TIMEOUT,
        "interrupted@mpirun",
        Priority.LIMIT,
        detail="stopped from outside",
    ),
    MatchRule(
        "abort is already in progress...hit ctrl-c again",
        Kind.TIMEOUT,
        "interrupted@mpirun",
        Priority.LIMIT,
        detail="stopped from outside",
    ),
)


class OpenMpiLaunch(RuleParser):
    """The launchers' last words, before any rank ran or while ranks ran."""

    rules = (*_PROGRAMS, *_DVM, *_STOPPED, *_PLACES)

    def __init__(self) -> None:
        super().__init__()
        self._remote = ""

    def feed(self, line: LogLine) -> None:
        if _REMOTE in line.text:
            self._remote = line.text.rpartition(": ")[2].strip()[:_LONGEST_HOST]
        super().feed(line)

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        if "what" in groups:
            groups = {**groups, "what": _POLICIES.get(groups["what"], groups["what"])}
        match = super().build_match(rule, groups, line)
        if rule.trigger == _NO_REPORT:
            return _no_report(match, groups.get("status"), self._remote)
        if rule.trigger == _START and "folder" in groups:
            return _told(match, f"no-directory@{token(groups['folder'])}", groups["folder"])
        if rule.trigger == _START and "reason" in groups:
            return _told(match, f"{slug(groups['reason'])}@mpirun", groups["reason"])
        return match


def _no_report(match: FailureMatch, status: str | None, host: str) -> FailureMatch:
    """Return a daemon without report: only the exit code of the ssh client distinguishes a failed start from a loss.

    255 is a failed connection, which ssh has then reported, or one that broke silently. A daemon that could not start
    exits with another code.
    """
    signature = replace(match.signature, hosts=(host,) if host else match.signature.hosts)
    if status == "255":
        signature = replace(signature, kind=_NETWORK, key="lost@daemon")
    return replace(match, signature=signature)


def _told(match: FailureMatch, key: str, detail: str) -> FailureMatch:
    return replace(match, signature=replace(match.signature, key=key, detail=detail))
