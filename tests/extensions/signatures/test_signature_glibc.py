"""Last messages of a process: their meaning, and the process they belong to."""

# ruff: noqa: E501 - log lines are as long as they are

from __future__ import annotations

import pytest

from pytest_hetgpu.extensions.signatures.base import Priority
from tests.extensions.signatures.parsing import kind_and_key, matches, parse_all


@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        ("heat2d: app.c:16: check_state: Assertion `n < 100 && \"range\"' failed.", "crash SIGABRT@heat2d!check_state"),
        ("heat2d_o5: /src/app.cc:16: void app::Grid<T>::check(int) [with T = int]: Assertion `n' failed.", "crash SIGABRT@heat2d!app-Grid-check"),
        ("python3: ../src/x.h:3: uct_run: Assertion `p->x[3] == 0' failed.", "crash SIGABRT@python!uct_run"),
        ("[node2:01581] heat2d: app.c:16: check: Assertion `x' failed.", "crash SIGABRT@heat2d!check"),
        ("heat2d: app.c:8: save: Unexpected error: No space left on device.", "crash SIGABRT@heat2d!save"),
        ("a.out: malloc.c:2379: sysmalloc: Assertion `(old_top == initial_top (av))' failed.", "crash SIGABRT@Assertion-old_top-initial_top-failed"),
        ("free(): invalid pointer", "crash SIGABRT@free-invalid-pointer"),
        ("free(): double free detected in tcache 2", "crash SIGABRT@free-double-free-detected-in-tcache"),
        ("malloc(): corrupted top size", "crash SIGABRT@malloc-corrupted-top-size"),
        ("malloc(): memory corruption: 0x00000000018b4010 ***", "crash SIGABRT@malloc-memory-corruption"),
        ("corrupted size vs. prev_size while consolidating", "crash SIGABRT@corrupted-size-vs.-prev_size-while-consolidating"),
        ("double free or corruption (!prev)", "crash SIGABRT@double-free-or-corruption"),
        ("munmap_chunk(): invalid pointer", "crash SIGABRT@munmap_chunk-invalid-pointer"),
        ("*** Error in `./heat2d': double free or corruption (out): 0x000000000184f010 ***", "crash SIGABRT@double-free-or-corruption"),
        ("*** stack smashing detected ***: terminated", "crash SIGABRT@stack-smashing-detected"),
        ("*** stack smashing detected ***: <unknown> terminated", "crash SIGABRT@stack-smashing-detected"),
        ("*** buffer overflow detected ***: ./heat2d terminated", "crash SIGABRT@buffer-overflow-detected"),
        ("Fatal glibc error: pthread_mutex_lock.c:450 (__pthread_mutex_lock_full): assertion failed: e", "crash SIGABRT@Fatal-glibc-error-assertion-failed-e"),
        ("terminate called after throwing an instance of 'std::runtime_error'\n  what():  grid 7 is empty", "crash SIGABRT@std-runtime_error"),
        ("terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc", "out_of_memory bad_alloc@libstdc"),
        ("terminate called without an active exception", "crash SIGABRT@terminate-called-without-an-active-exception"),
        ("pure virtual method called", "crash SIGABRT@pure-virtual-method-called"),
        ("libc++abi: terminating due to uncaught exception of type std::out_of_range: x", "crash SIGABRT@std-out_of_range"),
        ("[ 1234.567] heat2d_o5[583]: segfault at 18 ip 0000555 sp 00007ff error 4 in heat2d_o5[400000+1000]", "crash SIGSEGV@heat2d"),
        ("[12.3] heat2d[583]: segfault at 0 ip 00007f sp 00007f error 4 in libc-2.31.so[7f+1]", "crash SIGSEGV@heat2d"),
        ("Nov 20 12:00:00 node1 kernel: traps: heat2d[583] trap divide error ip:4005 sp:7ff error:0 in heat2d[400000+1000]", "crash SIGFPE@heat2d"),
        ("traps: a.out[5] trap invalid opcode ip:7f sp:7f error:0 in libx.so.1[7f+2]", "crash SIGILL@libx.so"),
        ("traps: a.out[5] general protection fault ip:7f sp:7f error:0 in libx.so.1[7f+2]", "crash SIGSEGV@libx.so"),
    ],
)  # fmt: skip
def test_last_words(text: str, read_as: str) -> None:
    assert kind_and_key(matches("glibc", text)[0]) == read_as


@pytest.mark.parametrize(
    "text",
    [
        "[vm:1727 :0:1733]  ucp_worker.c:3027 Assertion `ucs_async_check_owner_thread(&(worker)->async)' failed",
        "the function free(): what it does",
        "Assertion `x' failed",
        "[vm:1] Signal: Segmentation fault (11)",
        "mpirun noticed that process rank 0 with PID 7 on node vm exited on signal 11 (Segmentation fault).",
        "  what():  nothing was thrown before",
    ],
)
def test_what_is_nobodys_last_word(text: str) -> None:
    assert matches("glibc", text) == []


