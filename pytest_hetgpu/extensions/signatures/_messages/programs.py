"""Customary messages of programs that give up, and the lines of others that look like them.

- Panics of Go (runtime/panic.go) and Rust (std/src/panicking.rs), and uncaught exceptions of the JVM.
- amrex::Abort (Src/Base/AMReX.cpp), Charm++'s CmiAbort, Trilinos' TEUCHOS_TEST_FOR_EXCEPTION, HDF5's H5Eprint, and
  libgfortran's STOP (runtime/stop.c).
- The errors of LAMMPS (src/error.cpp), VASP, WRF, and MFEM.
"""

from __future__ import annotations

from pytest_hetgpu.model.lazy_regex import lazy

# Before the words: a rank, a host, a program's name, a time. Blanks stand in one place only, or long runs of them would
# be tried in all.
_WORD = r"[\w.@#:/-]{1,60}"
_BEFORE = rf"^\W{{0,8}}(?:[\[(]?{_WORD}(?: {_WORD}){{0,3}}[\])]?[:,>]?\s{{1,8}}){{0,2}}(?:[^\w\s]\W{{0,3}})?"
GIVING_UP = lazy(
    "|".join(
        (
            rf"{_BEFORE}(?:FATAL|Fatal|fatal|CRITICAL|PANIC|panic)\b(?: [Ee]rror| ERROR)?\b",
            rf"{_BEFORE}(?:ERROR|Error|error)(?:\b ?[:!]| in \w+|\b - |\s*>>| on (?:proc|rank|PE|process)\w* \d)",
            r"\bERROR\b(?= ?:)|\*{2,} ?ERROR",
            r"\b[Gg]iving up\b|\b[Cc]an(?:not|'t) continue\b|\b[Bb]ailing out\b|\b[Aa]borting\b(?! job)",
            r"[,.;:!] ?(?:[Ee]xit|[Tt]erminat|[Ss]topp|[Qq]uitt)ing\b|\b[Ee]xiting (?:due|because|with err|now)",
            r"\bERROR from process\b|^MFEM abort|\bVerification failed: \(.* is false|Called CmiAbort|^\W*ABORT ?[:!]",
            r"\b(?i:assert(?:ion)? fail(?:ed|ure)?)\b(?!.*\.(?:cu|hip)\b)",
            r"\b[A-Za-z]\w{2,60}(?:::\w+)*\([^()]{0,120}\) (?:failed(?:\b ?:| with\b)|returned error)",
            r"\bmust be run (?:on|with|using)\b|\brequires (?:exactly|at least) \w+ (?:\w+ )?(?:proc|rank|task|node)",
            r"\b(?:MPI )?(?:ranks|processes|tasks) must (?:match|be)\b",
            r"\bREFUSE TO CONTINUE\b|\bVERY BAD NEWS\b|\bFATAL CALLED\b|\[ABORT\]|Throw test that evaluated to true",
            r"^HDF5-DIAG: Error detected|\b(?:[Uu]ncaught|[Uu]nhandled) exception\b",
        )
    )
)
# A failed assertion that names its function, as ARMCI-MPI's, or the BSDs' assert(3).
ASSERTED = lazy(
    r"\b(?i:assert(?:ion)? fail(?:ed|ure)?)\b.{0,200}?\b(?:in|function) (?:function )?[`']?"
    r"(?P<function>[A-Za-z_][\w:]{1,80})(?=\(|, file )"
)
# After these a process is gone.
GONE = lazy(
    r"^panic: \S|^thread '[^']{0,100}' (?:\(\d+\) )?panicked at |^Exception in thread \"[^\"]{1,100}\" \S"
    r"|^STOP +[1-9]\d{0,4}\s*$|\bamrex::(?:Abort|Error)::\d+::|^\d*:{1,2}(?:Abort|Error|Assertion)\b.*!!!$"
)
OUT_OF_MEMORY = lazy(
    r"(?i:\bout of (?:host |heap )?memory\b(?!: kill)|\b(?:insufficient|not enough) memory\b"
    r"|\b(?:cannot|can't|could not|couldn't|failed to|unable to) allocate "
    r"(?!.{0,20}\b(?:port|job|nodes?|resource|socket))"
    r"|\b(?:cannot|can't|could not|couldn't|failed to|unable to) reserve .{0,20}\d ?(?:[KMGT]i?B?|bytes)\b"
    r"|\b[mc]alloc(?:\(\))? (?:of .{1,40} |for .{1,40} )?failed\b|\bmemory allocation (?:failed|failure|error)"
    r"|\ballocation of .{1,40} failed\b)"
)

