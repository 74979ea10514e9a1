"""A node reached through an agent: here the agent is a process of this machine, with all that is real about it."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

import pytest_hetgpu
from pytest_hetgpu.errors import LaunchError, LostNode, ProvisionError
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.runtimes.agent.link import _MODULES
from pytest_hetgpu.extensions.runtimes.agent.node import AgentNode
from pytest_hetgpu.extensions.runtimes.base import NodeProvider
from pytest_hetgpu.extensions.runtimes.local import LocalNodes
from pytest_hetgpu.extensions.runtimes.process.kernel import still_running
from pytest_hetgpu.model.job import Command
from pytest_hetgpu.model.outcome import RunResult
from tests.extensions.runtimes.member_nodes import member, open_node, output

__all__ = ["member", "output"]

HERE = Path(__file__).parent
CROWD = (sys.executable, "-S", str(HERE / "crowd.py"))
ROLES = ("plain", "group", "session", "deaf", "stopped", "stray", "wiped")
PYTHON = (sys.executable, "-S", "-c")
PATIENCE = 60.0


def run(member: AgentNode, output: Path, *argv: str, timeout: float = PATIENCE) -> RunResult:
    return member.run(Command(argv), output=output, timeout=timeout)


def pids(output: Path) -> dict[str, int]:
    return {role: int(pid) for role, pid in (line.split() for line in output.read_text().splitlines())}


def wait_for(output: Path, words: str) -> None:
    """Until the output holds `words`."""
    until = time.monotonic() + PATIENCE
    while not (output.exists() and words in output.read_text()):
        assert time.monotonic() < until
        time.sleep(0.01)


def gone(found: set[int]) -> bool:
    """Whether all these processes end soon."""
    return not still_running(found, PATIENCE)


def test_it_is_found_by_its_name() -> None:
    assert find("runtimes", "local", NodeProvider) is LocalNodes  # type: ignore[type-abstract]


def test_the_agent_is_written_for_old_pythons() -> None:
    programs = Path(pytest_hetgpu.__file__).parent / "remote"
    agents = [*sorted(programs.glob("agent*.py")), programs / "segments.py"]
    assert {agent.stem for agent in agents} == set(_MODULES)
    for agent in agents:
        ast.parse(agent.read_text(), feature_version=(3, 6))
        assert "import annotations" not in agent.read_text()  # since 3.7


def test_a_node_says_who_it_is(member: AgentNode) -> None:
    hello = member.link.hello
    assert hello.subreaper
    assert hello.uid == os.getuid()
    assert hello.cpus == len(os.sched_getaffinity(0))
    assert hello.path == os.environ["PATH"]
    assert Path(member.folder).name.startswith("hetgpu-")
    assert Path(member.folder).stat().st_mode & 0o777 == 0o700


def test_the_record_of_a_good_run(member: AgentNode, output: Path) -> None:
    before = time.time()
    result = run(member, output, *PYTHON, "import os; os.write(1, b'out\\n'); os.write(2, b'err\\n')")
    run(member, output, "echo", "more")
    assert output.read_bytes() == b"out\nerr\nmore\n"
    assert output.stat().st_mode & 0o777 == 0o600
    assert (result.returncode, result.timed_out, result.interrupted, result.survivors) == (0, False, None, ())
    assert (result.argv[0], result.output) == (sys.executable, str(output))
    assert before - 0.1 <= result.started <= time.time()
    assert 0 <= result.quiet <= result.seconds <= time.time() - before


@pytest.mark.parametrize(
    ("program", "returncode"),
    [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 11)", -11), ("raise SystemExit(137)", 137)],
)
def test_the_return_code_is_as_subprocess_gives_it(
    member: AgentNode, output: Path, program: str, returncode: int
) -> None:
    assert run(member, output, *PYTHON, program).returncode == returncode


def test_arguments_and_environment_arrive_as_they_are(member: AgentNode, output: Path) -> None:
    show = "import os, sys; print(ascii(sys.argv[1:]), ascii(os.environ['A']), sys.stdin.read())"
    command = Command((*PYTHON, show, "$HOME; `id` *", "", "\u00fc\udcff"), {"A": "x y\n'\"\\"})
    member.run(command, output=output, timeout=PATIENCE)
    assert output.read_text() == "['$HOME; `id` *', '', '\\xfc\\udcff'] 'x y\\n\\'\"\\\\' \n"


def test_binary_output_arrives_untouched(member: AgentNode, output: Path) -> None:
    everything = bytes(range(256)) * 4096
    program = "import os; data = bytes(range(256)) * 4096\nwhile data: data = data[os.write(1, data):]"
    run(member, output, *PYTHON, program)
    assert output.read_bytes() == everything
    answer = member.exec(("cat",), stdin=everything)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, everything, b"")


def test_much_output_neither_blocks_nor_is_lost(member: AgentNode, output: Path) -> None:
    size = 1 << 28
    with ThreadPoolExecutor(1) as other:
        running = other.submit(run, member, output, "head", "-c", str(size), "/dev/zero")
        asked = [member.exec(("echo", str(number))).stdout for number in range(5)]
    assert asked == [b"%d\n" % number for number in range(5)]
    assert running.result().returncode == 0
    assert output.stat().st_size == size


def test_a_hundred_questions_at_once(member: AgentNode) -> None:
    with ThreadPoolExecutor(100) as crowd:
        answers = list(crowd.map(lambda number: member.exec(("echo", str(number))).stdout, range(100)))
    assert answers == [b"%d\n" % number for number in range(100)]


def test_a_child_that_keeps_the_pipes_does_not_hold_up_the_answer(member: AgentNode) -> None:
    began = time.monotonic()
    answer = member.exec(("sh", "-c", "echo said; sleep 100 & exit 4"))
    assert (answer.returncode, answer.stdout) == (4, b"said\n")
    assert time.monotonic() - began < 10
    assert [name.partition(" ")[0] for name in member.sweep()] == ["sleep"]


def test_a_question_without_end_is_cut_short(member: AgentNode) -> None:
    with pytest.raises(ProvisionError, match=r"n0: sh -c sleep 100; true took more than 0.2 s"):
        member.exec(("sh", "-c", "sleep 100; true"), timeout=0.2)
    assert member.sweep() == ()


def test_a_child_that_goes_on_printing_does_not_hold_up_the_answer_for_ever(member: AgentNode) -> None:
    answer = member.exec(("sh", "-c", "yes & sleep 0.1; exit 4"), timeout=0.5)
    assert (answer.returncode, answer.stdout[:4]) == (4, b"y\ny\n")
    member.sweep()


def test_an_endless_answer_is_capped(member: AgentNode) -> None:
    answer = member.exec(("sh", "-c", "head -c 9000000 /dev/zero; echo end >&2"))
    assert (len(answer.stdout), answer.stderr) == (4 << 20, b"end\n")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("no-such-launcher-anywhere", "-np", "2"), "no-such-launcher-anywhere: no such program in PATH=/"),
        (("/no/such/mpirun",), "/no/such/mpirun: no such file"),
        (("/etc/passwd",), "/etc/passwd: not an executable file"),
        (("/bin/true", "x" * 3_000_000), r"/bin/true: arguments and environment take 30\d{5} bytes"),
        (("/bin/true", "a\0b"), "embedded null byte in its arguments or environment"),
        ((), "an empty command"),
    ],
)
def test_what_cannot_be_started_is_said_plainly(
    member: AgentNode, output: Path, argv: tuple[str, ...], says: str
) -> None:
    with pytest.raises(LaunchError, match=says):
        run(member, output, *argv)
    with pytest.raises(ProvisionError, match=says):
        member.exec(argv)


def test_after_a_timeout_nothing_is_left(member: AgentNode, output: Path) -> None:
    member.grace = 0.4
    result = run(member, output, *CROWD, "stay", "-", *ROLES, timeout=1.5)
    found = pids(output)
    assert set(found) == {*ROLES, "launcher"}
    assert (result.timed_out, result.returncode) == (True, -signal.SIGTERM)
    assert not [role for role, pid in found.items() if psutil.pid_exists(pid)]
    assert len(result.survivors) == len(ROLES)


def test_what_outlives_its_launcher_is_stopped_and_named(member: AgentNode, output: Path) -> None:
    result = run(member, output, *CROWD, "leave", "-", *ROLES)
    found = pids(output)
    assert (result.returncode, result.timed_out) == (0, False)
    assert result.seconds < 1  # without what stopping the others took
    named = {int(text.rpartition("(")[2].rstrip(")")) for text in result.survivors}
    assert named == set(found.values()) - {found["launcher"]}
    assert not [role for role, pid in found.items() if psutil.pid_exists(pid)]


def test_a_sweep_leaves_questions_and_the_node_itself_alone(member: AgentNode, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with ThreadPoolExecutor(1) as other:
        asked = other.submit(member.exec, ("sh", "-c", f"echo open > {fifo}; exec cat {fifo}"))
        assert fifo.read_text() == "open\n"
        assert member.sweep() == ()
        fifo.write_text("end")
        assert asked.result().stdout == b"end"


def test_an_interrupt_stops_the_run_and_is_recorded(member: AgentNode, output: Path) -> None:
    before = signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt("SIGTERM")))

    def interrupt() -> None:
        wait_for(output, "launcher")
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        result = run(member, output, *CROWD, "stay", "-", "plain", "stray")
    finally:
        thread.join()
        signal.signal(signal.SIGTERM, before)
    assert (result.interrupted, result.timed_out, result.returncode) == ("SIGTERM", False, -15)
    assert not [role for role, pid in pids(output).items() if psutil.pid_exists(pid)]


def test_a_second_interrupt_waits_for_nothing(member: AgentNode, output: Path) -> None:
    member.grace = 1000.0
    before = signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt("SIGTERM")))
    fifo = output.with_name("news")
    os.mkfifo(fifo)

    def interrupt() -> None:
        with fifo.open() as news:
            for expected in ("ready\n", "TERM\n"):
                assert news.readline() == expected
                os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        result = run(member, output, *CROWD, "deaf", str(fifo), "deaf", "stray")
    finally:
        thread.join()
        signal.signal(signal.SIGTERM, before)
    assert (result.interrupted, result.returncode) == ("SIGTERM", -signal.SIGKILL)
    assert result.seconds < member.grace / 2
    assert not [role for role, pid in pids(output).items() if psutil.pid_exists(pid)]


def test_an_output_that_cannot_be_written_stops_nothing_silently(member: AgentNode) -> None:
    with pytest.raises(LaunchError, match="cannot write the output to /dev/full: No space left on device"):
        run(member, Path("/dev/full"), "echo", "word")


def test_a_client_that_is_killed_leaves_nothing(output: Path) -> None:
    root = str(Path(pytest_hetgpu.__file__).parent.parent)
    argv = [sys.executable, str(HERE / "member_driver.py"), str(output), *CROWD, "deaf", "-", *ROLES]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": root}) as driver:
        assert driver.stdout is not None
        agent, folder = driver.stdout.readline().split()
        wait_for(output, "launcher")
        driver.kill()
    found = pids(output)
    assert set(found) == {*ROLES, "launcher"}
    assert gone({int(agent), *found.values()})
    assert not Path(folder).exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_agent_that_is_told_to_end_leaves_nothing(output: Path, number: int) -> None:
    member = open_node()
    with ThreadPoolExecutor(1) as other:
        running = other.submit(run, member, output, *CROWD, "stay", "-", *ROLES)
        wait_for(output, "launcher")
        os.kill(member.link.hello.pid, number)
        result = running.result()
    *there, last = output.read_text().splitlines()
    assert result.returncode == 255
    assert last == "hetgpu: node n0 was lost: the connection ended (exit status 0)"
    assert gone({int(line.split()[1]) for line in there})
    assert not Path(member.folder).exists()
    member.close()


def test_a_node_that_is_lost_in_mid_run_ends_the_log(output: Path) -> None:
    member = open_node()
    with ThreadPoolExecutor(1) as other:
        running = other.submit(run, member, output, "sh", "-c", "printf 'half a line'; exec sleep 1000")
        wait_for(output, "half")
        agent = psutil.Process(member.link.hello.pid)
        left = agent.children(recursive=True)
        agent.kill()
        result = running.result()
    for process in left:
        process.kill()
    assert (result.returncode, result.timed_out, result.interrupted) == (255, False, None)
    assert output.read_text() == "half a line\nhetgpu: node n0 was lost: the connection ended (signal 9)\n"
    assert member.lost() == "the connection ended (signal 9)"
    for use in (member.sweep, member.interfaces, lambda: member.exec(("true",)), lambda: member.put({"a": b""})):
        with pytest.raises(LostNode, match=r"n0: the connection ended \(signal 9\)"):
            use()
    member.close()
    member.close()
    Path(member.folder).rmdir()


def test_a_closed_node_is_gone_for_good() -> None:
    member = open_node()
    assert member.lost() is None
    member.close()
    assert member.lost() == "closed"
    with pytest.raises(LostNode, match="closed"):
        member.exec(("true",))


def test_what_is_to_follow_the_end_of_a_node_follows_once() -> None:
    said: list[str] = []
    opened = open_node()
    member = AgentNode("n0", opened.link, after=lambda: said.append("removed"))
    member.close()
    member.close()
    assert said == ["removed"]
