"""Messages of programs that check their own results, about a failed check.

There is no upstream text; customary forms are matched. Numbers called got and expected are compared: `got 3.0, expected
3.0` is a check that passed.
"""

from __future__ import annotations

import enum
import math

from pytest_hetgpu.model.lazy_regex import lazy

_CHECKED = r"(?i:verification|validation|correctness|result check|data check|self[- ]?test|checksum)"
_BAD = r"(?i:failed|failure|incorrect|wrong|unsuccessful|mismatch)"
_THINGS = r"(?:elements?|values?|entries|entry|results?|bytes?|words?|numbers?|items?|cells?|points?|answers?)"
_WRONG = r"(?:wrong|bad|incorrect|invalid|corrupt(?:ed)?|mismatch(?:ed|ing)|differing|erroneous)"
_DATA = (
    rf"(?:{_THINGS}|(?:check|control )?sums?|hash(?:es)?|data|solutions?|outputs?|buffers?|arrays?|md5|fields?|totals?)"
)
_BEYOND = r"(?:out of|outside(?: of)?|not within|exceeds?)"
_REFERENCE = r"(?:reference|manifest|expected|baseline|golden)"
_SAYS = r"(?:INCORRECT|WRONG|INVALID|MISMATCH|NOT OK|NOT CORRECT|NOT PASS(?:ED)?|FAIL(?:ED|URE|S)?|BAD|ERRONEOUS)"
_NUMBER = r"[-+]?(?:\d[\d.,]*(?:[eE][-+]?\d+)?|\.\d+|nan|inf)(?![\w.]*\w)"
_IS = r"(?:value |result |sum |total )?(?:is |was |of |=|:)? ?"


class CheckMessage(enum.Enum):
    """Scope of a line about a failed check: the whole check, or one wrong element."""

    VERDICT = enum.auto()
    ELEMENT = enum.auto()


_VERDICTS = lazy(
    "|".join(
        (
            rf"\b{_CHECKED}\b[^\n]{{0,80}}?\b{_BAD}\b",
            rf"\b{_BAD} {_CHECKED}\b",
            rf"\b[1-9]\d* (?:\w+ )?{_WRONG} {_THINGS}\b",
            rf"\b{_THINGS} (?:are |is |was |were )?(?:wrong|incorrect)\b",
            r"\b[Rr]esults? (?:differ|mismatch)|(?:WRONG|INCORRECT|INVALID) (?:RESULT|ANSWER)S?\b",
            r"\b(?:wrong|incorrect|[Ii]nvalid) (?:result|answer)s?\b(?!.{0,20}(?:type|handle|format|code))",
            r"\b[Dd]ata corruption\b|\bNOT CONSERVED\b|\bnot conserved\b",
            rf"\b(?i:(?:{_THINGS}|errors?|differences?|residuals?) (?:is |are )?{_BEYOND} (?:the |its )?tolerance)\b",
            rf"\b(?i:{_DATA}(?: of \S{{1,80}})? differs? from (?:the |its )?(?:\w+ )?{_REFERENCE})\b",
            r"\b(?i:replicas|copies|checksums|weights|parameters) (?:have |had |are )?(?:diverged|disagree)\b",
            rf"\b(?i:{_DATA} (?:[a-z]+ ){{0,5}}?(?:do(?:es)? not|don't|doesn't|did not|didn't) (?:match|agree))\b",
            rf"(?i:\b(?:results?|answers?|solution|verdict)\s?(?::|=|->|is|are)\s{{0,3}}{_SAYS}(?=\W*$|\s?[(,;:!-]))",
            # nvidia's samples and mini-apps
            r"\b(?:[Rr]un|[Vv]alidation|[Vv]erification)\b \W{0,5}FAILED\b|^\W{0,4}FAILED validation",
            r"\bNOT PASS(?:ED)?\b|\b(?:check|test)s? (?:did not|didn't|not) pass(?:ed)?\b",
            # A number before a verb in the singular names the thing, but for one.
            r"(?<![\w.:-])[1-9]\d* (?:[a-z]+ ){0,3}?(?:differ(?:ed)?|mismatch(?:es|ed)|DIFFER|MISMATCHES)\b",
            r"(?<![\w.:-])(?<!\w )1 (?:[a-z]+ ){1,3}?differs\b|(?<![\w.:-])(?<!\w )1 mismatch\b",
            r"(?i:\b(?:mismatch(?:es)?|differences|(?:wrong|bad|differing) [a-z]+)\s?[:=]\s{0,3}[1-9]\d*\b(?![.\d]))",
        )
    )
)
_ELEMENTS = lazy(
    "|".join(
        (
            r"(?i:\bmismatch) (?:at|in) (?:\w+ )?(?:index|element|position|offset|entry|rank|i ?=|\[?\d)",
            r"(?:[:>=-]|^) ?\W{0,3}(?:MISMATCH|INCORRECT|WRONG)\W*$",
            r"(?i:\b(?:check|verif\w{2,8}|validat\w{2,4}|got|expected)\b).{1,200} (?:MISMATCH|INCORRECT|WRONG)\W*$",
        )
    )
)
_GOT = (
    r"(?:(?i:got|gave|found|received|actual(?:ly)?|obtained|computed|returned)|(?P<plain>(?i:have|had|has|was|is)|=))"
)
_WANTED = r"(?i:expected|should (?:be|have been)|instead of|correct(?: value)?|reference|must be|wanted)"
# Without these, `threads = 4, expected 8` is a setting.
_STRESSED = lazy(r"(?i:mismatch|wrong|error|fail|\bbad\b|incorrect|invalid|corrupt|differ)|!\s*$")
_CLOSE = 1e-6
_COMPARED = (
    lazy(
        rf"\b(?i:expected):? ?{_IS}(?P<wanted>{_NUMBER}),?;? (?:but )?{_GOT}:? ?{_IS}(?P<got>{_NUMBER})",
    ),
    lazy(rf"(?:\b|(?==)){_GOT}:? ?{_IS}(?P<got>{_NUMBER}),?;? \(?(?:but )?{_WANTED}:? ?{_IS}(?P<wanted>{_NUMBER})"),
)

