"""The command `hetgpu`."""

from __future__ import annotations

import argparse
import atexit
import gc
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from pytest_hetgpu._version import __version__
from pytest_hetgpu.errors import HetgpuError

EXIT_USAGE = 4
EXIT_INTERRUPTED = 130
_GC_THRESHOLD = 50_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Return 0 for success. Return 1 if `doctor` has concerns, `compare` found something worse, or `clean` left something.
    Return 4 for an error, and 130 for Ctrl-C.
    """
    if arguments is None:
        _disable_garbage_collection()
    parser = _parser()
    try:
        parsed = parser.parse_args(arguments)
    except SystemExit as stop:
        return EXIT_USAGE if stop.code == 2 else int(stop.code or 0)
    command: Callable[[argparse.Namespace], int] = parsed.run
    _escape_unencodable_output()
    try:
        return command(parsed)
    except HetgpuError as error:
        from pytest_hetgpu.cli.explain.format import display_line

        _print("ERROR: " + "\n".join(map(display_line, str(error).split("\n"))), sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed it (`| head`); buffered output would raise again at exit.
        sys.stderr.close()
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hetgpu", description="Helpers beside `pytest --hetgpu-matrix FILE`.")
    parser.add_argument("--version", action="version", version=f"hetgpu {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    schema = commands.add_parser("schema", help="print the JSON Schema of a matrix file (or of another file)")
    schema.add_argument("what", nargs="?", choices=("matrix", "journal", "signatures", "boundary"), default="matrix")
    schema.set_defaults(run=_schema)
    _add_explain(commands.add_parser("explain", help="print why the run in a log failed: any log, from anywhere"))
    _add_report(commands.add_parser("report", help="judge a run's stored logs again, and build its reports from them"))
    _add_compare(commands.add_parser("compare", help="print what got worse or better between two runs; exits by it"))
    history = commands.add_parser("history", help="print since when cells fail, over the newest runs of a history")
    history.add_argument("--last", type=int, default=60, metavar="N", help="how many runs (60)")
    history.add_argument("--html", type=Path, metavar="FILE", help="write a page of these runs instead")
    history.add_argument("--history", metavar="FILE|URL", help="the history (REPORTS/history.sqlite)")
    history.add_argument("--reports", type=Path, metavar="DIR", help="where runs land (reports)")
    history.set_defaults(run=_history)
    bundle = commands.add_parser("bundle", help="pack a failure for its upstream: issue text, reproducer, logs")
    bundle.add_argument("folder", type=Path, metavar="RUN", help="a run's folder, like reports/latest")
    bundle.add_argument("wanted", metavar="CELL|KEY", help="a cell's name, or the key of a signature")
    bundle.add_argument("-o", "--output", type=Path, metavar="FILE", help="the archive (KEY.tar.gz here)")
    bundle.set_defaults(run=_bundle)
    _add_boundary(commands.add_parser("boundary", help="print under which condition cells of stored runs fail"))
    _add_merge(commands.add_parser("merge", help="make one report and one history of runs of several sites"))
    _add_init(commands.add_parser("init", help="write a first matrix of what is here, and of your program"))
    doctor = commands.add_parser("doctor", help="look at this machine, or at an inventory's hosts: what may break jobs")
    doctor.add_argument("--inventory", metavar="FILE", help="look at the hosts of this file, or of KIND:PATH")
    doctor.add_argument("--list", action="store_true", help="only print which hosts that gives, and look at none")
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    doctor.set_defaults(run=_doctor)
    _add_clean(commands.add_parser("clean", help="show what runs that were killed have left, and remove it"))
    _add_publishing(
        commands.add_parser("comment", help="comment on a pull request: what is new in a run; only with --send"),
        commands.add_parser("issues", help="open or update an issue per new signature of a run; only with --send"),
    )
    completion = commands.add_parser("completion", help="print a script that completes these commands in a shell")
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    completion.set_defaults(run=_completion)
    return parser


def _add_explain(explain: argparse.ArgumentParser) -> None:
    explain.add_argument("logs", nargs="*", metavar="LOG", help="files; - or nothing is standard input")
    explain.add_argument("--json", action="store_true", help="print one JSON object a log, each on a line")
    explain.add_argument(
        "--knowledge", type=Path, action="append", default=[], metavar="FILE", help="known failures of your own, too"
    )
    explain.add_argument(
        "--signatures", type=Path, action="append", default=[], metavar="FILE", help="rules of your own, too"
    )
    explain.set_defaults(run=_explain)


def _add_report(report: argparse.ArgumentParser) -> None:
    report.add_argument("folder", type=Path, metavar="RUN", help="a run's folder, like reports/latest")
    report.add_argument(
        "--knowledge", type=Path, action="append", default=[], metavar="FILE", help="instead of the run's own files"
    )
    report.add_argument(
        "--signatures", type=Path, action="append", default=[], metavar="FILE", help="instead of the run's own rules"
    )
    report.add_argument("--anonymise", action="store_true", help="with stand-ins for hosts, addresses and users")
    report.add_argument("--history", metavar="FILE|URL", help="put the run into this history, or in again")
    report.set_defaults(run=_report)


def _add_init(init: argparse.ArgumentParser) -> None:
    init.add_argument("folder", nargs="?", type=Path, default=Path(), metavar="FOLDER", help="where to (here)")
    init.add_argument("--program", default="", metavar="COMMAND", help="run it in cells, too: './app --size 8'")
    init.add_argument("--hosts", default="", metavar="HOSTS", help="hosts that ssh reaches: gpu1,gpu2")
    init.add_argument("--yes", action="store_true", help="ask nothing")
    init.add_argument("--force", action="store_true", help="replace files that exist")
    init.set_defaults(run=_init)


def _add_boundary(boundary: argparse.ArgumentParser) -> None:
    boundary.add_argument("folders", type=Path, nargs="+", metavar="RUN", help="runs' folders, like reports/latest")
    boundary.set_defaults(run=_boundary)


def _add_merge(merge: argparse.ArgumentParser) -> None:
    merge.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder, or NAME=FOLDER with its site's name")
    merge.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="the new folder: a run like any other"
    )
    merge.add_argument("--force", action="store_true", help="replace FOLDER if it is an earlier merge")
    merge.set_defaults(run=_merge)


def _add_compare(compare: argparse.ArgumentParser) -> None:
    run = "a run's folder, a JUnit file, a run id of the history or its beginning, latest, or last:N"
    compare.add_argument("before", metavar="A", help=run)
    compare.add_argument("after", metavar="B", help="the same, held against A")
    compare.add_argument("--tolerance", default="10", metavar="P", help="percent that a number may differ by (10)")
    compare.add_argument("--common", action="store_true", help="look only at cells that both have")
    compare.add_argument("--json", action="store_true", help="print one JSON object")
    compare.add_argument("--history", metavar="FILE|URL", help="the history (REPORTS/history.sqlite)")
    compare.add_argument("--reports", type=Path, metavar="DIR", help="where runs land (reports)")
    compare.set_defaults(run=_compare)


def _add_clean(clean: argparse.ArgumentParser) -> None:
    clean.add_argument("--yes", action="store_true", help="remove it without asking")
    clean.add_argument(
        "--engine",
        action="append",
        default=[],
        metavar="URL",
        help="look at this container engine too: ssh://USER@HOST",
    )
    clean.add_argument(
        "--inventory", type=Path, action="append", default=[], metavar="FILE", help="look at the hosts of this file too"
    )
    clean.add_argument(
        "--run", action="append", default=[], dest="runs", metavar="RUN", help="only what this run has left"
    )
    clean.add_argument("--all-users", action="store_true", help="also what other users' dead runs have left")
    clean.add_argument(
        "--elsewhere", action="store_true", help="also what runs on other machines started: you know that they are over"
    )
    clean.add_argument(
        "--forget", action="store_true", help="look no more for what may be at places that do not answer any more"
    )
    clean.add_argument("--json", action="store_true", help="print one JSON object")
    clean.set_defaults(run=_clean)


def _add_publishing(comment: argparse.ArgumentParser, issues: argparse.ArgumentParser) -> None:
    for command in (comment, issues):
        command.add_argument("folder", type=Path, metavar="RUN", help="a run's folder, like reports/latest")
        command.add_argument("--send", action="store_true", help="send it; else only print what would be sent")
        command.add_argument("--forge", choices=("github", "gitlab"), default="", help="the server (that of this CI)")
        command.add_argument("--repository", default="", metavar="R", help="OWNER/NAME (that of this CI job)")
        command.add_argument("--link", default="", metavar="URL", help="the address of the run in CI (this job)")
    comment.add_argument(
        "--pull-request", type=int, default=0, dest="number", metavar="N", help="its number (that of this CI job)"
    )
    comment.add_argument("--name", default="", metavar="NAME", help="one comment per NAME, for jobs side by side")
    comment.set_defaults(run=_comment)
    issues.add_argument("--most", type=int, default=10, metavar="N", help="open at most so many issues (10)")
    issues.set_defaults(run=_issues)


def _disable_garbage_collection() -> None:
    """Disable garbage collection, which is useless in a process of one command.

    It would take a fifth of the time that explaining a small log takes.
    """
    gc.set_threshold(_GC_THRESHOLD)
    atexit.register(gc.freeze)


def _escape_unencodable_output() -> None:
    """Print characters that the terminal's encoding lacks as escapes, instead of failing."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _schema(parsed: argparse.Namespace) -> int:
    from pytest_hetgpu.config.matrix.schema import matrix_schema
    from pytest_hetgpu.config.signature_rules.file import rule_schema
    from pytest_hetgpu.reporting.boundary_file import boundary_schema
    from pytest_hetgpu.store.events import journal_schema

    schemas = {
        "matrix": matrix_schema,
        "journal": journal_schema,
        "signatures": rule_schema,
        "boundary": boundary_schema,
    }
    print(json.dumps(schemas[parsed.what](), indent=2))
    return 0


