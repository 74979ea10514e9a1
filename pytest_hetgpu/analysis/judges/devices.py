"""Whether ranks that were to use accelerators did, and the ones that the matrix says."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_hetgpu.analysis.judges.base import Case, Force, Judge, Opinion, node_of
from pytest_hetgpu.model.job import ON_DEVICE
from pytest_hetgpu.model.verdict import Kind


class Devices(Judge):
    """Each rank of an accelerator's memory reports which, and the most it held of it; nothing held is nothing moved."""

    name = "devices"

    def opinions(self, case: Case) -> Iterator[Opinion]:
        memory = case.job.demand.facts.get("memory")
        if case.job.demand.external or memory not in ON_DEVICE:
            return
        told = {device.rank: device for device in case.evidence.devices}
        nodes = [node for node in case.job.nodes for _ in range(node.ranks)]
        for rank in sorted(case.evidence.done):
            device, hello = told.get(rank), case.evidence.hellos.get(rank)
            node = node_of(hello, case.job, nodes) if hello else None
            if device is None or not device.peak:
                yield self.says(Kind.UNKNOWN, f"nothing shows that rank {rank} used {memory} memory", Force.VAGUE)
            elif node and node.hardware.accelerator.arch not in (None, device.arch):
                asked = f"hardware {node.hardware.name} is {node.hardware.accelerator.arch}"
                why = f"rank {rank} ran on {device.arch} ({device.name}), but {asked}"
                yield self.says(Kind.GPU_ARCH_MISMATCH, why)
