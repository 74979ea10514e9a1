"""The story of one cell: its steps, their order, and what each of them leaves."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import FrozenInstanceError, dataclass, field, replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from pytest_hetgpu.errors import HetgpuError, NotHere, ProvisionError
from pytest_hetgpu.execution import context, steps
from pytest_hetgpu.execution.budget import Budget
from pytest_hetgpu.execution.context import CellRun, RunContext
from pytest_hetgpu.execution.options import RunOptions
from pytest_hetgpu.execution.retry.policy import Retries
from pytest_hetgpu.execution.runner import CellRunner
from pytest_hetgpu.execution.steps import STEPS, Step
from pytest_hetgpu.extensions.runtimes.fake import FakeRuntime
from pytest_hetgpu.model.job import Command, Job, Scenario
from pytest_hetgpu.model.outcome import STOPPED, Outcome, RunResult
from pytest_hetgpu.model.verdict import Kind, Verdict
from tests.execution.contexts import Suite, run_context
from tests.reporting.report_samples import job as sample

NAMES = ["plan", "acquire", "provision", "inspect", "preflight", "launch", "remeasure", "judge", "retry", "record"]
JOB: Job = sample("send")
SCENARIO = Scenario(JOB.matrix, JOB.label, JOB.label, tuple(JOB.axes), tuple(JOB.axes.values()))
PASSED = Outcome(Kind.PASSED, Verdict.OK)
FAILED = Outcome(Kind.LAUNCH_FAILURE, Verdict.NEW, "it did not start")


def test_the_run_of_a_cell_is_ten_steps_in_this_order() -> None:
    assert [step.__name__ for step in STEPS] == NAMES
    assert all(step.__doc__ for step in STEPS)


def test_the_tour_of_the_code_describes_them() -> None:
    tour = Path(__file__).parents[2] / "docs" / "explanation" / "tour.md"
    assert re.findall(r"^`(\w+)` \| `(?:cluster|run)` \|", tour.read_text(encoding="utf-8"), re.MULTILINE) == NAMES


@dataclass(eq=False)
class Traced:
    """A step that notes its name."""

    step: Step
    passed: list[str]

    def __eq__(self, other: object) -> bool:
        return self.step is other

    def __hash__(self) -> int:
        return hash(self.step)

    def __call__(self, run: RunContext, cell: CellRun) -> CellRun:
        self.passed.append(self.step.__name__)
        return self.step(run, cell)


@dataclass
class World:
    """A run of one cell, whose launches end with `codes`, and the steps that were passed."""

    run: RunContext
    codes: Sequence[int | HetgpuError]
    passed: list[str] = field(default_factory=list)
    launches: int = 0

    def answer(self, _: Command) -> tuple[int, bytes]:
        """Return the exit code and the output of a launch, or raise its error."""
        code = self.codes[self.launches]
        self.launches += 1
        if isinstance(code, HetgpuError):
            raise code
        return code, b""

    @property
    def events(self) -> list[str]:
        """The events in the journal."""
        return [json.loads(line)["event"] for line in self.run.journal.path.read_text().splitlines()]


Make = Callable[..., World]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Make the run of one cell, whose launches end with these exit codes or errors."""
    (tmp_path / "leases").mkdir(mode=0o700)
    monkeypatch.setenv("HETGPU_LEASES", str(tmp_path / "leases"))
    with ExitStack() as stack:

        def world(*codes: int | HetgpuError, retries: int = 0) -> World:
            options = RunOptions(preflight="off", retries=Retries(retries))
            run = stack.enter_context(closing(run_context(tmp_path, options, Suite(SCENARIO, JOB))))
            made = World(run, codes)
            run.runtimes["local"] = FakeRuntime(made.answer)
            monkeypatch.setattr(steps, "STEPS", tuple(Traced(step, made.passed) for step in STEPS))
            return made

        def judged(_job: Job, result: RunResult, *_: object) -> Outcome:
            return FAILED if result.returncode else PASSED

        monkeypatch.setattr(context, "judge_output", judged)
        yield world


def test_a_cell_passes_through_all_steps_in_their_order(make: Make) -> None:
    world = make(0)
    runner = CellRunner(world.run)
    cluster = runner.provision(SCENARIO)
    assert world.passed == NAMES[:5]
    result, outcome, pairs = runner.run(cluster)
    assert world.passed == NAMES
    assert world.events == ["planned", "started", "finished", "judged"]
    assert (result.returncode, outcome) == (0, PASSED)
    assert ("outcome", "passed") in pairs


def test_an_attempt_that_is_retried_passes_through_the_steps_again(make: Make) -> None:
    world = make(1, 0, retries=1)
    runner = CellRunner(world.run)
    outcome = runner.run(runner.provision(SCENARIO))[1]
    assert world.passed == [*NAMES[:-1], *NAMES[:-2], "record"]
    assert world.events == ["planned", "started", "finished", "attempted", "started", "finished", "judged"]
    assert [one.kind for one in outcome.attempts] == [Kind.LAUNCH_FAILURE]


def test_a_second_run_of_a_cell_does_not_count_the_attempts_of_the_first(make: Make) -> None:
    world = make(1, 1, 1, 0, retries=1)
    runner = CellRunner(world.run)
    cluster = runner.provision(SCENARIO)
    assert len(runner.run(cluster)[1].attempts) == 1
    assert runner.run(cluster)[1].kind is Kind.PASSED


def test_a_host_that_is_busy_at_the_first_attempt_skips_the_cell(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make()
    monkeypatch.setattr(steps, "execute", Mock(side_effect=NotHere("host 'a' is busy")))
    runner = CellRunner(world.run)
    cluster = runner.provision(SCENARIO)
    with pytest.raises(NotHere, match="is busy"):
        runner.run(cluster)
    assert world.events == ["planned"]


def test_nodes_that_are_lost_before_the_launch_are_a_failed_attempt(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make(0, retries=1)
    lost = ProvisionError("node0", "its lease was lost")
    monkeypatch.setattr(steps, "execute", Mock(side_effect=[lost, NotHere("host 'a' is busy")]))
    runner = CellRunner(world.run)
    outcome = runner.run(runner.provision(SCENARIO))[1]
    # Both attempts are recorded as not started: a cell that has failed is not skipped.
    assert world.events == [
        "planned",
        *["planned", "started", "finished"],
        "attempted",
        *["planned", "started", "finished"],
        "judged",
    ]
    assert len(outcome.attempts) == 1


def test_an_interrupt_beside_a_launch_gives_the_cell_no_verdict(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make()
    monkeypatch.setattr(steps, "execute", Mock(side_effect=KeyboardInterrupt))
    runner = CellRunner(world.run)
    cluster = runner.provision(SCENARIO)
    with pytest.raises(KeyboardInterrupt):
        runner.run(cluster)
    assert world.events == ["planned", "judged"]
    (outcome,) = world.run.outcomes.values()
    assert (outcome.kind, outcome.verdict, outcome.why) == (Kind.UNKNOWN, Verdict.NOT_RUN, STOPPED)


def test_a_cell_is_not_started_after_the_end_of_the_runs_time(make: Make) -> None:
    world = make()
    over = replace(world.run.options, budget=Budget(1.0, deadline=0.0))
    with pytest.raises(NotHere, match="not run: the run's time was spent"):
        CellRunner(replace(world.run, options=over)).provision(SCENARIO)


def test_nothing_about_a_run_can_be_set_from_outside(make: Make) -> None:
    run = make().run
    with pytest.raises(FrozenInstanceError):
        run.options = RunOptions()  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        run.options.debug_rerun = True  # type: ignore[misc]
