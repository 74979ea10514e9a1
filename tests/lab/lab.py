"""A real RoCE network on one machine: guests of QEMU, each with a Soft-RoCE device, an address and sshd.

    python tests/lab/lab.py up [--nodes N] [COMMAND...]

With COMMAND it runs that, with HETGPU_LAB set to the folder of the lab and an ssh in PATH that knows the guests, and
ends with its exit code; else it prints what to type, and waits for Ctrl-C. Either way the guests go with it.

Needs root (taps, and the host's own root file system for the guests), and of Debian: qemu-system-x86 busybox-static
cpio kmod rdma-core ibverbs-utils ibverbs-providers openssh-server iproute2. The kernel is Debian's; its package is
downloaded and unpacked, never installed. Guests see the host's files read-only, under an overlay in their memory.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

STACKS = Path(os.environ.get("HETGPU_STACKS") or Path(__file__).resolve().parents[2] / ".stacks")
_PROGRAMS = "qemu-system-x86_64 busybox cpio depmod rdma ibv_devinfo sshd ssh ssh-keygen ip dpkg-deb setpriv nsenter"
_PACKAGES = "qemu-system-x86 busybox-static cpio kmod rdma-core ibverbs-utils ibverbs-providers openssh-server iproute2"
_NAME = "hetgpu-lab-"
_NUMBERS = itertools.count()  # of the labs of this process
BOOT = 180.0
"""Seconds in which a guest is ready, on the slowest machine."""
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/local/sbin"
# Without crc32_generic `rdma link add` fails with "No such file or directory".
_MODULES = """crc32_generic crc32c_generic crc32_pclmul virtio_pci virtio_net virtio_rng 9pnet_virtio 9p overlay
    dummy 8021q ib_uverbs ib_umad rdma_ucm rdma_rxe sch_netem sch_prio cls_u32"""
_INIT = """\
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev
while read m; do insmod /modules/$m 2>/dev/null || echo "no module $m"; done </modules/order
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro host /host || echo "no file system of the host"
mount -t tmpfs t /rw; mkdir -p /rw/u /rw/w
mount -t overlay -o lowerdir=/host,upperdir=/rw/u,workdir=/rw/w o /new
for d in proc sys dev; do mount --move /$d /new/$d; done
exec chroot /new /bin/bash "$(sed -n 's/.*lab=\\([^ ]*\\).*/\\1/p' /new/proc/cmdline)/guest.sh"
"""
_GUEST = """\
export PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin HOME=/root
lab={folder} network={network}
node=$(sed -n 's/.*node=\\([0-9]*\\).*/\\1/p' /proc/cmdline)
mkdir -p /dev/shm /dev/pts; mount -t tmpfs t /dev/shm; mount -t devpts p /dev/pts; mount -t tmpfs t /run
mount -t cgroup2 c /sys/fs/cgroup
hostname "vm$node"; cp "$lab/hosts" /etc/hosts
ip link set lo up; ip link set eth0 up; ip addr add "$network.$node/24" dev eth0
rm -f ~root/.bashrc  # which starts what only a person needs, and that takes seconds here
rdma link add rxe0 type rxe netdev eth0
for stack in {stacks}/*; do [ -e "/opt/${{stack##*/}}" ] || ln -s "$stack" /opt; done
ulimit -l unlimited
mkdir -p /run/sshd; cp "$lab/host_key" "$lab/key.pub" /run; chmod 600 /run/host_key
cat >/run/serve <<END
exec /usr/sbin/sshd -f /dev/null -h /run/host_key -o PidFile=/run/sshd.pid -o AuthorizedKeysFile=/run/key.pub \\
  -o StrictModes=no -o PermitRootLogin=yes -o UsePAM=no
