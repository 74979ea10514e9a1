"""Functions and programs by the names that people use."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.extensions.signatures.engine.demangle import function_name, program_name


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("MPI_Send", "MPI_Send"),
        ("ucp_tag_send_nbx.constprop.0", "ucp_tag_send_nbx"),
        ("copy_short.part.0.cold", "copy_short"),
        ("step [clone ._omp_fn.0]", "step"),
        ("_ZN4c10d15ProcessGroupMPI7runLoopEv", "c10d::ProcessGroupMPI::runLoop"),
        ("_ZN4c10d15ProcessGroupMPI4sendERSt6vectorIN2at6TensorESaIS3_EEii", "c10d::ProcessGroupMPI::send"),
        ("_Z12compute_fluxPdi", "compute_flux"),
        ("_ZL6helperv", "helper"),
        ("_ZSt9terminatev", "std::terminate"),
        ("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector::push_back"),
        ("_ZNK3app4Grid4sizeEv", "app::Grid::size"),
        ("_ZN3app4GridC2ERKS0_", "app::Grid::Grid"),
        ("_ZN3app4GridD1Ev", "app::Grid::~Grid"),
        ("_ZN3appplERKNS_4GridES2_", "app::operator+"),
        ("_ZN3app4GridclEi", "app::Grid::operator()"),
        ("_ZN3app4GridcvbEv", "app::Grid::operator"),
        ("_ZN12_GLOBAL__N_13runEv", "(anonymous namespace)::run"),
        ("_ZZN3app4Grid4fillEvENKUlvE_clEv", "app::Grid::fill::{lambda}::operator()"),
        ("_ZN3appILi3ELNS_4modeE1EE3runEv", "app::run"),
        ("_ZN3app3runILi2EEEvv", "app::run"),
        ("_ZN3app3runIXeqT_Li1EEEEvA16_c", "app::run"),
        ("_ZThn16_N3app4Grid4fillEv", "app::Grid::fill"),
        ("_ZTv0_n24_N3app4Grid4fillEv", "app::Grid::fill"),
        ("_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE7reserveEm", "std::__cxx11::basic_string::reserve"),
        ("_ZN4core3ops8function6FnOnce9call_once17h0123456789abcdefE", "core::ops::function::FnOnce::call_once"),
        ("void app::Grid<int>::fill(int, std::vector<int> const&) [with T = int]", "app::Grid::fill"),
        ("int main(int, char**)", "main"),
        ("bool operator<(app::Grid, app::Grid)", "operator<"),
        ("app::Grid::operator()(int) const", "app::Grid::operator()"),
        ("(anonymous namespace)::run(int)", "(anonymous namespace)::run"),
        ("MC_Particle_Buffer::Send_Particle_Buffer", "MC_Particle_Buffer::Send_Particle_Buffer"),
        ("_ZN", "_ZN"),
        ("_ZN3app", "_ZN3app"),
        ("_Z9999foo", "_Z9999foo"),
        ("", ""),
    ],
)
def test_functions(symbol: str, name: str) -> None:
    assert function_name(symbol) == name


@pytest.mark.parametrize(
    "part", ["Z", "N", "I", "LN", "LZ", "S_", "1a", "X", "Ul", "A9_", "<", "(", "a<", "operator", " "]
)
def test_made_up_symbols_cost_little(part: str) -> None:
    start = time.perf_counter()
    assert len(function_name("_Z" + part * 100_000)) <= 200
    assert len(function_name(part * 100_000)) <= 200
    assert time.perf_counter() - start < 1


@given(st.text(alphabet="_ZNISTLEKRC0123456789abcdeotlsv<>():,* {}~&", max_size=300))
def test_whatever_the_symbol_it_has_a_short_name(symbol: str) -> None:
    assert len(function_name("_Z" + symbol)) <= 200
    assert len(function_name(symbol)) <= 200


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("heat2d_o5", "heat2d"),
        ("heat2d_mpich", "heat2d"),
        ("app-openmpi", "app"),
        ("app_impi", "app"),
        ("osu_bw.ompi5", "osu_bw"),
        ("solver_mvapich2", "solver"),
        ("heat2d_o3", "heat2d_o3"),
        ("mpich", "mpich"),
        ("MPI.openmpi.so", "MPI.openmpi.so"),
        ("libhdf5_openmpi.so.200", "libhdf5_openmpi.so.200"),
        ("heat2d", "heat2d"),
    ],
)
def test_a_program_is_one_whichever_mpi_it_was_built_for(program: str, name: str) -> None:
    assert program_name(program) == name
