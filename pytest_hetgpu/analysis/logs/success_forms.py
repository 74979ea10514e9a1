"""Forms of lines that show success, and of lines that deny it.

Sources of those that are not customary:

- seff, sacct and scontrol of Slurm, the job report of LSF, GitLab CI, Jenkins.
- torchrun (elastic/agent/server/api.py) and DeepSpeed's launch.py.
- pytest, unittest, GoogleTest and CTest.
- nccl-tests' common.cu, the OSU benchmarks, HPL, LAMMPS, GROMACS, Quantum ESPRESSO, tqdm.
"""

from __future__ import annotations

_ENDED = r"(?:complete\w*|finish\w+|ended|ends|terminat\w+|exit\w*|done)"
_JOB = r"(?:simulation|calculation|training|benchmark\w*|tests?|runs?|jobs?|program|execution|computation|analysis"
_WORK = _JOB + r"|script|fine-?tuning|inference|evaluation|sampling|optimi[sz]ation|experiments?|workflow|all\b.{0,20})"
_OF = r"(?:exit(?:ed)?(?: with)?|return(?:ed)?|rc|status)(?:[ _-]?(?:status|code|value))?(?: (?:is|was|of))?"
_RANK = r"(?:rank|proc\w*|worker|task|node)[ :#=]{0,2}\d+(?: ?(?:of|/) ?\d+)?"
_BYE = r"(?:done|finished|finalized|completed?|success(?:ful(?:ly)?)?|succeeded|passed|bye|goodbye|exiting normally)"
_NO_MORE = r"(?:[\s.!:)*=-]*$|,? (?:in|after|time|at|on)\b)"
_CLOCK = r"(?:total|overall|elapsed|wall(?:[ -]?clock)?|run|execution|solve|training|computation|cpu|average|loop)"
_NAMED = r"(?:\w*result\w*|checksum|answer|sum|accuracy|metricvalue|eval\w*|best \w+)"
_FINAL = r"(?:figure of merit|FOM|final (?:resid\w*|norm|loss|result|energy|accuracy|score|time))"