END
bash /run/serve && echo lab-ready
while sleep 3600; do :; done
"""


def lacks() -> str:
    """What a lab needs and this machine lacks, with what to do; "" where nothing is missing."""
    if missing := [name for name in _PROGRAMS.split() if shutil.which(name, path=_PATH) is None]:
        return f"no {', '.join(missing)} here: apt-get install --no-install-recommends {_PACKAGES}"
    if os.geteuid():
        return "a lab needs root: its guests have taps, and the host's root file system"
    return "" if Path("/dev/net/tun").exists() else "no /dev/net/tun here: modprobe tun"


def _call(*argv: str | Path, cwd: Path | None = None, stdin: str | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        env=_with_path(),
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{argv[0]} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def _with_path() -> dict[str, str]:
    return {**os.environ, "PATH": _PATH}


def kernel(package: str = "linux-image-amd64") -> Path:
    """The folder with `vmlinuz` and `modules/` of a kernel of Debian; downloaded once, kept in the user's cache."""
    depends = _call("apt-cache", "depends", package).split()[1:]
    name = next((one for one in depends if one.startswith("linux-image-")), package)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hetgpu-lab"
    kept = cache / f"{name}-{zlib.crc32(_MODULES.encode()):08x}"
    if kept.is_dir():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as text:
        folder, made = Path(text), Path(text) / "made"
        # The user of apt's downloads may not write here, which is only a warning of apt.
        _call("apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", name, cwd=folder)
        (deb,) = folder.glob("*.deb")
        _call("dpkg-deb", "-x", deb, folder / "all")
        (release,) = (folder / "all/lib/modules").iterdir()
        _call("depmod", "-b", folder / "all", release.name)
        order: dict[str, None] = {}
        (made / "modules").mkdir(parents=True)
        for module in _MODULES.split():
            shown = _call("modprobe", "-d", folder / "all", "-S", release.name, "--show-depends", module)
            for line in shown.splitlines():
                if line.startswith("insmod"):
                    file = Path(line.split()[1])
                    shutil.copy(file, made / "modules")
                    order[file.name] = None
        (made / "modules/order").write_text("".join(f"{one}\n" for one in order))
        shutil.copy(next((folder / "all/boot").glob("vmlinuz-*")), made / "vmlinuz")
        with contextlib.suppress(OSError):  # another lab was faster
            made.rename(kept)
    return kept


