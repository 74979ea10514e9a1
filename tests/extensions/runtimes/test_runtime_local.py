"""What running a command on this machine gives: its record, its output, its environment, its errors."""

from __future__ import annotations

import os
import pwd
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from pytest_hetgpu.errors import LaunchError
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.runtimes.base import Runtime
from pytest_hetgpu.extensions.runtimes.local import Local, inherited, interfaces_up
from pytest_hetgpu.model.job import Command
from pytest_hetgpu.model.outcome import RunResult

PYTHON = (sys.executable, "-S", "-c")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output.log"


def run(output: Path, *argv: str, timeout: float = 60.0, env: dict[str, str] | None = None) -> RunResult:
    return Local().run(Command(argv, env or {}), output=output, timeout=timeout)


def test_it_is_found_by_its_name() -> None:
    assert find("runtimes", "local", Runtime) is Local  # type: ignore[type-abstract]


def test_the_record_of_a_good_run(output: Path) -> None:
    before = time.time()
    result = run(output, *PYTHON, "import os; os.write(1, b'out\\n'); os.write(2, b'err\\n')")
    assert output.read_bytes() == b"out\nerr\n"
    assert (result.returncode, result.signal, result.timed_out, result.interrupted) == (0, None, False, None)
    assert (result.argv[0], result.output, result.survivors) == (sys.executable, str(output), ())
    assert before - 0.1 <= result.started <= time.time()
    assert 0 <= result.quiet <= result.seconds <= time.time() - before + 0.1


@pytest.mark.parametrize(
    ("program", "returncode"),
    [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 11)", -11), ("raise SystemExit(137)", 137)],
)
def test_the_return_code_is_as_subprocess_gives_it(output: Path, program: str, returncode: int) -> None:
    assert run(output, *PYTHON, program).returncode == returncode


def test_output_is_private_and_appended_to(output: Path) -> None:
    for _ in range(2):
        run(output, *PYTHON, "print('line')")
    assert output.read_text() == "line\nline\n"
    assert output.stat().st_mode & 0o777 == 0o600


def test_a_shell_never_reads_the_arguments(output: Path) -> None:
    run(output, *PYTHON, "import sys; print(sys.argv[1:])", "$HOME; `id` *", "")
    assert output.read_text() == "['$HOME; `id` *', '']\n"


def test_standard_input_is_empty(output: Path) -> None:
    assert run(output, *PYTHON, "import sys; sys.exit(len(sys.stdin.read()))").returncode == 0


def test_a_silent_run_was_quiet_from_its_start(output: Path) -> None:
    result = run(output, *PYTHON, "import signal; signal.pause()", timeout=0.3)
    assert result.timed_out
    assert result.returncode == -15
    assert result.quiet == pytest.approx(result.seconds, abs=0.02)


def test_a_run_that_goes_on_printing_is_not_quiet(output: Path) -> None:
    talk = "import os, signal\nwhile True: os.write(1, b'.'), signal.sigtimedwait([], 0.01)"
    result = run(output, *PYTHON, talk, timeout=0.8)
    assert result.timed_out
    assert result.quiet < 0.4


def test_output_of_an_earlier_run_is_not_taken_for_this_ones(output: Path) -> None:
    output.touch()
    os.utime(output, (1.0, 1.0))
    result = run(output, "/bin/true")
    assert result.quiet <= result.seconds


