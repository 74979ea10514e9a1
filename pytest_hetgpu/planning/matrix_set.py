"""The matrices of one run and the facts of its site: everything known before the first job starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from pytest_hetgpu.config.inventory.inventory import Inventory
from pytest_hetgpu.config.known_failures.load import known_failures
from pytest_hetgpu.config.matrix.matrix import Matrix
from pytest_hetgpu.config.matrix.reader import read
from pytest_hetgpu.errors import MatrixError, NotHere, UsageError
from pytest_hetgpu.extensions.package_data import REMOTE, packaged
from pytest_hetgpu.extensions.registry import extension_errors, names
from pytest_hetgpu.extensions.runtimes.containers.image import image_of
from pytest_hetgpu.extensions.runtimes.lookup import runtime_of
from pytest_hetgpu.extensions.runtimes.process.interfaces import network_here
from pytest_hetgpu.extensions.shapes import plain
from pytest_hetgpu.extensions.stacks.base import family_of
from pytest_hetgpu.model.interfaces import Network
from pytest_hetgpu.model.job import Image, Job, Scenario, Stack
from pytest_hetgpu.model.messages import known
from pytest_hetgpu.model.sizes import ordinal
from pytest_hetgpu.planning.expand import MOST_CELLS, expand
from pytest_hetgpu.planning.placement import DiscoveredNode, SiteFacts
from pytest_hetgpu.planning.plan import plan


def find_matrix(path: Path, root: Path) -> Path:
    """Find a matrix file: as given, below pytest's root, or a packaged matrix by name (or `matrices/NAME`).

    Raises UsageError with the searched places and the files there.
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
    """Return names of files that may be a matrix; `NAME.hosts.yaml` is an inventory."""
    try:
        found = [path for path in folder.iterdir() if path.suffix in (".yaml", ".yml")]
        return [path.name for path in found if Path(path.stem).suffix != ".hosts"]
    except (OSError, ValueError):
        return []


def settings_of(matrix: Matrix) -> Iterator[object]:
    """Yield settings of a matrix that may hold secrets, as plain data: of hardware, axis values, builds."""
    for hardware in matrix.hardware.values():
        yield from (dict(hardware.env), dict(hardware.build_args), plain(hardware.settings))
    values = (value for axis in matrix.axes for value in axis.values)
    yield from (one.raw for one in (*values, *matrix.extra.values(), *matrix.transports.values()))


@dataclass(frozen=True, slots=True)
class RunInputs:
    """The inputs of a run besides its matrices: the inventory (a file or `KIND:PATH`), known failures and rules.

    The matrices may have `most_cells` together.
    """

    inventory: str | Path | None = None
    known_failures: tuple[Path, ...] = ()
    signatures: tuple[Path, ...] = ()
    most_cells: float = MOST_CELLS


