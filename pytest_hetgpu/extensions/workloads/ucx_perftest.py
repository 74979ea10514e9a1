"""ucx_perftest: a server on rank 0 and a client on rank 1, one message size."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from pytest_hetgpu.extensions.workloads._external import (
    ExternalSettings,
    ExternalWorkload,
    ProgramName,
    Times,
    cannot_verify,
    points,
)
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.sizes import parse_size


class UcxPerftestSettings(ExternalSettings):
    """Keys of ucx_perftest. `test` is one of UCP. `check` (`-V`, of late releases) verifies latency tests only.

    The server listens on `port`. The next port signals to the client that it listens.
    """

    program: Annotated[str, ProgramName("ucx_perftest", "ucx_perftest")] = "ucx_perftest"
    test: Annotated[str, Field(pattern=r"^\w+$", description="tag_lat, tag_bw, stream_lat, ucp_put_bw, ...")] = (
        "tag_lat"
    )
    size: Annotated[int, BeforeValidator(parse_size, json_schema_input_type=str | int)] = 8
    iterations: Times = 1000
    warmup: Annotated[int, Field(ge=0)] = 100
    port: Annotated[int, Field(ge=1024, le=65534)] = 13337

    @model_validator(mode="after")
    def _is_of_ucp(self) -> UcxPerftestSettings:
        if not self.test.startswith(("tag_", "stream_", "ucp_")):
            raise ValueError(
                f"test {self.test!r} is of UCT: it takes its transport from options (-x, -d) and logs nothing that "
                "proves it. Take one of UCP (tag_lat, tag_bw, stream_lat, ucp_put_bw, ...), or run it as a `command`"
            )
        if self.check and not self.test.endswith("_lat"):
            raise cannot_verify(self.test)
        return self


class UcxPerftest(ExternalWorkload):
    """A test of UCX with the transport's settings. MPI only starts the two processes."""

    Settings = UcxPerftestSettings
    settings: UcxPerftestSettings
    operation = "ucx_perftest"
    reader = "ucx_perftest"
    needs = ("ucx",)
    layer = "ucx"
    memory = "host"

    def command(self) -> tuple[str, ...]:
        asked = self.settings
        return (
            *(asked.program, "{node0}", "-p", str(asked.port)),
            *("-t", asked.test, "-s", str(asked.size), "-n", str(asked.iterations), "-w", str(asked.warmup), "-f"),
            *(("-V",) if asked.check else ()),
            *asked.arguments,
        )

    def commands(self) -> tuple[tuple[str, ...], ...]:
        return (self.settings.program, "-p", str(self.settings.port)), self.command()

    def options(self) -> tuple[str, ...]:
        return "--server", f"{{node0}}:{self.settings.port}"

    def points(self) -> tuple[MessagePoint, ...]:
        return points((self.settings.size,), "uint8")

    def unsuitable(self, ranks: int) -> str | None:
        return None if ranks == 2 else f"needs exactly 2 ranks, this placement has {ranks}"
