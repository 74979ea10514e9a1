"""The shape of a kind of node: its accelerator and fabric, its runtime, its MPI, the settings of its container."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Annotated

from pydantic import Field, model_validator

from pytest_hetgpu.config.matrix.models import Device, Mca, choice
from pytest_hetgpu.config.matrix.runtime_settings import default, extended, runtime_settings
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.extensions.hardware.base import Platform
from pytest_hetgpu.extensions.registry import find, names
from pytest_hetgpu.extensions.runtimes.base import NodeProvider
from pytest_hetgpu.extensions.runtimes.containers.shapes import BuildShape, ContainerShape, Image
from pytest_hetgpu.extensions.runtimes.lookup import runtime_of, runtimes
from pytest_hetgpu.extensions.shapes import Bytes, Env, Names, Prefix, Shape, Text
from pytest_hetgpu.model.job import Accelerator, ContainerOptions, Fabric, Hardware
from pytest_hetgpu.model.messages import show


class MpiShape(Shape):
    """The MPI of a node and its prefix (its launcher and python3 are in `bin` below it)."""

    stack: Annotated[str, choice("stacks", "stack")] = "openmpi-5"
    prefix: Annotated[Prefix | None, Field(description="on the node; default: the first one in PATH")] = None


class FabricShape(Shape):
    """The network of the node; `gbps` in 1e9 bit/s."""

    kind: Annotated[str, choice("fabrics", "fabric"), Field(json_schema_extra={"enum": list(names("fabrics"))})] = "tcp"
    netdev: Device | None = None
    hca: Device | None = None
    gid_index: Annotated[int, Field(ge=0)] | None = None
    gbps: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class HardwareShape(Shape):
    """One named kind of node."""

    platform: Annotated[str, choice("hardware", "platform")] = "cpu"
    arch: Text | None = None
    count: Annotated[int, Field(ge=0)] = 1
    memory: Bytes | None = None
    fabric: FabricShape = FabricShape.model_construct()
    runtime: Annotated[str, choice("runtimes", "runtime")] = "local"
    image: Image = None
    build: BuildShape = BuildShape.model_construct()
    container: ContainerShape = ContainerShape.model_construct()
    mpi: MpiShape = MpiShape.model_construct()
    env: Env = {}
    mca: Mca = {}
    capabilities: Names = ()

    @model_validator(mode="after")
    def _whole(self) -> HardwareShape:
        try:
            runtime = find("runtimes", self.runtime, NodeProvider)  # type: ignore[type-abstract]
        except UsageError as error:
            raise ValueError(str(error)) from None
        if self.runtime in HardwareShape.model_fields and runtime.settings is not None:
            clash = f"runtime {self.runtime!r} has settings, and the key {self.runtime!r} is one of every runtime"
            raise ValueError(f"{clash}: its package must rename it")
        idle = {"container", "build"} & self.model_fields_set
        if idle and not runtime.uses_containers:
            suitable = " or ".join(name for name, one in runtimes() if one.uses_containers)
            raise ValueError(f"{show(min(idle))} is for runtime {suitable}; this is runtime {self.runtime}")
        if others := self.model_fields_set - HardwareShape.model_fields.keys() - {self.runtime}:
            other = min(others)
            raise ValueError(f"{other!r} is for runtime {other}; this is runtime {self.runtime}")
        runtime.check_image(self.image)
        return self

    def hardware(self, name: str) -> Hardware:
        """Convert to a Hardware."""
        found = Hardware(
            name=name,
            accelerator=Accelerator(self.platform, self.arch, self.count, self.memory),
            fabric=Fabric(**self.fabric.model_dump()),
            runtime=self.runtime,
            stack=self.mpi.stack,
            prefix=self.mpi.prefix or "",
            image=self.image,
            build_args=self.build.args,
            build_network=self.build.network,
            container=self._container(),
            env=self.env,
            mca=self.mca,
            capabilities=frozenset(self.capabilities),
        )
        own = type(self).model_fields.keys() - HardwareShape.model_fields.keys()
        given = getattr(self, self.runtime) if self.runtime in own else None
        return found if given is None else replace(found, settings=runtime_of(self.runtime).make_settings(given, found))

    def _container(self) -> ContainerOptions:
        given = {key: getattr(self.container, key) for key in self.container.model_fields_set}
        return replace(find("hardware", self.platform, Platform).container, **given)


def shape_of(entry: object) -> type[HardwareShape]:
    """Return the shape of an entry, with the settings of the runtimes that the entry names."""
    if not isinstance(entry, dict):
        return HardwareShape
    named = [entry.get("runtime"), *entry]
    return _with_settings(frozenset(name for name in names("runtimes") if name in named))


def whole_shape() -> type[HardwareShape]:
    """Return the shape with the settings of every runtime."""
    return _with_settings(frozenset(names("runtimes")))


@cache
def _with_settings(wanted: frozenset[str]) -> type[HardwareShape]:
    models = runtime_settings(wanted, HardwareShape, lambda runtime: runtime.settings)
    return extended(HardwareShape, {name: (model, default(model)) for name, model in models.items()})