def _initramfs(made: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory() as text:
        root = Path(text)
        for name in ("bin", "host", "rw", "new", "proc", "sys", "dev"):
            (root / name).mkdir()
        shutil.copytree(made / "modules", root / "modules")
        busybox = shutil.which("busybox", path=_PATH)
        assert busybox is not None
        shutil.copy(busybox, root / "bin")
        (root / "init").write_text(_INIT)
        (root / "init").chmod(0o755)
        names = "".join(f"{path.relative_to(root)}\n" for path in sorted(root.rglob("*")))
        with target.open("wb") as output:
            subprocess.run(
                ("cpio", "-o", "-H", "newc", "--quiet"), cwd=root, input=names.encode(), stdout=output, check=True
            )


@dataclass
class Guest:
    """A guest that boots or runs. `console` is what its kernel and its first script have printed."""

    name: str
    process: subprocess.Popen[bytes]
    ssh: Path
    console: list[str] = field(default_factory=list)
    ready: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Read the console until the guest ends."""
        assert self.process.stdout is not None
        with self.process.stdout as console:
            for line in console:
                self.console.append(line.decode(errors="replace").rstrip())
                if "lab-ready" in self.console[-1]:
                    self.ready.set()
        self.ready.set()  # nobody need wait any longer

    def await_ready(self, seconds: float) -> None:
        """RuntimeError with the end of the console if the guest ended, or is not ready in time."""
        in_time = self.ready.wait(seconds)
        if in_time and self.process.poll() is None:
            return
        what = f"did not boot in {seconds:g} s" if not in_time else f"ended with {self.process.wait()} while it booted"
        raise RuntimeError(f"guest {self.name} {what}; its console ends:\n" + "\n".join(self.console[-15:]))

    def run(self, command: str, seconds: float = 60) -> str:
        """What a shell command prints in the guest; RuntimeError if it fails, TimeoutExpired if it takes longer."""
        argv = (str(self.ssh), "-n", self.name, command)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=False)
        if done.returncode:
            raise RuntimeError(f"{self.name}: {command}: {done.returncode}: {done.stderr}{done.stdout}")
        return done.stdout

    def send(self, number: signal.Signals) -> None:
        """SIGKILL cuts the power, SIGSTOP freezes the guest, SIGCONT thaws it."""
        self.process.send_signal(number)

    def sysrq(self, letter: str) -> None:
        """`c` makes the kernel of the guest panic, `b` resets it; it boots again after both."""
        with contextlib.suppress(subprocess.TimeoutExpired, RuntimeError):
            then = f"(sleep 0.2; echo {letter} >/proc/sysrq-trigger) >/dev/null 2>&1 &"
            self.run(f"echo 1 >/proc/sys/kernel/sysrq; {then}", 10)

    def end(self) -> None:
        """Ends it, however it is."""
        self.process.kill()
        self.process.wait()


@dataclass
class Lab:
    """Guests at a bridge in a network namespace of its own, which no firewall of this machine sees.

    `folder` holds the keys, and an ssh in `bin` that knows the guests by name.
    """

    folder: Path
    namespace: str
    kernel: Path
    network: str
    guests: list[Guest] = field(default_factory=list)

    def environment(self) -> dict[str, str]:
        """The variables for a program that is to reach the guests."""
        return {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "HETGPU_LAB": str(self.folder)}

    def prepare(self) -> None:
        """Makes the bridge, the keys, and an ssh that trusts these guests alone."""
        folder = self.folder
        for key in ("key", "host_key"):
            _call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", folder / key)
        numbers = range(1, 10)
        names = "".join(f"{self.network}.{n} vm{n}\n" for n in numbers)
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n::1 localhost\n{names}")
        (folder / "known_hosts").write_text(f"lab {(folder / 'host_key.pub').read_text()}")
        entries = "".join(f"Host vm{n}\n  HostName {self.network}.{n}\n" for n in numbers)
        (folder / "ssh_config").write_text(
            f"{entries}Host *\n  User root\n  IdentityFile {folder}/key\n  IdentitiesOnly yes\n  HostKeyAlias lab\n"
            f"  UserKnownHostsFile {folder}/known_hosts\n  GlobalKnownHostsFile /dev/null\n  LogLevel ERROR\n"
        )
        (folder / "bin").mkdir()
        scripts = {
            "bin/ssh": f'exec {shutil.which("ssh")} -F {folder}/ssh_config "$@"',
            "attach": 'exec ip link set "$1" master lab up',
        }
        for name, line in scripts.items():
            (folder / name).write_text(f"#!/bin/sh\n{line}\n")
            (folder / name).chmod(0o755)
        (folder / "guest.sh").write_text(_GUEST.format(folder=folder, network=self.network, stacks=STACKS))
        device, inside = self.namespace.replace(_NAME, "l"), ("ip", "-n", self.namespace)
        _call("ip", "netns", "add", self.namespace)
        _call(*inside, "link", "add", "lab", "up", "type", "bridge")
        _call("ip", "link", "add", device, "up", "type", "veth", "peer", "name", "host", "netns", self.namespace)
        _call(*inside, "link", "set", "host", "master", "lab", "up")
        _call("ip", "addr", "add", f"{self.network}.254/24", "dev", device)

    def boot(
        self, number: int, made: Path | None = None, *, memory: int = 1500, arguments: Sequence[str] = ()
    ) -> Guest:
        """Starts guest `number` (from 1) with `memory` MB; `arguments` are further ones of QEMU."""
        mac = f"52:54:00:77:{int(self.network.split('.')[2]):02x}:{number:02x}"
        made = made or self.kernel
        initrd = self.folder / f"{made.name}.cpio"
        if not initrd.exists():
            _initramfs(made, initrd)
        argv = f"""setpriv --pdeathsig KILL nsenter --net=/run/netns/{self.namespace}
            qemu-system-x86_64 -nographic -m {memory}
            -accel {_accelerator()} -cpu max -kernel {made}/vmlinuz -initrd {initrd} -device virtio-rng-pci
            -virtfs local,path=/,mount_tag=host,security_model=passthrough,readonly=on,multidevs=remap
            -netdev tap,id=n,ifname=guest{number},script={self.folder}/attach,downscript=no
            -device virtio-net-pci,netdev=n,romfile=,mac={mac}"""
        kernel_line = f"console=ttyS0 quiet panic=-1 node={number} lab={self.folder}"
        process = subprocess.Popen(
            (*shlex.split(argv), "-append", kernel_line, *arguments),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=_with_path(),
            start_new_session=True,
        )  # fmt: skip
        guest = Guest(f"vm{number}", process, self.folder / "bin/ssh")
        threading.Thread(target=guest.watch, daemon=True).start()
        self.guests = [one for one in self.guests if one.name != guest.name] + [guest]
        return guest

    def repair(self) -> None:
        """Boot again each guest that was frozen or is gone."""
        for number, guest in enumerate(list(self.guests), 1):
            with contextlib.suppress(subprocess.TimeoutExpired, RuntimeError):
                guest.run("true", 10)
                continue
            guest.end()
            self.boot(number).await_ready(BOOT)

    def down(self) -> None:
        """Ends the guests by their pids, and removes the bridge."""
        for guest in self.guests:
            guest.end()
        if Path("/run/netns", self.namespace).exists():
            _call("ip", "netns", "del", self.namespace)


def _accelerator() -> str:
    # Where the processor offers no virtualisation, /dev/kvm may still be there, and guests of it hang.
    able = {"vmx", "svm"} & set(Path("/proc/cpuinfo").read_text().split())
    return "kvm" if able and Path("/dev/kvm").exists() else "tcg"


def _free_network() -> str:
    used = _call("ip", "-4", "-o", "addr")
    return next(f"10.77.{n}" for n in range(256) if f" 10.77.{n}." not in used)


def remove_dead() -> None:
    """Remove what labs left whose process was killed: their networks and folders. Their guests ended with them."""
    networks = _call("ip", "netns", "list").split()
    folders = [path.name for path in Path(tempfile.gettempdir()).glob(f"{_NAME}*")]
    for name in (*networks, *folders):
        pid = name.removeprefix(_NAME).partition("-")[0]
        if name.startswith(_NAME) and pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            if name in networks:
                _call("ip", "netns", "del", name)
            shutil.rmtree(Path(tempfile.gettempdir(), name), ignore_errors=True)


@contextlib.contextmanager
def running(nodes: int = 2, *, memory: int = 1500, seconds: float = BOOT) -> Iterator[Lab]:
    """A lab whose guests are ready; RuntimeError where one is not in `seconds`. Nothing of it is left behind."""
    if lack := lacks():
        raise RuntimeError(lack)
    made = kernel()
    remove_dead()
    with tempfile.TemporaryDirectory(prefix=f"{_NAME}{os.getpid()}-") as text:
        lab = Lab(Path(text), f"{_NAME}{os.getpid()}-{next(_NUMBERS)}", made, _free_network())
        try:
            lab.prepare()
            for guest in [lab.boot(number, memory=memory) for number in range(1, nodes + 1)]:
                guest.await_ready(seconds)
            yield lab
        finally:
            lab.down()


def main(argv: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="lab.py", description="Guests with Soft-RoCE on this machine.")
    up = parser.add_subparsers(required=True).add_parser("up", help="boot guests, then run a command or wait")
    up.add_argument("--nodes", type=int, default=2, metavar="N", help="how many guests (2)")
    up.add_argument("command", nargs=argparse.REMAINDER, help="what to run with the lab; without it, wait for Ctrl-C")
    asked = parser.parse_args(argv)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts a background job with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    try:
        with running(asked.nodes) as lab:
            if asked.command:
                return subprocess.run(asked.command, env={**os.environ, **lab.environment()}, check=False).returncode
            print(f"{', '.join(one.name for one in lab.guests)}: up. In another terminal:")
            print(f"  export PATH={lab.folder}/bin:$PATH\n  ssh vm1")
            print("  pytest --hetgpu-matrix matrices/roce-lab.yaml --hetgpu-inventory matrices/roce-lab.hosts.yaml")
            print("Ctrl-C ends them.", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return 130
    except RuntimeError as error:
        print(f"lab.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
