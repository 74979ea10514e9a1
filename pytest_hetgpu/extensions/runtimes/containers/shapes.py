"""The schema of a matrix for containers, and for the images that are built for them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from pytest_hetgpu.extensions.shapes import Bytes, Env, Form, Name, Names, Shape, Text, Texts

# A path or a name that container engines accept: no option, and no separator of a list.
Path = Annotated[str, Form(r"^/[^\x00,\s]*$", "be an absolute path, without spaces and commas")]
ImageName = Annotated[str, Form(r"^[A-Za-z0-9_/][^\x00\s]*$", "be a reference or a folder, without spaces")]
Image = Annotated[ImageName | None, Field(description="a reference, or a folder with a Dockerfile")]
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


class ContainerShape(Shape):
    """The options of a container, named as those of `docker run`; a key replaces the value of its platform."""

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
    """The options for building an image from its folder."""

    args: Env = {}
    network: Literal["", "default", "host", "none"] = ""