STATUS = (
    rf"(?i:\b{_OF}\s*[:=]?\s*\(?['\"]?0['\"]?(?![\w:/-]|\.\d)(?!\s*(?:/|of)\s*\d))",
    r"\bExitCode=0:0\b|\bState: COMPLETED \(exit code 0\)|^Successfully completed\.\s*$|\bexits successfully\b",
    r"\b[Ww]orker group successfully finished\b|^Job succeeded\b|\bFinished: SUCCESS\b",
    r"(?i:\b(?:job|step|task|process|workflow|pipeline)\b.{0,60}\b(?:completed|finished|ended|exited) success\w*)",
)
TESTS = (
    r"^=+ (?:\d+ (?:passed|skipped|deselected|xfailed|xpassed|warnings?)(?:, )?)+ in [\d.]+\w*.*=+\s*$",
    r"^\[  PASSED  \] \d+ tests?\.?|^100% tests passed, 0 tests failed out of \d+|^OK(?: \(skipped=\d+\))?\s*$",
    r"^test result: ok\. |(?i:^all (?:\d+ )?tests? (?:have )?(?:passed|ok|succeeded|successful))",
)
RESULT = (
    r"^\W{0,8}SUCCESS\b(?!\w)",
    r'^@hetgpu:\d{4}:\w+:\{"t":"done"',
    r"\bOut of bounds values : 0 OK|^# Avg bus bandwidth\s+:\s*[\d.]+|\bHPL: |\bEnd of Tests?\b",
    r"(?i:\bverif(?:ication|ied|y)\w*\s*[:=]?\s*(?:is |was |of \w+ )?(?:success\w*|ok\b|passed|correct|valid))",
    r"(?i:\b(?:0|no|zero) (?:bad|wrong|incorrect|failed|corrupt\w*|mismatch\w*|invalid|errors?\b)(?! in\b))",
    r"(?i:\b(?:errors?|failures|failed|mismatches|bad(?: values| elements)?)\s*[:=]\s*0\b(?!\.\d*[1-9]))",
    r"(?i:\b(?:tests?|checks?|checked|validation|correctness)\b\W{1,5}(?:\w+ ){0,3}(?:passed|pass|ok|success\w*)\b)",
    rf"(?i:\b{_FINAL}\b.*\d)",
    rf"(?i:\b{_NAMED}\b.{{0,40}}[:=]\s*(?:tensor\()?\[?[-+]?\d)",
    r"^\s*\d+(?:\s+[-+]?\d[\d.]*(?:[eE][-+]?\d+)?)+\s+Pass\s*$",
)
WORDS = (
    # `[rank 1] finished`, `node1: done.`
    rf"(?i:^\W{{0,8}}(?:\S{{1,40}}[:\]|] ?){{0,3}}(?:\W{{0,3}}{_RANK}\W{{0,3}})?\s*(?:all )?{_BYE}{_NO_MORE})",
    rf"(?i:\b(?:success(?:fully)?|normally|correctly)\b.{{0,40}}\b(?:{_ENDED}|trained)\b)",
    rf"(?i:\b(?:{_ENDED}|ran|run|shut ?down)\b.{{0,40}}\b(?:success\w*|normally|without errors?)\b)",
    r"(?i:\bnormal (?:termination|end|exit|completion)\b|\bsuccessful completion\b)",
    r"\bJOB DONE\b|\bGROMACS reminds you\b|^Finished mdrun\b",
    r"^wandb: Synced \d|\bshutdown complete\b|\bis done running\b",
    rf"(?i:\b{_WORK}(?: \S+){{0,4}}? (?:is |are |was |has |have )?(?:now )?(?:{_ENDED}|concluded|over)\b(?! with err))",
    # The time taken, and rates, which a program prints last.
    rf"(?i:\b{_CLOCK}[ _-]?(?:wall |run |elapsed |clock |cpu |execution )?time\b.{{0,60}}\d)",
    r"^\W{0,8}(?!(?i:end|start|begin))[A-Za-z]\w*(?: \w+)? time\s*[:=]\s*[\d.]+\s*\w{0,7}\s*$",
    r"(?i:^\W{0,8}(?:\w+ )?time \((?:s|m?secs?|m?seconds)\)\s*[:=]\s*\d)",
    r"(?i:\b(?:runtime|elapsed|duration|throughput|(?:samples|tokens|images|steps)(?:/| per )s(?:ec\w*)?)\b\W{0,4}\d)",
    r"\b[Tt]ime to \w+\b.{0,20}\d",
    r"^\s*(?:[GM]?FLOP\w*(?:/s)?|Mop/s total|[MG]B/s)\b.*\d",
    r"(?i:\b(?:total|final|mean|average) (?:wall |bandwidth|performance)\b.*\d)",
    r"\b100%\|[^|]*\| *\d+/\d+ |(?i:\b(?:epoch|step|iter\w*)\W{1,3}\d+ ?(?:/|of) ?\d+\b)",
)
# Ranks that reached MPI_Finalize or ncclCommDestroy: Open MPI's pml_ucx.c and common_ucx.c, NCCL's init.cc, libfabric's
# ofi_monitors_cleanup, UCC's ucc_coll.c.
FINALIZE = (
    r"\bmca_pml_ucx_close\b|\bwaiting for 0 disconnect requests\b|\bNCCL INFO comm \S+ rank .* - Destroy COMPLETE",
    r"\bofi_monitors_cleanup\b|\bcoll finalize: req\b",
)
ALL = r'"successful":[1-9]\d*,"failed":0,"canceled":0'
"""A summary of jobs (`flux job stats`), which is a status though it has the word failed."""
ROW = r"\s*(\d{1,15})(?:\s+[-+]?\d[\d.]*(?:[eE][-+]?\d+)?)+\s*$"
"""A row of a table over message sizes."""
FIGURE = (
    r"\s*(?!(?i:step|epoch|iter\w*|loss|line|pid|rank)\b)[A-Za-z][\w .()/-]{1,40}:\s+[-+]?\d[\d.,eE+-]*\s?\w{0,6}\s*$"
)
"""A named figure: `GPU time: 0.073 s`."""
COUNTED = r"\b100%\|[^|]*\| *(\d+)/(\d+) |(?i:\b(?:epoch|step|iter\w*)\W{1,3}(\d+) ?(?:/|of) ?(\d+)\b)"
"""A count of steps, of which some may be left."""

DENIED = (
    r"(?i:\b(?:not|never|cannot|can't|couldn't|un)(?:\b|(?=success))|\bfail(?:ed|ure|s)?\b(?!\s*[:=]?\s*0\b))",
    r"(?i:\bto be terminated\b|\bterminated (?:by|with|due|abnormally)\b|\bcausing\b)",
    r'^\s*File "|^\s*\{.*:.*,',
    r"(?i:\berrors?\b(?!\s*[:=]\s*0\b)|\bexception\b|\bwarning\b|\baborted\b|\bkilled\b|\bcancel|\bincomplete)",
)
NO_FAILURES = r"(?i:\b(?:0|no|zero|without) (?:errors?|fail\w*|tests failed))"

TRIGGERS = (
    *(b"xit code", b"xit status", b"xit_status", b"ExitCode=0:0", b"xitcode", b"exit_code", b"xited with"),
    *(b"eturn code", b"eturned 0", b" rc=0", b"COMPLETED", b"uccess", b"SUCCESS", b"Job succeeded"),
    *(b" passed", b"PASSED", b"Out of bounds values", b"erification", b"bad elements", b"ormal termination"),
    *(b'"t":"done"', b"JOB DONE", b"result: ", b"Figure of Merit", b"figure of merit", b"FOM", b"training is done"),
)
"""Parts of lines that may stand before the last lines of a log."""