def test_how_much_each_word_explains() -> None:
    def priority(text: str) -> tuple[Priority, bool]:
        (match,) = matches("glibc", text)
        return match.priority, match.fatal

    assert priority("free(): invalid pointer") == (Priority.CAUSE, True)
    assert priority("[1.2] a.out[5]: segfault at 0 ip 7f sp 7f error 4 in a.out[4+1]") == (Priority.RELAYED, False)
    assert priority("terminate called after throwing an instance of 'c10::DistBackendError'") == (
        Priority.RELAYED,
        True,
    )


def test_an_exceptions_text_is_its_own_writers() -> None:
    text = "[1,0]<stderr>:terminate called after throwing an instance of 'A'\n[1,1]<stderr>:  what():  other\n[1,0]<stderr>:  what():  mine"
    (match,) = matches("glibc", text)
    assert (match.signature.detail, match.signature.ranks) == ("A: mine", (0,))


def report(process: str, *frames: str, signal: str = "Aborted (6)") -> list[str]:
    lines = ["*** Process received signal ***", f"Signal: {signal}", "Signal code:  (-6)"]
    lines += [f"[{place:2}] {frame}" for place, frame in enumerate(frames)]
    return [f"[{process}] {line}" for line in (*lines, "*** End of error message ***")]


LIBC = "/lib/libc.so.6(abort+0xd3)[0x7fa6bee5c472]"


def test_last_words_and_the_report_that_follows_are_one_crash() -> None:
    frames = (LIBC, "/lib/libc.so.6(__libc_free+0x6f)[0x7fa6bee5c002]", "./heat2d(main+0x679)[0x557b9e150b69]")
    (crash,) = parse_all(
        "\n".join(["free(): invalid pointer", *report("node3:02049", *frames)]), "glibc", "openmpi_crash"
    )
    assert (crash.key, crash.primary_line, crash.line) == ("SIGABRT@heat2d!main", "free(): invalid pointer", 1)
    assert (crash.detail, crash.library, crash.function) == ("free(): invalid pointer", "heat2d", "main")
    assert (crash.signal, crash.hosts) == ("SIGABRT", ("node3",))


def test_an_assertions_function_is_the_one_that_asserted_and_its_library_the_reports() -> None:
    words = "heat2d: grid.h:3: void app::check(int): Assertion `n' failed."
    frames = (LIBC, "/x/libgrid.so.1(+0x1234)[0x7fa6bee5d472]", "/x/libmpi.so.40(PMPI_Send+0x1)[0x7fa6bee5e472]")
    (crash,) = parse_all("\n".join([words, *report("a:1", *frames)]), "glibc", "openmpi_crash")
    assert (crash.key, crash.entry_point) == ("SIGABRT@libgrid.so!app-check", "PMPI_Send")


def test_each_rank_has_its_own_last_words() -> None:
    words = "heat2d: app.c:16: {}: Assertion `n' failed."
    reports = [report(f"n{n}:7", LIBC, f"./heat2d({name}+0x1)[0x55{n}]") for n, name in enumerate(("load", "save"))]
    text = [words.format("save"), words.format("load"), *reports[0], *reports[1]]
    crashes = parse_all("\n".join(text), "glibc", "openmpi_crash")
    assert [(crash.key, crash.hosts) for crash in crashes] == [
        ("SIGABRT@heat2d!save", ("n1",)),
        ("SIGABRT@heat2d!load", ("n0",)),
    ]


def test_an_abort_whose_handler_dies_too_is_an_abort() -> None:
    aborted, died = report("n3:03413")[:-1], report("n3:03413", signal="Segmentation fault (11)")[:-1]
    epilogue = "mpirun noticed that process rank 2 with PID 3413 on node n3 exited on signal 11 (Segmentation fault)."
    text = ["*** stack smashing detected ***: terminated", *aborted, *died, epilogue]
    crash, met = parse_all("\n".join(text), "glibc", "openmpi_crash", "openmpi_exits")
    assert (crash.key, crash.line, crash.ranks) == ("SIGABRT@stack-smashing-detected", 1, (2,))
    assert (crash.library, crash.function, met.signal) == (None, None, "SIGSEGV")


def test_memory_that_new_cannot_have_stays_that_whatever_reports_the_abort() -> None:
    words = "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc"
    text = "\n".join([words, *report("a:1", LIBC, "./heat2d(main+0x1)[0x55]")])
    (crash,) = parse_all(text, "glibc", "kernel_oom", "openmpi_crash")
    assert (crash.kind.value, crash.key, crash.signal) == ("out_of_memory", "bad_alloc@libstdc", "SIGABRT")
    assert (crash.library, crash.function) == ("heat2d", "main")


def test_the_kernels_and_the_shells_word_on_a_reported_crash_are_its_echo() -> None:
    segv = report("node1:583", "./heat2d(main+0x1)[0x55]", signal="Segmentation fault (11)")
    kernel = "Nov 20 12:00:00 node1 kernel: heat2d[583]: segfault at 18 ip 055 sp 07f error 4 in heat2d[4+1]"
    text = "\n".join([kernel, *segv, "Segmentation fault (core dumped)"])
    assert [crash.key for crash in parse_all(text, "glibc", "shells", "openmpi_crash")] == ["SIGSEGV@heat2d!main"]
