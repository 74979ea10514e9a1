"""Kubernetes settings of jobs, and valid names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.extensions.runtimes.pods.request import Pods, label, object_name, quarrel

LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
NAME = re.compile(r"hetgpu-[a-z0-9]([a-z0-9-]*[a-z0-9])?", re.ASCII)


def test_a_project_of_runai_stands_for_namespace_scheduler_and_queue() -> None:
    pods = Pods(project="team")
    assert (pods.where, pods.scheduled_by, pods.queued_in) == ("runai-team", "runai-scheduler", "team")
    own = Pods(project="team", namespace="n", scheduler="s", queue="q")
    assert (own.where, own.scheduled_by, own.queued_in) == ("n", "s", "q")
    assert (Pods().where, Pods().scheduled_by, Pods().queued_in) == ("", "", "")
    assert Pods(kind="volcano").scheduled_by == "volcano"


def test_the_operator_of_pytorchjobs_wants_a_name_of_its_own_for_the_container() -> None:
    assert Pods(kind="pytorchjob").container == "pytorch"
    assert {Pods(kind=kind).container for kind in ("job", "mpijob", "volcano")} == {"main"}


def test_a_text_that_is_a_label_is_left_alone() -> None:
    assert label("run-2026.11_a") == "run-2026.11_a"
    assert label("") == ""


@given(st.text(max_size=200))
def test_any_text_becomes_a_label(text: str) -> None:
    assert LABEL.fullmatch(label(text))
    assert label(text) == text or len(label(text)) >= 8


@given(st.text(max_size=60), st.text(max_size=60))
def test_labels_of_different_texts_differ(one: str, other: str) -> None:
    assert (label(one) == label(other)) == (one == other)


def test_objects_are_called_by_their_placement() -> None:
    assert object_name("aws-mixed") == "hetgpu-aws-mixed"
    assert object_name("aws-mixed", "1a2b3c4d") == "hetgpu-aws-mixed-1a2b3c4d"
    assert object_name("aws-Mixed") != object_name("aws-mixed")


@given(st.text(max_size=200), st.sampled_from(["", "1a2b3c4d"]))
def test_any_placement_is_a_name_with_room_for_what_controllers_append(text: str, token: str) -> None:
    name = object_name(text, token)
    assert NAME.fullmatch(name)
    assert len(f"{name}-launcher-4095") <= 63
    assert name.endswith(token)


@given(st.text(max_size=60), st.text(max_size=60))
def test_names_of_different_placements_differ(one: str, other: str) -> None:
    assert (object_name(one) == object_name(other)) == (one == other)


@pytest.mark.parametrize("kind", ["mpijob", "pytorchjob"])
def test_an_operators_job_has_one_template_for_all_its_workers(kind: str) -> None:
    pods = Pods(kind=kind)
    assert quarrel([("a", pods), ("a", pods)]) == ""
    told = quarrel([("a", pods), ("b", pods)])
    assert "a and b are two" in told
    assert "`kind: job`" in told
    assert "`kind: volcano`" in told


def test_a_launcher_without_ranks_has_a_template_of_its_own_under_mpijob_alone() -> None:
    for kind, fits in (("mpijob", True), ("pytorchjob", False)):
        pods = Pods(kind=kind)
        assert (quarrel([("a", pods), ("a", pods), ("b", pods)], launcher=True) == "") is fits
    assert quarrel([("a", Pods(kind="mpijob")), ("b", Pods(kind="mpijob"))], launcher=False)


@pytest.mark.parametrize("kind", ["job", "volcano"])
def test_kinds_that_take_several_kinds_of_hardware(kind: str) -> None:
    assert quarrel([("a", Pods(kind=kind)), ("b", Pods(kind=kind)), ("a", Pods(kind=kind))]) == ""


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (Pods(kind="volcano"), "kind"),
        (Pods(namespace="n"), "namespace"),
        (Pods(context="c"), "context"),
        (Pods(scheduler="s"), "scheduler"),
        (Pods(queue="q"), "queue"),
    ],
)
def test_pods_of_one_placement_are_made_by_one_thing_in_one_place(other: Pods, what: str) -> None:
    told = quarrel([("a", Pods()), ("b", other)])
    assert told.endswith(f"pods of one placement need one {what}")


def test_nothing_can_quarrel_with_nobody() -> None:
    assert quarrel([]) == ""
