"""Transports that run over others (`over`), with made-up layered families."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

import pytest_hetgpu.extensions.transports
from pytest_hetgpu.config.matrix import values
from pytest_hetgpu.config.matrix.matrix import Matrix
from pytest_hetgpu.errors import MatrixError
from pytest_hetgpu.extensions import registry

Reads = Callable[..., Matrix]
MatrixErrors = Callable[..., list[str]]

LAYERED = '''
"""A family over another."""

from pytest_hetgpu.extensions.transports.base import Rendering, Transport, TransportSettings
from pytest_hetgpu.extensions.transports._mpi_log import MpiTransportParser


class LayerSettings(TransportSettings):
    """Keys of a layer."""

    over: str
    depth: int = 1


class Layer(Transport):
    """A layer."""

    Settings = LayerSettings
    layered = True
    vendors = ()

    def render(self, node, stack):
        lower = self.lower.render(node, stack)
        return Rendering({**lower.mca, "layer": str(self.settings.depth)}, lower.env)

    def components(self):
        return self.lower.components()

    @staticmethod
    def parser():
        return MpiTransportParser()
'''

TEXT = """\
name: layers
hardware: {cpu: {}}
transports:
  posix: {family: ucx, tls: posix, env: {A: low, B: low}, timeout: 7}
axes:
  placement:
    two: [cpu, cpu]
  transport:
    coll: {family: layer, over: middle, env: {A: high}}
    middle: {family: layer, over: posix, depth: 2}
  workload:
    allreduce:
"""


@pytest.fixture(autouse=True)
def layered(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("families")
    (folder / "layer.py").write_text(LAYERED)
    monkeypatch.setattr(
        pytest_hetgpu.extensions.transports, "__path__", [*pytest_hetgpu.extensions.transports.__path__, str(folder)]
    )
    caches = (registry.names, registry.shipped, registry._classes, values.entry_model)
    for cache in caches:
        cache.cache_clear()
    yield
    sys.modules.pop("pytest_hetgpu.extensions.transports.layer", None)
    for cache in caches:
        cache.cache_clear()


def test_a_transport_runs_over_others_on_the_axis_or_beside_it(reads: Reads, matrix_errors: MatrixErrors) -> None:
    assert matrix_errors(TEXT) == []
    cell = reads(TEXT).settings(("two", "coll", "allreduce"))
    assert cell.family == "layer"
    assert cell.transport.components() == ("ucx/posix",)
    assert cell.transport.lower is not None
    assert cell.transport.lower.lower is not None


def test_what_is_below_gives_defaults(reads: Reads) -> None:
    options = reads(TEXT).settings(("two", "coll", "allreduce")).options
    assert options.env == {"A": "high", "B": "low"}
    assert options.timeout == 7


def test_a_further_axis_may_set_what_only_the_lowest_takes(matrix_errors: MatrixErrors, reads: Reads) -> None:
    text = TEXT + "  devices: {eth: {net_devices: eth0}}\n"
    assert matrix_errors(text) == []
    transport = reads(text).settings(("two", "coll", "allreduce", "eth")).transport
    assert transport.lower is not None
    assert transport.lower.lower is not None
    assert getattr(transport.lower.lower.settings, "net_devices") == ("eth0",)  # noqa: B009


def test_an_unknown_transport_below(matrix_errors: MatrixErrors) -> None:
    assert matrix_errors(TEXT.replace("over: posix", "over: posx")) == [
        "m.yaml:10: unknown transport 'posx' (known: coll, middle, posix; did you mean 'posix'?)"
    ]


def test_a_circle_is_told_once(matrix_errors: MatrixErrors) -> None:
    text = TEXT.replace("    middle:", "    other: {family: layer, over: coll}\n    middle:").replace(
        "over: posix", "over: coll"
    )
    assert matrix_errors(text) == ["m.yaml:9: transports run over each other in a circle: coll -> middle -> coll"]


def test_a_transport_over_itself(matrix_errors: MatrixErrors) -> None:
    assert matrix_errors(TEXT.replace("over: middle", "over: coll")) == [
        "m.yaml:9: transports run over each other in a circle: coll -> coll"
    ]


def test_an_include_may_define_a_layer_and_may_err_in_it(matrix_errors: MatrixErrors, reads: Reads) -> None:
    include = "include:\n  - {placement: two, transport: {name: top, family: layer, over: WHAT}, workload: allreduce}\n"
    text = TEXT + include
    assert matrix_errors(text.replace("WHAT", "coll")) == []
    assert reads(text.replace("WHAT", "coll")).settings(("two", "top", "allreduce")).transport.components() == (
        "ucx/posix",
    )
    assert matrix_errors(text.replace("WHAT", "col")) == [
        "m.yaml:14: unknown transport 'col' (known: coll, middle, posix, top; did you mean 'coll'?)"
    ]
    assert matrix_errors(text.replace("WHAT", "top")) == [
        "m.yaml:14: transports run over each other in a circle: top -> top"
    ]


def test_a_layer_needs_what_it_runs_over(matrix_errors: MatrixErrors) -> None:
    assert matrix_errors(TEXT.replace("over: posix, ", "")) == ["m.yaml:10: axes.transport.middle lacks the key 'over'"]
    assert matrix_errors(TEXT.replace("over: posix", "over: [posix]")) == [
        "m.yaml:10: axes.transport.middle.over must be a single value, not a list"
    ]


def test_over_belongs_to_a_transport_not_to_a_further_axis(matrix_errors: MatrixErrors) -> None:
    (told,) = matrix_errors(TEXT + "  below: {a: {over: posix}}\n")
    assert told.startswith("m.yaml:13: unknown key 'over' in axes.below.a (known: ")


def test_a_wrong_setting_below_is_told_once(reads: Reads) -> None:
    with pytest.raises(MatrixError) as caught:
        reads(TEXT.replace("depth: 2", "depth: deep"))
    assert caught.value.errors == ("m.yaml:10: axes.transport.middle.depth must be a whole number, not 'deep'",)
