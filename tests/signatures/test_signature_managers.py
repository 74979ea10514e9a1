"""Resource managers, containers, Kubernetes, memory and time limits: what each text means, and what is left unread."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_hetgpu.evidence import RankExit, Signature
from pytest_hetgpu.logs.lines import parsed
from pytest_hetgpu.model import Kind
from pytest_hetgpu.registry import find
from pytest_hetgpu.signatures.base import Dialect, Reading, Weight
from pytest_hetgpu.signatures.reading.endings import by_code, by_signal, hosts, numbers, signal_number
from pytest_hetgpu.signatures.reading.order import ranked

MANAGERS = ("slurm", "flux", "batch", "containers", "kubernetes", "kernel_oom")


def heard(dialect: str, text: str) -> Dialect:
    reader = find("signatures", dialect, Dialect)()  # type: ignore[type-abstract]
    left = 0
    for number, line in enumerate(text.split("\n"), 1):
        if any(trigger in line.encode() for trigger in reader.triggers):
            left = reader.context + 1
        if left:
            left -= 1
            reader.feed(parsed(line, number))
    return reader


def readings(dialect: str, text: str) -> Sequence[Reading]:
    return heard(dialect, text).finish()


def said(dialect: str, text: str) -> list[str]:
    return [f"{reading.signature.kind.value} {reading.signature.key}" for reading in readings(dialect, text)]


def first(text: str) -> str:
    """The most telling of what all of these dialects read."""
    answer = ranked(reading for dialect in MANAGERS for reading in readings(dialect, text))
    return f"{answer[0].kind.value} {answer[0].key} {answer[0].line}" if answer else ""


SLURM = [
    ("srun: error: n1: task 0: Segmentation fault", "crash SIGSEGV"),
    ("srun: error: n1: task 0: Segmentation fault (core dumped)", "crash SIGSEGV"),
    ("srun: error: n[1-2]: tasks 0-3,5: Aborted (core dumped)", "crash SIGABRT"),
    ("srun: error: n1: task 2: Exited with exit code 1", "error exit@1"),
    ("srun: error: n1: task 2: Exited with exit code 139", "crash SIGSEGV"),
    ("srun: error: n1: task 2: Exited with exit code 127", "launch_failure exit@127"),
    ("srun: error: n1: task 2: Out Of Memory", "out_of_memory oom-kill@kernel"),
    ("srun: error: n1: task 2: CPU time limit exceeded", "timeout cpu-time@ulimit"),
    (
        "slurmstepd: error: *** JOB 80 ON n1 CANCELLED AT 2024-08-31T01:14:23 DUE TO TIME LIMIT ***",
        "timeout time-limit@slurm",
    ),
    ("slurmd[n1]: *** STEP 7.0 CANCELLED AT 2012-01-31T01:14:23 DUE TO TIME LIMIT ***", "timeout time-limit@slurm"),
    ("slurmstepd: error: *** JOB 8 ON n1 CANCELLED AT 2024-01-01T01:00:00 ***", "timeout cancelled@slurm"),
    (
        "slurmstepd: error: *** JOB 8 ON n1 CANCELLED AT 2024-01-01T01:00:00 DUE to SIGNAL Terminated ***",
        "timeout cancelled@slurm",
    ),
    (
        "slurmstepd: error: *** JOB 8 ON n1 CANCELLED AT 2024-01-01T01:00:00 DUE TO PREEMPTION ***",
        "timeout preempted@slurm",
    ),
    (
        "slurmstepd: error: *** JOB 8 ON n1 CANCELLED AT 2024-01-01T01:00:00 DUE TO NODE FAILURE, "
        "SEE SLURMCTLD LOG FOR DETAILS ***",
        "network_failure node-failure@slurm",
    ),
    ("srun: error: Node failure on n1", "network_failure node-failure@slurm"),
    (
        "slurmstepd-n1: error: execve(): /home/u/./nothere: No such file or directory",
        "launch_failure no-program@nothere",
    ),
    (
        "slurmstepd: error: execve(): bad interpreter(/no/python): No such file or directory",
        "launch_failure no-interpreter@python",
    ),
    ("slurmstepd: error: execve(): /home/u/./a.out: Exec format error", "launch_failure exec@Exec-format-error"),
    (
        "srun: error: Unable to allocate resources: Invalid partition name specified",
        "launch_failure Invalid-partition-name-specified@slurm",
    ),
    (
        "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
        "launch_failure Invalid-account-or-account-partition-combination-specified@slurm",
    ),
    (
        "salloc: error: Job submit/allocate failed: Requested node configuration is not available",
        "launch_failure Requested-node-configuration-is-not-available@slurm",
    ),
    (
        "srun: error: Unable to create step for job 12: More processors requested than permitted",
        "launch_failure More-processors-requested-than-permitted@slurm",
    ),
    (
        "srun: error: Unable to confirm allocation for job 99: Invalid job id specified",
        "launch_failure Invalid-job-id-specified@slurm",
    ),
    (
        "srun: error: Task launch for StepId=5.0 failed on node n1: Unable to satisfy cpu bind request",
        "launch_failure Unable-to-satisfy-cpu-bind-request@slurm",
    ),
    (
        "srun: error: task 3 launch failed: Slurmd could not connect IO",
        "launch_failure Slurmd-could-not-connect-IO@slurm",
    ),
    (
        "srun: error: Application launch failed: Invalid node name specified",
        "launch_failure Invalid-node-name-specified@slurm",
    ),
    (
        "srun: error:  mpi/pmix_v4: init: (null) [0]: mpi_pmix.c:195: pmi/pmix: can not load PMIx library",
        "launch_failure missing-library@libpmix",
    ),
    ("srun: error: Invalid MPI type 'pmix', --mpi=list for acceptable types", "launch_failure no-mpi-plugin@slurm"),
    (
        "slurmstepd: error: mpi/pmix_v3: pmixp_coll_ring_reset: n1 [1]: pmixp_coll.c:3: collective timeout seq=3",
        "network_failure collective-timeout@pmix",
    ),
    ("slurmstepd: error: couldn't chdir to `/a': No such file or directory", "launch_failure no-folder@slurm"),
    ("srun: error: Could not open stdout file: Permission denied", "launch_failure no-output@slurm"),
    ('sbatch: error: Munge encode failed: Failed to access "/run/munge.socket.2"', "launch_failure munge@slurm"),
    ("sbatch: error: Unable to open file job.sh", "launch_failure no-program@job.sh"),
    ("salloc: Job 12 has exceeded its time limit and its allocation has been revoked.", "timeout time-limit@slurm"),
    ("srun: Job allocation 8 has been revoked", "launch_failure revoked@slurm"),
    ("srun: unrecognized option '--nope'", "launch_failure bad-option@slurm"),
]

FLUX = [
    ("flux-job: task(s) exited with exit code 139", "crash SIGSEGV"),
    ("flux-job: task(s) exited with exit code 3", "error exit@3"),
    ("flux-job: task(s) Bus error", "crash SIGBUS"),
    ("flux-job: job shell Killed", "crash SIGKILL"),
    (
        '0.02s: job.exception type=alloc severity=0 alloc denied due to type="unsatisfiable"',
        "launch_failure unsatisfiable@flux",
    ),
    ("0.02s: job.exception f2Ab3 type=dependency severity=0 no such job", "launch_failure dependency@flux"),
    ("9.7s: job.exception type=cancel severity=0 interrupted by ctrl-C", "timeout cancelled@flux"),
    ("61.0s: job.exception type=timeout severity=0 resource allocation expired", "timeout time-limit@flux"),
    ("0.3s: job.exception type=exec severity=0 MPI_Abort: N/A", "error MPI_Abort"),
    (
        "0.1s: job.exception type=exec severity=0 task 0 (host n1): start failed: ./x: No such file or directory",
        "launch_failure no-program@x",
    ),
    (
        "1.1s: job.exception type=exec severity=0 a.out: task rank 3 on host n2 failed (Segmentation fault) "
        "and exit-on-error is set",
        "crash SIGSEGV",
    ),
    ("1.1s: job.exception type=exec severity=0 node failure on n3 (rank 3)", "network_failure node-failure@flux"),
    (
        "0.1s: flux-shell[1]: FATAL: task 4 (host n2): start failed: ./x: Permission denied",
        "launch_failure exec@Permission-denied",
    ),
    ("flux-run: ERROR: unrecognized arguments: --nope", "launch_failure unrecognized-arguments-nope@flux"),
    (
        '{"timestamp":1.5,"name":"shell.task-exit","context":{"localid":0,"rank":4,"state":"Exited","pid":70,'
        '"wait_status":139,"signaled":11,"exitcode":139}}',
        "crash SIGSEGV",
    ),
    (
        '{"timestamp":1.5,"name":"exception","context":{"type":"timeout","severity":0,"note":"it expired","userid":1}}',
        "timeout time-limit@flux",
    ),
    ('{"timestamp":1.5,"name":"complete","context":{"status":256}}', "error exit@1"),
]

BATCH = [
    ("timeout: sending signal TERM to command 'mpirun'", "timeout time-limit@timeout"),
    ("timeout: failed to run command './x': No such file or directory", "launch_failure no-program@x"),
    ("=>> PBS: job killed: walltime 3621 exceeded limit 3600", "timeout time-limit@pbs"),
    ("=>> PBS: job killed: mem 5242880kb exceeded limit 4194304kb", "out_of_memory memory-limit@pbs"),
    ("=>> PBS: job killed: vmem 5242880kb exceeded limit 4194304kb", "out_of_memory memory-limit@pbs"),
    ("=>> PBS: job killed: cput 362 exceeded limit 360", "timeout cpu-time@pbs"),
    ("qsub: Unknown queue", "launch_failure Unknown-queue@pbs"),
    ("TERM_RUNLIMIT: job killed after reaching LSF run time limit.", "timeout time-limit@lsf"),
    ("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", "out_of_memory memory-limit@lsf"),
    ("TERM_OWNER: job killed by owner.", "timeout cancelled@lsf"),
    ("Exited with exit code 3.", "error exit@3"),
    ("Command terminated by signal 9", "crash SIGKILL"),
    ("Command exited with non-zero status 3", "error exit@3"),
    ("make: *** [Makefile:3: run] Error 139", "crash SIGSEGV"),
    ("make[1]: *** [Makefile:3: run] Segmentation fault (core dumped)", "crash SIGSEGV"),
    ("Error: Process completed with exit code 1.", "error exit@1"),
    ("app.service: Failed with result 'oom-kill'.", "out_of_memory oom-kill@kernel"),
    ("app.service: Main process exited, code=killed, status=11/SEGV", "crash SIGSEGV"),
    (
        "##[error]The job running on runner GitHub Actions 2 has exceeded the maximum execution time of 60 minutes.",
        "timeout time-limit@github",
    ),
    ("##[error]Process completed with exit code 134.", "crash SIGABRT"),
    ("ERROR: Job failed: execution took longer than 1h0m0s seconds", "timeout time-limit@gitlab"),
    ("ERROR: Job failed: exit code 2", "error exit@2"),
    ("Build timed out (after 30 minutes). Marking the build as failed.", "timeout time-limit@jenkins"),
    ("STOPPED AT 20 MINUTES, only at step 4", "timeout stopped@operator"),
    ("Cancelled after 2 hours", "timeout stopped@operator"),
    ("*** Job was KILLED AFTER 45 min ***", "timeout stopped@operator"),
]

CONTAINERS = [
    (
        "docker: Error response from daemon: failed to create shim task: OCI runtime create failed: runc create "
        'failed: unable to start container process: exec: "/n/prog": stat /n/prog: no such file or directory: unknown',
        "launch_failure no-program@prog",
    ),
    (
        "docker: Error response from daemon: OCI runtime create failed: runc create failed: unable to start "
        'container process: exec: "train": executable file not found in $PATH: unknown.',
        "launch_failure no-program@train",
    ),
    (
        "docker: Error response from daemon: OCI runtime create failed: runc create failed: unable to start "
        'container process: exec: "/etc/passwd": permission denied: unknown',
        "launch_failure exec@Permission-denied",
    ),
    ("exec /usr/bin/app: exec format error", "launch_failure exec@Exec-format-error"),
    (
        "standard_init_linux.go:228: exec user process caused: exec format error",
        "launch_failure exec@Exec-format-error",
    ),
    (
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        "launch_failure no-gpu@engine",
    ),
    (
        "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown.",
        "launch_failure Initialization-error-nvml-error-driver-not-loaded@nvidia-container-cli",
    ),
    (
        "docker: Error response from daemon: error gathering device information while adding custom device "
        '"/dev/kfd": no such file or directory',
        "launch_failure no-device@kfd",
    ),
    (
        "docker: Error response from daemon: pull access denied for nosuch/image, repository does not exist or may "
        "require 'docker login'",
        "launch_failure no-image@image",
    ),
    (
        'docker: Error response from daemon: Get "https://registry-1.docker.io/v2/": dial tcp: lookup x: no such host',
        "launch_failure no-registry@engine",
    ),
    (
        "docker: Error response from daemon: driver failed programming external connectivity on endpoint a (8f): "
        "Bind for 0.0.0.0:80 failed: port is already allocated",
        "launch_failure port-taken@engine",
    ),
    (
        'docker: Error response from daemon: Conflict. The container name "/a" is already in use by container "1".',
        "launch_failure name-taken@engine",
    ),
    (
        "docker: Error response from daemon: Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available",
        "launch_failure Range-of-CPUs-is-from-to-as-there-are-only-CPUs-available@docker",
    ),
    ("Error response from daemon: write /a: no space left on device", "launch_failure no-space@engine"),
    (
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        "launch_failure no-daemon@docker",
    ),
    (
        'Error: short-name "nosuch" did not resolve to an alias and no unqualified-search registries are defined',
        "launch_failure no-image@nosuch",
    ),
    (
        "Error: crun: executable file `nosuch` not found in $PATH: No such file or directory: OCI runtime error",
        "launch_failure no-program@nosuch",
    ),
    (
        "FATAL:   While checking image: could not open image /a/b.sif: failed to retrieve path for /a/b.sif: lstat "
        "/a/b.sif: no such file or directory",
        "launch_failure no-image@b.sif",
    ),
    (
        "FATAL   [U=0,P=7]          Stage() could not open image /a/b.sif: image format not recognized",
        "launch_failure no-image@b.sif",
    ),
    ('FATAL:   "train.py": executable file not found in $PATH', "launch_failure no-program@train.py"),
    ("FATAL:   stat /bin/nosuch: no such file or directory", "launch_failure no-program@nosuch"),
    ("FATAL:   exec /bin/x failed: exec format error", "launch_failure exec@Exec-format-error"),
    (
        "FATAL:   container creation failed: mount hook function failure: mount /scratch->/scratch error: no such file",
        "launch_failure no-mount@scratch",
    ),
    ("ERROR  : Failed to create user namespace: No space left", "launch_failure no-namespace@apptainer"),
    ("FATAL:   While setting GPU configuration: bad", "launch_failure While-setting-GPU-configuration-bad@apptainer"),
    ("/.singularity.d/actions/exec: 21: exec: nosuch: not found", "launch_failure no-program@nosuch"),
    (
        "slurmstepd: error: pyxis:     [ERROR] No such file or directory: /a/b.sqsh",
        "launch_failure No-such-file-or-directory-a-b.sqsh@enroot",
    ),
    (
        "slurmstepd: error: pyxis: container start failed with error code: 1",
        "launch_failure With-error-code@pyxis",
    ),
    (
        "enroot-switchroot: failed to execute: x: No such file or directory",
        "launch_failure Failed-to-execute-x-No-such-file-or-directory@enroot",
    ),
    ("FAILED to find requested image.", "launch_failure no-image@shifter"),
    (
        "ch-run[12]: error: can't execve(2): /x: No such file or directory (ch_core.c:4 2)",
        "launch_failure no-program@x",
    ),
]

KUBERNETES = [
    ("worker-0   0/1   ImagePullBackOff   0   3m", "launch_failure no-image@kubernetes"),
    ("worker-0   0/1   OOMKilled          0   3m", "out_of_memory oom-kill@kernel"),
    ("    Reason:       OOMKilled", "out_of_memory oom-kill@kernel"),
    ("worker-0   0/1   CrashLoopBackOff   7   3m", "error crash-loop@kubernetes"),
    ("worker-0   0/1   Evicted            0   3m", "error evicted@kubernetes"),
    (
        "Message: The node was low on resource: memory. Container main was using 9Gi",
        "out_of_memory evicted@memory",
    ),
    ("The node was low on resource: ephemeral-storage. Threshold", "error evicted@ephemeral-storage"),
    ("Warning  DeadlineExceeded  5m  job-controller  Job was active longer", "timeout time-limit@kubernetes"),
    (
        "Warning  FailedScheduling  0/5 nodes are available: 5 Insufficient nvidia.com/gpu.",
        "launch_failure unschedulable@kubernetes",
    ),
    ("error: timed out waiting for the condition on jobs/a", "timeout time-limit@kubectl"),
    ("Error from server (Forbidden): pods is forbidden", "launch_failure Forbidden@kubernetes"),
    ("command terminated with exit code 137", "error exit@137"),
]

MEMORY = [
    ("[1.2] Out of memory: Killed process 4711 (python3) total-vm:1kB", "out_of_memory oom-kill@kernel"),
    ("kernel: python3 invoked oom-killer: gfp_mask=0xcc0", "out_of_memory oom-kill@kernel"),
    (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=5.0. Some of the step tasks have been OOM Killed.",
        "out_of_memory oom-kill@kernel",
    ),
    (
        "slurmstepd: error: StepId=1.0 exceeded memory limit (2 > 1), being killed",
        "out_of_memory memory-limit@slurm",
    ),
    ("bash: fork: Cannot allocate memory", "out_of_memory no-memory@fork"),
    ("-bash: fork: Resource temporarily unavailable", "error process-limit@fork"),
    ("cgroup: fork rejected by pids controller in /system.slice/docker-1.scope", "error process-limit@fork"),
    ("libgomp: Thread creation failed: Resource temporarily unavailable", "error thread-limit@libgomp"),
    ("OSError: write /dev/shm/x failed: No space left on device", "out_of_memory no-space@dev-shm"),
    ("Exception in thread main java.lang.OutOfMemoryError: Java heap space", "out_of_memory OutOfMemoryError@java"),
    ("fatal error: runtime: out of memory", "out_of_memory no-memory@go"),
    ("forrtl: severe (41): insufficient virtual memory", "out_of_memory no-memory@forrtl"),
]

TEXTS = [
    (dialect, text, wanted)
    for dialect, texts in zip(MANAGERS, (SLURM, FLUX, BATCH, CONTAINERS, KUBERNETES, MEMORY), strict=True)
    for text, wanted in texts
]


@pytest.mark.parametrize(("dialect", "text", "wanted"), TEXTS)
def test_what_a_text_means(dialect: str, text: str, wanted: str) -> None:
    assert said(dialect, text) == [wanted]


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("slurm", "srun: Job step creation temporarily disabled, retrying (Requested nodes are busy)"),
        ("slurm", "slurmstepd: error: couldn't chdir to `/no': No such file or directory: going to /tmp instead"),
        ("slurm", "srun: job 5 queued and waiting for resources"),
        ("slurm", "srun: error: eio_handle_mainloop: Abandoning IO 60 secs after job shutdown initiated"),
        ("slurm", "srun: error: Timed out waiting for job step to complete"),
        ("slurm", "x.c:3:1: error: execve() is not declared"),
        ("slurm", "slurmstepd: task 3 exited normally"),
        ("flux", '{"timestamp":1.5,"name":"complete","context":{"status":0}}'),
        ("flux", '{"timestamp":1.5,"name":"shell.task-exit","context":{"rank":0,"signaled":0,"exitcode":0}}'),
        ("flux", "0.1s: job.exception type=exec severity=1 something small"),
        ("flux", "flux-shell[0]:  WARN: cpu-affinity: nothing"),
        ("batch", "the solver was Killed by a dragon"),
        ("batch", "Aborted transactions: 0"),
        ("batch", "iteration 7 stopped at residual 10 seconds later"),
        ("batch", "connection terminated after 30 bytes"),
        ("batch", "Exited with exit code 0."),
        ("batch", "timeout: the monitored command is fine"),
        ("batch", "Signal: Segmentation fault (11)"),
        ("containers", "WARNING: could not mount /etc/localtime: not a directory"),
        ("containers", "INFO:    Converting SIF file to temporary sandbox..."),
        ("containers", "slurmstepd: pyxis: imported docker image: ubuntu"),
        ("containers", "Unable to find image 'ubuntu:latest' locally"),
        ("containers", "[ERROR] something of another program"),
        ("kubernetes", "worker-0   1/1   Running   0   3m"),
        ("kubernetes", "rpc error: code = DeadlineExceeded desc = context deadline exceeded"),
        ("kernel_oom", "memory is fine"),
        ("kernel_oom", "bash: fork: retry: Resource temporarily unavailable"),
    ],
)
def test_what_means_nothing(dialect: str, text: str) -> None:
    assert said(dialect, text) == []


def test_srun_names_ranks_and_hosts() -> None:
    reader = heard("slurm", "srun: error: n[08-10],x: tasks 0-2,5: Bus error")
    signature = reader.finish()[0].signature
    assert (signature.ranks, signature.hosts) == ((0, 1, 2, 5), ("n08", "n09", "n10", "x"))
    assert reader.exits() == tuple(RankExit(rank, signal=7) for rank in (0, 1, 2, 5))


def test_many_hosts_and_ranks_are_all_named_and_endless_numbers_none() -> None:
    assert len(hosts("n[001-500],x")) == 501
    assert hosts(f"n[{'9' * 5000}-3],x") == ("x",)
    assert tuple(numbers(f"0-499,{'9' * 5000}")) == tuple(range(500))


KILL_ON_BAD_EXIT = """srun: error: n1: task 0: {}
srun: launch/slurm: _step_signal: Terminating StepId=1.0
slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-11-20T20:29:07 ***
srun: error: n1: task 1: {}
srun: Force Terminated StepId=1.0"""


@pytest.mark.parametrize("end", ["Terminated", "Killed"])
@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ("Segmentation fault", "crash SIGSEGV 1"),
        ("Exited with exit code 3", "error exit@3 1"),
        ("Killed", "crash SIGKILL 1"),
        ("Out Of Memory", "out_of_memory oom-kill@kernel 1"),
    ],
)
def test_whom_srun_kills_is_a_consequence(how: str, wanted: str, end: str) -> None:
    assert first(KILL_ON_BAD_EXIT.format(how, end)) == wanted
    weights = [reading.weight for reading in readings("slurm", KILL_ON_BAD_EXIT.format(how, end))]
    assert weights == [Weight.ENDING, Weight.CONSEQUENCE]


def test_a_step_that_is_terminated_because_of_a_task_says_so_before_or_after() -> None:
    """With --label the tasks' own lines take another way than srun's, and may come first."""
    lines = KILL_ON_BAD_EXIT.format("Segmentation fault", "Terminated").split("\n")
    assert first("\n".join((lines[2], lines[1], lines[0]))).startswith("crash SIGSEGV")


TIME_LIMIT = """going
slurmstepd: error: *** JOB 18 ON n1 CANCELLED AT 2026-11-20T20:32:39 DUE TO TIME LIMIT ***
slurmstepd: error: *** STEP 18.0 ON n1 CANCELLED AT 2026-11-20T20:32:39 DUE TO TIME LIMIT ***
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
srun: error: n1: task 0: {}
srun: error: n1: tasks 1-3: Killed"""


@pytest.mark.parametrize("how", ["Terminated", "Exited with exit code 1", "Segmentation fault"])
def test_what_follows_a_time_limit_is_a_consequence(how: str) -> None:
    assert first(TIME_LIMIT.format(how)) == "timeout time-limit@slurm 2"


@pytest.mark.parametrize(
    "cut",
    [
        "slurmstepd: error: *** JOB 18 ON n1 CANCELLED AT 2026-11-20T20:32:39 DUE TO TIME LIMIT ***",
        "slurmstepd: error: *** JOB 18 ON n1 CANCELLED AT 2026-11-20T20:32:39 ***",
        "=>> PBS: job killed: walltime 3621 exceeded limit 3600",
        "timeout: sending signal TERM to command 'mpirun'",
    ],
)
def test_only_what_stands_before_the_end_of_a_job_can_be_its_reason(cut: str) -> None:
    lost = "[n1:1] pml_ucx.c:424  Error: ucp_ep_create(proc=1) failed: Destination is unreachable"
    gone = Reading(Signature(Kind.NETWORK_FAILURE, "lost", lost, 2), Weight.SYMPTOM, certain=False)
    before = [reading for dialect in MANAGERS for reading in readings(dialect, f"going\ngoing\n{cut}")]
    after = [reading for dialect in MANAGERS for reading in readings(dialect, cut)]
    assert ranked([gone, *before])[0] == gone.signature
    assert ranked([gone, *after])[0].kind is Kind.TIMEOUT


def test_a_failure_before_the_time_limit_wins() -> None:
    assert first("srun: error: n1: task 0: Aborted\n" + TIME_LIMIT.format("Terminated")) == "crash SIGABRT 1"


def test_what_is_told_of_signals_is_kept_with_the_limit() -> None:
    assert readings("slurm", TIME_LIMIT.format("Terminated"))[0].signature.signal == "SIGTERM"
    assert readings("slurm", TIME_LIMIT.split("\nsrun", maxsplit=1)[0])[0].signature.signal is None


def test_memory_explains_who_was_killed() -> None:
    text = (
        "slurmstepd: error: StepId=16.0 exceeded memory limit (236236800 > 209715200), being killed\n"
        "srun: Exceeded job memory limit\n"
        "slurmstepd: error: *** STEP 16.0 ON n1 CANCELLED AT 2026-11-20T20:30:37 ***\n"
        "srun: error: n1: task 0: Killed"
    )
    assert first(text) == "out_of_memory memory-limit@slurm 1"
    assert first("Killed\n[1.2] Out of memory: Killed process 7 (a)") == ("out_of_memory oom-kill@kernel 2")


def test_a_program_that_is_not_there_wins_over_its_exit_code() -> None:
    text = "srun: error: n1: task 0: Exited with exit code 2\nslurmstepd: error: execve(): x: No such file or directory"
    assert first(text) == "launch_failure no-program@x 2"


EVENTS = """flux-job: task(s) exited with exit code 143
{"timestamp":1.4,"name":"shell.task-exit","context":{"localid":1,"rank":81,"wait_status":15,"signaled":15,"exitcode":143}}
{"timestamp":1.5,"name":"complete","context":{"status":36608}}"""


def test_what_somebody_stopped_was_stopped_whatever_its_ranks_said() -> None:
    """The event log follows the output, so that lines do not tell what came first."""
    assert first(EVENTS) == "crash SIGTERM 1"
    cancelled = "9.7s: job.exception type=cancel severity=0 interrupted by ctrl-C"
    assert first(f"{EVENTS}\n{cancelled}") == "timeout cancelled@flux 4"
    noted = readings("batch", f"{EVENTS}\nSTOPPED AT 15 MINUTES")
    assert [(r.weight, r.signature.signal) for r in noted] == [(Weight.RELAYED, "SIGTERM")]
    assert [r.weight for r in readings("batch", "STOPPED AT 15 MINUTES")] == [Weight.LIMIT]
    assert first(f"{EVENTS}\n{cancelled}\nSTOPPED AT 15 MINUTES") == "timeout stopped@operator 5"
    assert heard("flux", EVENTS).exits() == (RankExit(81, signal=15),)


def test_a_crash_in_the_events_of_a_cancelled_job_wins() -> None:
    crash = EVENTS.replace('"signaled":15', '"signaled":11').replace("code 143", "code 139")
    assert first(f"{crash}\n9.7s: job.exception type=cancel severity=0 interrupted") == "crash SIGSEGV 1"


def test_jsrun_names_a_rank() -> None:
    reader = heard(
        "batch", "ERROR:  One or more process (first noticed rank 3) terminated with signal 11 (core dumped)"
    )
    signature = reader.finish()[0].signature
    assert (signature.key, signature.ranks, reader.exits()) == ("SIGSEGV", (3,), (RankExit(3, signal=11),))


@pytest.mark.parametrize(
    "lines",
    [
        ["srun: error: n1: task 0: Bus error", "srun: error: other7: tasks 4-9: Bus error (core dumped)"],
        [f"=>> PBS: job killed: walltime {n} exceeded limit 3" for n in (4, 56)],
        [f"srun: error: Unable to confirm allocation for job {job}: Invalid job id specified" for job in (1, 12345)],
        [f"1.{n}s: job.exception fA{n} type=alloc severity=0 unsatisfiable" for n in (1, 23)],
    ],
)
def test_keys_hold_nothing_of_one_run(lines: list[str]) -> None:
    keys = {
        r.signature.key for line in lines for dialect in ("slurm", "flux", "batch") for r in readings(dialect, line)
    }
    assert len(keys) == 1


HOSTILE = [
    "srun: error: " + "a" * 4000,
    "srun: error: n[" + "1-" * 2000 + "]: tasks " + "0-9," * 900 + "0: Killed",
    "srun: error: n[1-999999999]: tasks 0-999999999: Killed",
    "srun: error: n1: task 99999999999999: Killed",
    "srun: error: n1: tasks " + "0-999999999," * 300 + "1: Killed",
    '{"name":"complete","status":' + "9" * 8000,
    "*** JOB 1 ON n CANCELLED AT x DUE TO " + "a " * 2000,
    "job.exception " + "type=" * 900,
    '{"name":"exception"' + '"note":"\\' * 500,
    '{"name":"shell.task-exit","rank":' + "9" * 4000,
    '{"name":"complete","status":' + "9" * 4000,
    "FATAL:   " + "mount " * 700,
    "FATAL:   " + "user namespace " * 300,
    'docker: Error response from daemon: exec: "' * 90,
    "Get https://" + "/v2/" * 1000,
    "STOPPED AT " + "1 " * 2000,
    ": line 1: 1 Killed" + " " * 4000 + "x",
    "rank 3 died from signal " + "9" * 4000,
    "rank 3 exited with code " + "9" * 4000,
    "timeout: sending signal 9 to command",
    "/dev/shm" * 500 + "o space left on device",
    "pyxis: error: " + "pyxis: " * 500,
    "0/9 nodes are available: " * 150,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_read_quickly_and_raises_nothing(text: str) -> None:
    import time

    started = time.process_time()
    for dialect in MANAGERS:
        reader = find("signatures", dialect, Dialect)()  # type: ignore[type-abstract]
        for number in range(3):
            reader.feed(parsed(text, number + 1))
        assert len(reader.finish()) < 100
        reader.exits()
    assert time.process_time() - started < 1


def test_endings() -> None:
    assert signal_number("Segmentation fault (core dumped)") == 11
    assert signal_number("Nonsense") is None
    assert by_code(137).signal == "SIGKILL"
    assert by_code(143).weight is Weight.CONSEQUENCE
    assert by_code(255).key == "exit@255"
    assert by_signal(55).key == "SIG55"
    assert list(numbers("0-2,7")) == [0, 1, 2, 7]
    assert hosts("a,b[1-2,09]-x,c") == ("a", "b1-x", "b2-x", "b09-x", "c")