# Verifications of something else than data, and verdicts that nothing failed.
NOT_DATA = lazy(
    r"certificate|[Hh]ost key|\bSSL|\bTLS|[Tt]oken|[Ss]ignature|[Ss]chema|[Cc]onfig|[Ll]icen[cs]e|[Pp]assword"
    r"|\bUCX\b|\bUCC\b|\b[Pp]ackage|[Dd]ownload|https?:|\bNCCL (?:INFO|WARN)|^libfabric:|\bbtl\b|--[a-z]|^\s*#\s"
    r"|^\w{1,80}\(\d*\)\.*: "  # a line of MPICH's error stack
    r"|^[\w.]*(?:Error|Exception): |(?<![Rr]ank )\b0 (?:\w+ )?(?:wrong|bad|incorrect|invalid|corrupt|mism|fail|err)"
    r"|(?<![Rr]ank )\b0 (?:\w+ )?differ"
    r"|(?i:\bno (?:mismatch|wrong|failure|error|differ))"
    r"|(?:FAIL(?:ED|URES?)?|[Ff]ailed|[Ff]ailures)\s*[:=]\s*0\b|_ratio|Verification failed: \("
    r"|[Vv]alidation (?:loss|acc|set|step|metric|perpl)|(?<!NOT )(?<!not )\b(?:OK|PASS(?:ED)?|CORRECT)\W*$"
    r"|\b(?:if|when|should(?! (?:be|have been):? ?[-+.\d])|may|whether)\b|[Vv]ersions?\b|\bof \d+ (?:tests|checks) pass"
)


def check_message(text: str) -> CheckMessage | None:
    """Return the scope of a line about a failed check; None for a check that passed, and for other lines."""
    if NOT_DATA.search(text):
        return None
    if _VERDICTS.search(text):
        return CheckMessage.VERDICT
    compared = next(filter(None, (form.search(text) for form in _COMPARED)), None)
    if compared is None:
        return CheckMessage.ELEMENT if _ELEMENTS.search(text) else None
    stressed = _STRESSED.search(text)
    if (compared["plain"] and not stressed) or _equal(compared["got"], compared["wanted"], bool(stressed)):
        return None
    return CheckMessage.ELEMENT


def _equal(got: str, wanted: str, exactly: bool) -> bool:
    """Return whether two numbers are equal, or nearly; other text is compared literally."""
    try:
        numbers = [float(said.rstrip(".,").replace(",", "")) for said in (got, wanted)]
    except ValueError:
        return got.rstrip(".,") == wanted.rstrip(".,")
    return numbers[0] == numbers[1] or (not exactly and math.isclose(*numbers, rel_tol=_CLOSE))
