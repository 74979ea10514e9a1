"""Complaints of programs about their number of ranks: `wanted 4 ranks, the world has 2`.

There is no upstream text; customary forms are matched, and only if both numbers stand in the line.
"""

from __future__ import annotations

import re

from pytest_hetgpu.model.lazy_regex import lazy

_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "sixteen": 16}
_NUMBER = rf"(?:\d{{1,7}}|{'|'.join(_NUMBERS)})"
_UNIT = r"(?:MPI[ -])?(?:ranks?|process(?:es|ors)?|procs?|tasks?|PEs?|images|workers)"
_SIZE = rf"(?:world(?:[ _]?size)?|comm(?:unicator)?[ _]size|n(?:procs|ranks|tasks|pes)|(?:number of|num_?) ?{_UNIT})"
_WANT = (
    r"(?:want(?:ed|s)?|expect(?:ed|s|ing)?|need(?:ed|s)?|asked for|request(?:ed|s)|requir(?:ed?|es)|should (?:be|have)"
    r"|must (?:be )?(?:run|have|use|started|launched)"
    r"|(?:meant|intended|built|configured|compiled|designed|written) for)"
)
_HAVE = lazy(
    r"\b(?:got|has|have|had|found|is|are|was|were|but|only|given|gave|started|launched|received|actual(?:ly)?|not|instead"
    r"|using|used|run(?:ning)?|there)\b|!="
)
_FEW = lazy(r"\bat least\b|\bminimum\b|\bor more\b|>=")
_MANY = lazy(r"\bat most\b|\bmaximum\b|\bor (?:less|fewer)\b|\bup to\b|<=")
_FORMS = (
    # expected 4 ranks, got 2; requires exactly 4 MPI processes but only 2 were started; wants world size 4, has 2
    lazy(
        rf"\b{_WANT}\b(?:\D(?<![.;])){{0,40}}?(?:\b(?P<want>{_NUMBER}) (?:[a-z]+ )?{_UNIT}"
        rf"|\b{_SIZE}(?: of| to be|)[ :=]{{1,3}}(?P<wanted>{_NUMBER}))\b(?P<gap>\D{{1,60}}?)\b(?P<have>{_NUMBER})\b",
        re.IGNORECASE,
    ),
    # running on 2 ranks, expected 4; world size is 2 but 4 expected; number of processes (2) must be 4
    lazy(
        rf"(?:\b(?P<have>{_NUMBER}) {_UNIT}|\b{_SIZE}\b(?: is| of| was)?[ :=(]{{1,3}}(?P<had>{_NUMBER}))\b"
        rf"(?P<gap>\D{{1,60}}?)\b(?P<want>{_NUMBER})\b(?P<after>.{{0,40}})",
        re.IGNORECASE,
    ),
)
_WANTED = lazy(rf"\b(?:{_WANT}|must be)\b", re.IGNORECASE)
_AFTER = lazy(
    rf"^ (?:{_UNIT} )?(?:(?:were|was|are|is) )?(?:expected|needed|required|requested|wanted)\b", re.IGNORECASE
)


def wrong_world_size(text: str) -> tuple[int, int] | None:
    """Return the required and the actual number of ranks, if a line complains that these differ; else None."""
    if not _WANTED.search(text):
        return None
    for form in _FORMS:
        found = form.search(text)
        if found is None:
            continue
        said, gap = found.groupdict(), found["gap"]
        fits = _HAVE.search(gap) if "wanted" in said else _WANTED.search(gap) or _AFTER.match(said["after"] or "")
        want, have = _number(said["want"] or said.get("wanted")), _number(said["have"] or said.get("had"))
        if fits and not _enough(text, want, have):
            return want, have
    return None


def _number(said: str | None) -> int:
    word = (said or "0").lower()
    return _NUMBERS.get(word) or int(word)


def _enough(text: str, want: int, have: int) -> bool:
    return want == have or bool((have > want and _FEW.search(text)) or (have < want and _MANY.search(text)))
