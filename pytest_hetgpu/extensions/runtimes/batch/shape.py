"""The schema of a request to Slurm: for a kind of hardware in a matrix, and for a site in an inventory."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from pytest_hetgpu.extensions.runtimes.batch.request import BINDINGS, Batch, cpus
from pytest_hetgpu.extensions.shapes import Form, Prefix, Shape, Text
from pytest_hetgpu.model.messages import known, show

# YAML reads a number here; its text counts.
_PLAIN = Field(json_schema_extra={"type": ["string", "number"]})
# This package passes Slurm options as --OPTION=WORD: a word holds no spaces.
Word = Annotated[
    str, Form(r"^[A-Za-z0-9_][A-Za-z0-9_.:,=*&|@()\[\]+/%-]*$", "be a word as Slurm takes it, no spaces"), _PLAIN
]
Time = Annotated[
    str,
    Form(r"^([0-9]+|[0-9]+:[0-9]{2}(:[0-9]{2})?|[0-9]+-[0-9]+(:[0-9]{2}){0,2})$", "be minutes, H:MM:SS or D-H"),
    _PLAIN,
]
Bind = Annotated[str, Form(r"^/[^:,\x00\s]*(:/[^:,\x00\s]*)?(:ro|:rw)?$", "be /HOST/PATH or /HOST/PATH:/PATH[:ro]")]


def _binding(value: Any) -> Any:
    """Read the name of an entry in BINDINGS, a list of CPU lists, or a word of srun."""
    if isinstance(value, str) and value in BINDINGS:
        return list(BINDINGS[value])
    for part in value if isinstance(value, list) else ():
        try:
            cpus(str(part))
        except ValueError:
            raise ValueError(f"{show(part)} is no list of CPUs such as 1-7 or 0,2") from None
    if isinstance(value, str) and value not in ("none", "cores", "threads", "sockets", "ldoms", "rank"):
        raise ValueError(f"{show(value)} {known(value, ('none', 'cores', 'threads', 'sockets', 'ldoms', *BINDINGS))}")
    return value


class SlurmShape(Shape):
    """The request to Slurm for a node of this kind, and how ranks start there."""

    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    gres: Word | None = None
    gpus: Annotated[Word | None, Field(description="per node, as --gpus-per-node takes it")] = None
    constraint: Word | None = None
    reservation: Word | None = None
    time: Annotated[Time | None, Field(description="limit of the allocation, as --time takes it: 30, 1:00:00")] = None
    queue: Annotated[float | None, Field(gt=0, description="seconds that the allocation may wait")] = None
    exclusive: bool | None = None
    mpi: Annotated[Word | None, Field(description="srun's MPI plugin: pmix, pmi2, none")] = None
    cpus_per_rank: Annotated[int | None, Field(ge=1)] = None
    cpu_bind: Annotated[
        str | tuple[Text, ...] | None,
        BeforeValidator(_binding),
        Field(description="lumi-g, a list of the CPUs of each rank on a node, or a word of srun --cpu-bind"),
    ] = None
    container: Annotated[
        Literal["apptainer", "singularity", "pyxis"] | None, Field(description="what runs the image of this kind")
    ] = None
    binds: tuple[Bind, ...] | None = None

    def over(self, batch: Batch) -> Batch:
        """Return the settings with the given keys replaced by these."""
        given = {name: value for name in self.model_fields_set if (value := getattr(self, name)) is not None}
        bind = given.pop("cpu_bind", None)
        if isinstance(bind, str):
            given |= {"bind": bind, "binding": ()}
        elif bind is not None:
            given |= {"bind": "", "binding": tuple(map(str, bind))}
        given.pop("prefix", None)
        return replace(batch, **given)


class SlurmSite(SlurmShape):
    """The Slurm request of a site, which replaces that of the matrix; `prefix` is the folder of MPI on its nodes."""

    prefix: Prefix | None = None
