"""The sshd of the node agent: it accepts the owner of one key on a free port, and forwards nothing.

Python 3.6 or later.
"""

import collections
import os
import pwd
import re
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Callable, Dict, List, Optional, Tuple

Start = Callable[..., "subprocess.Popen[bytes]"]

LISTEN_TIMEOUT = 20.0  # seconds for an sshd to listen
ATTEMPTS = 6
ELSEWHERE = ("/usr/sbin", "/usr/local/sbin", "/sbin", "/usr/bin", "/usr/local/bin")

CONFIG = """\
Port {port}
HostKey "{folder}/host_key"
AuthorizedKeysFile "{folder}/authorized_keys"
# The folder may lie below /tmp, where all may write; nobody else may enter the folder itself.
StrictModes no
{allow}
PermitRootLogin prohibit-password
AuthenticationMethods publickey
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
ChallengeResponseAuthentication no
HostbasedAuthentication no
UsePAM {pam}
DisableForwarding yes
PermitTunnel no
PermitUserRC no
PrintMotd no
PrintLastLog no
PidFile none
UseDNS no
MaxStartups 1024
MaxSessions 1024
LoginGraceTime 60
ClientAliveInterval 30
ClientAliveCountMax 4
LogLevel INFO
{environment}
"""


class AgentError(Exception):
    """An error on this node, with a message for the user."""


def find_program(name: str) -> str:
    """Return the absolute path of an OpenSSH program, which may be outside PATH."""
    path = os.environ.get("PATH", os.defpath)
    found = shutil.which(name, path=os.pathsep.join((path, *ELSEWHERE)))
    if not found:
        package = "openssh-client" if name == "ssh-keygen" else "openssh-server"
        raise AgentError(f"no {name} in PATH, /usr/sbin or /usr/local/sbin: install {package} there or in its image")
    return str(Path(found).absolute())


