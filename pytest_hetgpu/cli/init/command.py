"""`hetgpu init`: looks at what is there, and writes a matrix and an inventory of it that run at once."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_hetgpu.cli.doctor import PROBE_TIMEOUT, HostConnection, connect, diagnose, local_stacks
from pytest_hetgpu.cli.init.found import FoundMachine, FoundStack, gpus_of, partitions_of, transports_of
from pytest_hetgpu.cli.init.starter import MATRIX, run_command, starter_files
from pytest_hetgpu.config.inventory.file import Address
from pytest_hetgpu.errors import NotHere, UsageError
from pytest_hetgpu.extensions.runtimes.process.query import ask
from pytest_hetgpu.extensions.runtimes.traits.first_matrix import BATCH, ENGINE_VERSION, ENGINES, PARTITIONS
from pytest_hetgpu.extensions.stacks.base import mpi4py_advice
from pytest_hetgpu.model.external_program import PYTHON
from pytest_hetgpu.model.facts import Environment
from pytest_hetgpu.model.job import Stack
from pytest_hetgpu.planning.matrix_set import MatrixSet, RunInputs

Print = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class InitOptions:
    """The options of the command; `program` is a command line, and `hosts` are separated by commas."""

    folder: Path = Path()
    program: str = ""
    hosts: str = ""
    yes: bool = False
    force: bool = False


def run(options: InitOptions, print_line: Print, ask_user: Callable[[str], str] | None = None) -> int:
    """Look around, and write the files. Return 0, or 1 if the user declines.

    `ask_user` puts a question to the user; None without a terminal. Raises UsageError if a file exists already, or a
    host or a command cannot be read.
    """
    _refuse_taken([options.folder / MATRIX], options)
    try:
        if ask_user and not options.yes:
            options = _asked(options, ask_user)
        return _look_and_write(options, print_line, ask_user)
    except EOFError:  # Ctrl-D at a question
        print_line("")
        return 1


def _look_and_write(options: InitOptions, print_line: Print, ask_user: Callable[[str], str] | None) -> int:
    wanted = replace(FoundMachine(platform.node()), program=_program(options.program), hosts=_hosts(options.hosts))
    found = look_around(wanted)
    for line in report(found):
        print_line(line)
    files = {options.folder / name: text for name, text in starter_files(found).items()}
    _refuse_taken(files, options)
    if ask_user and not options.yes:
        names = " and ".join(map(str, files))
        if ask_user(f"Write {names}? [Y/n] ").strip().lower() not in ("", "y", "yes"):
            return 1
    for path, text in files.items():
        _write(path, text)
        print_line(f"wrote     {path}")
    before = f"cd {shlex.quote(str(options.folder))} && " if options.folder != Path() else ""
    print_line(f"run it    {before}{run_command(found)}")
    return 0


def _refuse_taken(paths: Iterable[Path], options: InitOptions) -> None:
    taken = [str(path) for path in paths if path.exists() or path.is_symlink()]
    if taken and not options.force:
        raise UsageError(
            f"{' and '.join(taken)} exist{'s' * (len(taken) == 1)} already: --force replaces what is there"
        )


def _asked(options: InitOptions, ask_user: Callable[[str], str]) -> InitOptions:
    program = options.program or ask_user("Command of your program (Enter: only our own workloads): ")
    hosts = options.hosts or ask_user("Hosts that ssh reaches, with commas between (Enter: none): ")
    return replace(options, program=program.strip(), hosts=hosts.strip())


def _program(text: str) -> tuple[str, ...]:
    """Split a command. A file that is here gets its whole path, and a Python becomes that of each MPI."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"the command {text!r} cannot be read: {error}") from None
    if words and Path(words[0]).name in ("python", "python3"):
        words[0] = PYTHON
    return tuple(str(Path(word).resolve()) if _is_here(word) else word for word in words)


def _is_here(word: str) -> bool:
    try:
        return not word.startswith("/") and Path(word).is_file()
    except (OSError, ValueError):  # no file can have such a name
        return False


def _hosts(text: str) -> tuple[str, ...]:
    from pydantic import TypeAdapter, ValidationError

    hosts = tuple(filter(None, (part.strip() for part in text.replace(" ", ",").split(","))))
    for host in hosts:
        try:
            TypeAdapter(Address).validate_python(host)
        except ValidationError as error:
            raise UsageError(f"host {host!r}: {error.errors()[0]['ctx']['error']}") from None
    return hosts


def look_around(wanted: FoundMachine) -> FoundMachine:
    """Inspect this machine: its MPIs, GPUs, container engine and Slurm."""
    suite = MatrixSet.load((), Path.cwd(), timeout=PROBE_TIMEOUT, environ=os.environ, inputs=RunInputs(None))
    stacks = local_stacks(suite)
    with ThreadPoolExecutor(8) as pool:
        looks = [pool.submit(_environment, stack) for stack in stacks]
        here = pool.submit(_environment, None)
        partitions, engine = pool.submit(_partitions), pool.submit(_engine)
    return replace(
        wanted,
        stacks=tuple(_stack(stack, look.result()) for stack, look in zip(stacks, looks, strict=True)),
        gpus=gpus_of(here.result()),
        partitions=partitions_of(partitions.result()),
        engine=engine.result(),
    )


def _environment(stack: Stack | None) -> Environment:
    return diagnose("", HostConnection(), connect, stacks=(stack,) if stack else ()).environment


def _stack(stack: Stack, environment: Environment) -> FoundStack:
    unusable = mpi4py_advice(stack)
    transports = () if unusable else transports_of(stack.vendor, environment)
    return FoundStack(stack.name, f"{stack.vendor} {stack.version}", stack.prefix, transports, stack.torch, unusable)


def _partitions() -> list[str]:
    with suppress(NotHere):
        return ask([PARTITIONS]).decode(errors="replace").splitlines()
    return []


def _engine() -> str:
    for name in filter(shutil.which, ENGINES):
        with suppress(NotHere):
            version = ask([(name, *ENGINE_VERSION)]).decode(errors="replace").strip()
            return f"{name} {version.splitlines()[0][:40]}"
    return ""


def report(found: FoundMachine) -> Iterator[str]:
    """Yield a line for each thing that was looked for."""
    for stack in found.stacks:
        has = "left out" if stack.unusable else f"with {', '.join(stack.transports) or 'no MPI'}"
        yield f"MPI       {stack.name}: {stack.release} in {stack.prefix or '/usr'}, {has}"
        if stack.unusable:
            yield f"          {stack.unusable}"
    if not found.stacks:
        yield "MPI       none: the cells print how to install one"
    gpus = found.gpus
    yield f"GPUs      {f'{gpus.count} of {gpus.platform} {gpus.arch}'.strip() if gpus else 'none'}"
    if gpus and not any(stack.torch for stack in found.stacks):
        yield "          no PyTorch is here to use them: no cell of theirs is written"
    yield f"{BATCH:<10}{_listed([f'{one.name} ({one.nodes} nodes)' for one in found.partitions])}"
    yield f"engine    {found.engine or 'none'}"
    yield f"hosts     {_listed(found.hosts)}"
    yield f"program   {shlex.join(found.program) or 'none'}"


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words) or "none"


def _write(path: Path, text: str) -> None:
    """Write a file anew; a link is replaced, and not followed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None