def _explain(parsed: argparse.Namespace) -> int:
    from pytest_hetgpu.cli.explain.command import run

    files = {"added": parsed.knowledge, "signatures": parsed.signatures}
    return run(parsed.logs, json=parsed.json, print_line=_print, **files)


def _report(parsed: argparse.Namespace) -> int:
    from pytest_hetgpu.cli.report import rejudge
    from pytest_hetgpu.store.history_place import parse_place

    history = parse_place(parsed.history, "--history") if parsed.history else None
    how = {"signatures": parsed.signatures, "anonymous": parsed.anonymise}
    for line in rejudge(parsed.folder, parsed.knowledge, history, **how):
        _print(line)
    return 0


def _bundle(parsed: argparse.Namespace) -> int:
    from pytest_hetgpu.reporting.upstream.bundle import write_bundle

    made = write_bundle(parsed.folder, parsed.wanted, parsed.output)
    _print(made.title)
    for path in made.files:
        _print(f"  {path}  ({path.stat().st_size / 1e6:.2f} MB)")
    if made.project.tracker:
        _print(f"issue.md in it is in the form of {made.project.name}: {made.project.tracker}")
    return 0


def _boundary(parsed: argparse.Namespace) -> int:
    from pytest_hetgpu.cli.boundary import boundary

    for line in boundary(parsed.folders):
        _print(line)
    return 0


