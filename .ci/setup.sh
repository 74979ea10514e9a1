# shellcheck shell=bash
# Sourced by `run` and `nightly`: installs what both need on a bare Debian, and provides the steps that they share.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\n== %s  [%(%H:%M:%S)T]\n' "$*" -1; }

# Stop every helper process of this script. Docker 20.10 can hang for good; then print which calls wait for a lock.
ended() {
  if [ -n "${engine:-}" ] && ! timeout 30 docker network ls >/dev/null; then
    say "the container engine does not answer; its calls that wait for a lock"
    kill -USR1 "$engine" || true
    for _ in $(seq 50); do
      compgen -G '/var/run/docker/goroutine-stacks-*' >/dev/null && break
      sleep 0.2
    done
    awk -v RS= '/semacquire/' /var/run/docker/goroutine-stacks-* | grep -o 'docker/[a-z/]*\.([^)]*)\.[A-Za-z]*' | sort | uniq -c | sort -rn | head -25 || true
    kill -9 "$engine" || true
  fi
  kill "${bases:-}" "${engine:-}" "${page:-}" 2>/dev/null || true
  wait
}
trap ended EXIT

pick_python() {
  for python in python3 python3.13 python3.12 python3.11 python3.10 /usr/bin/python3; do
    if "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      command -v "$python"
      return
    fi
  done
  echo "no Python 3.10 or newer with venv found" >&2
  return 1
}

# install PROGRAM=PACKAGE...: install each Debian package whose program is missing. A program may be a path.
install() {
  local pair lacks=()
  for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null || lacks+=("${pair#*=}")
  done
  [ "${#lacks[@]}" -gt 0 ] || return 0
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${lacks[@]}" >/dev/null
}

if ! python=$(pick_python); then
  say "install Python"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3 python3-venv
  python=$(pick_python)
fi

# Acceptance tests start pytest a hundred times; without bytecode each start would compile every module again.
unset PYTHONDONTWRITEBYTECODE
export HETGPU_REQUIRE=stack,xdist,lint,testinfra,docker,ssh,corpus,re2,torch,cc,browser,slurm,netns,postgresql
# Ledgers and folders of earlier runs on this machine are not this run's to judge.
HETGPU_LEDGERS=$(mktemp -d)
stamp=$(mktemp)
export HETGPU_LEDGERS

start_engine() {
  say "a container engine and sshd"
  install dockerd=docker.io mmdebstrap=mmdebstrap chromium=chromium cc="gcc" /usr/sbin/sshd=openssh-server \
    ssh=openssh-client iptables=iptables ip=iproute2 slurmctld=slurm-wlm munged=munge gdb=gdb pg_ctlcluster=postgresql
  # Neither package has a program of its own.
  if ! dpkg -s libc6-dev libpmix2 >/dev/null 2>&1; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends libc6-dev libpmix2 >/dev/null
  fi
  engine_log=$(mktemp)
  if ! docker version >/dev/null 2>&1; then
    dockerd >"$engine_log" 2>&1 &
    engine=$!
    for _ in $(seq 150); do
      docker version >/dev/null 2>&1 && break
      kill -0 $engine 2>/dev/null || break
      sleep 0.2
    done
  fi
  docker version --format 'Docker {{.Server.Version}}' || { tail -20 "$engine_log" >&2; exit 1; }
}

make_stacks() {
  say "the base images, beside the MPI stacks; PyTorch as a stack of this machine, and a page with its wheel for the image"
  bases_log=$(mktemp)
  { containers/make-base bookworm && containers/make-base trixie; } >"$bases_log" 2>&1 &
  bases=$!
  wheels=$(mktemp -d)
  "$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: --python-version 3.11 -d "$wheels" torch==2.13.0
  "$python" -m http.server --bind 127.0.0.1 --directory "$wheels" 8642 >/dev/null 2>&1 &
  page=$!
  export HETGPU_TORCH_WHEELS=http://127.0.0.1:8642/
  "$python" bootstrap.py stack
  "$python" bootstrap.py stack openmpi-5-torch
  local status=0
  wait "$bases" || status=$?
  cat "$bases_log"
  [ "$status" -eq 0 ]
}

nothing_left() {
  say "nothing is left of all that"
  local left
  left=$(docker ps -aq --filter label=hetgpu.run; docker network ls -q --filter label=hetgpu.run; find /tmp -maxdepth 1 '(' -name 'hetgpu-????????' -o -name 'h[ef]-????????' ')' -newer "$stamp")
  [ -z "$left" ] || { docker ps -a; docker network ls; ls -ld /tmp/hetgpu-*; exit 1; } >&2
  .venv/bin/hetgpu clean
}
