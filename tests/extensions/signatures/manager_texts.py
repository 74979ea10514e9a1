"""Texts of resource managers, containers and the kernel, each with its meaning."""

from __future__ import annotations

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
    (
        "srun: error: Unable to allocate resources: Invalid partition name specified",
        "launch_failure Invalid-partition-name-specified@slurm",
    ),
    (
        "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
        "launch_failure Invalid-account-or-account-partition-combination-specified@slurm",
    ),
    (
        "srun: error: Unable to create step for job 12: More processors requested than permitted",
        "launch_failure More-processors-requested-than-permitted@slurm",
    ),
    (
        "srun: error: Unable to confirm allocation for job 99: Invalid job id specified",
        "launch_failure Invalid-job-id-specified@slurm",
    ),
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
    ("=>> PBS: job killed: mem 5242880kb exceeded limit 4194304kb", "out_of_memory memory-limit@pbs"),
    ("*** Job was KILLED AFTER 45 min ***", "timeout stopped@operator"),
]

CONTAINERS = [
    ("exec /usr/bin/app: exec format error", "launch_failure exec@Exec-format-error"),
    (
        "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown.",
        "launch_failure Initialization-error-nvml-error-driver-not-loaded@nvidia-container-cli",
    ),
    (
        "FATAL:   While checking image: could not open image /a/b.sif: failed to retrieve path for /a/b.sif: lstat "
        "/a/b.sif: no such file or directory",
        "launch_failure no-image@b.sif",
    ),
    ("FATAL:   While setting GPU configuration: bad", "launch_failure While-setting-GPU-configuration-bad@apptainer"),
]

KUBERNETES = [
    ("    Reason:       OOMKilled", "out_of_memory oom-kill@kernel"),
]

MEMORY = [
    ("[1.2] Out of memory: Killed process 4711 (python3) total-vm:1kB", "out_of_memory oom-kill@kernel"),
    (
        "slurmstepd: error: StepId=1.0 exceeded memory limit (2 > 1), being killed",
        "out_of_memory memory-limit@slurm",
    ),
    ("-bash: fork: Resource temporarily unavailable", "error process-limit@fork"),
]

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
