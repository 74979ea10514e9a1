"""Judge of devices: whether ranks used the accelerators that the matrix requests."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_hetgpu.analysis.judges.base import FinishedRun, Judge, Precedence, RatedFinding, node_of
from pytest_hetgpu.model.job import ON_DEVICE
from pytest_hetgpu.model.verdict import Kind


class DevicesJudge(Judge):
    """Each rank of an accelerator's memory reports which, and the most it held of it; nothing held is nothing moved."""

    name = "devices"

    def evaluate(self, run: FinishedRun) -> Iterator[RatedFinding]:
        memory = run.job.demand.facts.get("memory")
        if run.job.demand.external or memory not in ON_DEVICE:
            return
        told = {device.rank: device for device in run.evidence.devices}
        nodes = [node for node in run.job.nodes for _ in range(node.ranks)]
        for rank in sorted(run.evidence.done):
            device, hello = told.get(rank), run.evidence.hellos.get(rank)
            node = node_of(hello, run.job, nodes) if hello else None
            if device is None or not device.peak:
                yield self.finding(
                    Kind.UNKNOWN, f"nothing shows that rank {rank} used {memory} memory", Precedence.INDIRECT
                )
            elif node and node.hardware.accelerator.arch not in (None, device.arch):
                asked = f"hardware {node.hardware.name} is {node.hardware.accelerator.arch}"
                why = f"rank {rank} ran on {device.arch} ({device.name}), but {asked}"
                yield self.finding(Kind.GPU_ARCH_MISMATCH, why)
