"""A stand-in for mpirun: prints what a run prints that ends as the variable BEHAVE says.

With STANDIN_CALM nothing hangs.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import zlib
from pathlib import Path

HOME = Path(sys.argv[0]).resolve().parent.parent


def record(**payload: object) -> None:
    text = json.dumps(payload, separators=(",", ":"))
    print(f"@hetgpu:{len(text):04d}:{zlib.crc32(text.encode()):08x}:{text}")


ENDINGS = {
    "crash": (
        "[h:00001] *** Process received signal ***\n[h:00001] Signal: Segmentation fault (11)\n"
        "[h:00001] Signal code: Invalid permissions (2)\n[h:00001] Failing at address: 0x7f3e00000000\n"
        "[h:00001] [ 0] /lib/x86_64-linux-gnu/libc.so.6(+0x3c050)[0x7f3e12345050]\n"
        "[h:00001] [ 1] /opt/lib/openmpi/libuct.so.0(uct_tcp_ep_am_short+0xa7)[0x7f3e22345050]\n"
        "[h:00001] *** End of error message ***\n"
        "prterun noticed that process rank 0 with PID 1 on node h exited on\nsignal 11 (Segmentation fault).",
        139,
    ),
    "network": (
        "[h][[1,0],0][btl_tcp_endpoint.c:667:mca_btl_tcp_endpoint_complete_connect] connect() to 10.0.0.2:1024 failed: "
        "No route to host (113)",
        1,
    ),
}


def main(behave: str, ranks: int, sizes: list[int], repeats: int) -> int:
    print("  on-host:  all connections are", "sm" if behave == "fallback" else "tcp")
    library = "MPICH 5.0.2" if behave == "other-stack" else "Open MPI v5.0.11"
    for rank in range(ranks):
        size = 1 if behave == "other-world" else ranks
        record(
            t="hello",
            rank=0 if size == 1 else rank,
            size=size,
            host="h",
            pid=1,
            library=library,
            libmpi=f"{HOME}/lib/libmpi.so.40",
        )
    longer = pace()
    for repeat in range(repeats if behave != "unmeasured" else 0):
        for size in sizes:
            point = {"size": size, "dtype": "float32", "ranks": ranks, "repeat": repeat}
            seconds = size * 1e-8 * (longer if size > 1000 else 1.0)
            record(t="row", op="allreduce", **point, iterations=4, seconds=seconds)
    sys.stdout.flush()
    meanwhile(behave)
    if behave in ENDINGS:
        text, code = ENDINGS[behave]
        print(text)
        return code
    for rank in range(ranks):
        wrong = 3 if behave == "wrong" and rank else 0
        if behave != "unchecked":
            record(t="check", rank=rank, points=[[size, "float32", wrong] for size in sizes])
        if behave != "half" or rank == 0:
            record(t="done", rank=rank)
    return int(behave.removeprefix("exit")) if behave.startswith("exit") else 0


def meanwhile(behave: str) -> None:
    if behave == "flood":
        print("\n".join(["x" * 99] * 20_000))
    if behave == "hang" and not os.environ.get("STANDIN_CALM"):
        with Path(os.environ["STANDIN_FIFO"]).open("w") as fifo:
            fifo.write("here\n")
        signal.pause()
    if behave.startswith("wait"):
        Path(os.environ["STANDIN_GATE"]).read_bytes()


def turn(behave: str) -> str:
    """Of `network-then-good` the first word at the first launch, the second at the second; the last one stays."""
    words = behave.split("-then-")
    count = HOME / f"launches-of-{behave}"
    launches = len(count.read_text()) if count.exists() else 0
    count.write_text("x" * (launches + 1))
    return words[min(launches, len(words) - 1)]


def pace() -> float:
    """How many times longer than usual large messages take: what the file `paces` says, a word for each launch.

    The last one stays.
    """
    told = HOME / "paces"
    if not told.exists():
        return 1.0
    first, *rest = told.read_text().split()
    if rest:
        told.write_text(" ".join(rest))
    return float(first)


def option(name: str, default: str = "") -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def variables() -> dict[str, str]:
    """The variables of all ranks, from the files that the command names."""
    files = [Path(os.environ["TMPDIR"], token) for token in sys.argv if token.startswith("variables-")]
    return {name: value for file in files for name, value in json.loads(file.read_text()).items()}


if __name__ == "__main__":
    given = variables()
    sizes = [int(size) for size in option("--sizes").split(",")]
    counts = [int(count) for token, count in zip(sys.argv, sys.argv[1:], strict=False) if token in ("-np", "-n")]
    sys.exit(main(turn(given.get("BEHAVE", "good")), sum(counts), sizes, int(option("--repeats", "1"))))