# A launcher's own limit is none of these.
OUT_OF_TIME = lazy(
    r"(?i:(?<!user-provided )\b(?:time|wall[ -]?clock|wall[ -]?time) (?:budget|limit|quota)\b.{0,30}?"
    r"\b(?:exceeded|used up|reached|expired|exhausted)\b"
    r"|\b(?:exceeded|exceeds) (?:the |its )?(?:time|wall[ -]?clock|wall[ -]?time) (?:budget|limit|quota)\b)"
)

# Programs that start others, tools, and shells: their messages are not the application's.
_STARTERS = (
    r"mpirun|mpiexec\S*|prterun|prted?|orterun|orted|srun|salloc|slurmstepd\S*|slurmd\S*|sbatch|sattach|sacct|squeue|sinfo"
    r"|flux\S*|docker|podman|kubectl|runc|crun|ssh\S*|git|\w{0,4}sh|torchrun|env|python[\d.]*|pip\d?|make|cmake|gcc|ld|ldd"
    r"|singularity|apptainer|sarus|scontrol|scancel|pbs\S*|q(?:sub|stat|del)|bsub|aprun|jsrun|cat|ls|cp|mv|rm|mkdir|rmdir"
    r"|touch|chmod|chown|ln|grep|sed|g?awk|tar|gzip|gunzip|dd|df|du|head|tail|wc|sort|find|xargs|tee|which|kill|stat"
    r"|readlink|realpath|rsync|scp|sftp|curl|wget|gdb|strace|perf|numactl|taskset|mount|umount|modprobe|modulecmd|lmod"
    r"|nvidia-\S+|rocm\S*|ibv?_?\w*(?:stat|info)|ibstatus|ucx_info|ucx_perftest|ompi_info|lstopo\S*|hwloc-\S+|sudo|su"
    r"|nohup|nice|time|timeout|stdbuf|ping|ip|ifconfig|hostname|date|sleep|id|getent|perl|ruby|node|java|cd|diff|cmp|sysctl"
    r"|source|module|ulimit|export|test|pkill|killall|nsys|ncu|rocprof\S*|ldconfig|install|mktemp|less|more|unzip|zip"
)
# Lines of libraries, launchers and interpreters, figures called errors, and exits that launchers report.
NOISE = lazy(
    "|".join(
        (
            r"^\[\d{6,}\.\d+\] \[|\b(?:UCX|UCC|CL_\w+|TL_\w+) +[A-Z]+ |\bNCCL (?:INFO|WARN|TRACE|CALL|version)\b",
            r"^(?:libfabric:|libibverbs|libnuma|hwloc)",
            r"^\[?[IWEF]\d{4} |^\[[^\[\]\s:]+:\d+(?:\s*:\d+)*\]|^\[\[?\d+,\d+\]",
            r"Warning\b|WARN(?:ING)?\b|warning:|\[warn\] |DATA VALIDATION|^FATAL: {3}|^\s*Error: {3,}|^\s+Error:",
            rf"^(?:\S*/)?(?:{_STARTERS})(?:\[\d+\])?: ",
            # A script's line that failed: bash's and dash's
            r"^[^\s:]{1,200}: (?:line )?\d{1,7}: |^[^\s:]{1,200}\.(?:sh|sbatch|slurm|job|pbs): ",
            r"^\[(?:mpiexec|proxy)\S*@|^Abort\(|Fatal error in (?:P?MPI|internal)_|^Rank \d+ \[|error stack|^fatal: ",
            # A line of MPICH's error stack, and of Open MPI's TCP
            r"^\w{1,80}\(\d*\)\.*: |^\[[^\[\]\s]+\]\[\[\d+,\d+\]",
            r"MPI_A(?:BORT|bort)|MPI_ERR|has been aborted|will now abort|Per user-direction|core dumped|step aborted",
            r"^[\w.]+(?:Error|Exception|Exit|Interrupt)\b(?:: |$)|^Traceback|^\s+(?:File \"|what\(\)|raise|return)\b",
            r"torch\.distributed\.elastic\.|PETSC ERROR|error_file|stderr|^Error in sys\.excepthook",
            # gdb, which does not find a source file
            r"^Original exception was|\.(?:[chS]|cc|cpp|inl?|[fF]90): No such file or directory$",
            r"error (?:code|handl|messag|norm|bar|log|report|check|correct|estimat|toleran|rate)",
            r"(?i:\b(?:no|0|zero|without|any|if|on|max|min|mean|avg|rms|abs|rel\w*|absolute|l[12])[ _-]?errors?\b)",
            r"(?i:\berrors?\b\W{0,4}[-+]?(?:\d|nan|inf)[\d.eE+-]*\s*(?:%|$|,|\)|\||\w{1,3}\b))|^\s*#|^\s*-{1,2}\w",
            # The heading of a part of torch.distributed's NCCL errors (NCCLUtils.cpp)
            r"^\W*Last error:\s*$",
            r"^\W*(?i:done|finished|completed|success\w*)\b",
            r"\b[Rr]etry|[Rr]eset\b(?! by)|\bignor|[Ff]alling back|[Ff]all back|continuing|non-fatal|\bOK\b|^\S* ?\$ ",
            r"\b(?:CUDA|cuda|HIP|hip|ncc?l)\w* ?[Ee]rror|error while loading|symbol lookup error|undefined symbol",
            r"cannot open shared object|oom[-_]kill|\bKilled process\b",
            r"\b(?:if|when|may|avoid|prevent)\b.{0,40}\bmemory\b",
        )
    )
)

