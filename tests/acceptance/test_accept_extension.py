"""A foreign package adds a runtime and a launcher: the one that docs/how-to/adding-an-engine.md shows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_hetgpu.cluster.leases.hold import hold
from pytest_hetgpu.extensions.runtimes.traits.policy import LeaseRequest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "how-to" / "adding-an-engine.md"
SNIPPET = re.compile(r'--8<-- "(examples/boxes/(\S+))"')

Run = Callable[..., pytest.RunResult]
Install = Callable[..., Path]


def shown() -> dict[str, str]:
    """Return the files that the document includes, by name."""
    found = SNIPPET.findall(DOCUMENT.read_text(encoding="utf-8"))
    return {name: (ROOT / path).read_text(encoding="utf-8") for path, name in found}


@pytest.fixture
def boxes(install: Install) -> Path:
    """The package of the document."""
    files = shown()
    project = files["pyproject.toml"]
    groups = re.findall(r'^\[project\.entry-points\."([\w.]+)"\]\n((?:.+\n)+)', project, re.MULTILINE)
    entries = "".join(f"[{group}]\n{rows.replace(chr(34), '')}\n" for group, rows in groups)
    modules = {name: text for name, text in files.items() if name.endswith(".py")}
    return install("hetgpu-boxes", {"hetgpu_boxes/__init__.py": "", **modules}, entries)


@pytest.fixture
def matrix(pytester: pytest.Pytester, stacks: Path) -> Path:
    """The matrix of the document, with the stand-in for its MPI, and an inventory with a box."""
    path = pytester.path / "boxes.yaml"
    path.write_text(shown()["boxes.yaml"].replace("/opt/openmpi", str(stacks / "openmpi-5")))
    (pytester.path / "hosts.yaml").write_text("hardware: {box: [box1]}\n")
    return path


@pytest.mark.usefixtures("boxes", "matrix")
def test_a_cell_runs_on_a_foreign_runtime_by_a_foreign_launcher(
    run_pytest: Run, mode: tuple[str, ...], pytester: pytest.Pytester
) -> None:
    done = run_pytest("--hetgpu-matrix", "boxes.yaml", "--hetgpu-inventory", "hosts.yaml", *mode)
    assert done.ret == 0, done.stdout.str()[-3000:]
    done.assert_outcomes(passed=1)
    (cell,) = (pytester.path / "reports" / "latest").resolve().glob("scenarios/*/job.json")
    job = json.loads(cell.read_text())
    assert "boxes" in json.dumps(job)
    assert "-n" in json.dumps(job)
    assert job["job"]["nodes"][0]["hardware"]["settings"] == {"lid": "open", "site": "lab"}


@pytest.mark.usefixtures("boxes", "matrix")
def test_its_runs_are_reported_where_it_is_not_installed(
    run_pytest: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_pytest("--hetgpu-matrix", "boxes.yaml", "--hetgpu-inventory", "hosts.yaml").assert_outcomes(passed=1)
    monkeypatch.delenv("PYTHONPATH")
    command = (sys.executable, "-m", "pytest_hetgpu.cli", "report", "reports/latest")
    done = subprocess.run(command, cwd=pytester.path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.usefixtures("boxes", "matrix")
def test_its_own_trouble_is_a_node_that_cannot_be_made(run_pytest: Run, pytester: pytest.Pytester) -> None:
    (pytester.path / "hosts.yaml").write_text("hardware: {box: [crate1]}\n")
    done = run_pytest("--hetgpu-matrix", "boxes.yaml", "--hetgpu-inventory", "hosts.yaml", "-p", "no:xdist")
    assert done.ret == 1
    assert "crate1 is no box: give one in the inventory" in done.stdout.str()


@pytest.mark.usefixtures("boxes", "matrix")
def test_its_settings_are_in_the_plan_and_those_of_a_site_are_put_over_them(
    run_pytest: Run, pytester: pytest.Pytester
) -> None:
    (pytester.path / "hosts.yaml").write_text(
        'hardware: {box: [box1]}\nboxes: {"*": {site: north}, box: {site: south}}\n'
    )
    done = run_pytest("--hetgpu-matrix", "boxes.yaml", "--hetgpu-inventory", "hosts.yaml", "--hetgpu-plan")
    assert done.ret == 0
    shown = done.stdout.str()
    assert "\nenv BOX=box1 LID=open SITE=south mkdir -m 700 /tmp/hetgpu\n" in shown
    assert "  $ env BOX=box1 LID=open SITE=south " in shown
    assert "ssh" not in shown.replace("ssh_config", "")


@pytest.mark.usefixtures("boxes", "matrix")
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            "{led: open}",
            "boxes.yaml:3: unknown key 'led' in hardware.box.boxes (known: lid, site; did you mean 'lid'?)",
        ),
        ("{lid: [open]}", "boxes.yaml:3: hardware.box.boxes.lid must be a single value, not a list"),
    ],
)
def test_its_settings_are_checked_like_our_own(
    run_pytest: Run, pytester: pytest.Pytester, settings: str, told: str
) -> None:
    path = pytester.path / "boxes.yaml"
    path.write_text(path.read_text().replace("{lid: open}", settings))
    done = run_pytest("--hetgpu-matrix", "boxes.yaml")
    assert done.ret == 4
    assert told in done.stderr.str()


@pytest.mark.usefixtures("boxes", "matrix")
def test_its_settings_are_for_its_own_nodes(run_pytest: Run, pytester: pytest.Pytester) -> None:
    path = pytester.path / "boxes.yaml"
    path.write_text(path.read_text().replace("runtime: boxes", "runtime: local"))
    done = run_pytest("--hetgpu-matrix", "boxes.yaml")
    assert done.ret == 4
    assert "boxes.yaml:3: hardware.box: 'boxes' is for runtime boxes; this is runtime local" in done.stderr.str()


@pytest.mark.usefixtures("boxes")
def test_its_settings_are_in_the_schema(pytester: pytest.Pytester) -> None:
    done = subprocess.run(
        (sys.executable, "-m", "pytest_hetgpu.cli", "schema"), capture_output=True, text=True, check=True
    )
    schema = json.loads(done.stdout)
    assert set(schema["$defs"]["BoxSettings"]["properties"]) == {"lid", "site"}
    assert "boxes" in schema["$defs"]["HardwareShape"]["properties"]


@pytest.mark.usefixtures("boxes", "matrix")
def test_a_cell_holds_what_the_runtime_says_and_this_machine_stays_free(
    run_pytest: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HETGPU_LEASE_TIMEOUT", "0.5")
    with hold([LeaseRequest("host", "localhost")]):
        done = run_pytest("--hetgpu-matrix", "boxes.yaml", "--hetgpu-inventory", "hosts.yaml")
        done.assert_outcomes(passed=1)
    with hold([LeaseRequest("box box1", "box1")]):
        done = run_pytest("--hetgpu-matrix", "boxes.yaml", "--hetgpu-inventory", "hosts.yaml")
    done.assert_outcomes(skipped=1)
    assert "host 'box1' is busy: " in done.stdout.str()


@pytest.mark.usefixtures("boxes", "matrix")
def test_unknown_names_list_it(run_pytest: Run, pytester: pytest.Pytester) -> None:
    path = pytester.path / "boxes.yaml"
    path.write_text(path.read_text().replace("runtime: boxes", "runtime: boxs"))
    done = run_pytest("--hetgpu-matrix", "boxes.yaml")
    assert done.ret == 4
    assert "unknown runtime 'boxs' (known: boxes, docker, " in done.stderr.str()
    assert "did you mean 'boxes'?" in done.stderr.str()


@pytest.mark.usefixtures("matrix")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "import nowhere_to_be_found",
            "cannot be imported: ModuleNotFoundError: No module named 'nowhere_to_be_found'",
        ),
        ("raise SystemError('no licence')", "cannot be imported: SystemError: no licence"),
        ("x = (", "cannot be imported: SyntaxError: "),
    ],
)
def test_a_module_that_fails_is_named_with_its_package(run_pytest: Run, install: Install, text: str, told: str) -> None:
    install("bad-boxes", {"bad_boxes.py": text}, "[pytest_hetgpu.runtimes]\nboxes = bad_boxes\n")
    done = run_pytest("--hetgpu-matrix", "boxes.yaml", "--hetgpu-inventory", "hosts.yaml")
    assert done.ret == 4
    said = done.stderr.str()
    assert f"hardware.box.runtime: runtime 'boxes' of bad-boxes 1.0 (bad_boxes) {told}" in said
    assert said.startswith("ERROR: boxes.yaml:3: ")
    assert "Traceback" not in said


@pytest.mark.usefixtures("matrix")
def test_nothing_is_shadowed(run_pytest: Run, install: Install, pytester: pytest.Pytester) -> None:
    entries = "[pytest_hetgpu.runtimes]\ndocker = other\nboxes = other\nbase = other\n[pytest_hetgpu.runtime]\na = b\n"
    install("one-boxes", {}, entries)
    install("two-boxes", {}, "[pytest_hetgpu.runtimes]\nboxes = third:Boxes\n")
    done = run_pytest("--hetgpu-matrix", "boxes.yaml")
    assert done.ret == 4
    assert done.stderr.str().splitlines()[:3] == [
        "ERROR: runtime 'base' of one-boxes 1.0 (other): a name has only letters, digits and _ . + - (at most 80), "
        "and is not 'base'",
        "runtime 'boxes' of two-boxes 1.0 (third:Boxes) and 'boxes' of one-boxes 1.0 (other) have one name; "
        "uninstall one of the two",
        "runtime 'docker' of one-boxes 1.0 (other) has the name of one that pytest-hetgpu has "
        "(pytest_hetgpu/extensions/runtimes/docker.py): rename it there, or uninstall it",
    ]


@pytest.mark.usefixtures("boxes", "testinfra")
def test_doctor_lists_it(install: Install, pytester: pytest.Pytester) -> None:
    install("misspelt", {}, "[pytest_hetgpu.runtime]\na = b\n")
    (pytester.path / "hosts.yaml").write_text("hardware: {box: [box1]}\n")
    command = (sys.executable, "-m", "pytest_hetgpu.cli", "doctor", "--list", "--inventory", "hosts.yaml")
    done = subprocess.run(command, cwd=pytester.path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-3:] == [
        "added by other packages: launchers: 'plain' of hetgpu-boxes 1.0 (hetgpu_boxes.launcher:Plain)",
        "                       : runtimes: 'boxes' of hetgpu-boxes 1.0 (hetgpu_boxes.runtime)",
        "                       : ~ 'a' of misspelt 1.0 (b): 'runtime' is no family here (known: fabrics, hardware, "
        "inventories, launchers, probes, readers, runtimes, signatures, stacks, transports, workloads; "
        "did you mean 'runtimes'?)",
    ]