@dataclass(frozen=True)
class MatrixSet:
    """Matrices with their scenarios, in the order given."""

    matrices: Mapping[str, Matrix]
    scenarios: tuple[Scenario, ...]
    inventory: Inventory
    prefixes: tuple[Path, ...]
    timeout: float
    knowledge_files: tuple[Path, ...] = ()
    signature_files: tuple[Path, ...] = ()
    #: Parameters and variables that ranks do not get, whatever sets them.
    dropped: frozenset[str] = frozenset()
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
        inputs: RunInputs = RunInputs(),
    ) -> MatrixSet:
        """Read and expand every file. Raises MatrixError with the errors of all of them."""
        if wrong := extension_errors():
            raise UsageError("\n".join(wrong))
        if inputs.known_failures:
            known_failures(inputs.known_failures)
        if inputs.signatures:
            from pytest_hetgpu.config.signature_rules.load import signature_rules

            signature_rules(inputs.signatures)
        matrices: dict[str, Matrix] = {}
        expanded: list[tuple[Matrix, list[Scenario]]] = []
        errors: list[str] = []
        for file in dict.fromkeys(find_matrix(path, root) for path in files):
            try:
                matrix = read(file, environ, partial(known_failures, inputs.known_failures))
                left = inputs.most_cells - sum(len(cells) for _, cells in expanded)
                expanded.append((matrix, expand(matrix, left)))
            except MatrixError as error:
                errors += error.errors
                continue
            if matrix.name in matrices:
                other = matrices[matrix.name].file
                errors.append(f"{file}: another matrix of this run is named {matrix.name!r} too: {other}")
            matrices[matrix.name] = matrix
        if errors:
            raise MatrixError(errors)
        inventory = _inventory(inputs.inventory)
        images = {name: _images(matrix, inventory, root) for name, matrix in matrices.items()}
        return cls(
            matrices,
            tuple(_labelled(expanded)),
            inventory,
            _prefixes(environ, root),
            timeout,
            inputs.known_failures,
            inputs.signatures,
            _images=images,
        )

    def select(self, wanted: Sequence[str]) -> tuple[Scenario, ...]:
        """Return the scenarios of these ids or labels, all without any. Raises UsageError for an unknown id."""
        if not wanted:
            return self.scenarios
        names = {name for scenario in self.scenarios for name in (scenario.id, scenario.label)}
        for name in wanted:
            if name not in names:
                raise UsageError(
                    f"no cell {name!r} in {', '.join(d.file for d in self.matrices.values())} {known(name, names)}"
                )
        return tuple(s for s in self.scenarios if s.id in wanted or s.label in wanted)

    def settings(self) -> Iterator[object]:
        """Yield settings that may hold secrets, as plain data: of hardware, axis values, builds, the inventory."""
        for matrix in self.matrices.values():
            yield from settings_of(matrix)
        yield from self.inventory.settings()

    def words(self, taken: Collection[str]) -> Iterator[str]:
        """Yield the keywords of cells: values of axes, platforms, families. Raises UsageError if one is `taken`."""
        for family in ("hardware", "transports", "workloads"):
            yield from names(family)
        for matrix in self.matrices.values():
            for value in (value for axis in matrix.axes for value in axis.values):
                if value.name in taken:
                    clash = f"{value.axis} {value.name!r} has the name of a registered pytest mark; rename it"
                    raise UsageError(f"{value.origin}: {clash}")
            yield from matrix.words()

    def images(self) -> Iterator[tuple[str, Image]]:
        """Yield the image of each kind of hardware that runs in one, by `MATRIX.HARDWARE`."""
        for matrix, images in self._images.items():
            yield from ((f"{matrix}.{name}", image) for name, image in images.items())

    def stack_names(self) -> tuple[str, ...]:
        """Return the stacks of this machine that cells may need."""
        kinds = [kind for matrix in self.matrices.values() for kind in matrix.hardware.values()]
        if all(kind.runtime != "local" for kind in kinds):
            return ()
        values = (value for matrix in self.matrices.values() for value in matrix.axis_values())
        chosen = (str(value.raw["stack"]) for value in values if value.raw.get("stack"))
        return tuple(dict.fromkeys((*(kind.stack for kind in kinds if kind.runtime == "local"), *chosen)))

    def position(self, matrix: str, label: str) -> int:
        """Return a cell's position in the order of the matrices."""
        if not self._places:
            self._places.update({(s.matrix, s.label): place for place, s in enumerate(self.scenarios)})
        return self._places[matrix, label]

    def scenario(self, job: Job) -> Scenario:
        """Return the scenario of a job."""
        return self.scenarios[self.position(job.matrix, job.label)]

    def job(
        self,
        scenario: Scenario,
        discovered: Mapping[int, DiscoveredNode] | None = None,
        *,
        even_if_absent: bool = False,
        verbose: bool = False,
    ) -> Job:
        """Plan the job of a scenario. Raises NotHere if the site lacks something.

        `discovered` holds the facts of provisioned nodes. With `even_if_absent` a plan is made without the stack. A
        `verbose` job logs the debug output that maintainers require.
        """
        matrix = self.matrices[scenario.matrix]
        wanted = matrix.settings(scenario.values)
        stacks = {}
        kinds = [matrix.hardware[node] for node in wanted.hardware]
        for name in {wanted.options.stack or kind.stack for kind in kinds if kind.runtime == "local"}:
            found = self.stack(name)
            if isinstance(found, NotHere) and not even_if_absent:
                raise found
            stacks[name] = family_of(name).placeholder(name) if isinstance(found, NotHere) else found
        # The nodes share the file systems of this machine, so they have its stacks.
        for name in {kind.stack for kind in kinds if runtime_of(kind.runtime).shares_files} - set(stacks):
            shared = self.stack(name)
            stacks |= {name: shared} if isinstance(shared, Stack) else {}
        return plan(matrix, scenario, replace(self._site(matrix, stacks, discovered or {}), verbose=verbose))

    def stack(self, name: str) -> Stack | NotHere:
        """Return the stack of that name on this machine, or the error why it is absent. The result is cached."""
        if name not in self._stacks:
            try:
                given = self.inventory.stacks.get(name)
                family = family_of(name)
                self._stacks[name] = (
                    family.from_prefix(name, given) if given else family.locate(name, self._candidates(name))
                )
            except NotHere as error:
                self._stacks[name] = error
        return self._stacks[name]

    def with_stack(self, stack: Stack) -> MatrixSet:
        """Return these matrices with another version of a stack of this machine."""
        return replace(self, _stacks={**self._stacks, stack.name: stack})

    def stack_versions(self, name: str) -> tuple[Stack, ...]:
        """Return the stack, and its other versions in folders like `mpich@4.3.2` beside it, the oldest first."""
        found = [one] if isinstance(one := self.stack(name), Stack) else []
        for path in (path for prefix in self.prefixes for path in sorted(prefix.glob(f"{name}@*"))):
            with suppress(NotHere):
                found.append(family_of(name).any_version(name, path))
        return tuple({one.version: one for one in sorted(found, key=lambda one: ordinal(one.version))}.values())

    @cached_property
    def network(self) -> Network | None:
        """The interfaces of this machine as they were when the first job was planned."""
        return network_here()

    def _candidates(self, name: str) -> Iterable[Path]:
        return (*(prefix / name for prefix in self.prefixes), Path(sys.prefix))

    def _site(self, matrix: Matrix, stacks: Mapping[str, Stack], discovered: Mapping[int, DiscoveredNode]) -> SiteFacts:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return SiteFacts(
            stacks=stacks,
            programs=str(REMOTE),
            root=os.geteuid() == 0,
            cores=cores,
            timeout=self.timeout,
            dropped=self.dropped,
            inventory=self.inventory,
            images=self._images.get(matrix.name, {}),
            discovered=discovered,
            network=self.network,
        )


