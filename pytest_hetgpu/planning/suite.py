"""The matrices of one run and the facts of its site: everything known before the first job starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from pytest_hetgpu.config.inventory import inventory
from pytest_hetgpu.config.inventory.inventory import Inventory
from pytest_hetgpu.config.known_failures.load import knowledge
from pytest_hetgpu.config.matrix.document import Document
from pytest_hetgpu.config.matrix.reader import read
from pytest_hetgpu.errors import MatrixError, NotHere, UsageError
from pytest_hetgpu.extensions.package_data import REMOTE, packaged
from pytest_hetgpu.extensions.registry import names, troubles
from pytest_hetgpu.extensions.runtimes.containers.image import image_of
from pytest_hetgpu.extensions.runtimes.lookup import runtime_of
from pytest_hetgpu.extensions.runtimes.process.interfaces import network_here
from pytest_hetgpu.extensions.shapes import plain
from pytest_hetgpu.extensions.stacks.base import family_of
from pytest_hetgpu.model.interfaces import Network
from pytest_hetgpu.model.job import Image, Job, Scenario, Stack
from pytest_hetgpu.model.messages import known
from pytest_hetgpu.planning.expand import expand
from pytest_hetgpu.planning.placement import Sight, Site
from pytest_hetgpu.planning.plan import plan


def find_matrix(path: Path, root: Path) -> Path:
    """The file that was meant: as given, below pytest's root, or a packaged matrix by its name (or `matrices/NAME`).

    UsageError says where it was looked for, and what is there.
    """
    home = packaged("matrices")
    places = [path, root / path]
    if path.parent in (Path(), Path("matrices")):
        places.append(home / path.name)
    for candidate in places:
        if os.path.exists(candidate):  # noqa: PTH110 - Path.exists raises for a name too long or a closed folder
            return candidate
    beside = {str(path.with_name(name)) for place in places[:2] for name in _matrices(place.parent)}
    raise UsageError(
        f"{path}: no such matrix file, here or in {root} {known(str(path), beside.union(_matrices(home)), 30)}"
    )


def _matrices(folder: Path) -> list[str]:
    """Names of what may be a matrix; `NAME.hosts.yaml` is an inventory."""
    try:
        found = [path for path in folder.iterdir() if path.suffix in (".yaml", ".yml")]
        return [path.name for path in found if Path(path.stem).suffix != ".hosts"]
    except (OSError, ValueError):
        return []


@dataclass(frozen=True, slots=True)
class Beside:
    """What a run has besides its matrices: its inventory (a file or `KIND:PATH`), and files of known failures."""

    inventory: str | Path | None = None
    knowledge: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Suite:
    """Matrices with their scenarios, in the order given."""

    documents: Mapping[str, Document]
    scenarios: tuple[Scenario, ...]
    inventory: Inventory
    prefixes: tuple[Path, ...]
    timeout: float
    knowledge_files: tuple[Path, ...] = ()
    _images: Mapping[str, Mapping[str, Image]] = field(default_factory=dict, repr=False)
    _stacks: dict[str, Stack | NotHere] = field(default_factory=dict, repr=False)
    _places: dict[tuple[str, str], int] = field(default_factory=dict, repr=False)

    @classmethod
    def load(
        cls,
        files: Sequence[Path],
        root: Path,
        *,
        timeout: float,
        environ: Mapping[str, str],
        beside: Beside = Beside(),
    ) -> Suite:
        """Reads and expands every file. MatrixError collects the complaints of all of them."""
        if wrong := troubles():
            raise UsageError("\n".join(wrong))
        if beside.knowledge:
            knowledge(beside.knowledge)
        documents: dict[str, Document] = {}
        expanded: list[tuple[Document, list[Scenario]]] = []
        complaints: list[str] = []
        for file in dict.fromkeys(find_matrix(path, root) for path in files):
            try:
                document = read(file, environ, partial(knowledge, beside.knowledge))
                expanded.append((document, expand(document)))
            except MatrixError as error:
                complaints += error.complaints
                continue
            if document.name in documents:
                other = documents[document.name].file
                complaints.append(f"{file}: another matrix of this run is named {document.name!r} too: {other}")
            documents[document.name] = document
        if complaints:
            raise MatrixError(complaints)
        found = inventory.read(beside.inventory) if beside.inventory else Inventory()
        images = {name: _images(document, found, root) for name, document in documents.items()}
        return cls(
            documents, tuple(_labelled(expanded)), found, _prefixes(environ, root), timeout, beside.knowledge, images
        )

    def select(self, wanted: Sequence[str]) -> tuple[Scenario, ...]:
        """The scenarios of these ids (or labels), all when none is asked for. UsageError for an unknown id."""
        if not wanted:
            return self.scenarios
        names = {name for scenario in self.scenarios for name in (scenario.id, scenario.label)}
        for name in wanted:
            if name not in names:
                raise UsageError(
                    f"no cell {name!r} in {', '.join(d.file for d in self.documents.values())} {known(name, names)}"
                )
        return tuple(s for s in self.scenarios if s.id in wanted or s.label in wanted)

    def settings(self) -> Iterator[object]:
        """Yield settings that may hold secrets, as plain data: of hardware, axis values, builds, the inventory."""
        for document in self.documents.values():
            for hardware in document.hardware.values():
                yield from (dict(hardware.env), dict(hardware.build_args), plain(hardware.settings))
            values = (value for axis in document.axes for value in axis.values)
            yield from (one.raw for one in (*values, *document.extra.values(), *document.transports.values()))
        yield from self.inventory.settings()

    def words(self, taken: Collection[str]) -> Iterator[str]:
        """What cells are known by: values of axes, platforms, families. UsageError for one that is `taken`."""
        for family in ("hardware", "transports", "workloads"):
            yield from names(family)
        for document in self.documents.values():
            for value in (value for axis in document.axes for value in axis.values):
                if value.name in taken:
                    clash = f"{value.axis} {value.name!r} has the name of a registered pytest mark; rename it"
                    raise UsageError(f"{value.origin}: {clash}")
            yield from document.words()

    def images(self) -> Iterator[tuple[str, Image]]:
        """The image of each kind of hardware that runs in one, by `MATRIX.HARDWARE`."""
        for matrix, images in self._images.items():
            yield from ((f"{matrix}.{name}", image) for name, image in images.items())

    def stack_names(self) -> tuple[str, ...]:
        """Stacks of this machine that cells may need."""
        kinds = [kind for document in self.documents.values() for kind in document.hardware.values()]
        if all(kind.runtime != "local" for kind in kinds):
            return ()
        values = (value for document in self.documents.values() for value in document.fragments())
        chosen = (str(value.raw["stack"]) for value in values if value.raw.get("stack"))
        return tuple(dict.fromkeys((*(kind.stack for kind in kinds if kind.runtime == "local"), *chosen)))

    def position(self, matrix: str, label: str) -> int:
        """A cell's place in the order of the matrices."""
        if not self._places:
            self._places.update({(s.matrix, s.label): place for place, s in enumerate(self.scenarios)})
        return self._places[matrix, label]

    def scenario(self, job: Job) -> Scenario:
        """The scenario that a job is of."""
        return self.scenarios[self.position(job.matrix, job.label)]

    def job(
        self,
        scenario: Scenario,
        seen: Mapping[int, Sight] | None = None,
        *,
        even_if_absent: bool = False,
        verbose: bool = False,
    ) -> Job:
        """What a scenario starts. NotHere where the site lacks something; a plan may be made without the stack.

        `seen` is what the nodes of a placement were found to be once they were there. A `verbose` job logs what
        maintainers ask for.
        """
        document = self.documents[scenario.matrix]
        wanted = document.settings(scenario.values)
        stacks = {}
        kinds = [document.hardware[node] for node in wanted.hardware]
        for name in {wanted.options.stack or kind.stack for kind in kinds if kind.runtime == "local"}:
            found = self.stack(name)
            if isinstance(found, NotHere) and not even_if_absent:
                raise found
            stacks[name] = family_of(name).planned(name) if isinstance(found, NotHere) else found
        # What is installed here is what nodes have that share its file systems.
        for name in {kind.stack for kind in kinds if runtime_of(kind.runtime).shares_files} - set(stacks):
            shared = self.stack(name)
            stacks |= {name: shared} if isinstance(shared, Stack) else {}
        return plan(document, scenario, replace(self._site(document, stacks, seen or {}), verbose=verbose))

    def stack(self, name: str) -> Stack | NotHere:
        """The stack of that name on this machine, or why it is not; looked for once."""
        if name not in self._stacks:
            try:
                given = self.inventory.stacks.get(name)
                family = family_of(name)
                self._stacks[name] = family.at(name, given) if given else family.locate(name, self._candidates(name))
            except NotHere as error:
                self._stacks[name] = error
        return self._stacks[name]

    @cached_property
    def network(self) -> Network | None:
        """The interfaces of this machine as they were when the first job was planned."""
        return network_here()

    def _candidates(self, name: str) -> Iterable[Path]:
        return (*(prefix / name for prefix in self.prefixes), Path(sys.prefix))

    def _site(self, document: Document, stacks: Mapping[str, Stack], seen: Mapping[int, Sight]) -> Site:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return Site(
            stacks=stacks,
            programs=str(REMOTE),
            root=os.geteuid() == 0,
            cores=cores,
            timeout=self.timeout,
            inventory=self.inventory,
            images=self._images.get(document.name, {}),
            seen=seen,
            network=self.network,
        )


