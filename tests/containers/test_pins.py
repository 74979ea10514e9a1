"""Versions and addresses: each stands once in pins.yaml with its source, and the recipes say the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Pins = dict[str, Any]
GPU_IMAGES = ("cuda-t4", "rocm-gfx1011")


def of_image(pins: Pins, image: str) -> dict[str, Any]:
    return {name: pin for name, pin in pins["pins"].items() if image in pin["images"]}


def wanted(pins: Pins, image: str) -> dict[str, str]:
    """The arguments that an image's recipe must have, by its pins."""
    found: dict[str, str] = {}
    for pin in of_image(pins, image).values():
        for key, suffix in (("version", ""), ("commit", "_COMMIT"), ("sha256", "_SHA256")):
            if key in pin:
                argument = pin["arg"] + suffix
                assert argument not in found, f"two pins of {image} give {argument}"
                found[argument] = pin[key]
    return found


def test_every_argument_of_a_recipe_is_a_pin_or_a_choice(pins: Pins, recipe: Callable[[str], Any], image: str) -> None:
    args = {name: value for name, value in recipe(image).args.items() if name not in pins["choices"]}
    assert args == wanted(pins, image)


def test_recipes_download_what_is_pinned_and_nothing_else(pins: Pins, recipe: Callable[[str], Any], image: str) -> None:
    assert recipe(image).urls == {pin["url"] for pin in of_image(pins, image).values() if "url" in pin}


def test_every_choice_is_one(pins: Pins, recipe: Callable[[str], Any], containers: Path) -> None:
    images = [path.name for path in containers.iterdir() if path.is_dir()]
    assert set(pins["choices"]) <= {name for image in images for name in recipe(image).args}


def test_every_pin_is_whole_and_has_its_source(pins: Pins, containers: Path) -> None:
    for name, pin in pins["pins"].items():
        assert set(pin) <= {"arg", "version", "commit", "url", "sha256", "sum", "source", "images"}, name
        assert pin["source"].startswith("https://"), name
        assert pin["images"] == sorted(set(pin["images"])), name
        assert all((containers / image).is_dir() for image in pin["images"]), name
        assert {"version", "commit", "sha256"} & set(pin), f"{name} pins nothing"
        assert re.fullmatch(r"[0-9a-f]{40}", pin.get("commit", "0" * 40)), name
        assert re.fullmatch(r"[0-9a-f]{64}", pin.get("sha256", "0" * 64)), name
        assert ("sha256" in pin) == ("sum" in pin), f"{name}: who published its checksum?"
        if re.search(r"\.tar\.|\.whl$|\.deb$", pin.get("url", "")):
            assert "sha256" in pin, f"{name} is downloaded and not checked"
        if pin.get("url", "").endswith(".git"):
            assert "commit" in pin, f"{name} is cloned and not pinned"


def test_a_version_stands_in_the_address_it_is_downloaded_from(pins: Pins) -> None:
    for name, pin in pins["pins"].items():
        if "sha256" in pin and "version" in pin:
            assert pin["version"] in pin["url"], name


def test_both_gpu_vendors_have_one_ucx_ucc_open_mpi_and_torch(pins: Pins, recipe: Callable[[str], Any]) -> None:
    cuda, rocm = (recipe(image).args for image in GPU_IMAGES)
    for argument in ("UCX", "UCX_SHA256", "UCC", "UCC_SHA256", "OPENMPI", "OPENMPI_SHA256", "TORCH", "TORCH_COMMIT"):
        assert cuda[argument] == rocm[argument]
    for name in ("ucx", "ucc", "openmpi", "torch"):
        assert set(GPU_IMAGES) <= set(pins["pins"][name]["images"])


def test_the_pair_that_must_work_has_one_open_mpi_and_two_ucx(recipe: Callable[[str], Any]) -> None:
    one, other = recipe("cpu-ompi5").args, recipe("cpu-ompi5-b").args
    assert one["OPENMPI"] == other["OPENMPI"]
    assert one["UCX"] != other["UCX"]
    assert one["BASE"] != other["BASE"]


def test_the_same_python_packages_for_both_gpu_vendors(pins: Pins, containers: Path) -> None:
    one, other = ((containers / image / "requirements.txt").read_text(encoding="utf-8") for image in GPU_IMAGES)
    assert one == other
    lines = [line for line in one.splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9.]+", line)] == []
    assert f"numpy=={pins['pins']['numpy']['version']}" in lines


@pytest.mark.parametrize("gpu_image", GPU_IMAGES)
def test_ucx_is_built_for_gpus_and_without_enable_mt(recipe: Callable[[str], Any], gpu_image: str) -> None:
    text = re.sub(r"\\\n\s*", "", recipe(gpu_image).text)
    builds = [line for line in text.splitlines() if "./configure" in line and "--without-knem" in line]
    assert len(builds) == 1
    assert ("--with-cuda=" if gpu_image == "cuda-t4" else "--with-rocm=") in builds[0]
    assert "enable-mt" not in text
