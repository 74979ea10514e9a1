"""Makes the programs of a real Kubernetes from Debian's own source package, into a folder.

    python tests/kubernetes/build.py FOLDER       and then HETGPU_KUBERNETES=FOLDER, or FOLDER on PATH

That is Kubernetes 1.20.2 of Debian 12, whose kubelet runs pods on a plain dockerd, and which its Go 1.19 builds. It
needs apt-get, golang-go, make, rsync, gcc and 3 GB below FOLDER, which are freed again but for 0.4 GB: 7 minutes of
processor time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
VERSION = "1.20.2"
NEEDED = ("apt-get", "go", "make", "rsync", "gcc")

_MIRROR = os.environ.get("HETGPU_DEBIAN_MIRROR", "http://deb.debian.org/debian")
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# What git would tell of a checkout; https://github.com/kubernetes/kubernetes/releases/tag/v1.20.2
_GIT = f"""\
KUBE_GIT_COMMIT='faecb196815e248d3ecfb03c680a4507229c2a56'
KUBE_GIT_TREE_STATE='archive'
KUBE_GIT_VERSION='v{VERSION}'
KUBE_GIT_MAJOR='1'
KUBE_GIT_MINOR='20'
"""


# Its 1.0.1, which Kubernetes brings along, crashes with a Go after 1.17: https://github.com/modern-go/reflect2/pull/22
_REFLECT = "golang-github-modern-go-reflect2"


def download(work: Path) -> tuple[Path, Path]:
    """The tarballs of Kubernetes and of reflect2 as Debian signed them, without touching the machine's own lists."""
    for folder in ("lists/partial", "cache/archives/partial"):
        work.joinpath("apt", folder).mkdir(parents=True, exist_ok=True)
    sources = work / "apt" / "sources.list"
    sources.write_text(f"deb-src [signed-by={_KEYRING}] {_MIRROR} bookworm main\n")
    options = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": work / "apt" / "lists",
        "Dir::Cache": work / "apt" / "cache",
        "APT::Sandbox::User": "root",
    }
    apt = ("apt-get", "-q", *(f"-o={name}={value}" for name, value in options.items()))
    _do((*apt, "update"), work)
    _do((*apt, "source", "--download-only", "kubernetes", _REFLECT), work)
    (kubernetes,) = work.glob("kubernetes_*.orig.tar.gz")
    (reflect,) = work.glob(f"{_REFLECT}_*.orig.tar.gz")
    return kubernetes, reflect


def unpack(tars: tuple[Path, Path], work: Path) -> Path:
    """The source tree, where Go finds it under the name that its packages have."""
    for tar in tars:
        _do(("tar", "-xf", str(tar)), work)
    (tree,) = (path for path in work.glob("kubernetes-*") if path.is_dir())
    (reflect,) = (path for path in work.glob("*reflect2-*") if path.is_dir())
    vendored = tree / "vendor" / "github.com" / "modern-go" / "reflect2"
    for old in (*vendored.glob("*.go"), *vendored.glob("*.s")):
        old.unlink()
    for new in (*reflect.glob("*.go"), *reflect.glob("*.s")):
        shutil.copy(new, vendored / new.name)
    package = tree / ".go" / "src" / "k8s.io"
    package.mkdir(parents=True, exist_ok=True)
    link = package / "kubernetes"
    if not link.is_symlink():
        link.symlink_to("../../..")
    return tree


def make(tree: Path, work: Path) -> Path:
    """Builds the programs; the folder that they are in."""
    version = work / "version.sh"
    version.write_text(_GIT)
    env = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GO111MODULE": "off",
        "GOCACHE": str(work / "gocache"),
        "GOPATH": str(tree / ".go"),
        "HOME": str(work / "home"),
        "KUBE_GIT_VERSION_FILE": str(version),
    }
    _do(("make", f"WHAT={' '.join(f'cmd/{name}' for name in PROGRAMS)}"), tree, env)
    return tree / "_output" / "bin"


def main(argv: list[str]) -> int:
    """Builds into the folder that is named, unless everything is there already."""
    if len(argv) != 1:
        sys.exit(__doc__)
    folder = Path(argv[0]).absolute()
    if all((folder / name).exists() for name in PROGRAMS):
        print(f"{folder} has them already")
        return 0
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        sys.exit(f"no {', '.join(missing)} here: apt-get install golang-go make rsync gcc")
    started, work = time.monotonic(), folder / "build"
    work.mkdir(parents=True, exist_ok=True)
    made = make(unpack(download(work), work), work)
    for name in PROGRAMS:
        shutil.copy2(made / name, folder / name)
    shutil.rmtree(work)
    print(f"{', '.join(PROGRAMS)} are in {folder}, made in {(time.monotonic() - started) / 60:.1f} minutes")
    return 0


def _do(argv: tuple[str, ...], folder: Path, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(argv, cwd=folder, env=env, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(argv[:1])} ended with {done.returncode} (its messages are above)")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
