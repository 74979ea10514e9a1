"""Programs that were started with unknown options: glibc's getopt (posix/getopt.c), and OSU's own check.

A release that lacks an option is an ordinary finding if programs come with their images.
"""

from __future__ import annotations

from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.verdict import Kind

# Launchers have parsers of their own.
_PROGRAM = r"^(?!(?:\S*/)?(?:srun|salloc|sbatch|mpirun|mpiexec|prterun|orterun|flux)\b)(?P<program>[^\s:]+): "


class Getopt(RuleParser):
    """`ucx_perftest: invalid option -- 'V'`."""

    rules = (
        *(
            MatchRule(words, Kind.ERROR, "usage@{program}", pattern=_PROGRAM + rf"(?P<detail>{words}.{{1,100}})")
            for words in ("invalid option -- ", "unrecognized option ", "option requires an argument -- ")
        ),
        # c/util/osu_util_mpi.c, print_bad_usage_message
        MatchRule("Invalid option [", Kind.ERROR, "usage@osu", pattern=r"^(?P<detail>Invalid option \[[^\]]{1,40}\])"),
    )