def make_key(path: str) -> str:
    """Create an ed25519 key pair and return the public key, `ssh-ed25519 AAAA...`."""
    if not Path(path).exists():
        made = subprocess.run(
            [find_program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if made.returncode:
            raise AgentError("ssh-keygen: " + made.stdout.decode(errors="replace").strip())
    return " ".join(Path(path + ".pub").read_text().split()[:2])


def find_account() -> Tuple[str, bool]:
    """Return our user, and whether PAM must decide on it. Raises AgentError if sshd would refuse the account."""
    try:
        user = pwd.getpwuid(os.getuid())
    except KeyError:
        raise AgentError(f"uid {os.getuid()} has no name in /etc/passwd, and sshd lets in none without") from None
    if user.pw_uid and Path("/etc/nologin").exists():
        raise AgentError("sshd lets nobody but root in while there is /etc/nologin")
    shell = user.pw_shell or "/bin/sh"
    if not os.access(shell, os.X_OK) or Path(shell).name in ("nologin", "false"):
        raise AgentError(f"user {user.pw_name} cannot come in by ssh: their shell in /etc/passwd is {shell}")
    password, expires = read_shadow(user.pw_name)
    if 0 <= expires < time.time() // 86400:
        raise AgentError(f"user {user.pw_name} cannot come in by ssh: the account expired (/etc/shadow)")
    if password.startswith("!") and os.getuid() == 0:
        # sshd refuses locked accounts, keys or not, unless PAM decides.
        if not Path("/etc/pam.d/sshd").exists():
            raise AgentError(f"user {user.pw_name} is locked (`!` in /etc/shadow): usermod -p '*' {user.pw_name}")
        return user.pw_name, True
    return user.pw_name, False


def read_shadow(user: str) -> Tuple[str, int]:
    """Return the password field and the last day of an account, as far as readable.

    The day counts from 1970; -1 means none.
    """
    try:
        lines = Path("/etc/shadow").read_text(errors="replace").splitlines()
        fields = next(line.split(":") for line in lines if line.startswith(user + ":"))
        return fields[1], int(fields[7] or -1)
    except (OSError, StopIteration, IndexError, ValueError):
        return "", -1


def free_port() -> int:
    """Return a port that is free on all addresses right now."""
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.bind((address, 0))
                return int(probe.getsockname()[1])
        except OSError:
            continue
    raise AgentError("no port to listen on")


class AgentSshd:
    """A listening sshd; `log` holds the last lines that it printed."""

    def __init__(self, folder: str, start: Start) -> None:
        self.folder = folder
        self.start = start
        self.log: collections.deque[str] = collections.deque(maxlen=200)
        self.process: Optional[subprocess.Popen[bytes]] = None

    def open(self, key: str, environment: Dict[str, str]) -> Dict[str, object]:
        """Start sshd for the owner of `key`; return its port, host key and user."""
        sshd = find_program("sshd")
        user, pam = find_account()
        host_key = make_key(self.folder + "/host_key")
        pairs = [f"{name}={value}" for name, value in sorted(environment.items())]
        for name, value in environment.items():
            if set("\n\0") & set(name + value):
                raise AgentError(f"sshd cannot set {name}: its value holds a line break")
        by_key = False  # an OpenSSH before 7.8 cannot set variables but for a key
        for _ in range(ATTEMPTS):
            port = free_port()
            self.write(key, pairs, by_key, port=port, user=user, pam="yes" if pam else "no")
            complaint = self.listen(sshd)
            if complaint is None:
                return {"port": port, "host_key": host_key, "user": user}
            missing = re.search(r"Missing privilege separation directory: (\S+)", complaint)
            if missing and os.getuid() == 0:
                Path(missing.group(1)).mkdir(0o755, parents=True, exist_ok=True)
            elif "SetEnv" in complaint and not by_key:
                by_key = True
            elif "in use" not in complaint:
                break
        raise AgentError("sshd does not start: " + (complaint or "it printed nothing"))

    def write(self, key: str, pairs: List[str], by_key: bool, user: str, **settings: object) -> None:
        """Write the files of sshd."""
        options = extra = ""
        if pairs and by_key:
            extra = "PermitUserEnvironment yes"
            options = ",".join('environment="{}"'.format(pair.replace('"', '\\"')) for pair in pairs) + " "
        elif pairs:  # one line: of several the first counts
            extra = "SetEnv " + " ".join('"{}"'.format(re.sub(r'(["\\])', r"\\\1", pair)) for pair in pairs)
        # In `NAME@HOST`, sshd takes HOST as the host that the client must come from.
        allow = "" if "@" in user else "AllowUsers " + user
        text = CONFIG.format(folder=self.folder.replace("%", "%%"), environment=extra, allow=allow, **settings)
        for name, content in (("sshd_config", text), ("authorized_keys", options + key + "\n")):
            Path(self.folder, name).write_bytes(content.encode("utf-8", "surrogateescape"))

    def listen(self, sshd: str) -> Optional[str]:
        """Start sshd; return None once it listens, else its error."""
        self.close()
        self.log.clear()
        argv = [sshd, "-D", "-e", "-f", self.folder + "/sshd_config"]
        self.process = process = self.start(
            argv, {}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        decided = threading.Event()
        threading.Thread(target=self.read_output, args=(process, decided), daemon=True).start()
        late = not decided.wait(LISTEN_TIMEOUT)
        if any("Server listening" in line for line in self.log):
            return None
        self.close()
        text = "; ".join(line for line in self.log if not line.startswith("debug"))
        return f"it did not listen within {LISTEN_TIMEOUT:g} s" if late and not text else text

    def read_output(self, process: "subprocess.Popen[bytes]", decided: threading.Event) -> None:
        """Store the output of sshd until it ends. Set `decided` when it listens, and when it ends."""
        assert process.stderr is not None
        with process.stderr as text:
            for line in text:
                self.log.append(line.decode(errors="replace").strip())
                if b"Server listening" in line:
                    decided.set()
        decided.set()

    def close(self) -> None:
        """Stop the listener; open connections stay."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