def test_what_the_command_sets_comes_on_top_of_what_is_inherited(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HETGPU_TEST_A", "ours")
    monkeypatch.setenv("HETGPU_TEST_B", "ours")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    show = "import os; print(*map(os.environ.get, ['HETGPU_TEST_A', 'HETGPU_TEST_B', 'PYTHONHASHSEED', 'PYTHONUTF8']))"
    run(output, *PYTHON, show, env={"HETGPU_TEST_B": "theirs", "PYTHONUTF8": "1"})
    assert output.read_text() == "ours theirs None 1\n"


def test_a_command_has_a_home_though_we_have_none(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open MPI 5 does not start without one."""
    monkeypatch.setenv("HOME", "/of/ours")
    run(output, "sh", "-c", "echo $HOME")
    monkeypatch.delenv("HOME")
    run(output, "sh", "-c", "echo $HOME")
    run(output, "sh", "-c", "echo $HOME", env={"HOME": "/of/the/cell"})
    # A user of a container may have no entry in the user database.
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    run(output, "sh", "-c", 'test "$HOME" = "$TMPDIR" && echo same')
    database = pwd.getpwuid(os.getuid()).pw_dir
    assert output.read_text().splitlines() == ["/of/ours", database, "/of/the/cell", "same"]


TEMPORARY = "import os; from pathlib import Path; own = Path(os.environ['TMPDIR']); (own / 'left').touch(); print(own)"


@pytest.mark.parametrize("then", ["", "; import time; time.sleep(60)"])
def test_a_command_has_a_folder_of_its_own_for_temporary_files(
    output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    run(output, *PYTHON, f"{TEMPORARY}; os.sys.stdout.flush(){then}", timeout=2.0)
    own = Path(output.read_text().strip())
    assert (own.parent, own.name[:7]) == (tmp_path, "hetgpu-")
    assert not own.exists()


def test_a_folder_for_temporary_files_that_the_job_sets_is_kept(output: Path) -> None:
    run(output, "sh", "-c", "echo $TMPDIR", env={"TMPDIR": "/elsewhere"})
    assert output.read_text() == "/elsewhere\n"


def test_where_no_folder_can_be_made_the_users_own_is_kept(
    output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "mkdtemp", Mock(side_effect=OSError))
    run(output, *PYTHON, "import os; print(os.environ['TMPDIR'])")
    assert output.read_text().strip() == str(tmp_path)


def test_every_run_has_its_own_label_below_that_of_the_run_it_is_in(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for outer in ("", "outer"):
        monkeypatch.setenv("HETGPU_JOB", outer)
        run(output, *PYTHON, "import os; print(os.environ['HETGPU_JOB'])")
    plain, nested = output.read_text().split()
    assert len(plain) == 16
    assert nested.startswith("outer/")
    assert nested != f"outer/{plain}"


OF_A_RANK = """
    PMIX_RANK PMIX_NAMESPACE PMI_RANK PMI_SIZE PMI2_RANK PRTE_LAUNCHED OMPI_COMM_WORLD_RANK OMPI_WORLD_SIZE
    OMPI_UNIVERSE_SIZE OMPI_NUM_APP_CTX OMPI_FILE_LOCATION OMPI_MCA_ess OMPI_MCA_ess_base_jobid MPI_LOCALRANKID
    MPI_LOCALNRANKS HYDI_CONTROL_FD OMPI_MCA_initial_wdir
"""
OF_PYTEST = """
    PYTHONPATH PYTHONHOME PYTHONSAFEPATH PYTEST_CURRENT_TEST PYTEST_ADDOPTS VIRTUAL_ENV VIRTUAL_ENV_PROMPT
"""
OF_THE_USER = """
    PATH HOME LD_LIBRARY_PATH SLURM_JOB_ID OMPI_MCA_btl OMPI_ALLOW_RUN_AS_ROOT PRTE_ALLOW_RUN_AS_ROOT PMIX_MCA_gds
    PRTE_MCA_rmaps_default_mapping_policy UCX_TLS NCCL_DEBUG CUDA_VISIBLE_DEVICES OPAL_PREFIX
"""


def test_a_rank_of_another_job_does_not_pass_its_place_on() -> None:
    everything = dict.fromkeys((OF_A_RANK + OF_PYTEST + OF_THE_USER).split(), "x")
    assert set(inherited(everything)) == set(OF_THE_USER.split())


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script"
    path.write_text("#!/no/such/interpreter\n")
    return path


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("no-such-launcher-anywhere", "-np", "2"), "no-such-launcher-anywhere: no such program in PATH=/"),
        (("/no/such/mpirun",), "/no/such/mpirun: no such file"),
        (("/etc/passwd",), "/etc/passwd: not an executable file"),
        (("/etc",), "/etc: not an executable file"),
        (("/bin/true", "x" * 3_000_000), r"/bin/true: arguments and environment take 30\d{5} bytes"),
        (("/bin/true", "a\0b"), "embedded null byte in its arguments or environment"),
        ((), "an empty command"),
    ],
)
def test_what_cannot_be_started_is_said_plainly(output: Path, argv: tuple[str, ...], says: str) -> None:
    with pytest.raises(LaunchError, match=says):
        run(output, *argv)


def test_a_script_whose_interpreter_is_missing_exists(output: Path, script: Path) -> None:
    with pytest.raises(LaunchError, match="not an executable file"):
        run(output, str(script))
    script.chmod(0o755)
    with pytest.raises(LaunchError, match="the interpreter named in its first line is missing"):
        run(output, str(script))


def test_an_output_that_cannot_be_written_starts_nothing(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    with pytest.raises(LaunchError, match=r"cannot write the output to .*output\.log: No such file or directory"):
        run(tmp_path / "missing" / "output.log", "/bin/touch", str(witness))
    assert not witness.exists()


def test_absent_paths_are_named_in_the_order_asked(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    asked = ("/no/such/kfd", str(tmp_path), "/dev/null", str(tmp_path / "dangling"))
    assert Local().absent(asked) == ("/no/such/kfd", str(tmp_path / "dangling"))


def test_interfaces_that_are_up_start_with_loopback(tmp_path: Path) -> None:
    for name, flags in {"eth1": "0x1003", "eth0": "0x1003", "ib0": "0x1002", "lo": "0x9"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "flags").write_text(f"{flags}\n")
    (tmp_path / "bonding_masters").write_text("\n")
    assert interfaces_up(tmp_path) == ("lo", "eth0", "eth1")
    assert interfaces_up(tmp_path / "missing") == ()
    assert Local().interfaces()[:1] == ("lo",)


def test_the_host_is_a_testinfra_host(testinfra: None) -> None:
    assert Local().host().file("/dev/null").exists


VARIABLES = {"variables-0": {"OWN": "hidden-value"}}


def test_variables_of_ranks_are_in_a_private_file_that_goes(output: Path) -> None:
    look = (
        *("/bin/sh", "-c", 'stat -c "%a %n" "$TMPDIR"/variables-0; cat "$TMPDIR"/variables-0; echo "$@"'),
        *("sh", "variables-0"),
    )
    command = Command(("shown", "OWN=hidden-value"), private_argv=look, variables=VARIABLES)
    result = Local().run(command, output=output, timeout=60)
    mode, path, *rest = output.read_text().split()
    assert (mode, rest) == ("600", ['{"OWN":', '"hidden-value"}variables-0'])
    assert not Path(path).exists()
    assert result.argv == command.argv


def test_variables_that_cannot_be_written_are_told(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "mkdtemp", Mock(side_effect=OSError(28, "No space left on device")))
    monkeypatch.setenv("TMPDIR", "/no/such/folder")
    command = Command(("shown",), private_argv=("true",), variables=VARIABLES)
    words = "cannot write the variables of ranks to /no/such/folder/variables-0: No such file or directory"
    with pytest.raises(LaunchError, match=words):
        Local().run(command, output=output, timeout=60)


def test_a_command_inherits_no_credentials_but_what_it_is_given(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_TOKEN", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "HETGPU_HISTORY", "SSH_AUTH_SOCK"):
        monkeypatch.setenv(name, "x7")
    monkeypatch.setenv("KEPT", "x7")
    run(output, "/bin/sh", "-c", "env | grep x7", env={"HF_TOKEN": "x7"})
    assert sorted(output.read_text().split()) == ["HF_TOKEN=x7", "KEPT=x7"]