_FUNCTION = r"(?P<entry>P?MPI_[A-Z][a-z]\w{1,60}|p?nccl[A-Z]\w{2,60}|ucc_[a-z]\w{2,60})"
# `MPI_File_open(mesh.bin): MPI_ERR_NO_SUCH_FILE: ...`, `MPI_Send failed: ...`, `Error in MPI_Bcast: ...`
CALL = lazy(
    rf"{_BEFORE}(?:(?:FATAL |Fatal )?(?:MPI |NCCL |UCC )?(?:ERROR|Error|error)\b:? ?(?:in|at|from)? )?\b{_FUNCTION}\b"
    r"(?:\([^()]{0,200}\))?(?:\s?[:,-]|\s?->|)\s?"
    r"(?P<said>(?:failed|returned|error|gave|FAILED|ERROR)\b.{0,300}|MPI_ERR_\w+.{0,300}|nccl\w*Error\b.{0,200}"
    r"|[A-Z][\w ./()-]{4,80}, error stack:?)"
)
ERROR_CLASS = lazy(r"\b(?:MPIX?_ERR_[A-Z_]{2,40}|nccl[A-Z]\w{2,30}(?:Error|Argument|Usage)|UCC_ERR_[A-Z_]{2,40})\b")
# A class in MPI's own text, without a function.
CLASS_ALONE = lazy(rf"{_BEFORE}(?:MPI (?i:error):? )?(?P<error>MPIX?_ERR_[A-Z_]{{2,40}}): \S")
NOT_A_CALL = lazy(
    r"^\[[^\[\]\s:]+:\d+|^\w{1,80}\(\d*\)\.*: |\b(?:returned|gave) (?:0|MPI_SUCCESS|ncclSuccess)\b|^Abort\(|^\s*#"
    r"|Fatal error in |^[\w.]+(?:Error|Exception): |\bNCCL (?:INFO|WARN|TRACE|CALL)\b|\b(?:UCX|UCC) +[A-Z]+ "
    r"|^\[\d{6,}\."
    r"|^\[[EWIF]?\d{4} |^\S* ?\$ |0 errors\b|\bno error\b|[Ww]arning\b|WARN|^\[(?:mpiexec|proxy)|MPI_ERRORS_ARE"
)
