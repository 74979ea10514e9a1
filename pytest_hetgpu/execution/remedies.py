"""Runs of failed cells with remedies, one remedy at a time: what cures a failure, and what only changes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, islice

from pytest_hetgpu.analysis.boundary.trials import TrialResult, key_of, result_of, smallest
from pytest_hetgpu.config.remedies.load import Remedy, Surroundings, remedies
from pytest_hetgpu.errors import MatrixError, NotHere, ProvisionError
from pytest_hetgpu.execution.failing_cells import FailingCell, failing_cells
from pytest_hetgpu.execution.further_run import FurtherRun, further_run, last_number
from pytest_hetgpu.execution.runner import CellRunner
from pytest_hetgpu.model.interfaces import LOOPBACK, Network
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.outcome import Attempt
from pytest_hetgpu.planning.variant import Variant, job_settings
from pytest_hetgpu.store.cells import read_run
from pytest_hetgpu.store.events import Tried

REMEDY = "remedy"
_TIMES = 3
_MOST_PAIRS = 6
# Open MPI refuses both of a pair (opal/mca/btl/tcp/btl_tcp_component.c).
_RIVALS = (("btl_tcp_if_include", "btl_tcp_if_exclude"), ("btl_tcp_if_exclude", "btl_tcp_if_include"))
# A cure counts only if the cell fails without it.
_WITHOUT = {
    TrialResult.CURED: (TrialResult.NO_EFFECT, "the cell passes without it, too"),
    TrialResult.INCONCLUSIVE: (TrialResult.INCONCLUSIVE, "a run without it shows nothing"),
}


class Remedies:
    """The trials of one run. `tell` is called with the label of each cell and a line about its remedy."""

    def __init__(self, runner: CellRunner, tell: Callable[[str, str], object]) -> None:
        self._run = runner.context
        self._tell = tell
        self._record = read_run(self._run.folder.path)
        self._number = last_number(self._run, REMEDY)
        self._again: dict[tuple[str, str], TrialResult] = {}

    def run(self) -> None:
        """Try the remedies for each failure, until the time of the run is spent."""
        done = {(one.matrix, one.key, one.settings) for one in self._record.trials}
        for cell in failing_cells(self._run, self._record):
            job = self._run.suite.job(cell.scenario)
            found = remedies(job, cell.outcome, _surroundings(job, self._run.suite.network))
            left = [one for one in found if (job.matrix, cell.key, one.typed) not in done and _adds(job, one)]
            results = list(self._each(cell, left))
            if left and not any(one.result == TrialResult.CURED.value for _, one in results):
                changed = [remedy for remedy, one in results if one.result == TrialResult.CHANGED.value]
                list(self._each(cell, list(islice(_pairs(changed), _MOST_PAIRS))))

    def _each(self, cell: FailingCell, several: Sequence[Remedy]) -> Iterator[tuple[Remedy, Tried]]:
        tried_ones: set[str] = set()
        for whole in several:
            if self._run.options.budget.spent:
                return
            remedy = self._needed(cell, whole) if whole.typed not in tried_ones else whole
            if remedy.typed in tried_ones:
                continue
            tried_ones.add(remedy.typed)
            tried = self._tried(cell, remedy)
            if tried is None:
                return
            self._run.journal.tried(tried)
            why = f" ({tried.why})" if tried.why else ""
            self._tell(cell.scenario.label, f"remedy {remedy.typed} for {cell.key}: {tried.result}{why}")
            yield remedy, tried

    def _needed(self, cell: FailingCell, remedy: Remedy) -> Remedy:
        """Return a remedy without those of its settings that it does not need for a cure."""
        names = sorted(_names(remedy))
        if len(names) < 2 or not self._cures(cell, remedy):
            return remedy
        return _only(remedy, smallest(names, lambda kept: bool(kept) and self._cures(cell, _only(remedy, kept))))

    def _cures(self, cell: FailingCell, remedy: Remedy) -> bool:
        try:
            ran = self._ran(cell, _variant(remedy))
        except (NotHere, ProvisionError, MatrixError):
            return False
        return ran is not None and result_of(ran.outcome, cell.key) is TrialResult.CURED

    def _tried(self, cell: FailingCell, remedy: Remedy) -> Tried | None:
        """Return the result of a remedy; None if the time of the run was spent meanwhile.

        A cure is certain if all of three runs pass, and the cell still fails without it.
        """
        event = Tried(cell.scenario.matrix, cell.scenario.id, cell.key, remedy.typed, remedy.source, "")
        runs: list[Attempt] = []
        try:
            while len(runs) < _TIMES:
                ran = self._ran(cell, _variant(remedy))
                if ran is None:
                    return None
                runs.append(ran.attempt)
                result, why = result_of(ran.outcome, cell.key), key_of(ran.outcome)
                if result is not TrialResult.CURED:
                    break
            if len(runs) > 1 and result not in (TrialResult.CURED, TrialResult.INCONCLUSIVE):
                result, why = TrialResult.CHANGED, f"it passed {len(runs) - 1} of {len(runs)} times"
            if result is TrialResult.CURED:
                without = self._without_remedy(cell)
                if without is None:
                    return None
                result, why = _WITHOUT.get(without, (result, ""))
        except (NotHere, ProvisionError, MatrixError) as error:
            return replace(event, result=TrialResult.IMPOSSIBLE.value, why=" ".join(str(error).split()))
        told = result in (TrialResult.CHANGED, TrialResult.NO_EFFECT, TrialResult.INCONCLUSIVE) and why != cell.key
        return replace(event, result=result.value, why=why if told else "", runs=tuple(runs))

    def _without_remedy(self, cell: FailingCell) -> TrialResult | None:
        """Return the result of no remedy, after one has cured a cell; None if the time was spent.

        It is run once more for all remedies.
        """
        identity = cell.scenario.matrix, cell.key
        if identity not in self._again:
            ran = self._ran(cell, Variant())
            if ran is None:
                return None
            self._again[identity] = result_of(ran.outcome, cell.key)
        return self._again[identity]

    def _ran(self, cell: FailingCell, variant: Variant) -> FurtherRun | None:
        self._number += 1
        return further_run(self._run, cell.scenario, variant, f"{REMEDY}-{self._number}")


def _only(remedy: Remedy, names: Sequence[str]) -> Remedy:
    """Return a remedy with some of its settings."""
    mca, env = ({name: value for name, value in given.items() if name in names} for given in (remedy.mca, remedy.env))
    return Remedy(mca, env, remedy.source)


def _variant(remedy: Remedy) -> Variant:
    """Return the variant with a remedy, without the settings that exclude it."""
    rivals = frozenset(rival for name, rival in _RIVALS if name in remedy.mca)
    return Variant(mca=remedy.mca, env=remedy.env, dropped=rivals)


def _adds(job: Job, remedy: Remedy) -> bool:
    """Return whether a cell lacks any of the settings of a remedy."""
    there = job_settings(job)
    return any(there.get(name) != value for name, value in {**remedy.mca, **remedy.env}.items())


def _pairs(changed: Sequence[Remedy]) -> Iterator[Remedy]:
    """Yield remedies of which each changed the failure, two at a time; not two values of one setting."""
    for one, other in combinations(changed, 2):
        if not _names(one) & _names(other):
            source = f"{one.source}, {other.source}"
            yield Remedy({**one.mca, **other.mca}, {**one.env, **other.env}, source)


def _names(remedy: Remedy) -> frozenset[str]:
    return frozenset((*remedy.mca, *remedy.env))


def _surroundings(job: Job, here: Network | None) -> Surroundings:
    """Return the interfaces of the nodes of a job: of this machine, or the one that each node was pinned to."""
    if job.is_multi_host or here is None:
        chosen = (node.interface.name for node in job.nodes if node.interface)
        return Surroundings(tuple(dict.fromkeys(filter(None, chosen))))
    there = [one for one in here.interfaces if one.running and one.ipv4]
    bridges = tuple(one.name for one in here.interfaces if one.kind == "bridge")
    usual = [one.name for one in there if not one.kind]
    return Surroundings((*usual, LOOPBACK), bridges)
