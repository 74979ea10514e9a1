"""The stored facts of a placement's nodes, and their part of the summary."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.model.bandwidth import Flow, LineRate, LinkMeasurement, LinkReport
from pytest_hetgpu.model.facts import Environment, Fact, absent, found, unknown
from pytest_hetgpu.model.outcome import LinkBandwidth
from pytest_hetgpu.reporting import nodes_table
from pytest_hetgpu.store import environment
from pytest_hetgpu.store.encode import RecordError
from pytest_hetgpu.store.environment import NodeFacts, PlacementFacts

FIRST = {
    "os": found("Debian GNU/Linux 12"),
    "ucx": found("1.20.1", "as libucp says"),
    "openmpi.pml": found(("ob1", "ucx")),
    "torch": absent("not among the Python packages"),
    "nccl": unknown("no header tells"),
}
SECOND = {**FIRST, "ucx": found("1.18.1"), "torch": found("2.5.1")}


def placement(name: str = "mixed", /, **facts: Fact) -> PlacementFacts:
    return PlacementFacts(
        name,
        {
            "node0": NodeFacts("g4dn", "10.0.0.5", Environment({**FIRST, **facts})),
            "node1": NodeFacts("g4ad", "10.0.0.6", Environment(SECOND)),
        },
    )


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = environment.write(tmp_path, placement())
    assert path == tmp_path / "placements" / "mixed" / "environment.json"
    assert environment.read(path) == placement()
    assert environment.read_all(tmp_path) == (placement(),)


def test_the_file_has_the_shape_that_is_documented(tmp_path: Path) -> None:
    data = json.loads(environment.write(tmp_path, placement()).read_text())
    assert list(data) == ["schema", "placement", "nodes", "skew"]
    assert data["schema"] == 1
    node = data["nodes"]["node0"]
    assert (node["hardware"], node["host"]) == ("g4dn", "10.0.0.5")
    assert node["facts"]["ucx"] == {"state": "found", "value": "1.20.1", "why": "as libucp says"}
    assert node["facts"]["openmpi.pml"]["value"] == ["ob1", "ucx"]
    assert node["facts"]["nccl"] == {"state": "unknown", "value": None, "why": "no header tells"}
    assert data["skew"] == [
        {"fact": "ucx", "node0": "1.20.1", "node1": "1.18.1"},
        {"fact": "torch", "node0": "-", "node1": "2.5.1"},
    ]


def test_only_its_owner_may_read_it_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = environment.write(tmp_path, placement())
    environment.write(tmp_path, placement())
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("name", ["..", ".", "a/b", "x" * 500, "ü*?"])
def test_a_placement_stays_in_its_folder(tmp_path: Path, name: str) -> None:
    path = environment.write(tmp_path, placement(name))
    assert path.resolve().parent.parent == (tmp_path / "placements").resolve()
    assert environment.read(path).name == name


def test_secrets_stay_out(tmp_path: Path) -> None:
    secret: dict[str, Fact] = {
        "env.API_TOKEN": found("abcdefgh"),
        "ucx.configure": found("--prefix=/opt --proxy=http://me:hunter2@proxy/"),
        "openmpi.pml": found(("password=hunter2",)),
    }
    text = environment.write(tmp_path, placement(**secret)).read_text()
    assert "hunter2" not in text
    assert "abcdefgh" not in text
    assert "--prefix=/opt" in text


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"schema": 1}', '{"schema": 1, "placement": "a", "nodes": {"node0": {"facts": {"a": {}}}}}'],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    path = environment.write(tmp_path, placement())
    path.write_text(text)
    with pytest.raises(RecordError, match=f"{path}: not the environment of a placement"):
        environment.read(path)
    assert environment.read_all(tmp_path) == ()


def test_a_newer_file_and_a_missing_one(tmp_path: Path) -> None:
    path = environment.write(tmp_path, placement())
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 2'))
    with pytest.raises(RecordError, match="written by a newer version"):
        environment.read(path)
    with pytest.raises(RecordError, match="No such file"):
        environment.read(tmp_path / "none")


def test_the_summary_marks_what_differs() -> None:
    text = "\n".join(nodes_table.render([placement()]))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows == [
        "| | node0 (g4dn on 10.0.0.5) | node1 (g4ad on 10.0.0.6) |",
        "|---|---|---|",
        "| os | Debian GNU/Linux 12 | Debian GNU/Linux 12 |",
        "| ≠ ucx | 1.20.1 | 1.18.1 |",
        "| ≠ torch | - | 2.5.1 |",
    ]
    assert "### mixed" in text


def test_values_are_escaped_and_cut() -> None:
    text = "\n".join(nodes_table.render([placement(os=found("a|b<script> " + "x" * 200))]))
    assert "a\\|b\\<script\\>" in text
    assert "x" * 80 not in text


def test_without_nodes_there_is_no_section() -> None:
    assert list(nodes_table.render([])) == []


def test_very_many_placements_do_not_fill_the_summary() -> None:
    every = [
        placement(f"p{number}", **{f"fact{i}": found("x" * 60) for i in range(5)}, ucx=found(str(number)))
        for number in range(900)
    ]
    text = "\n".join(nodes_table.render(every))
    assert len(text.encode()) < nodes_table.BUDGET + 10_000
    assert "more placements are left out here" in text


LINK = LinkReport(
    LinkBandwidth(1.75, "pump 1, 4 streams", ("node1", "node0"), 36.5),
    (
        LinkMeasurement(
            ("node0", "node1"), "pump 1", "10.0.0.6", (Flow("node1", "node0", 4, (1.5, 1.75, 2.0), 0.5, 0.9),)
        ),
    ),
    (LineRate("node0", 10.0, "speed of ens5"),),
    1.7,
)


def test_what_is_between_the_nodes_stays_whoever_writes(tmp_path: Path) -> None:
    environment.write_link(tmp_path, "mixed", LINK)
    (alone,) = environment.read_all(tmp_path)
    assert (alone.nodes, alone.link) == ({}, LINK)
    environment.write(tmp_path, placement())
    assert environment.read_all(tmp_path) == (replace(placement(), link=LINK),)
    environment.write_link(tmp_path, "mixed", LinkReport(LinkBandwidth(why="timed out")))
    (again,) = environment.read_all(tmp_path)
    assert again.link
    assert (again.link.limit.why, again.nodes) == ("timed out", placement().nodes)


def test_the_wire_has_the_shape_that_is_documented(tmp_path: Path) -> None:
    environment.write_link(tmp_path, "mixed", LINK)
    data = json.loads(environment.path_of(tmp_path, "mixed").read_text())["wire"]
    assert data["limit"]["gbs"] == 1.75
    assert data["limit"]["between"] == ["node1", "node0"]
    assert data["pairs"][0]["flows"][0]["gbs"] == [1.5, 1.75, 2.0]
    assert data["rated"] == [{"node": "node0", "gbps": 10.0, "source": "speed of ens5"}]


def test_a_wire_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = environment.write(tmp_path, replace(placement(), link=LINK))
    path.write_text(path.read_text().replace('"seconds": 1.7', '"seconds": "soon"'))
    with pytest.raises(RecordError, match=r"environment\.json: not the environment .*LinkReport\.seconds"):
        environment.read(path)
    assert environment.read_link(tmp_path, "mixed") is None


def test_a_placement_that_nobody_looked_at_is_no_table() -> None:
    assert list(nodes_table.render([PlacementFacts("mixed", {}, LINK)])) == []
