"""The same four checks after every fault: results kept, reports built, the run finished, nothing left."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.faults.harness import Session, Site, events_of, identity, in_flight


@dataclass
class Checks:
    """The four checks, each done whatever the one before said; what they saw goes to `note`, for the table."""

    site: Site
    session: Session
    note: Callable[[str, object], None]
    complaints: list[str] = field(default_factory=list)

    def all(self, hit: Sequence[str] = ()) -> None:
        """Waits for the session's end, then does them; `hit` are cells that the fault is known to have met."""
        self.session.end()
        seconds = self.nothing_left("after the fault")
        self.note("seconds", f"{seconds:.1f}")
        self.report_is_built([*hit, *self.session.flying, *in_flight(self.session.events())])
        self.resume_completes()
        self.results_are_kept()
        self.nothing_left("after the resumed run")
        assert not self.complaints, "\n".join([*self.complaints, self.session.said()])

    def nothing_left(self, when: str) -> float:
        """No process, container, network or folder."""
        seconds, found = self.site.cleared(self.session.run)
        self._see("left", [f"{when}: left behind: {one}" for one in found])
        return seconds

    def report_is_built(self, flown: Sequence[str]) -> None:
        """By `hetgpu report`, with every outcome that was kept, and the cells in flight by their names and reasons."""
        from tests.real.nodes_here import properties

        run = self.session.run
        done = self.site.call(sys.executable, "-m", "pytest_hetgpu.cli", "report", str(run))
        wrong = [] if done.returncode == 0 else [f"hetgpu report: {done.returncode} {done.stdout}{done.stderr}"]
        page = run / "index.html"
        wrong += [] if page.is_file() and page.stat().st_size > 1000 else ["there is no index.html"]
        try:
            cells = properties(self.site.home / "reports")
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, it is the finding
            self._see("report", [*wrong, f"junit.xml: {error!r}"])
            return
        became = []
        for name in dict.fromkeys(flown):
            cell = cells.get(name, {})
            key = cell.get("signature")
            became.append(cell.get("outcome", "absent") + (f" `{key}`" if key else ""))
            bad = cell.get("outcome") not in (None, "passed") and not cell.get("why")
            wrong += [f"{name} has no reason: {cell}"] if bad else []
            wrong += [f"{name} is not in junit.xml"] if not cell else []
        for (_, name), outcome in self.session.kept.items():
            if cells.get(name, {}).get("outcome") != outcome["kind"]:
                wrong.append(f"{name} was {outcome['kind']}, is {cells.get(name)}")
        self.note("became", ", ".join(became) or "(none was)")
        self._see("report", wrong)

    def resume_completes(self) -> None:
        """Every cell has an outcome, in one report; nothing that was judged before ran again."""
        from tests.real.nodes_here import properties

        before = {identity(event): event["outcome"] for event in self.session.events("judged")}
        done = self.site.resumed(self.session.run)
        wrong = []
        # 1: a cell that the fault broke stays broken.
        good = {0} if all(one["verdict"] in ("ok", "known") for one in before.values()) else {0, 1}
        if done.returncode not in good:
            wrong.append(f"resumed: exit code {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-2000:]}")
        try:
            cells = properties(self.site.home / "reports")
        except Exception as error:  # noqa: BLE001
            cells, wrong = {}, [*wrong, f"junit.xml of the resumed run: {error!r}"]
        unjudged = [name for name, cell in cells.items() if cell.get("verdict") in (None, "not_run")]
        wrong += [f"{name} has no outcome: {cells[name]}" for name in unjudged]
        if len(cells) != self.site.cells:
            wrong.append(f"{len(cells)} cells of {self.site.cells} in the report")
        self._see("resumed", wrong)

    def results_are_kept(self) -> None:
        """Each cell that was judged before has its outcome in the journal, and was not started again."""
        latest = (self.site.home / "reports" / "latest").resolve()
        events = events_of(sorted(latest.glob("journal/*.jsonl")))
        judged = {identity(event): event["outcome"] for event in events if event["event"] == "judged"}
        started = Counter(identity(event) for event in events if event["event"] == "started")
        wrong = []
        for cell, outcome in self.session.kept.items():
            found = judged.get(cell)
            if found is None or found["kind"] != outcome["kind"]:
                wrong.append(f"{cell[-1]} was {outcome['kind']}, is {found['kind'] if found else 'lost'}")
            if started[cell] != self.session.launches[cell]:
                wrong.append(f"{cell[-1]} was started {self.session.launches[cell]} times, now {started[cell]}")
        self._see("kept", wrong)

    def _see(self, what: str, wrong: Sequence[str]) -> None:
        self.complaints += [f"{what}: {one}" for one in wrong]
        if wrong or not any(one.startswith(f"{what}:") for one in self.complaints):
            self.note(what, "; ".join(wrong)[:300] or "yes")
