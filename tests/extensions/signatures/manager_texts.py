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
