"""The shape of a kind of node: what it computes and talks with, where it runs, its MPI, what its container gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from pytest_hetgpu.config.matrix.batch import SlurmShape
from pytest_hetgpu.config.matrix.models import Bytes, Device, Env, Form, Mca, Name, Names, Shape, Text, Texts, choice
from pytest_hetgpu.config.matrix.pods import PodsShape, asked, reference
from pytest_hetgpu.extensions.hardware.base import Platform
from pytest_hetgpu.extensions.registry import find, names
from pytest_hetgpu.model.job import Accelerator, ContainerOptions, Fabric, Hardware
from pytest_hetgpu.model.messages import show
from pytest_hetgpu.model.slurm import Batch

# What a container engine takes as a path or a name: no option, nothing that a list would split.
Path = Annotated[str, Form(r"^/[^\x00,\s]*$", "be an absolute path, without spaces and commas")]
# Launchers put it into a command line that a shell on the other node reads.
Prefix = Annotated[str, Form(r"^/[A-Za-z0-9_./+@=~-]*$", "be an absolute path of letters, digits and _ . / + @ = ~ -")]
ImageName = Annotated[str, Form(r"^[A-Za-z0-9_/][^\x00\s]*$", "be a reference or a folder, without spaces")]
User = Annotated[str, Form(r"^([A-Za-z0-9_][^\x00\s]*)?$", "start with a letter or digit and hold no spaces")]
Volume = Annotated[
    str, Form(r"^/[^:,\x00\s]*:/[^:,\x00\s]*(:ro|:rw)?$", "be /HOST/PATH:/CONTAINER/PATH, with :ro at will")
]


def _limit(value: Any) -> Any:
    return -1 if value == "unlimited" else value


Count = Annotated[int, Field(ge=-1)]
Limit = Annotated[Count, BeforeValidator(_limit, json_schema_input_type=Count | Literal["unlimited"])]


def _paths(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class MpiShape(Shape):
    """Which MPI a node runs, and where it is installed there (its launcher and python3 are in `bin` below it)."""

    stack: Annotated[str, choice("stacks", "stack")] = "openmpi-5"
    prefix: Annotated[Prefix | None, Field(description="on the node; without it, what PATH finds there")] = None


class FabricShape(Shape):
    """What connects the node; `gbps` in 1e9 bit/s."""

    kind: Annotated[str, choice("fabrics", "fabric"), Field(json_schema_extra={"enum": list(names("fabrics"))})] = "tcp"
    netdev: Device | None = None
    hca: Device | None = None
    gid_index: Annotated[int, Field(ge=0)] | None = None
    gbps: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class ContainerShape(Shape):
    """What a container gets; a key replaces what its platform has for it; `docker run` has options of these names."""

    network: Literal["auto", "user", "host"] = "auto"
    devices: Annotated[tuple[Path, ...], BeforeValidator(_paths, json_schema_input_type=Path | list[Path])] = ()
    groups: Names = ()
    cap_add: Names = ()
    security: Texts = ()
    ipc: Literal["", "host", "private", "shareable"] = ""
    shm: Annotated[Bytes | None, Field(description="size of /dev/shm")] = None
    ulimits: dict[Name, Limit] = {}
    gpus: Annotated[Text, Field(description="as docker run --gpus takes it: all, 2, device=0")] = ""
    user: User = ""
    volumes: Annotated[tuple[Volume, ...], BeforeValidator(_paths, json_schema_input_type=Volume | list[Volume])] = ()


class BuildShape(Shape):
    """How an image is built from its folder."""

    args: Env = {}
    network: Literal["", "default", "host", "none"] = ""


class HardwareShape(Shape):
    """One named kind of node."""

    platform: Annotated[str, choice("hardware", "platform")] = "cpu"
    arch: Text | None = None
    count: Annotated[int, Field(ge=0)] = 1
    memory: Bytes | None = None
    fabric: FabricShape = FabricShape.model_construct()
    runtime: Annotated[str, choice("runtimes", "runtime")] = "local"
    image: Annotated[ImageName | None, Field(description="a reference, or a folder with a Dockerfile")] = None
    build: BuildShape = BuildShape.model_construct()
    container: ContainerShape = ContainerShape.model_construct()
    slurm: SlurmShape = SlurmShape.model_construct()
    kubernetes: PodsShape = PodsShape.model_construct()
    mpi: MpiShape = MpiShape.model_construct()
    env: Env = {}
    mca: Mca = {}
    capabilities: Names = ()

    @model_validator(mode="after")
    def _whole(self) -> HardwareShape:
        if self.runtime == "docker" and not self.image:
            raise ValueError("runtime docker needs an image: a reference, or a folder with a Dockerfile")
        idle = {"container", "build"} & self.model_fields_set
        if self.runtime != "docker" and idle:
            raise ValueError(f"{show(min(idle))} is for runtime docker; this is runtime {self.runtime}")
        for other in ("slurm", "kubernetes"):
            if self.runtime != other and other in self.model_fields_set:
                raise ValueError(f"{other!r} is for runtime {other}; this is runtime {self.runtime}")
        if self.runtime == "kubernetes":
            if not self.image:
                raise ValueError("runtime kubernetes needs an image: a reference that the cluster can pull")
            try:
                reference(self.image)
            except ValueError as error:
                raise ValueError(f"image: {error}") from None
        return self

    def hardware(self, name: str) -> Hardware:
        """The noun that the rest of the program knows."""
        return Hardware(
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
            batch=self.slurm.over(Batch(image=self.image or "", platform=self.platform))
            if self.runtime == "slurm"
            else None,
            pods=asked(self.kubernetes, self.image or "", self.platform, self.count)
            if self.runtime == "kubernetes"
            else None,
        )

    def _container(self) -> ContainerOptions:
        given = {key: getattr(self.container, key) for key in self.container.model_fields_set}
        return replace(find("hardware", self.platform, Platform).container, **given)
