"""Whatever a matrix file holds: scenarios, or matrix_errors that name the file. Never another exception."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from pytest_hetgpu.config.matrix.reader import read
from pytest_hetgpu.errors import MatrixError, NotHere
from pytest_hetgpu.model.job import Scenario, Stack
from pytest_hetgpu.planning.expand import expand
from pytest_hetgpu.planning.placement import SiteFacts
from pytest_hetgpu.planning.plan import plan

FOLDER = Path(__file__).resolve().parents[3] / "matrices"
SHIPPED = sorted(path for path in FOLDER.glob("*.yaml") if not path.name.endswith(".hosts.yaml"))

RICH = """\
name: rich
x-common: &common {runtime: local, env: {A: "1"}}
hardware:
  cpu: {<<: *common, fabric: {kind: tcp, netdev: lo, gbps: 10}, capabilities: [large-bar]}
  gpu:
    <<: *common
    platform: rocm
    arch: gfx1011
    memory: 8G
transports:
  posix: {family: ucx, tls: [posix, self]}
axes:
  placement:
    two: [cpu, cpu]
    mixed: {nodes: [cpu, gpu], ranks_per_node: 2, requires: [large-bar, platform=cpu]}
  transport:
    ob1: {btl: [tcp, self], netdev: lo}
    ucx-tcp: {family: ucx, tls: tcp, env: {UCX_LOG_LEVEL: info}}
  workload:
    pairs: {kind: send_recv, sizes: 8..1K, iterations: 3}
    allreduce: {sizes: [8, 1M], dtype: [float32, int8]}
  tuning: {default: {}, zcopy: {env: {UCX_ZCOPY_THRESH: 0}, timeout: 5}}
  warmup: [1, 2]
include:
  - {placement: two, transport: posix, workload: pairs, tuning: zcopy, warmup: 2}
  - {placement: {name: one, nodes: [cpu]}, transport: ob1, workload: "*", tuning: default, warmup: 1}
