"""A runtime's settings, and how its nodes are placed, named and leased. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.model.interfaces import InterfaceChoice
from pytest_hetgpu.model.job import ConnectionInfo, Hardware, Node
from pytest_hetgpu.model.stored import Stored

MACHINE = "host"
"""The name of a lease of a whole machine."""


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """One lease: of a machine reached by ssh if `reach` is given, else of a name on this machine.

    `words` is its name for users. `alone` is the reason why the lease does not exclude runs on other machines; else "".
    """

    name: str
    words: str
    reach: ConnectionInfo | None = None
    alone: str = ""


@dataclass(frozen=True, slots=True)
class Loss:
    """A way in which nodes are taken from a job that did nothing wrong.

    `service`: the service that makes the nodes failed; once it is back the cell can run again.
    """

    why: str
    service: bool = False


class Policy:
    """The settings of a runtime, and the rules for its nodes."""

    settings: ClassVar[Any] = None
    """The pydantic model of its key of a kind of hardware, which has the name of the runtime; None for no such key."""
    site_settings: ClassVar[Any] = None
    """The same for its key of an inventory: a map from names of hardware, or `*`, to this model.

    `prefix` in there is the folder of the MPI.
    """
    request_type: ClassVar[Any] = None
    """The class of the result of `make_settings`, if that is not `settings`: a frozen dataclass."""

    schedules: ClassVar[bool] = False
    """Whether a scheduler chooses the hosts, and reserves them exclusively."""
    uses_containers: ClassVar[bool] = False
    """Whether the nodes are containers, made of `image` with the options of `container` and `build`."""
    encloses: ClassVar[bool] = False
    """Whether MPI libraries take every node for a host of its own."""
    shares_files: ClassVar[bool] = False
    """Whether the nodes see the file systems of this machine, and the MPIs installed here."""
    needs_inventory: ClassVar[bool] = False
    """Whether there are no nodes without an inventory; else this machine is the only one."""

    losses: ClassVar[Mapping[str, Loss]] = {}
    """Keys of signatures, `WHAT@RUNTIME`, for the ways in which its nodes can be taken away."""
    rdma_advice: ClassVar[str] = "load the HCA's driver"
    """The advice for a node that lacks its RDMA device."""

    @classmethod
    def check_image(cls, image: str | None) -> None:
        """Raise ValueError for an `image` that its nodes cannot have."""

    @classmethod
    def make_settings(cls, given: Any, hardware: Hardware) -> object:
        """Return the settings of a kind of hardware, from a `settings` model; `hardware` has all other keys."""
        return given

    @classmethod
    def with_site(cls, settings: Any, site: Any) -> object:
        """Return settings with those of a site (a `site_settings` model) put over them."""
        if settings is None:
            return site
        given = {name: getattr(site, name) for name in site.model_fields_set if name in type(settings).model_fields}
        return settings.model_copy(update=given)

    @classmethod
    def settings_of(cls, hardware: Hardware) -> Any:
        """Return the settings of a kind of hardware of this runtime, also for a job of a stored run."""
        found = hardware.settings
        if not isinstance(found, Stored):
            return found
        shape = cls.request_type or cls.settings or cls.site_settings
        if shape is None:
            return None
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(shape).validate_python(found.data)
        except ValidationError as error:
            what = error.errors(include_url=False)[0]
            place = ".".join(map(str, what["loc"]))
            raise UsageError(f"the settings of {hardware.name} cannot be read: {place}: {what['msg']}") from None

    @classmethod
    def in_placement(cls, kinds: Sequence[Hardware], ranks: Sequence[int], index: int) -> Hardware:
        """Return the kind at `index` of a placement, with its settings for that index."""
        return kinds[index]

    @classmethod
    def conflict(cls, kinds: Sequence[Hardware], *, launcher: bool = False) -> str:
        """Return why kinds of this runtime cannot be nodes of one placement, and advice; "" if they can.

        `launcher`: the last is a node without ranks.
        """
        return ""

    @classmethod
    def shares_host(cls, hardware: Hardware) -> bool:
        """Return whether several nodes of a kind may be on one host."""
        return False

    @classmethod
    def known_interface(cls, hardware: Hardware) -> InterfaceChoice | None:
        """Return the interface of a node's TCP if it is known before the node is there."""
        return None

    @classmethod
    def lease(cls, node: Node) -> LeaseRequest | None:
        """Return the lease that a cell holds while it uses a node; None if the node is exclusive anyway.

        By default the lease is for all of this machine.
        """
        return LeaseRequest(MACHINE, node.host)
