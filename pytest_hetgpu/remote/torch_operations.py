"""Operations of torch.distributed at one point: tensors, their contents, and their expected contents afterwards.

All data are whole numbers that every type represents exactly, so comparisons are exact. `data` is sent, `result` is
received. torch reduces in place only: then the two are one tensor.
"""

from __future__ import annotations

import copy
import time
from typing import Any, Dict, List, Type

import torch
import torch.distributed as dist
from torch_world import ProcessGroup

ROOT = 0
PERIOD = 251
PERIODS = (PERIOD, 61, 31, 13, 5, 3, 2, 1)
RANK_SHIFT = 7
KEPT = 4 << 20  # bytes of all results that are kept to be verified after a timed loop, as in `operations.py`
LATE = 0.05  # seconds; many times the duration of a barrier without late ranks


class TorchOperation:
    """One operation at one point, `count` elements of `dtype` on the world's device."""

    name = ""
    sweeps = True
    per_step = 1  # operations in one step: a ping-pong is two sends
    paired = False  # works between ranks 2i and 2i+1
    splits = False  # the elements of a point are divided among the ranks
    reduces = False  # in place, by summing

    def __init__(self, world: ProcessGroup, count: int, dtype: torch.dtype) -> None:
        self.world, self.rank, self.ranks = world, world.rank, world.ranks
        self.count, self.dtype, self.block = count, dtype, count // self.ranks
        self.given, self.wanted = self.sent(), self.expected()
        self.before = poisoned(self.wanted) if self.receives else self.wanted
        self.shares_data = False  # with an operation that fills and verifies `data`
        self.data = torch.empty_like(self.given)
        self.result = self.data if self.reduces else torch.empty_like(self.wanted)

    @property
    def peer(self) -> int:
        """The other rank of this one's pair."""
        return self.rank ^ 1

    @property
    def receives(self) -> bool:
        """Whether a step writes into `result` on this rank."""
        return True

    def sent(self) -> torch.Tensor:
        """Return the data that this rank sends."""
        return self.pattern(self.rank, self.count)

    def expected(self) -> torch.Tensor:
        """Return the contents of `result` after `fill` and one step."""
        raise NotImplementedError

    def step(self) -> None:
        """Run one iteration."""
        raise NotImplementedError

    def with_results(self, most: int) -> List[TorchOperation]:
        """Return this operation, and copies of it with results of their own: up to `most`, and up to `KEPT` bytes.

        They send the same `data`, unless it is in place. Their number is the same on every rank.
        """
        found: List[TorchOperation] = [self]
        room_for = KEPT // max(1, self.count * self.given.element_size())
        for _ in range(1, min(most, room_for)):
            other = copy.copy(self)
            other.result = torch.empty_like(self.result)
            other.shares_data = not self.reduces
            if self.reduces:
                other.data = other.result
            found.append(other)
        return found

    def fill(self) -> None:
        """Fill `data` with the rank's pattern, and `result` with values that differ from the expected ones."""
        if self.result is not self.data:
            self.result.copy_(self.before)
        if not self.shares_data:
            self.data.copy_(self.given)

    def run_verified(self) -> None:
        """Run one step that is verified."""
        self.fill()
        self.step()
        self.world.synchronize()

    def comparisons(self) -> Dict[str, List[torch.Tensor]]:
        """Return the contents of each buffer after a step, and the expected ones."""
        compared = {"": [self.result, self.wanted]}
        if not (self.reduces or self.shares_data):
            compared["sent"] = [self.data, self.given]
        return compared

    def pattern(self, rank: int, count: int, period: int = PERIOD) -> torch.Tensor:
        """Return `count` whole numbers from 1 to `period` that differ between neighbouring indices and ranks."""
        numbers = torch.arange(count, dtype=torch.int64, device=self.world.device)
        return ((numbers + RANK_SHIFT * rank) % period + 1).to(self.dtype)

    def empty_tensor(self) -> torch.Tensor:
        """Return a tensor without elements."""
        return torch.empty(0, dtype=self.dtype, device=self.world.device)

    def own_block(self, whole: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of data that is divided among all."""
        return whole[self.rank * self.block : (self.rank + 1) * self.block]


class TorchReduction(TorchOperation):
    """A sum over all ranks, with numbers so small that every type represents their sum."""

    reduces = True

    def sent(self) -> torch.Tensor:
        return self.addend(self.rank)

    def total(self) -> torch.Tensor:
        """Return the sum over all ranks."""
        found = torch.zeros(self.count, dtype=torch.int64, device=self.world.device)
        for rank in range(self.ranks):
            found += self.addend(rank).to(torch.int64)
        return found.to(self.dtype)

    def addend(self, rank: int) -> torch.Tensor:
        """Return the contribution of a rank."""
        period = next((one for one in PERIODS if one * self.ranks <= highest(self.dtype)), 1)
        return self.pattern(rank, self.count, period)


class TorchAllreduce(TorchReduction):
    """All-reduce: the sum, on every rank."""

    name = "allreduce"

    def step(self) -> None:
        dist.all_reduce(self.data)

    def expected(self) -> torch.Tensor:
        return self.total()


class TorchReduce(TorchReduction):
    """Reduce: the sum, on the root; torch leaves the tensors of the others undefined."""

    name = "reduce"

    def step(self) -> None:
        dist.reduce(self.data, ROOT)

    def comparisons(self) -> Dict[str, List[torch.Tensor]]:
        return super().comparisons() if self.rank == ROOT else {}

    def expected(self) -> torch.Tensor:
        return self.total()


class TorchReduceScatter(TorchReduction):
    """Reduce-scatter: a block of the sum for every rank."""

    name = "reduce_scatter"
    reduces = False
    splits = True

    def step(self) -> None:
        single("reduce_scatter_single", "reduce_scatter_tensor")(self.result, self.data)

    def expected(self) -> torch.Tensor:
        return self.own_block(self.total())


class TorchBroadcast(TorchOperation):
    """Broadcast: the root's data, on every rank, in one tensor."""

    name = "broadcast"

    def sent(self) -> torch.Tensor:
        return self.pattern(ROOT, self.count)

    @property
    def receives(self) -> bool:
        return self.rank != ROOT

    def step(self) -> None:
        dist.broadcast(self.result, ROOT)

    def expected(self) -> torch.Tensor:
        return self.pattern(ROOT, self.count)


class TorchAllgather(TorchOperation):
    """All-gather: a block from every rank, all of them on every rank."""

    name = "allgather"
    splits = True

    def sent(self) -> torch.Tensor:
        return self.pattern(self.rank, self.block)

    def step(self) -> None:
        single("all_gather_single", "all_gather_into_tensor")(self.result, self.data)

    def expected(self) -> torch.Tensor:
        return torch.cat([self.pattern(rank, self.block) for rank in range(self.ranks)])


class TorchGather(TorchAllgather):
    """Gather: a block from every rank, all of them on the root."""

    name = "gather"

    @property
    def receives(self) -> bool:
        return self.rank == ROOT

    def step(self) -> None:
        dist.gather(self.data, list(self.result.split(self.block)) if self.receives else None, ROOT)


class TorchScatter(TorchOperation):
    """Scatter: the root's data, a block of it for every rank."""

    name = "scatter"
    splits = True

    def sent(self) -> torch.Tensor:
        return self.pattern(ROOT, self.count) if self.rank == ROOT else self.empty_tensor()

    def step(self) -> None:
        dist.scatter(self.result, list(self.data.split(self.block)) if self.rank == ROOT else None, ROOT)

    def expected(self) -> torch.Tensor:
        return self.own_block(self.pattern(ROOT, self.count)).clone()


class TorchAlltoall(TorchOperation):
    """All-to-all: a block from every rank for every rank."""

    name = "alltoall"
    splits = True

    def step(self) -> None:
        dist.all_to_all_single(self.result, self.data)

    def expected(self) -> torch.Tensor:
        return torch.cat([self.own_block(self.pattern(rank, self.count)) for rank in range(self.ranks)])


class TorchSendRecv(TorchOperation):
    """Ping-pong between ranks 2i and 2i+1, all pairs at once."""

    name = "send_recv"
    per_step = 2
    paired = True

    def step(self) -> None:
        if self.rank % 2:
            dist.recv(self.result, self.peer)
            dist.send(self.data, self.peer)
        else:
            dist.send(self.data, self.peer)
            dist.recv(self.result, self.peer)

    def expected(self) -> torch.Tensor:
        return self.pattern(self.peer, self.count)


class TorchBidirectionalSendRecv(TorchSendRecv):
    """Send and receive at once, on both ranks of a pair."""

    name = "bidirectional_send_recv"
    per_step = 1

    def step(self) -> None:
        both = [dist.P2POp(dist.isend, self.data, self.peer), dist.P2POp(dist.irecv, self.result, self.peer)]
        for work in dist.batch_isend_irecv(both):
            work.wait()


class TorchBarrier(TorchOperation):
    """Barrier: no data, only a time. No rank may leave before a late one has entered."""

    name = "barrier"
    sweeps = False

    def sent(self) -> torch.Tensor:
        return self.empty_tensor()

    def expected(self) -> torch.Tensor:
        return torch.ones(1, dtype=self.dtype, device=self.world.device)

    def step(self) -> None:
        self.world.barrier()

    def run_verified(self) -> None:
        """Let the last rank come late: the others must wait for most of that time."""
        self.step()
        self.world.synchronize()
        late, started = self.rank == self.ranks - 1, time.perf_counter()
        if late:
            time.sleep(LATE)
        self.step()
        self.world.synchronize()
        waited = late or time.perf_counter() - started > LATE / 2
        self.result.copy_(self.wanted * int(waited))


def single(name: str, older: str) -> Any:
    """Return a collective by its name in torch 2.13 and later, or by the older one."""
    return getattr(dist, name, None) or getattr(dist, older)


def highest(dtype: torch.dtype) -> int:
    """Return the largest whole number up to which a type represents all of them."""
    if not dtype.is_floating_point:
        return int(torch.iinfo(dtype).max)
    return round(2 / torch.finfo(dtype).eps)


def poisoned(wanted: torch.Tensor) -> torch.Tensor:
    """Return a tensor that differs from `wanted` in every bit of every element."""
    return torch.bitwise_not(wanted.contiguous().view(torch.uint8)).view(wanted.dtype)


OPERATIONS: Dict[str, Type[TorchOperation]] = {
    kind.name: kind
    for kind in (
        TorchAllreduce,
        TorchReduce,
        TorchReduceScatter,
        TorchBroadcast,
        TorchAllgather,
        TorchGather,
        TorchScatter,
        TorchAlltoall,
        TorchSendRecv,
        TorchBidirectionalSendRecv,
        TorchBarrier,
    )
}
