"""Errors of Hydra when it cannot start its proxies or has lost them: in MPICH, and in the fork of Intel MPI.

Lines read `[mpiexec@HOST] FUNCTION (FILE:LINE): TEXT` or `[proxy:PG:ID@HOST] ...` (lib/hydra.h, `HYDU_error_printf`).
Each caller adds a line of its own, so that the first of a chain names the reason. MPICH: src/pm/hydra/lib/utils/
launch.c, sock.c and args.c, mpiexec/pmiserv_pmci.c and pmiserv_cb.c, proxy/pmip_cb.c, lib/tools/bootstrap/utils/
bscu_wait.c. Texts of Intel MPI are those in its mpiexec.hydra 2021. MPD is the former process manager of MPICH.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_hetgpu.extensions.signatures._messages.routes import NO_ROUTE
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority
from pytest_hetgpu.extensions.signatures.engine.frames import signal_name
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.verdict import Kind

_LAUNCH = Kind.LAUNCH_FAILURE
_BY = r"\[(?:mpiexec|proxy[:\d]*|bstrap[:\w]*)@(?P<host>[\w-]{1,64})[^\]\s]{0,190}\] "
# The launcher's own host is not the one that failed.
_MPIEXEC = r"\[mpiexec@[\w.-]{1,255}\] "
_WITHIN = r"[^\n]{0,300}?"


class Hydra(RuleParser):
    """Parser of launch errors, time limits and lost proxies."""

    rules = (
        MatchRule(
            "execvp error on file",
            _LAUNCH,
            "no-program@hydra",
            pattern=rf"{_BY}{_WITHIN}(?P<detail>execvp error on file \S{{1,400}} \([^()]{{0,100}}\))",
        ),
        MatchRule(
            "unable to change wdir to",
            _LAUNCH,
            "no-folder@hydra",
            pattern=rf"{_BY}{_WITHIN}(?P<detail>unable to change wdir to .{{1,400}})",
        ),
        MatchRule(
            "unable to open host file",
            _LAUNCH,
            "no-hostfile@hydra",
            pattern=rf"{_BY}{_WITHIN}(?P<detail>unable to open host file.{{0,300}})",
        ),
        MatchRule(
            "unable to find interface",
            _LAUNCH,
            "no-interface@hydra",
            pattern=rf"{_BY}{_WITHIN}(?P<detail>unable to find interface.{{0,100}})",
        ),
        MatchRule(
            "unrecognized argument",
            _LAUNCH,
            "unrecognized-argument@hydra",
            pattern=rf"{_BY}{_WITHIN}(?P<detail>unrecognized argument.{{0,100}})",
        ),
        MatchRule(
            "o executable provided",
            _LAUNCH,
            "no-executable@hydra",
            pattern=rf"{_BY}{_WITHIN}(?P<detail>[Nn]o executable provided)",
        ),
        MatchRule("Missing executable. Try -h", _LAUNCH, "no-executable@hydra", pattern=_BY),
        MatchRule(
            "unable to get host address",
            _LAUNCH,
            "no-host@hydra",
            pattern=rf"{_BY}{_WITHIN}(?P<detail>unable to get host address.{{0,300}})",
        ),
        # The proxies call mpiexec back.
        MatchRule(
            'unable to connect from "',
            _LAUNCH,
            "{reason}@hydra",
            pattern=rf"{_BY}{_WITHIN}(?P<detail>unable to connect from \"[^\"]{{0,255}}\" to \"[^\"]{{0,255}}\" "
            r"\((?P<reason>[^()]{0,100})\))",
        ),
        MatchRule(
            "(check for firewalls!)",
            _LAUNCH,
            "no-connection@hydra",
            Priority.RELAYED,
            pattern=rf"{_BY}{_WITHIN}(?P<detail>unable to connect to server.{{0,300}})",
        ),
        *(
            MatchRule(text, _LAUNCH, f"{key}@hydra", pattern=rf"{_BY}{_WITHIN}(?P<detail>{text}.{{0,200}})")
            for text, key in (
                ("failed to bind to any port", "no-port"),
                ("no port to bind", "no-port"),
                ("error parsing port range", "no-port"),
                ("no appropriate launcher found", "no-launcher"),
                ("unrecognized launcher: ", "no-launcher"),
                ("no such file, or not a regular file", "no-hostfile"),
                ("UI version string does not match proxy version", "versions-differ"),
                ("dangling '%' at end of pattern", "bad-pattern"),
            )
        ),
        MatchRule(
            " error (",
            _LAUNCH,
            "{what}@hydra",
            pattern=rf"{_BY}{_WITHIN}(?P<detail>(?P<what>pipe|dup2|fork|listen) error \([^()]{{0,100}}\))",
        ),
        MatchRule(
            "cannot open socket (",
            _LAUNCH,
            "socket@hydra",
            pattern=rf"{_BY}{_WITHIN}(?P<detail>cannot open socket \([^()]{{0,100}}\))",
        ),
        # The last words of main, whatever it was.
        MatchRule(
            "process manager returned error launching processes",
            _LAUNCH,
            "launch@hydra",
            Priority.SYMPTOM,
            pattern=_MPIEXEC,
        ),
        MatchRule(
            " error parsing parameters", _LAUNCH, "parameters@hydra", Priority.SYMPTOM, pattern=rf"{_MPIEXEC}main "
        ),
        # ssh's own message is next to it.
        MatchRule("Launch proxy failed.", _LAUNCH, "no-proxy@hydra", Priority.RELAYED, pattern=_MPIEXEC),
        MatchRule(
            "Unable to run bstrap_proxy",
            _LAUNCH,
            "no-proxy@hydra",
            Priority.RELAYED,
            pattern=r"\[mpiexec@[\w.-]{1,255}\] Error: (?P<detail>Unable to run bstrap_proxy"
            r"(?: on (?P<host>[\w.-]{1,255}))? \(pid \d{1,10}, exit code -?\d{1,10}\))",
        ),
        MatchRule(
            "Error setting up the bootstrap proxies", _LAUNCH, "no-proxy@hydra", Priority.RELAYED, pattern=_MPIEXEC
        ),
        # Ranks ran, and then a proxy or mpiexec was gone. Only other lines can hold the cause.
        MatchRule(
            "one of the processes terminated badly; aborting",
            Kind.ERROR,
            "terminated-badly@hydra",
            Priority.CONSEQUENCE,
            pattern=_MPIEXEC,
        ),
        MatchRule(
            "assert (!closed) failed",
            Kind.NETWORK_FAILURE,
            "lost-proxy@hydra",
            Priority.UNSPECIFIC,
            pattern=rf"{_MPIEXEC}(?:\w{{1,99}} \([^()\s]{{0,300}}\): )?(?P<detail>assert \(!closed\) failed)",
        ),
        MatchRule(
            "assert (!closed) failed",
            Kind.NETWORK_FAILURE,
            "lost-mpiexec@hydra",
            Priority.CONSEQUENCE,
            pattern=rf"{_BY}{_WITHIN}(?P<detail>assert \(!closed\) failed)",
        ),
        # The proxy's own socket: its other errors are less specific.
        MatchRule(
            "): read error (",
            Kind.NETWORK_FAILURE,
            "{reason}@hydra",
            Priority.SYMPTOM,
            pattern=rf"{_BY}{_WITHIN}"
            rf"(?P<detail>read error \((?P<reason>{NO_ROUTE}|Software caused connection abort)\))",
        ),
        MatchRule(
            "Error: Downstream from host ",
            Kind.NETWORK_FAILURE,
            "lost-proxy@hydra",
            Priority.UNSPECIFIC,
            pattern=rf"{_MPIEXEC}(?P<detail>Error: Downstream from host (?P<host>[\w.-]{{1,255}}) exited abnormally)",
        ),
        MatchRule(
            "unable to read command from proxy",
            Kind.NETWORK_FAILURE,
            "lost-proxy@hydra",
            Priority.UNSPECIFIC,
            pattern=_MPIEXEC,
        ),
        MatchRule(
            "error reading command from launcher",
            Kind.NETWORK_FAILURE,
            "lost-mpiexec@hydra",
            Priority.CONSEQUENCE,
            pattern=_BY,
        ),
        MatchRule(
            "process reading stdin too slowly",
            Kind.ERROR,
            "stdin-too-slow@hydra",
            pattern=rf"{_BY}{_WITHIN}(?P<detail>process reading stdin too slowly.{{0,60}})",
        ),
        # MPIEXEC_TIMEOUT and -timeout; I_MPI_JOB_TIMEOUT, I_MPI_JOB_STARTUP_TIMEOUT.
        MatchRule(
            "APPLICATION TIMED OUT, TIMEOUT =",
            Kind.TIMEOUT,
            "time-limit@hydra",
            Priority.LIMIT,
            pattern=r"(?P<detail>APPLICATION TIMED OUT, TIMEOUT = \d{1,10}s)",
        ),
        MatchRule(
            "job ending due to application timeout",
            Kind.TIMEOUT,
            "time-limit@hydra",
            Priority.LIMIT,
            pattern=r"(?P<detail>I_MPI_\w{1,60} = \d{1,10} .{0,60}job ending due to application timeout)",
        ),
        MatchRule("job ending due to startup timeout", _LAUNCH, "startup-timeout@hydra"),
        # MPD (mpiexec.py of MPICH2).
        MatchRule(
            "xit status of rank ",
            Kind.CRASH,
            "{signal}",
            Priority.EXIT,
            pattern=r"[Ee]xit status of rank (?P<rank>\d{1,7}): killed by signal (?P<signal>\d{1,3})\b",
        ),
        MatchRule(
            "xit status of rank ",
            Kind.ERROR,
            "exit@{code}",
            Priority.EXIT,
            pattern=r"[Ee]xit status of rank (?P<rank>\d{1,7}): return code (?P<code>[1-9]\d{0,9})\b",
        ),
        # PMI's client (src/pmi/src/pmi_util.c): the launcher went away before it.
        MatchRule(
            "write_line error; fd=",
            Kind.ERROR,
            "lost-launcher@PMI",
            Priority.CONSEQUENCE,
            pattern=r"\[(?:unset|cli_(?P<rank>\d{1,7}))\]: write_line error",
            fatal=False,
        ),
    )

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        if "signal" in groups:
            groups = {**groups, "signal": signal_name(int(groups["signal"]))}
        return super().build_match(rule, groups, line)
