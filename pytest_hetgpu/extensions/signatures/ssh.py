"""ssh and its kin: hosts that a launcher could not reach, or that it lost."""

from __future__ import annotations

from pytest_hetgpu.extensions.signatures.base import Priority
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.verdict import Kind

_LAUNCH = Kind.LAUNCH_FAILURE
_HOST = r"(?P<host>[\w.-]+|\[?[\da-f:]+\]?)"
# `user@host port 22`, as ssherr's callers name the other side
_REMOTE = rf"(?:[\w.-]+@|invalid user \S+ |authenticating user \S+ )?{_HOST}(?: port \d+)?"
_CONNECT = "ssh: connect to host"
_KEX = "_exchange_identification: "


class Ssh(RuleParser):
    """OpenSSH's client: ssh.c, sshconnect.c, sshconnect2.c, packet.c, kex.c, clientloop.c, readconf.c, ssherr.c."""

    rules = (
        MatchRule(
            "Could not resolve hostname",
            _LAUNCH,
            "no-host@ssh",
            pattern=r"ssh: (?P<detail>Could not resolve hostname (?P<host>[\w.-]+).*)",
        ),
        MatchRule(
            _CONNECT,
            _LAUNCH,
            "{reason}@ssh",
            pattern=rf"ssh: connect to host (?P<detail>{_HOST} port \d+: (?P<reason>\S.*?)\s*$)",
        ),
        # sshconnect.c
        MatchRule(
            " host key is known for ",
            _LAUNCH,
            "host-key@ssh",
            pattern=rf"No \S+ host key is known for {_HOST} and you have requested strict",
            then=r"(?P<detail>Host key verification failed)",
            within=3,
            quote_then=True,
        ),
        MatchRule(
            "WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!",
            _LAUNCH,
            "host-key-changed@ssh",
            then=rf"Host key for {_HOST} has changed",
            within=20,
        ),
        MatchRule("WARNING: REVOKED HOST KEY DETECTED!", _LAUNCH, "host-key-revoked@ssh"),
        MatchRule("Host key verification failed", _LAUNCH, "host-key@ssh"),
        # sshconnect2.c; without methods in brackets it only asks again
        MatchRule(
            "Permission denied (",
            _LAUNCH,
            "permission-denied@ssh",
            pattern=rf"(?:^|[\s@]){_HOST}: (?P<detail>Permission denied \([\w,-]+\))",
        ),
        MatchRule(
            "Permission denied (",
            _LAUNCH,
            "permission-denied@ssh",
            pattern=r"(?P<detail>Permission denied \((?:publickey|password|keyboard|hostbased|gssapi)[\w,-]*\))",
        ),
        MatchRule(
            "Too many authentication failures",
            _LAUNCH,
            "too-many-keys@ssh",
            pattern=rf"(?:from {_REMOTE}:\d+: )?(?P<detail>Too many authentication failures)",
        ),
        # kex.c, packet.c: sshpkt_fatal
        MatchRule(
            "Unable to negotiate with", _LAUNCH, "{reason}@ssh", pattern=rf"with {_REMOTE}: (?P<reason>no [\w ]+)"
        ),
        MatchRule(
            _KEX,
            _LAUNCH,
            "closed-by-host@ssh",
            pattern=rf"(?:kex|ssh){_KEX}(?P<detail>(?:read: )?Connection (?:closed|reset) by .*)",
        ),
        MatchRule(_KEX, _LAUNCH, "banner@ssh", pattern=rf"(?:kex|ssh){_KEX}(?P<detail>.*)"),
        MatchRule(
            "banner exchange: ",
            _LAUNCH,
            "banner@ssh",
            pattern=rf"(?P<detail>banner exchange: Connection to {_REMOTE}: .*)",
        ),
        MatchRule(
            "Connection timed out during banner exchange",
            _LAUNCH,
            "banner@ssh",
            detail="timed out during banner exchange",
        ),
        MatchRule(
            "Connection to ",
            _LAUNCH,
            "Connection-timed-out@ssh",
            pattern=rf"^Connection to {_REMOTE} (?P<detail>timed out)\s*$",
        ),
        MatchRule(
            "Connection ",
            _LAUNCH,
            "closed-by-host@ssh",
            pattern=rf"^Connection (?P<detail>(?:closed|reset)) by {_REMOTE}(?<=\d)\s*$",
        ),
        # clientloop.c: an open connection is gone
        MatchRule(
            "Timeout, server ",
            Kind.NETWORK_FAILURE,
            "lost@ssh",
            pattern=rf"(?P<detail>Timeout, server {_HOST} not responding)",
        ),
        MatchRule(
            "client_loop: send disconnect: ",
            Kind.NETWORK_FAILURE,
            "lost@ssh",
            Priority.SYMPTOM,
            r"send disconnect: (?P<detail>.*)",
        ),
        MatchRule(
            "closed by remote host.",
            Kind.NETWORK_FAILURE,
            "lost@ssh",
            Priority.SYMPTOM,
            rf"^Connection to {_HOST} (?P<detail>closed by remote host)",
        ),
        # readconf.c, authfile.c, ssh.c
        MatchRule(
            "Bad configuration option: ",
            _LAUNCH,
            "bad-option@ssh",
            pattern=r"line \d+: (?P<detail>Bad configuration option: .*)",
        ),
        MatchRule(
            "bad configuration option",
            _LAUNCH,
            "bad-option@ssh",
            pattern=r"(?P<detail>terminating, \d+ bad configuration options)",
        ),
        MatchRule(
            "Bad owner or permissions on ", _LAUNCH, "bad-permissions@ssh", pattern=r"^(?P<detail>Bad owner or .*)"
        ),
        MatchRule(
            "WARNING: UNPROTECTED PRIVATE KEY FILE!",
            _LAUNCH,
            "key-permissions@ssh",
            Priority.RELAYED,
            then=r"^(?P<detail>Permissions \d+ for .* are too open)",
            within=3,
        ),
        MatchRule(
            'Load key "',
            _LAUNCH,
            "bad-key@ssh",
            Priority.RELAYED,
            r'^(?P<detail>Load key ".*": (?!No such file).*)',
            fatal=False,
        ),
        MatchRule(
            "Can't open user config file", _LAUNCH, "no-config@ssh", pattern=r"^(?P<detail>Can't open user config.*)"
        ),
        # pdsh and the old rsh: pdsh/rcmd.c, rcmd(3)
        MatchRule(
            "rcmd: ",
            _LAUNCH,
            "{reason}@rsh",
            pattern=rf"rcmd: (?:{_HOST}: )?(?P<detail>(?P<reason>[A-Z][a-z]+(?: [a-z]+){{1,4}}))",
        ),
        MatchRule(
            "ssh exited with exit code 255",
            _LAUNCH,
            "exit-255@pdsh",
            Priority.UNSPECIFIC,
            rf"^pdsh@\S+: {_HOST}: (?P<detail>ssh exited with exit code 255)",
        ),
    )
