"""Every probe against recorded answers: of machines that have the thing, and of machines that lack it.

A recording is `{"source": its origin, "seen": the answer of remote/look.py, "facts": the expected facts}`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.extensions.probes.base import Probe, RawFacts
from pytest_hetgpu.extensions.registry import find, names
from pytest_hetgpu.model.facts import Fact, FactState

RECORDINGS = Path(__file__).parent / "recordings"
EVERY = sorted(str(path.relative_to(RECORDINGS).with_suffix("")) for path in RECORDINGS.glob("*/*.json"))
# What says whether the thing itself is there, where that is not the probe's first promise.
MAIN = {
    "system": "glibc",
    "large_bar": "large_bar.devices",
    "visibility": "env.ROCR_VISIBLE_DEVICES",
    "ulimits": "shm",
    "cuda": "cuda.driver",
}


def load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((RECORDINGS / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def read(name: str) -> dict[str, Fact]:
    probe = find("probes", name.partition("/")[0], Probe)()  # type: ignore[type-abstract]
    return probe.read(RawFacts.of(load(name)["seen"]))


@pytest.mark.parametrize("name", EVERY)
def test_a_recording_reads_as_its_facts(name: str) -> None:
    expected = {
        key: (FactState(one["state"]), tuple(one["value"]) if isinstance(one["value"], list) else one["value"])
        for key, one in load(name)["facts"].items()
    }
    assert {key: (fact.state, fact.value) for key, fact in read(name).items()} == expected


@pytest.mark.parametrize("name", EVERY)
def test_a_recording_says_where_it_comes_from(name: str) -> None:
    assert load(name)["source"].startswith(("recorded ", "composed"))


@pytest.mark.parametrize("name", EVERY)
def test_what_could_not_be_told_says_why(name: str) -> None:
    facts = read(name)
    assert [key for key, fact in facts.items() if fact.state is FactState.UNKNOWN and not fact.why] == []
    assert [key for key, fact in facts.items() if (fact.value is None) == (fact.state is FactState.FOUND)] == []


@pytest.mark.parametrize("probe", names("probes"))
def test_there_is_a_machine_that_has_it_and_one_that_lacks_it(probe: str) -> None:
    own = {name.partition("/")[2] for name in EVERY if name.startswith(f"{probe}/")}
    assert any(name.startswith("has") for name in own)
    assert any(name.startswith("lacks") for name in own)


@pytest.mark.parametrize("name", [name for name in EVERY if "/has" in name and "cxi" not in name])
def test_a_machine_that_has_the_thing(name: str) -> None:
    probe = name.partition("/")[0]
    facts = read(name)
    promises = find("probes", probe, Probe).provides  # type: ignore[type-abstract]
    main = "rccl" if name in ("nccl/has-rccl", "nccl/has-lumi") else MAIN.get(probe, promises[0])
    assert facts[main].state is FactState.FOUND


@pytest.mark.parametrize("name", [name for name in EVERY if "/lacks" in name])
def test_a_machine_that_lacks_the_thing_is_not_one_that_could_not_be_told(name: str) -> None:
    probe = name.partition("/")[0]
    facts = read(name)
    if probe == "ulimits":
        assert facts["cma"] == Fact(FactState.FOUND, "no", "process_vm_readv: Operation not permitted")
        assert facts["dev_infiniband"].state is FactState.ABSENT
    elif probe == "large_bar" and name != "large_bar/lacks":
        bars = [facts[f"large_bar.{platform}"] for platform in ("rocm", "cuda")]
        assert [fact.value for fact in bars if fact.state is FactState.FOUND] == ["no"]
    else:
        promises = find("probes", probe, Probe).provides  # type: ignore[type-abstract]
        assert facts[MAIN.get(probe, promises[0])].state is FactState.ABSENT


@pytest.mark.parametrize("probe", names("probes"))
def test_a_probe_keeps_its_promises_whatever_it_sees(probe: str) -> None:
    own = find("probes", probe, Probe)()  # type: ignore[type-abstract]
    assert set(own.provides) <= set(own.read(RawFacts()))
    assert all(set(own.provides) <= set(read(name)) for name in EVERY if name.startswith(f"{probe}/"))


@pytest.mark.parametrize("probe", names("probes"))
def test_what_was_not_seen_is_never_found(probe: str) -> None:
    own = find("probes", probe, Probe)()  # type: ignore[type-abstract]
    assert [name for name, fact in own.read(RawFacts()).items() if fact.state is FactState.FOUND] == []


def test_a_device_without_driver_is_named() -> None:
    why = read("cuda/lacks-driver")["cuda.devices"].why
    assert why == "a device of NVIDIA's (0x1eb8 at 0000:00:1e.0) is there, but not its driver"
    assert "0x7362 at 0000:00:1e.0" in read("rocm/lacks-kfd")["rocm.devices"].why


def test_a_driver_that_does_not_answer_is_not_a_missing_device() -> None:
    assert "version mismatch" in read("cuda/unknown-mismatch")["cuda.devices"].why


def test_no_large_bar_says_how_much_is_seen() -> None:
    assert read("large_bar/lacks-v520")["large_bar.rocm"].why == "0000:00:1e.0 shows 256 MiB of 8176 MiB"


def test_no_ipv4_gid_says_which_half_of_the_rule_failed() -> None:
    assert read("rdma/has-roce-no-ipv4")["rdma.roce"].why.startswith("no RoCE v2 GID maps an IPv4 address")


def test_a_broken_library_says_what_the_loader_said() -> None:
    assert "undefined symbol: ucs_vfs_obj_add_dir" in read("ucx/unknown-broken")["ucx"].why
