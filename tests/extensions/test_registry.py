"""A variant is its file: found by name, imported when it is asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.extensions.launchers.base import Launcher
from pytest_hetgpu.extensions.registry import FAMILIES, find, names
from pytest_hetgpu.extensions.transports.base import Transport
from pytest_hetgpu.extensions.transports.ucx import Ucx
from pytest_hetgpu.model.messages import known, show

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("family", FAMILIES)
def test_names_are_the_files_without_base_and_private_ones(family: str) -> None:
    folder = ROOT / "pytest_hetgpu" / "extensions" / family
    files = {path.stem for path in (*folder.glob("*.py"), *folder.glob("rows/*.yaml"))}
    assert names(family) == tuple(sorted(name for name in files if name != "base" and not name.startswith("_")))


def test_naming_variants_imports_none_of_them() -> None:
    program = (
        "import sys\nfrom pytest_hetgpu.extensions.registry import names\n"
        "assert 'ucx' in names('transports'); assert 'local' in names('runtimes')\n"
        "variants = ('pytest_hetgpu.extensions.transports.', 'pytest_hetgpu.extensions.runtimes.')\n"
        "print(*(name for name in sys.modules if name.startswith(variants)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def child(program: str, site: Path) -> str:
    """What a program prints in a Python of its own that also finds packages in `site`."""
    environ = {"PYTHONPATH": str(site), "PATH": ""}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True).stdout


def metadata(site: Path, folder: str, entries: str) -> None:
    (site / folder).mkdir(parents=True)
    (site / folder / "entry_points.txt").write_text(entries)


NAMES = "from pytest_hetgpu.extensions.registry import names; print(*names('runtimes'))"


def test_entry_points_of_other_packages_are_names_too(tmp_path: Path) -> None:
    entries = (
        "[console_scripts]\nx = y\n\n; a comment\n[pytest_hetgpu.runtimes]\nlxc = a.b\npodman=c : D [extra]\nodd\n"
    )
    metadata(tmp_path, "lxc_boxes-1.0.dist-info", entries)
    metadata(tmp_path, "Egg.egg-info", "[pytest_hetgpu.runtimes]\negg = a\n")
    metadata(tmp_path, "broken-1.dist-info", "[pytest_hetgpu.runtimes\n\xff\n")
    ours = names("runtimes")
    assert child(NAMES, tmp_path).split() == sorted((*ours, "egg", "lxc", "podman"))
    told = child(
        "from pytest_hetgpu.extensions.entry_points import extensions\nfor one in extensions(): print(one)", tmp_path
    )
    assert told.splitlines() == [
        "'egg' of Egg (a)",
        "'lxc' of lxc-boxes 1.0 (a.b)",
        "'podman' of lxc-boxes 1.0 (c:D)",
    ]


def test_a_package_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    for place, target in (("first", "a"), ("second", "b")):
        metadata(tmp_path / place, "boxes-1.0.dist-info", f"[pytest_hetgpu.runtimes]\nlxc = {target}\n")
    program = f"import sys; sys.path += {[str(tmp_path / 'first'), str(tmp_path / 'second')]}\n"
    program += "from pytest_hetgpu.extensions.registry import added, extension_errors\n"
    program += "print(*added(), *extension_errors(), sep='|')"
    assert child(program, tmp_path).strip() == "'lxc' of boxes 1.0 (a)"


def test_without_any_nothing_is_imported_to_find_that_out(tmp_path: Path) -> None:
    program = f"{NAMES}\nimport sys; print([m for m in sys.modules if m.startswith(('importlib.metadata', 'email'))])"
    assert child(program, tmp_path).splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "x = 1",
            "launcher 'own' of boxes 1.0 (own): it defines no Launcher (pytest_hetgpu.extensions.launchers.base)",
        ),
        (
            "from pytest_hetgpu.extensions.launchers.base import Launcher\nclass Own(Launcher): pass",
            "launcher 'own' of boxes 1.0 (own): its Own lacks command",
        ),
        ("1 / 0", "launcher 'own' of boxes 1.0 (own) cannot be imported: ZeroDivisionError: division by zero"),
    ],
)
def test_a_variant_of_another_package_that_is_of_no_use_is_told_with_it(tmp_path: Path, text: str, told: str) -> None:
    metadata(tmp_path, "boxes-1.0.dist-info", "[pytest_hetgpu.launchers]\nown = own\n")
    (tmp_path / "own.py").write_text(text)
    program = (
        "from pytest_hetgpu.errors import UsageError\nfrom pytest_hetgpu.extensions.launchers.base import Launcher\n"
        "from pytest_hetgpu.extensions.registry import find\n"
        "try: find('launchers', 'own', Launcher)\nexcept UsageError as error: print(error)"
    )
    assert child(program, tmp_path).strip() == told


def test_the_class_of_a_file_is_found() -> None:
    assert find("transports", "ucx", Transport) is Ucx  # type: ignore[type-abstract]


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(UsageError) as caught:
        find("transports", "ucxx", Transport)  # type: ignore[type-abstract]
    assert (
        str(caught.value)
        == "unknown transport 'ucxx' (known: auto, gloo, nccl, ob1, ofi, shm, ucc, ucx; did you mean 'ucx'?)"
    )


def test_a_file_without_such_a_class_is_our_mistake() -> None:
    with pytest.raises(TypeError, match=r"pytest_hetgpu\.extensions\.transports\.ucx defines no Launcher"):
        find("transports", "ucx", Launcher)  # type: ignore[type-abstract]


@pytest.mark.parametrize(
    ("found", "choices", "text"),
    [
        ("b", ["c", "a"], "(known: a, c)"),
        ("transprt", ["transport", "workload"], "(known: transport, workload; did you mean 'transport'?)"),
        ("x", [], "(known: none)"),
        ("x", [f"n{i}" for i in range(15)], "(known: n0, n1, n10, n11, n12, n13, n14, n2, n3, n4, n5, n6, ... 3 more)"),
    ],
)
def test_what_is_known(found: str, choices: list[str], text: str) -> None:
    assert known(found, choices) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((None, "nothing"), ({}, "an empty map"), ({"a": 1}, "a map"), ([], "an empty list"), (["a"], "a list")),
        *(("a'b", '"a\'b"'), ("\x1b[31m", "'\\x1b[31m'"), ("x" * 100, "'" + "x" * 79 + "... (102 characters)")),
    ],
)
def test_a_value_is_shown_short_and_harmless(value: object, text: str) -> None:
    assert show(value) == text


def test_an_inventory_of_another_package_may_have_any_name(tmp_path: Path) -> None:
    rows = "".join(f"{name} = own\n" for name in ("user", "copy", "my-hosts", "from", "mine"))
    metadata(tmp_path, "own-1.0.dist-info", f"[pytest_hetgpu.inventories]\n{rows}")
    (tmp_path / "own.py").write_text(
        "from pytest_hetgpu.extensions.inventories.base import HostListing, InventorySource, ListedHost\n"
        "class Own(InventorySource):\n    title = 'own'\n"
        "    @classmethod\n    def read(cls, text):\n"
        "        if 'bad' in text: raise KeyError('bad')\n        return HostListing((ListedHost(text.strip()),))\n"
    )
    (tmp_path / "a").write_text("h1\n")
    (tmp_path / "bad").write_text("bad\n")
    (tmp_path / "hosts.yaml").write_text("from: [{mine: a, hardware: g4}, {hostfile: a, user: me}]")
    program = (
        "from pytest_hetgpu.errors import InventoryError\nfrom pytest_hetgpu.config.inventory.file import read\n"
        f"home = {str(tmp_path)!r}\n"
        "for spec in (f'my-hosts:{home}/a', f'user:{home}/a', f'{home}/hosts.yaml'):\n"
        "    print(*(offer.host.address for offer in read(spec).configured_hosts))\n"
        "try: read(f'mine:{home}/bad')\nexcept InventoryError as error: print(error)"
    )
    assert child(program, tmp_path).splitlines() == [
        "h1",
        "h1",
        "h1 h1",
        f"{tmp_path}/bad: own fails at it: KeyError: 'bad'",
    ]
