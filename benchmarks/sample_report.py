"""Makes `reports/sample/` of a run of matrices/containers.yaml: its reports without names, and the logs of some cells.

python benchmarks/sample_report.py reports/latest
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from pytest_hetgpu.reporting import report
from pytest_hetgpu.reporting.upstream.bundle import write_bundle
from pytest_hetgpu.store.redaction import anonymity

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "reports" / "sample"
CRASH = "same-ucx-guarded_send"
OPEN = ("/output.log", "/stacks.json")  # `job.json` names folders of the machine
WITH_LOGS = (CRASH, "mixed-ucx-send_recv", "old-ob1-guarded_send", "same-ucx-allreduce")
RERUN = (
    "pytest --hetgpu-matrix matrices/{matrix}.yaml --hetgpu-inventory matrices/containers.hosts.yaml"
    " --hetgpu-cell {label}"
)
_LOG = re.compile(r"\]\(scenarios/([A-Za-z0-9_.+-]+)/output\.log\)")
_ATTACHED = re.compile(r"\[\[ATTACHMENT\|reports/sample/scenarios/([A-Za-z0-9_.+-]+)/([a-z]+\.[a-z]+)\]\]\n?")
_FACTS = re.compile(r'(<script type="application/json" id="facts">)(.*?)(</script>)', re.DOTALL)


def main() -> None:
    run = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)  # reports name files as they are seen from here
        made = Path("reports") / "sample"
        shutil.copytree(run, made)
        anonymity.mark_anonymous(made)
        report.build(made, RERUN)
        write_bundle(made, CRASH, Path("bundle.tar.gz"))
        shutil.rmtree(SAMPLE, ignore_errors=True)
        SAMPLE.mkdir(parents=True)
        for label in WITH_LOGS:
            write_bundle(made, label, Path("cell.tar.gz"))
            _unpacked(Path("cell.tar.gz"), lambda name: name.endswith(OPEN), SAMPLE / "scenarios" / label)
        _unpacked(Path("bundle.tar.gz"), lambda name: name.endswith("/reproduce.sh"), SAMPLE / "scenarios" / CRASH)
        shutil.copytree(made / "issues", SAMPLE / "issues")
        page = (made / "index.html").read_text(encoding="utf-8")
        (SAMPLE / "index.html").write_text(_FACTS.sub(_without_links, page), encoding="utf-8")
        summary = (made / "summary.md").read_text(encoding="utf-8").splitlines(keepends=True)
        (SAMPLE / "summary.md").write_text("".join(filter(_leads_somewhere, summary)), encoding="utf-8")
        junit = (made / "junit.xml").read_text(encoding="utf-8")
        (SAMPLE / "junit.xml").write_text(_ATTACHED.sub(_if_there, junit), encoding="utf-8")
    size = sum(path.stat().st_size for path in SAMPLE.rglob("*") if path.is_file())
    print(f"{SAMPLE}: {size / 1e6:.2f} MB")


def _unpacked(archive: Path, wanted: Callable[[str], bool], to: Path) -> None:
    """The files of a bundle, which are redacted, into one folder."""
    to.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as opened:
        for entry in opened:
            file = opened.extractfile(entry)
            if file and wanted(entry.name):
                place = to / Path(entry.name).name
                place.write_bytes(file.read())
                place.chmod(entry.mode)


def _without_links(found: re.Match[str]) -> str:
    """The facts without the logs that are not in the sample."""
    facts = json.loads(found[2])
    for cell in facts["cells"]:
        if cell["id"] not in WITH_LOGS:
            cell.pop("log", None)
    text = json.dumps(facts, separators=(",", ":"))
    for letter in "<>&'":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return f"{found[1]}{text}{found[3]}"


def _leads_somewhere(line: str) -> bool:
    found = _LOG.search(line)
    return found is None or found[1] in WITH_LOGS


def _if_there(found: re.Match[str]) -> str:
    return found[0] if found[1] in WITH_LOGS and f"/{found[2]}" in OPEN else ""


if __name__ == "__main__":
    main()
