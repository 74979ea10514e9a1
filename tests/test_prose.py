"""Prose is plain: short sentences, no odd openers, no private vocabulary. Add a path to CHECKED to check more files."""

from __future__ import annotations

import ast
import itertools
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

markdown_it = pytest.importorskip("markdown_it")

ROOT = Path(__file__).resolve().parent.parent
#: Globs below the repository: Markdown is checked by paragraph, Python by docstring.
CHECKED = (
    *("README.md", "docs/**/*.md", "tests/test_prose.py", "tests/document_blocks.py", "tests/test_document_*.py"),
    "pytest_hetgpu/**/*.py",
)
#: No sentence has more words. A share of SHARE may have more than GOAL words.
LIMIT, GOAL, SHARE = 26, 20, 0.03
OPENERS = ("What", "Who", "Whoever", "Where", "Which", "Of")
#: Verbs that software does not do. A file that is called `hears` may still be named as code.
VERBS = (
    *("say", "says", "said", "tell", "tells", "told", "hear", "hears", "heard", "knows", "knew"),
    *("fear", "fears", "feared", "owe", "owes", "owed", "forgive", "forgives", "forgiven"),
    *("stands", "stood", "goes", "went", "gone", "believes", "believed", "blames", "blamed"),
)
#: Nouns of the private vocabulary.
NOUNS = (
    *("room", "rooms", "house", "door", "doors", "guardian", "guardians", "reaper", "fate", "fates"),
    *("dialect", "dialects", "sighting", "berth", "leavings", "somebody", "nobody", "everybody"),
)
PHRASES = (
    r"\b(of|to) (ours|yours|theirs|one's own)\b",
    r"\b(Slurm|Kubernetes|Docker|RunAI|Volcano|PyTorch|UCX|NCCL|RCCL|MPICH|Open MPI|Python|Linux|MPI|ssh|AWS)'s\b",
    r"\b(a|one|per) (line|case|page|event|file|node) a (cell|case|run|page|event|file|node)\b",
)
DENIED = re.compile("|".join((rf"\b({'|'.join((*VERBS, *NOUNS))})\b", *PHRASES)), re.IGNORECASE)
#: An inline code span counts as one word, and none of its words is checked.
CODE = "`code`"
#: Before a list item, a table row, or an entry `    name: text` of a section like `Raises:`; its name is no prose.
ENTRY = re.compile(r"\n(?=\|)|\n *- |\n    [\w.]+: ")
SENTENCE = re.compile(r"(?<=[.!?])[)\"*]*\s+(?=[\"(*]*[A-Z0-9`])")


class Sentence(NamedTuple):
    """One sentence and its place, `FILE:LINE`."""

    place: str
    text: str

    @property
    def words(self) -> int:
        """Count its words; dashes and signs are none."""
        return sum(bool(re.search(r"\w", word)) for word in self.text.split())


def paragraphs(path: Path, *openers: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs and list items of a Markdown file, or its texts after these tokens; no code blocks."""
    tokens = markdown_it.MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8"))
    for before, token in itertools.pairwise(tokens):
        if token.type == "inline" and before.type in (openers or ("paragraph_open",)):
            pieces = [
                CODE if child.type == "code_inline" else " " if child.type == "softbreak" else child.content
                for child in token.children or ()
                if child.type != "image"
            ]
            yield token.map[0] + 1, "".join(pieces)


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs, list items and section entries of the docstrings of a Python file; no tables."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            for text in re.split(r"\n\s*\n", ast.get_docstring(node) or ""):
                if text and textwrap.dedent(text).strip() == text.strip():
                    for entry in ENTRY.split(text):
                        if not entry.startswith("|"):
                            yield getattr(node, "lineno", 1), " ".join(re.sub(r"`[^`]+`", CODE, entry).split())


READERS: dict[str, Callable[[Path], Iterator[tuple[int, str]]]] = {".md": paragraphs, ".py": docstrings}


def checked() -> dict[str, Path]:
    """Return the checked files by their name in the repository."""
    return {str(path.relative_to(ROOT)): path for glob in CHECKED for path in sorted(ROOT.glob(glob))}


def sentences(path: Path) -> Iterator[Sentence]:
    """Yield the sentences of a file."""
    for line, text in READERS[path.suffix](path):
        for sentence in SENTENCE.split(text):
            yield Sentence(f"{path.relative_to(ROOT)}:{line}", sentence.strip())


def complaints(sentence: Sentence) -> Iterator[str]:
    """Yield what is wrong with a sentence."""
    if sentence.text.startswith(tuple(f"{word} " for word in OPENERS)) and not sentence.text.endswith("?"):
        yield f"{sentence.place}: begins with {sentence.text.split()[0]}: {sentence.text}"
    if sentence.words > LIMIT:
        yield f"{sentence.place}: {sentence.words} words: {sentence.text}"
    yield from (f"{sentence.place}: {found[0]!r}: {sentence.text}" for found in DENIED.finditer(sentence.text))


@pytest.mark.parametrize("name", checked())
def test_prose_is_plain(name: str) -> None:
    assert [one for sentence in sentences(checked()[name]) for one in complaints(sentence)] == []


@pytest.mark.parametrize("name", [name for name in checked() if name.endswith(".md")])
def test_tables_and_headings_use_the_terms_of_the_field(name: str) -> None:
    texts = paragraphs(checked()[name], "td_open", "th_open", "heading_open")
    assert [(line, text) for line, text in texts if DENIED.search(text)] == []


def test_few_sentences_are_long() -> None:
    every = [sentence for path in checked().values() for sentence in sentences(path)]
    long = [sentence for sentence in every if sentence.words > GOAL]
    assert len(long) <= SHARE * len(every), "\n".join(f"{one.place}: {one.text}" for one in long)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Of two runs the newer counts.", "begins with Of"),
        ("Which node is it?", ""),
        ("The agent hears nothing.", "'hears'"),
        ("A flag of ours wins.", "'of ours'"),
        ("Set Slurm's limit.", '"Slurm\'s"'),
        ("pytest prints one line a cell.", "'one line a cell'"),
        ("word " * 31, "31 words"),
        ("pytest prints one line per finished cell.", ""),
    ],
)
def test_a_sentence_is_judged(text: str, found: str) -> None:
    (said,) = [*complaints(Sentence("x:1", text))] or [""]
    assert found in said
    assert bool(found) is bool(said)


def test_code_tables_and_headings_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("# What it says\n\nOne `told` word.\n\n| told | says |\n|---|---|\n| a | b |\n\n```sh\nsays\n```\n")
    assert [text for _, text in paragraphs(path)] == [f"One {CODE} word."]