def _compare(parsed: argparse.Namespace) -> int:
    from pytest_hetgpu.cli.compare import CompareOptions, run, run_places

    where = run_places(parsed.reports, parsed.history, os.environ)
    return run(parsed.before, parsed.after, where, CompareOptions(parsed.tolerance, parsed.common, parsed.json), _print)


def _merge(parsed: argparse.Namespace) -> int:
    from pytest_hetgpu.cli.merge import MergeOptions, run

    return run(parsed.runs, MergeOptions(parsed.output, parsed.force), _print)


def _history(parsed: argparse.Namespace) -> int:
    from pytest_hetgpu.cli.compare import run_places
    from pytest_hetgpu.cli.history import HistoryOptions, run

    where = run_places(parsed.reports, parsed.history, os.environ)
    return run(where.history, HistoryOptions(parsed.last, parsed.html), _print)


def _init(parsed: argparse.Namespace) -> int:
    from pytest_hetgpu.cli.init.command import InitOptions, run

    options = InitOptions(parsed.folder, parsed.program, parsed.hosts, parsed.yes, parsed.force)
    asking = sys.stdin.isatty() and sys.stdout.isatty()
    return run(options, _print, input if asking else None)


def _doctor(parsed: argparse.Namespace) -> int:
    from pytest_hetgpu.cli.doctor import run

    return run(parsed.inventory, parsed.json, _print, parsed.list)


def _clean(parsed: argparse.Namespace) -> int:
    from pytest_hetgpu.cli.clean import CleanOptions, run

    places = tuple(parsed.engine), tuple(parsed.inventory)
    options = CleanOptions(
        parsed.yes, parsed.json, *places, parsed.all_users, parsed.elsewhere, parsed.forget, tuple(parsed.runs)
    )
    asking = sys.stdin.isatty() and sys.stdout.isatty() and not parsed.json
    return run(options, _print, lambda line: _print(line, sys.stderr), input if asking else None)


def _completion(parsed: argparse.Namespace) -> int:
    from pytest_hetgpu.cli.completion import completion_script

    print(completion_script(_parser(), parsed.shell))
    return 0


def _comment(parsed: argparse.Namespace) -> int:
    from pytest_hetgpu.cli.publish.command import PublishOptions, comment

    options = PublishOptions(
        parsed.forge, parsed.repository, parsed.number, parsed.link, name=parsed.name, send=parsed.send
    )
    return comment(parsed.folder, options, os.environ, _print)


def _issues(parsed: argparse.Namespace) -> int:
    from pytest_hetgpu.cli.publish.command import PublishOptions, issues

    options = PublishOptions(parsed.forge, parsed.repository, link=parsed.link, most=parsed.most, send=parsed.send)
    return issues(parsed.folder, options, os.environ, _print)


def _print(text: str, stream: TextIO | None = None) -> None:
    """Print lines of a command. All of them pass here, but for schemas and scripts."""
    from pytest_hetgpu.store.text import printable

    print(printable(text), file=stream)