exclude:
  - {placement: mixed, transport: "u*", reason: no, issue: https://example.org/1}
  - where: {tuning: zcopy, warmup: [1]}
    reason: too many
expect:
  - where: {placement: [two], transport: ucx-tcp, workload: pairs, tuning: zcopy}
    outcome: [crash, hang]
    signature: SIGSEGV@*
    when: {ucx: "<1.18", capability: no-large-bar}
    remedy: {env: {A: 1}}
"""

BASES = {path.name: path.read_text(encoding="utf-8") for path in SHIPPED} | {"rich": RICH}

ODD = [
    *("", "~", "null", "true", "on", "no", "0", "-1", "1e309", "6.10", "9" * 400, ".nan", "inf", "0x10", "1_0"),
    *("[]", "{}", "[a]", "{a: b}", "[[]]", "[null]", "[{a: [b]}]", "{nodes: [cpu]}", "[1, 1]", "{name: a}"),
    *(
        "<<",
        "<<: *common",
        "<<: {a: b}",
        "*common",
        "*x",
        "&x",
        "&common {}",
        "!tag",
        "!!int 3",
        "? a",
        "- ",
        "---",
        "...",
    ),
    *(
        '"',
        "'",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "#",
        "|",
        ">",
        "%",
        "@",
        "`",
        "\t",
        "\n",
        "  ",
        "\\",
        "$",
        "${",
        "${HOME}",
        "$${X}",
    ),
    *(
        "ü",
        "\u2028",
        "\u212a",
        "\U0001f600",
        "\x7f",
        "\x85",
        "\x01",
        "\ufeff",
        "٣",
        "x" * 5000,
        "a b",
        "../..",
        "-x",
        ".",
        "*",
        "[!a]",
    ),
    *(
        "8..64",
        "64..8",
        "8..",
        "..",
        "3T",
        "0",
        "ucx",
        "ob1",
        "over",
        "family",
        "kind",
        "nodes",
        "where",
        "reason",
        "name",
        "env",
        "mca",
    ),
    *(
        "platform=rocm",
        "=",
        "a=b",
        "<1.18",
        "<x",
        ">=1,<",
        "http://x",
        "fake",
        "placement",
        "transport",
        "workload",
        "tuning",
    ),
]
odd = st.one_of(st.sampled_from(ODD), st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=8))
_WORD = re.compile(r"[^\s,:{}\[\]]+")


def lines_changed(draw: st.DrawFn, text: str) -> str:
    lines = text.splitlines()
    place, how = (
        draw(st.integers(0, len(lines) - 1)),
        draw(st.sampled_from(["delete", "double", "move", "indent", "replace"])),
    )
    line = lines[place]
    if how == "delete":
        del lines[place]
    elif how == "double":
        lines.insert(place, line)
    elif how == "move":
        lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(place))
    elif how == "indent":
        lines[place] = " " * draw(st.integers(0, 8)) + line.lstrip()
    else:
        lines[place] = f"{line[: len(line) - len(line.lstrip())]}{draw(odd)}: {draw(odd)}"
    return "\n".join(lines) + "\n"


def word_changed(draw: st.DrawFn, text: str) -> str:
    words = list(_WORD.finditer(text))
    if not words:
        return text + draw(odd)
    word = draw(st.sampled_from(words))
    new = draw(st.one_of(odd, st.sampled_from([other[0] for other in words])))
    return text[: word.start()] + new + text[word.end() :]


def character_changed(draw: st.DrawFn, text: str) -> str:
    place = draw(st.integers(0, len(text)))
    return text[:place] + draw(odd) + text[place + draw(st.integers(0, 3)) :]


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A matrix with a few changes of any kind."""
    text = draw(st.sampled_from(sorted(BASES.values())))
    changes = st.sampled_from([lines_changed, word_changed, word_changed, character_changed])
    for change in draw(st.lists(changes, min_size=1, max_size=3)):
        text = change(draw, text) or "\n"
    return text


def planned(path: Path) -> list[Scenario]:
    """Every scenario of a file, each planned as far as it goes."""
    document = read(path, {"HOME": "/home/me"})
    scenarios = expand(document)
    stack = Stack("openmpi-5", "Open MPI", "5.0.11", "/s", "/s/bin/mpirun", "/s/bin/python")
    by_itself = replace(stack, name="torch", vendor="torch", torch=True)
    for scenario in scenarios[:50]:
        if scenario.excluded is None:
            try:
                plan(document, scenario, SiteFacts({"openmpi-5": stack, "torch": by_itself}, "/p"))
            except NotHere:
                continue
    return scenarios


@pytest.mark.parametrize("name", BASES)
def test_the_matrices_to_be_changed_are_good(name: str, tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    path.write_text(BASES[name], encoding="utf-8")
    assert planned(path)


def outcome(path: Path, text: str) -> str:
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        scenarios = planned(path)
    except MatrixError as error:
        told, scenarios = error.errors, []
    for line in () if scenarios else told:
        assert line.startswith(f"{path}:"), line
        assert "\n" not in line
        assert len(line) < 1000
    if not scenarios:
        assert told
        return "matrix_errors"
    assert len({scenario.id for scenario in scenarios}) == len(scenarios)
    assert all(re.fullmatch(r"[A-Za-z0-9_.+-]+", scenario.id) for scenario in scenarios)
    return "scenarios"


def test_scenarios_or_errors(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    seen: dict[str, int] = {}

    @hypothesis.settings(
        max_examples=300, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @hypothesis.given(mutated())
    def check(text: str) -> None:
        what = outcome(path, text)
        seen[what] = seen.get(what, 0) + 1

    check()
    # Changes that never leave a good matrix, or never break one, would try nothing.
    assert min(seen.get("scenarios", 0), seen.get("matrix_errors", 0)) >= 5, seen


@pytest.mark.parametrize("value", ODD)
def test_an_odd_value_everywhere(tmp_path: Path, value: str) -> None:
    words = list(_WORD.finditer(RICH))
    for word in words[::9]:
        outcome(tmp_path / "m.yaml", RICH[: word.start()] + value + RICH[word.end() :])
