"""Logs as collectors, launchers and tools pass them on: a prefix before each line, or an envelope around it.

Each form is that of the program's own documentation or source.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone

START = datetime(2026, 11, 20, 8, 11, 27, 123456, tzinfo=timezone.utc)
Prefix = Callable[[int, datetime], str]
Wrap = Callable[[Sequence[str]], str]


def iso(time: datetime, digits: int = 6, separator: str = "T", zone: str = "Z") -> str:
    """Format `2026-11-20T08:11:27.123456Z`, with up to nine digits of the second."""
    return time.strftime(f"%Y-%m-%d{separator}%H:%M:%S") + fraction(time, digits) + zone


def fraction(time: datetime, digits: int, point: str = ".") -> str:
    return point + f"{time.microsecond:06d}321"[:digits] if digits else ""


def syslog(time: datetime) -> str:
    return f"{time:%b} {time.day:2d} {time:%H:%M:%S}"


def since(time: datetime) -> float:
    return (time - START).total_seconds()


PREFIXES: dict[str, Prefix] = {
    # systemd's journalctl -o short, short-iso, short-monotonic, with-unit
    "syslog": lambda _, t: f"{syslog(t)} gpu-node-7 python3[48211]: ",
    "journalctl-iso": lambda _, t: f"{iso(t, 0, zone='+0000')} gpu-node-7 train.sh[4821]: ",
    "journalctl-monotonic": lambda _, t: f"[{since(t) + 5123.4:12.6f}] gpu-node-7 train.sh[77]: ",
    "rfc5424": lambda _, t: f"<30>1 {iso(t, 3)} gpu-node-7 train 4821 ID47 - ",
    "rfc5424-data": lambda _, t: f'<30>1 {iso(t)} gpu-node-7 train 4821 - [meta sequenceId="{_}"] ',
    "rsyslog": lambda _, t: f"{iso(t, zone='+01:00')} gpu-node-7 train: ",
    "dmesg": lambda _, t: f"[{since(t) + 77.1:12.6f}] ",
    "dmesg-T": lambda _, t: f"[{t:%a %b} {t.day:2d} {t:%H:%M:%S %Y}] ",
    "ts": lambda _, t: f"{syslog(t)} ",
    "ts-s": lambda _, t: f"00:{int(since(t)) // 60:02d}:{int(since(t)) % 60:02d} ",
    "ts-epoch": lambda _, t: f"{t.timestamp():.6f} ",
    "epoch": lambda _, t: f"{int(t.timestamp())} ",
    "epoch-ms": lambda _, t: f"{int(t.timestamp() * 1000)}\t",
    "iso-space": lambda _, t: f"{iso(t, 0, ' ', '')} ",
    "iso-comma": lambda _, t: f"{t:%Y-%m-%d %H:%M:%S}{fraction(t, 3, ',')} ",
    "iso-bracket": lambda _, t: f"[{iso(t, 3, ' ', '')}] ",
    "time-only": lambda _, t: f"{t:%H:%M:%S} ",
    "time-bracket": lambda _, t: f"[{t:%H:%M:%S}{fraction(t, 3)}] ",
    "seconds": lambda _, t: f"[+{since(t):.3f}s] ",
    "us-date": lambda _, t: f"{t:%m/%d/%Y %I:%M:%S %p} ",
    "stern": lambda i, t: "trainer-worker-1 pytorch ",
    "stern-times": lambda i, t: f"trainer-worker-1 pytorch {iso(t, 9)} ",
    "kubectl-timestamps": lambda _, t: f"{iso(t, 9)} ",
    "kubectl-prefix": lambda i, t: "[pod/trainer-worker-1/pytorch] ",
    "cri": lambda _, t: f"{iso(t, 9, zone='+01:00')} stderr F ",
    "compose": lambda _, t: "worker-1  | ",
    "compose-times": lambda _, t: f"worker-1  | {iso(t, 9)} ",
    "openmpi-tag": lambda i, t: "[1,0]<stderr>:",
    "openmpi5-tag": lambda i, t: "[prterun-node1-4711@1,0]<stderr>: ",
    "openmpi-timestamp": lambda _, t: f"{t:%a %b} {t.day:2d} {t:%H:%M:%S %Y}<stderr>: ",
    "openmpi-timestamp-tag": lambda _, t: f"{t:%a %b} {t.day:2d} {t:%H:%M:%S %Y}[1,0]<stderr>:",
    "openmpi-rank": lambda i, t: f"{t:%a %b} {t.day:2d} {t:%H:%M:%S %Y}[1,0][node1:4711]<stderr>: ",
    "srun-label": lambda i, t: "0: ",
    "srun-label-wide": lambda i, t: "  0: ",
    "hydra-rank": lambda i, t: "[0] ",
    "gitlab": lambda _, t: f"{iso(t)} 00O ",
    "gitlab-append": lambda i, t: f"{iso(t)} 01E" + (" " if i % 40 else "+"),
    "actions": lambda _, t: f"{iso(t, 7)} ",
    "actions-view": lambda _, t: f"gpu tests (3.11)\tRun mpirun\t{iso(t, 7)} ",
    "azure": lambda _, t: f"{iso(t, 7)} ",
    "jenkins-timestamper": lambda _, t: f"[{iso(t, 3)}] ",
    "jenkins-time": lambda _, t: f"{t:%H:%M:%S}  ",
    "buildkite": lambda _, t: f"\x1b_bk;t={int(t.timestamp() * 1000)}\x07",
    "buildkite-shown": lambda _, t: f"[{iso(t, 0)}] ",
    "cloudwatch-tail": lambda _, t: f"{iso(t, 0, zone='+00:00')} train/default/6a1f0b7c2d9e4411 ",
    "cloudwatch-export": lambda _, t: f"{iso(t, 3)} ",
    "slurm-times": lambda _, t: f"[{iso(t, 3, zone='')}] ",
    "logcli": lambda _, t: f'{iso(t, 0)} {{namespace="train", pod="trainer-worker-0"}} ',
    "logcli-labels": lambda _, t: f"{iso(t, 0, zone='+01:00')} {{}} ",
    "datadog-agent": lambda _, t: f"{iso(t, 0, ' ', ' UTC')} | CORE | INFO | (pkg/logs/tailer.go:12 in forward) | ",
    "python-logging": lambda _, t: f"{t:%Y-%m-%d %H:%M:%S}{fraction(t, 3, ',')} - train - INFO - ",
    "python-level": lambda _, t: f"{t:%Y-%m-%d %H:%M:%S}{fraction(t, 3, ',')} ERROR ",
    "level": lambda _, t: "INFO: ",
    "level-bracket": lambda _, t: "[ERROR] ",
    "loguru": lambda _, t: f"{iso(t, 3, ' ', '')} | INFO     | __main__:run:42 - ",
    "rank-colon": lambda i, t: "[0]: ",
    "rank-bar": lambda i, t: "rank 3 | ",
    "rank-bracket": lambda i, t: "[rank 3] ",
    "worker": lambda i, t: "(worker-0) ",
    "ray": lambda i, t: "(RayTrainWorker pid=4711, ip=10.0.0.7) ",
    "torchrun": lambda i, t: "[default0]:",
    "pdsh": lambda i, t: "node7: ",
    "clush": lambda i, t: "gpu-node-07: ",
    "parallel-tag": lambda i, t: "node1\t",
    "parallel-tagstring": lambda i, t: "[job 3] ",
    "tab": lambda _, t: "\t",
    "indent": lambda _, t: "    ",
    "quote": lambda _, t: "> ",
    "quote-twice": lambda _, t: "> > ",
    "table": lambda _, t: "| ",
    "comment": lambda _, t: "# ",
    "nl": lambda i, t: f"{i + 1:6d}\t",
    "nl-colon": lambda i, t: f"{i + 1}: ",
    "grep-n": lambda i, t: f"slurm-4711.out:{i + 1}:",
    "grep-h": lambda i, t: "logs/slurm-4711.out:",
    "multitail": lambda i, t: f"{i + 1:04d} | ",
    "colours": lambda i, t: f"\x1b[36mworker-1  |\x1b[0m \x1b[2m{iso(t, 3)}\x1b[0m ",
    "colours-level": lambda i, t: f"\x1b[32m[{t:%H:%M:%S}]\x1b[0m \x1b[1mINFO\x1b[0m ",
    "ansible": lambda i, t: "node1 | ",
    "honcho": lambda i, t: f"{t:%H:%M:%S} trainer.1   | ",
    "promtail": lambda i, t: f"{iso(t, 9)} stdout F {iso(t, 3)} ",
    "fluent-bit": lambda i, t: f"[{i}] train.log: [{t.timestamp():.9f}] ",
    "bracket-bare": lambda i, t: f"[node1] [{t:%H:%M:%S}] ",
    "container-id": lambda i, t: f"{iso(t, 9)} 3f2a9c0b17de ",
}


def prefixed(prefix: Prefix) -> Wrap:
    """Put the prefix before each line. Time passes by 50 ms per line."""
    return lambda lines: "".join(
        f"{prefix(number, START + timedelta(milliseconds=50 * number))}{line}\n" for number, line in enumerate(lines)
    )


Record = Callable[[int, datetime, str], dict[str, object]]
RECORDS: dict[str, Record] = {
    "json-file": lambda i, t, text: {"log": f"{text}\n", "stream": "stderr", "time": iso(t, 9)},
    "loki": lambda i, t, text: {
        "labels": {"namespace": "train", "pod": "trainer-worker-0"},
        "line": text,
        "timestamp": iso(t, 9),
    },
    "journald-json": lambda i, t, text: {
        "__CURSOR": f"s=6f0c1e;i={i:x};b=77aa;m={i * 991:x};t={i * 777:x};x=9e",
        "__REALTIME_TIMESTAMP": str(int(t.timestamp() * 1e6)),
        "_HOSTNAME": "gpu-node-7",
        "_PID": "4821",
        "SYSLOG_IDENTIFIER": "train",
        "PRIORITY": "6",
        "_CMDLINE": "/usr/bin/python3 train.py --epochs 3 --with many words here",
        "MESSAGE": text,
    },
    "cloudwatch-json": lambda i, t, text: {
        "timestamp": int(t.timestamp() * 1000),
        "message": text,
        "ingestionTime": int(t.timestamp() * 1000) + 5,
        "eventId": f"3799{i:020d}",
        "logStreamName": "train/default/6a1f0b7c2d9e4411",
    },
    "gcp": lambda i, t, text: {
        "insertId": f"id{i:08x}",
        "resource": {"type": "k8s_container", "labels": {"pod_name": "trainer-worker-0"}},
        "textPayload": text,
        "timestamp": iso(t, 9),
    },
    "ecs": lambda i, t, text: {
        "@timestamp": iso(t, 3),
        "log": {"level": "info", "offset": i * 80},
        "host": {"name": "gpu-node-7"},
        "message": text,
    },
    "azure-json": lambda i, t, text: {"TimeStamp": iso(t, 7), "Log": text},
    "own-names": lambda i, t, text: {"zeit": iso(t, 3), "rang": 0, "inhalt": text},
}


def as_json(record: Record, before: str = "", *, ascii_only: bool = True) -> Wrap:
    """Write one JSON object per line, after a text."""

    def wrap(lines: Sequence[str]) -> str:
        times = (START + timedelta(milliseconds=50 * number) for number in range(len(lines)))
        return "".join(
            f"{before}{json.dumps(record(number, time, line), ensure_ascii=ascii_only)}\n"
            for number, (time, line) in enumerate(zip(times, lines, strict=True))
        )

    return wrap


def as_csv(header: Sequence[str], delimiter: str = ",") -> Wrap:
    """Write a CSV export: columns of time, host and level, and the message in the last."""

    def wrap(lines: Sequence[str]) -> str:
        target = io.StringIO()
        writer = csv.writer(target, delimiter=delimiter, lineterminator="\n")
        writer.writerow(header)
        for number, line in enumerate(lines):
            time = iso(START + timedelta(milliseconds=50 * number), 3)
            writer.writerow([time, "gpu-node-7", "info", line])
        return target.getvalue()

    return wrap


def logfmt(lines: Sequence[str]) -> str:
    """Write `time=... level=info msg="..."` per line."""
    times = (iso(START + timedelta(milliseconds=50 * number), 0) for number in range(len(lines)))
    return "".join(
        f'time="{time}" level=info msg={json.dumps(line)}\n' for time, line in zip(times, lines, strict=True)
    )


WRAPS: dict[str, Wrap] = {
    **{name: prefixed(prefix) for name, prefix in PREFIXES.items()},
    **{name: as_json(record) for name, record in RECORDS.items()},
    "json-unicode": as_json(RECORDS["own-names"], ascii_only=False),
    "fluentd": as_json(RECORDS["json-file"], "2026-11-20 08:11:27 +0000 kube.trainer: "),
    "fluentd-file": as_json(RECORDS["loki"], "2026-11-20T08:11:27+00:00\tkube.trainer\t"),
    "csv": as_csv(("Date", "Host", "Service", "Message")),
    "csv-at": as_csv(("@timestamp", "host", "level", "@message")),
    "csv-semicolon": as_csv(("timestamp", "host", "level", "message"), ";"),
    "logfmt": logfmt,
}

ONE_LINE_MORE = frozenset(("csv", "csv-at", "csv-semicolon"))
"""Wraps that put a header before the log, so that each line has a number one higher."""
