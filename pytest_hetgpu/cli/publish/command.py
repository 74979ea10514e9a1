"""`hetgpu comment` and `hetgpu issues`: print what would be sent, or send it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from pytest_hetgpu.cli.publish.destination import Destination, choose, ci_link
from pytest_hetgpu.cli.publish.forge import Forge, Post, Thread
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.reporting.posts.comment import CommentText, check_link, render_comment
from pytest_hetgpu.reporting.posts.issues import IssueText, issue_texts
from pytest_hetgpu.reporting.posts.markup import has_marker
from pytest_hetgpu.store.cells import RunRecord, read_run
from pytest_hetgpu.store.files import refuse_links
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.redaction.anonymity import anonymised, is_anonymous
from pytest_hetgpu.store.redaction.redact import register_secrets

Print = Callable[[str], object]
_DRY = "dry run: nothing was sent; --send sends it"


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """The options of both commands; "" and 0 are taken from the variables of CI."""

    forge: str = ""
    repository: str = ""
    number: int = 0
    link: str = ""
    name: str = ""
    most: int = 10
    send: bool = False


def comment(run: Path, options: PublishOptions, environ: Mapping[str, str], print_line: Print) -> int:
    """Print or send the comment on a pull request. Return 0. Raise UsageError or ForgeError."""
    register_secrets(environ)
    place = choose(options.forge, options.repository, options.number, environ)
    link = _link(options, environ)
    with _stored(run) as record:
        made = render_comment(run, record, place.forge.longest, name=options.name, link=link)
    if not options.send:
        number = place.number or "N (--pull-request)"
        print_line(_DRY)
        print_line(f"to: pull request {number} of {_describe(place)}; an earlier comment is replaced")
        print_line(made.body)
        return 0
    forge = place.connect(environ)
    if not place.number:
        raise UsageError("--send needs --pull-request N, as this is no CI job of a pull request")
    print_line(_send_comment(forge, Thread("request", place.number), made))
    return 0


def _send_comment(forge: Forge, thread: Thread, made: CommentText) -> str:
    earlier = _find(forge.comments(thread), forge.author(), made.marker)
    if earlier:
        return f"replaced the comment {forge.edit_comment(thread, earlier.number, made.body).url}"
    if not made.news:
        return "nothing is new, and there is no comment to replace: nothing was sent"
    return f"added the comment {forge.add_comment(thread, made.body).url}"


def issues(run: Path, options: PublishOptions, environ: Mapping[str, str], print_line: Print) -> int:
    """Print or send the issues of new failures. Return 0. Raise UsageError or ForgeError."""
    register_secrets(environ)
    place = choose(options.forge, options.repository, 0, environ)
    link = _link(options, environ)
    if options.most < 1:
        raise UsageError(f"--most: {options.most} is less than 1")
    with _stored(run) as record:
        made = list(issue_texts(run, record, place.forge.longest, link))
        unsigned = sum(cell.outcome.verdict.value in ("new", "changed") for cell in record.cells) - sum(
            one.cells for one in made
        )
    if unsigned:
        print_line(f"{unsigned} new or changed failure{'s' * (unsigned != 1)} without a signature: no issue")
    if not made:
        print_line("no new failure has a signature: there is nothing to send")
    elif options.send:
        _send_issues(place.connect(environ), made, options.most, print_line)
    else:
        print_line(_DRY)
        for one in made:
            print_line(f"\nto: {_describe(place)}; an open issue with this signature gets a comment\n{one.title}\n")
            print_line(f"{one.body}\n\nthe comment:\n\n{one.again}")
    return 0


def _send_issues(forge: Forge, made: list[IssueText], most: int, print_line: Print) -> None:
    author = forge.author()
    present = [post for post in forge.open_issues() if post.author == author]
    opened = 0
    for one in made:
        issue = _find(iter(present), author, one.marker)
        if issue:
            print_line(_comment_again(forge, author, issue, one))
        elif opened < most:
            print_line(f"opened {forge.open_issue(one.title, one.body).url} ({one.key})")
            opened += 1
        else:
            print_line(f"not opened, as --most is {most}: {one.title} ({one.key})")


def _comment_again(forge: Forge, author: str, issue: Post, one: IssueText) -> str:
    thread = Thread("issue", issue.number)
    opened_by_it = has_marker(issue.body, one.run_marker, line=1)
    if opened_by_it or _find(forge.comments(thread), author, one.run_marker):
        return f"already has this run: {issue.url} ({one.key})"
    return f"commented on {issue.url}: {forge.add_comment(thread, one.again).url} ({one.key})"


def _find(posts: Iterator[Post], author: str, marker: str) -> Post | None:
    """Return the user's own post with a marker. Others may have copied it."""
    return next((post for post in posts if post.author == author and has_marker(post.body, marker)), None)


@contextmanager
def _stored(run: Path) -> Iterator[RunRecord]:
    """Read a run; replace names inside the context if its reports are anonymous."""
    refuse_links(run)
    record = read_run(run)
    with anonymised(record, RunFolder(run)) if is_anonymous(run) else nullcontext():
        yield record


def _link(options: PublishOptions, environ: Mapping[str, str]) -> str:
    """Return the address of the run in CI; ignore a variable that holds none."""
    if options.link:
        return check_link(options.link)
    try:
        return check_link(ci_link(environ))
    except UsageError:
        return ""


def _describe(place: Destination) -> str:
    return f"{place.repository or 'OWNER/NAME (--repository)'} at {place.api}"