def _images(document: Document, found: Inventory, root: Path) -> dict[str, Image]:
    """The image of each kind of hardware that runs in one. MatrixError where a folder is meant that is not there."""
    places = (Path(document.file).parent, root, packaged("containers").parent)
    images, complaints = {}, []
    for name, kind in document.hardware.items():
        if runtime_of(kind.runtime).uses_containers and kind.image:
            try:
                images[name] = image_of(kind, places, found.build_of(Path(kind.image).name))
            except UsageError as error:
                complaints.append(f"{document.file}: hardware.{name}.image: {error}")
    if complaints:
        raise MatrixError(complaints)
    return images


def _labelled(expanded: Sequence[tuple[Document, list[Scenario]]]) -> Iterable[Scenario]:
    if len(expanded) == 1:
        return expanded[0][1]
    labelled = [replace(s, label=f"{document.name}.{s.id}") for document, scenarios in expanded for s in scenarios]
    seen: dict[str, Scenario] = {}
    for scenario in labelled:
        other = seen.setdefault(scenario.label, scenario)
        if other is not scenario:
            raise UsageError(
                f"cells of the matrices {other.matrix!r} and {scenario.matrix!r} share the label {scenario.label!r}; "
                "rename one of them"
            )
    return labelled


def _prefixes(environ: Mapping[str, str], root: Path) -> tuple[Path, ...]:
    """Folders that hold a virtual environment a stack, named like it."""
    given = [part for part in environ.get("HETGPU_STACKS", "").split(os.pathsep) if part]
    cache = environ.get("XDG_CACHE_HOME") or "~/.cache"
    # pytest takes the folder of a matrix elsewhere for its root; the stacks of where one stands are meant all the same.
    places = dict.fromkeys((*given, str(root / ".stacks"), str(Path.cwd() / ".stacks"), f"{cache}/hetgpu/stacks"))
    homes = (os.path.expanduser(place) for place in places)  # noqa: PTH111 - a container's user may have no home
    return tuple(Path(home).absolute() for home in homes)
