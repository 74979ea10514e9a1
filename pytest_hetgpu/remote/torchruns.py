"""Starts one torchrun per node, and ends them all together.

    torchruns.py [--ssh-config FILE] -np 2 -H nodeA env K=V PYTHON -m torch.distributed.run ... : -np 2 -H nodeB ...

starts an agent per context: directly for `localhost` and for this host's own name, else by `ssh -F FILE nodeB`. It
exits with the code of the first agent that failed, after the others had time for their last output.

Each agent has a minder on its node, which is this program with `--agent`. The minder creates a log folder for torchrun
and removes it. It ends torchrun when its standard input closes, because the launcher has ended then. Needs Python 3.8.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from typing import List, NamedTuple, NoReturn, Tuple

FAILURE_GRACE = 10.0  # seconds for the other agents after one has failed
GRACE = 5.0  # seconds from TERM to KILL
HERE = ("localhost", "127.0.0.1")


class AgentContext(NamedTuple):
    """One agent: its host and its tokens."""

    host: str
    argv: List[str]


def main() -> int:
    """Run the launcher, or one agent's minder."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--agent"]:
        return run_agent(arguments[1:])
    config, contexts = parse_arguments(arguments)
    return launch(config, contexts)


def parse_arguments(arguments: List[str]) -> Tuple[str, List[AgentContext]]:
    """Return the ssh configuration, and the contexts. Exit if the arguments are wrong."""
    config = ""
    if arguments[:1] == ["--ssh-config"]:
        config, arguments = arguments[1], arguments[2:]
    ends = [place for place, word in enumerate(arguments) if word == ":"]
    bounds = zip([-1, *ends], [*ends, len(arguments)])  # noqa: B905 - from Python 3.10
    contexts = [arguments[low + 1 : high] for low, high in bounds]
    for tokens in contexts:
        if tokens[:1] != ["-np"] or tokens[2:3] != ["-H"] or len(tokens) < 5:
            sys.exit(f"torchruns.py: a context is -np RANKS -H HOST COMMAND..., not {shlex.join(tokens)!r}")
    return config, [AgentContext(tokens[3], tokens[4:]) for tokens in contexts]


def launch(config: str, contexts: List[AgentContext]) -> int:
    """Start the minders, and wait for all; return the first code that is not 0."""
    ended: queue.Queue[Tuple[int, int]] = queue.Queue()
    minders: List[subprocess.Popen[bytes]] = []

    def stop(number: int, _frame: object) -> NoReturn:
        close_minders(minders)
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    for context in contexts:
        minders.append(subprocess.Popen(agent_command(config, context), stdin=subprocess.PIPE))  # noqa: PERF401 - for `stop`
    for place, minder in enumerate(minders):
        threading.Thread(target=report_exit, args=(place, minder, ended), daemon=True).start()
    first, limit = 0, None  # type: Tuple[int, Optional[float]]
    for _ in minders:
        try:
            place, code = ended.get(timeout=limit)
        except queue.Empty:
            break
        if code and not first:
            first, limit = code, FAILURE_GRACE
            if code == 255 and contexts[place].host not in HERE:
                print(f"torchruns.py: the agent on {contexts[place].host} is gone (ssh: 255)", file=sys.stderr)
    close_minders(minders)
    for minder in minders:
        minder.wait()
    return first


def agent_command(config: str, context: AgentContext) -> List[str]:
    """Return the command of an agent's minder, as tokens; ssh passes one line to the remote shell."""
    tokens = [interpreter(context), os.path.realpath(__file__), "--agent", *context.argv]
    if context.host in (*HERE, os.uname().nodename) or not config:
        return tokens
    return ["ssh", "-F", config, context.host, shlex.join(tokens)]


def interpreter(context: AgentContext) -> str:
    """Return the Python of an agent: the token before `-m torch.distributed.run`."""
    return context.argv[context.argv.index("torch.distributed.run") - 2]


def report_exit(place: int, minder: subprocess.Popen[bytes], ended: queue.Queue[Tuple[int, int]]) -> None:
    """Report the end of a minder; a signal as 128 and its number."""
    code = minder.wait()
    ended.put((place, code if code >= 0 else 128 - code))


def close_minders(minders: List[subprocess.Popen[bytes]]) -> None:
    """Close the standard input of minders, which ends them."""
    for minder in minders:
        if minder.stdin:
            with contextlib.suppress(OSError):
                minder.stdin.close()


def run_agent(argv: List[str]) -> int:
    """Run one torchrun to its end, or until standard input closes."""
    logs = tempfile.mkdtemp(prefix="hetgpu-torchrun-")
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    where = argv.index("torch.distributed.run") + 1
    try:
        # torchrun forwards the output of ranks. If buffered, it would be lost when the agent is killed.
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        command = [*argv[:where], "--log-dir", logs, *argv[where:]]
        agent = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)
        try:
            return wait_for_agent(agent)
        finally:
            terminate_agent(agent)
    finally:
        shutil.rmtree(logs, ignore_errors=True)


def wait_for_agent(agent: subprocess.Popen[bytes]) -> int:
    """Return the agent's exit code; that of TERM if standard input closed first."""
    read_end, write_end = os.pipe()

    def await_end() -> None:
        agent.wait()
        os.close(write_end)

    threading.Thread(target=await_end, daemon=True).start()
    while True:
        ready, _, _ = select.select([0, read_end], [], [])
        if read_end in ready:
            code = agent.wait()
            return code if code >= 0 else 128 - code
        if not os.read(0, 4096):
            return 128 + signal.SIGTERM


def terminate_agent(agent: subprocess.Popen[bytes]) -> None:
    """End an agent; on TERM it ends its ranks."""
    if agent.poll() is not None:
        return
    agent.terminate()
    try:
        agent.wait(GRACE)
    except subprocess.TimeoutExpired:
        agent.kill()
        agent.wait()


if __name__ == "__main__":
    sys.exit(main())
