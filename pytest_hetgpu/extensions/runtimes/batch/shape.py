"""The shape of what Slurm is asked for: with a kind of hardware in a matrix, and for a site in an inventory."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from pytest_hetgpu.extensions.runtimes.batch.request import BINDINGS, Batch, cpus
from pytest_hetgpu.extensions.shapes import Form, Prefix, Shape, Text
from pytest_hetgpu.model.messages import known, show

# A number is read as its text.
_PLAIN = Field(json_schema_extra={"type": ["string", "number"]})
# Slurm's options are given as --OPTION=WORD: a word of theirs holds no spaces.
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
    """Read a node's name in BINDINGS, a list of CPU lists, or a word of srun."""
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
    """What Slurm is asked for to have a node of this kind, and how ranks start there."""

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
        Literal["apptainer", "pyxis"] | None, Field(description="what runs the image of this kind")
    ] = None
    binds: tuple[Bind, ...] | None = None

    def over(self, batch: Batch) -> Batch:
        """With what is given here put in the place of what was."""
        given = {name: value for name in self.model_fields_set if (value := getattr(self, name)) is not None}
        bind = given.pop("cpu_bind", None)
        if isinstance(bind, str):
            given |= {"bind": bind, "binding": ()}
        elif bind is not None:
            given |= {"bind": "", "binding": tuple(map(str, bind))}
        given.pop("prefix", None)
        return replace(batch, **given)


class SlurmSite(SlurmShape):
    """What a site's Slurm is asked for, in the place of what the matrix says; `prefix` is where its nodes have MPI."""

    prefix: Prefix | None = None