def _images(matrix: Matrix, found: Inventory, root: Path) -> dict[str, Image]:
    """Return the image of each kind of hardware that runs in one. Raises MatrixError if a folder does not exist."""
    places = (Path(matrix.file).parent, root, packaged("containers").parent)
    images, errors = {}, []
    for name, kind in matrix.hardware.items():
        if runtime_of(kind.runtime).uses_containers and kind.image:
            try:
                images[name] = image_of(kind, places, found.build_of(Path(kind.image).name))
            except UsageError as error:
                errors.append(f"{matrix.file}: hardware.{name}.image: {error}")
    if errors:
        raise MatrixError(errors)
    return images


def _labelled(expanded: Sequence[tuple[Matrix, list[Scenario]]]) -> Iterable[Scenario]:
    if len(expanded) == 1:
        return expanded[0][1]
    labelled = [replace(s, label=f"{matrix.name}.{s.id}") for matrix, scenarios in expanded for s in scenarios]
    discovered: dict[str, Scenario] = {}
    for scenario in labelled:
        other = discovered.setdefault(scenario.label, scenario)
        if other is not scenario:
            raise UsageError(
                f"cells of the matrices {other.matrix!r} and {scenario.matrix!r} share the label {scenario.label!r}; "
                "rename one of them"
            )
    return labelled


def _inventory(file: str | Path | None) -> Inventory:
    """Read an inventory. Most runs have none, and import no model of its file."""
    if not file:
        return Inventory()
    from pytest_hetgpu.config.inventory.file import read

    return read(file)


def _prefixes(environ: Mapping[str, str], root: Path) -> tuple[Path, ...]:
    """Return folders with one virtual environment per stack, each with the stack's name."""
    given = [part for part in environ.get("HETGPU_STACKS", "").split(os.pathsep) if part]
    cache = environ.get("XDG_CACHE_HOME") or "~/.cache"
    # For a matrix elsewhere pytest's root is its folder, but the stacks of the current folder are meant.
    places = dict.fromkeys((*given, str(root / ".stacks"), str(Path.cwd() / ".stacks"), f"{cache}/hetgpu/stacks"))
    homes = (os.path.expanduser(place) for place in places)  # noqa: PTH111 - a container's user may have no home
    return tuple(Path(home).absolute() for home in homes)
