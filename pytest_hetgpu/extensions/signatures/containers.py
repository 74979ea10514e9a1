"""Containers that were not started: docker, podman, Apptainer, Singularity, enroot, pyxis, Shifter, Charliecloud.

The messages come from these sources:

- moby's daemon and docker/cli, runc's libcontainer and crun's src/libcrun, NVIDIA's libnvidia-container (src/cli), and
  podman's libpod.
- Apptainer's and Singularity's sylog (internal/pkg, pkg/image, cmd/starter/c).
- NVIDIA's pyxis (pyxis_slurmstepd.c) and enroot (src/*.sh, bin/*.c).
- NERSC's shifter (src/*.c), and Charliecloud's bin/ch-run.c and ch_misc.c.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority, slug
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.verdict import Kind

_LAUNCH = Kind.LAUNCH_FAILURE
_RELAYED = Priority.RELAYED

# Answers of daemons, OCI runtimes and clients; the first match counts. (trigger, key, pattern)
_ENGINES = (
    ("could not select device driver", "no-gpu@engine", r"(?P<detail>could not select device driver.*)"),
    (
        "nvidia-container-cli: ",
        "{why}@nvidia-container-cli",
        r"nvidia-container-cli: (?P<detail>(?P<why>[^\n]*?))(?::? unknown)?\.?\s*$",
    ),
    ("unresolvable CDI devices", "no-gpu@engine", r"(?P<detail>unresolvable CDI devices.*)"),
    ("Unknown runtime specified", "no-runtime@{name}", r"(?P<detail>[Uu]nknown runtime specified (?P<name>\S+))"),
    (
        "nknown or invalid runtime name",
        "no-runtime@{name}",
        r"(?P<detail>[Uu]nknown or invalid runtime name: (?P<name>\S+))",
    ),
    ("gathering device information", "no-device@{name}", r"custom device \"(?P<name>[^\"]*)\": (?P<detail>.*)"),
    (
        "executable file not found in",
        "no-program@{name}",
        r"exec(?:utable file)?:? [\"`](?P<name>[^\"`]+)[\"`]:? (?P<detail>.*not found in.*)",
    ),
    ("executable file `", "no-program@{name}", r"executable file `(?P<name>[^`]+)` (?P<detail>not found.*)"),
    (
        "unable to start container process: exec: ",
        "no-program@{name}",
        r"exec: \"(?P<name>[^\"]+)\": (?:stat \S+: )?(?P<detail>no such file.*)",
    ),
    (
        "unable to start container process: exec: ",
        "exec@{why}",
        r"exec: \"[^\"]+\": (?:stat \S+: )?(?P<detail>(?P<why>.*?))(?:: unknown)?\s*$",
    ),
    ("exec format error", "exec@Exec-format-error", r"(?:exec |standard_init_linux)(?P<detail>.*exec format error)"),
    ("exec user process caused", "no-program@entrypoint", r"(?P<detail>exec user process caused.*no such file.*)"),
    ("pull access denied for ", "no-image@{name}", r"(?P<detail>pull access denied for (?P<name>[^\s,]+).*)"),
    ("manifest for ", "no-image@{name}", r"manifest for (?P<name>\S+?)(?::[\w.-]+)? (?P<detail>not found.*)"),
    ("manifest unknown", "no-image@registry", r"(?P<detail>manifest unknown.*)"),
    ("No such image: ", "no-image@{name}", r"(?P<detail>No such image: (?P<name>\S+))"),
    ("no matching manifest for ", "no-image@platform", r"(?P<detail>no matching manifest for .*)"),
    ("toomanyrequests: ", "rate-limit@registry", r"(?P<detail>toomanyrequests: .*)"),
    ("unauthorized: ", "unauthorized@registry", r"(?:docker|daemon|rror|podman).*(?P<detail>unauthorized: .*)"),
    ("short-name ", "no-image@{name}", r"(?P<detail>short-name [\"\\]*(?P<name>[\w./-]+)[\"\\]* did not resolve.*)"),
    (
        "initializing source docker://",
        "no-image@{name}",
        r"initializing source docker://(?P<name>[^\s:]+)\S* (?P<detail>.*)",
    ),
    ("port is already allocated", "port-taken@engine", r"(?P<detail>Bind for .* failed: port is already allocated)"),
    ("is already in use by", "name-taken@engine", r"(?P<detail>container name .* is already in use by.*)"),
    ("bind source path does not exist", "no-mount@engine", r"(?P<detail>bind source path does not exist.*)"),
    ("unable to find user ", "no-user@{name}", r"(?P<detail>unable to find user (?P<name>\S+):.*)"),
    ("Error response from daemon: ", "no-space@engine", r"daemon: (?P<detail>.*[Nn]o space left on device.*)"),
    ("docker: failed to register layer", "no-space@engine", r"(?P<detail>failed to register layer.*no space left.*)"),
    (
        "OCI runtime",
        "{why}@oci-runtime",
        r"OCI runtime (?:create failed|exec failed|error|start failed): (?P<detail>(?P<why>.*\S))",
    ),
    (
        "docker.sock",
        "permission-denied@docker.sock",
        r"(?P<detail>permission denied while trying to connect to .*docker.*)",
    ),
    ("Cannot connect to the Docker daemon", "no-daemon@docker", r"(?P<detail>Cannot connect to the Docker daemon.*)"),
    ("annot connect to Podman", "no-daemon@podman", r"(?P<detail>[Cc]annot connect to Podman.*)"),
    ("/v2/", "no-registry@engine", r"(?P<detail>Get \"?https?://\S+/v2/.*(?:dial tcp|timeout|EOF|TLS|x509).*)"),
    ("unknown flag: ", "bad-option@client", r"(?P<detail>unknown flag: \S+)"),
    ("unknown shorthand flag: ", "bad-option@client", r"(?P<detail>unknown shorthand flag: .*)"),
    ("docker: Error response from daemon: ", "{why}@docker", r"from daemon: (?P<detail>(?P<why>.*\S))"),
    ("docker: invalid reference format", "bad-image-name@docker", r"docker: (?P<detail>invalid reference format.*)"),
)

# FATAL lines of Apptainer and Singularity, searched after the level; the first match counts.
_FATAL = (
    ("no-image@{name}", r"(?P<detail>could not open image (?P<name>\S+?):? .*)"),
    ("no-image@{name}", r"(?P<detail>[Ii]mage path (?P<name>\S+) doesn't exist.*)"),
    ("no-image@{name}", r"(?P<detail>image (?P<name>\S+) (?:does not exist|not found).*)"),
    ("no-program@{name}", r"(?P<detail>\"(?P<name>[^\"]+)\": executable file not found.*)"),
    ("no-program@{name}", r"(?P<detail>(?:stat|exec|fork/exec) (?P<name>/\S+): no such file or directory)"),
    ("exec@Exec-format-error", r"(?P<detail>exec format error.*)"),
    ("exec@{why}", r"(?P<detail>(?:stat|exec|fork/exec) /\S+: (?P<why>.*\S))"),
    ("architecture@apptainer", r"(?P<detail>image was built for .*|image's architecture .*)"),
    ("no-space@apptainer", r"(?P<detail>no space left on device.*)"),
    ("no-namespace@apptainer", r"(?P<detail>(?:create|creating) (?:user )?namespace.*)"),
    ("no-namespace@apptainer", r"(?P<detail>[Uu]ser namespace.{0,200}(?:required|disabled|needed|not allowed).*)"),
    ("no-fuse@apptainer", r"(?P<detail>(?:squashfuse|fuse-overlayfs|/dev/fuse).*)"),
    (
        "no-mount@{name}",
        r"container creation failed: (?P<detail>mount (?:hook function failure: mount )?(?P<name>/[^\s>-]+).*)",
    ),
    ("container-creation@apptainer", r"container creation failed: (?P<detail>.*)"),
    ("no-image@registry", r"(?P<detail>While (?:pulling|making image).*|Unable to handle \S+ uri: .*)"),
    ("{why}@apptainer", r"(?P<detail>(?P<why>\S.*))"),
)
_DEBUGGED = r"(?:\[U=\d+,P=\d+\] *\S+ +)?"


class Containers(RuleParser):
    """Every one of these ends the command that was to start the container."""

    rules = (
        # sylog pads the level to eight letters; with --debug process and function follow. 2.x printed ERROR and ABORT.
        MatchRule("ABORT  : Retval"),
        *(
            MatchRule(
                words,
                _LAUNCH,
                key,
                pattern=rf"^{words} {{1,4}}(?! ){_DEBUGGED}.*?{pattern}",
            )
            for words in ("FATAL:  ", "FATAL  ", "ERROR  :", "ABORT  :")
            for key, pattern in _FATAL
        ),
        MatchRule(
            ".singularity.d/actions/",
            _LAUNCH,
            "no-program@{name}",
            pattern=r"exec: \d+: exec: (?P<name>\S+): (?P<detail>not found)",
        ),
        MatchRule("No such container", _LAUNCH, "no-container@docker", Priority.SYMPTOM, fatal=False),
        *(MatchRule(trigger, _LAUNCH, key, pattern=pattern) for trigger, key, pattern in _ENGINES),
        MatchRule(
            "docker: ",
            _LAUNCH,
            "{why}@docker",
            pattern=r"^docker: (?P<detail>(?P<why>(?:unknown|invalid|bad|open|conflicting) .*\S))",
        ),
        MatchRule(
            "Error response from daemon: ",
            _LAUNCH,
            "{why}@docker",
            pattern=r"(?P<detail>(?P<why>\S.*\S))",
            fatal=False,
        ),
        MatchRule(
            "crun: ",
            _LAUNCH,
            "{why}@crun",
            pattern=r"^(?:Error: )?(?:OCI runtime error: )?crun: (?P<detail>(?P<why>.*\S))",
        ),
        # pyxis prints enroot's log, and then its own failure that resulted.
        MatchRule("[ERROR] ", _LAUNCH, "{why}@enroot", pattern=r"pyxis: +\[ERROR\] (?P<detail>(?P<why>.*\S))"),
        MatchRule(
            "enroot-",
            _LAUNCH,
            "{why}@enroot",
            pattern=r"(?P<detail>enroot-(?:mount|nsenter|switchroot|aufs2ovlfs|mksquashovlfs): (?P<why>.*\S))",
        ),
        MatchRule("pyxis: printing "),
        MatchRule("pyxis: if the image has an unusual"),
        MatchRule("pyxis: ignoring "),
        MatchRule("pyxis: epilog"),
        *(
            MatchRule(words, _LAUNCH, "{why}@pyxis", _RELAYED, rf"error: (?P<detail>{words}(?P<why>.*\S))")
            for words in (
                "pyxis: child ",
                "pyxis: container start failed",
                "pyxis: failed to ",
                "pyxis: couldn't ",
                "pyxis: a previous",
                "pyxis: container was not",
            )
        ),
        MatchRule("pyxis: ", _LAUNCH, "{why}@pyxis", pattern=r"error: (?P<detail>pyxis: (?P<why>\S.*\S))"),
        # shifter.c, shifter_core.c
        MatchRule(
            "FAILED to ",
            _LAUNCH,
            "no-image@shifter",
            pattern=r"^(?P<detail>FAILED to (?:find requested image|(?:lookup|get) .*image ).*)",
        ),
        MatchRule(
            "FAILED to ",
            _LAUNCH,
            "{why}@shifter",
            pattern=r"^(?P<detail>FAILED to (?P<why>setup .*|mount .*|find real path for volume.*))",
        ),
        MatchRule("BIND MOUNT FAILED from", _LAUNCH, "no-mount@shifter"),
        MatchRule(
            "shifter: ",
            _LAUNCH,
            "no-program@{name}",
            pattern=r"^shifter: (?P<name>\S+): (?P<detail>No such file or directory)",
        ),
        # ch-run
        MatchRule(
            "ch-run[",
            _LAUNCH,
            "no-program@{name}",
            pattern=r"error: can't execve\(2\): (?P<name>\S+): (?P<detail>No such file.*)",
        ),
        MatchRule("ch-run[", _LAUNCH, "{why}@ch-run", pattern=r"ch-run\[\d+\]: error: (?P<detail>(?P<why>.*\S))"),
    )

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        why = slug(groups.get("why", ""))
        return super().build_match(rule, {**groups, "why": why[:1].upper() + why[1:]}, line)
