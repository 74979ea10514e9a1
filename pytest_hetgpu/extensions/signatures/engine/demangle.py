"""Readable names: C++ symbols without their types, programs without the suffix of their MPI.

Only the qualified name of a mangled symbol is needed. So only that part of the grammar is parsed, in one pass over at
most `LONGEST` characters. Existing demanglers were rejected:

- cxxfilt: native code (libstdc++) that crashed on made-up symbols.
- symbolic: 78 MB.
- cpp-demangle: no types, and no wheels for ARM.
- itanium-demangler: recursive, and without a release for years.
"""

from __future__ import annotations

import re

from pytest_hetgpu.model.lazy_regex import lazy

LONGEST = 2000
_LONGEST_NAME = 200
_MOST_PARTS = 40

_NUMBER = lazy(r"\d+")
# Arrays and vectors: `A16_c`, `Dv4_f`.
_SIZED = lazy(r"(?:A|Dv)\d+_")
_RUST_HASH = lazy(r"h[0-9a-f]{16}")
_CLONE = lazy(r"(?:\.(?:part|isra|constprop|cold|lto_priv|localalias|llvm|clone)(?:\.\w+)*|\s\[clone [^\[\]]*\])+$")
_ABI = lazy(r"\[(?:abi:)?\w+\]")

# https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling: substitutions, and the operators.
_STANDARD = {"St": "std", "Sa": "std::allocator", "Sb": "std::basic_string", "Ss": "std::string",
             "Si": "std::istream", "So": "std::ostream", "Sd": "std::iostream"}  # fmt: skip
_OPERATORS = {
    "nw": " new", "na": " new[]", "dl": " delete", "da": " delete[]", "co": "~", "pl": "+", "mi": "-", "ml": "*",
    "dv": "/", "rm": "%", "an": "&", "or": "|", "eo": "^", "aS": "=", "pL": "+=", "mI": "-=", "mL": "*=", "dV": "/=",
    "rM": "%=", "aN": "&=", "oR": "|=", "eO": "^=", "ls": "<<", "rs": ">>", "lS": "<<=", "rS": ">>=", "eq": "==",
    "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">=", "ss": "<=>", "nt": "!", "aa": "&&", "oo": "||",
    "pp": "++", "mm": "--", "cm": ",", "pm": "->*", "pt": "->", "cl": "()", "ix": "[]", "qu": "?", "ps": "+",
    "ng": "-", "ad": "&", "de": "*",
}  # fmt: skip
_OPENERS = frozenset("NIXJFZ")
_THUNK = lazy(r"_{1,2}Z(?:T(?:h|v\d*_?)n?\d+_(?:n?\d+_)?|GTt|TH|TW)?(?=.)")


class _Unreadable(Exception):
    """A symbol that is cut off, or that uses unsupported grammar."""


class _Symbol:
    """A mangled symbol and how far it was read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0

    def peek(self, count: int = 1) -> str:
        return self.text[self.at : self.at + count]

    def skip(self, count: int = 1) -> str:
        taken = self.peek(count)
        if len(taken) < count:
            raise _Unreadable
        self.at += count
        return taken

    def _deeper(self) -> None:
        """Count the calls that may nest; a real symbol needs few."""
        self.depth += 1
        if self.depth > _MOST_PARTS:
            raise _Unreadable

    def source_name(self) -> str:
        found = _NUMBER.match(self.text, self.at)
        if not found or len(found[0]) > 4:
            raise _Unreadable
        self.at = found.end()
        return self.skip(int(found[0]))

    def encoding(self) -> str:
        """Parse the name that a symbol or a local scope begins with: nested, local or plain."""
        self._deeper()
        first = self.peek()
        if first == "N":
            self.skip()
            while self.peek() and self.peek() in "rVKRO":
                self.skip()
            return self._parts("E")
        if first == "Z":
            return self._local()
        if first == "L":
            self.skip()
        return self._parts("")

    def _local(self) -> str:
        """Parse `Z <function> E <name>`: a local definition has the function's name, too."""
        self.skip()
        outer = self.encoding()
        self.types()
        if self.peek() == "s":
            return outer
        inner = self.encoding()
        return f"{outer}::{inner}" if inner else outer

    def _parts(self, end: str) -> str:
        parts: list[str] = []
        while len(parts) < _MOST_PARTS:
            if end and self.peek() == end:
                self.skip()
                break
            if self.peek(2) == "cv":
                self.skip(2)
                self.types()
                parts.append("operator")
                break
            part = self._part(parts)
            if part:
                parts.append(part)
            if not end and part != "std" and self.peek() not in ("I", "B"):
                break
        if not parts:
            raise _Unreadable
        return "::".join(parts)

    def _part(self, parts: list[str]) -> str:  # noqa: PLR0911
        """Parse one component; return "" for those without a name, such as template arguments."""
        first, two = self.peek(), self.peek(2)
        if first.isdigit():
            name = self.source_name()
            return "(anonymous namespace)" if name.startswith("_GLOBAL_") else name
        if first == "I":
            self.skip()
            self.types()
            return ""
        if two in _STANDARD:
            return _STANDARD[self.skip(2)]
        if two in ("C1", "C2", "C3", "C4", "C5", "CI") and parts:
            self.skip(2)
            return parts[-1].rpartition("::")[2]
        if two in ("D0", "D1", "D2", "D4", "D5") and parts:
            self.skip(2)
            return "~" + parts[-1].rpartition("::")[2]
        if first == "L":
            self.skip()
            return ""
        if first == "B":
            self.skip()
            self.source_name()
            return ""
        if two in ("Ul", "Ut"):
            return self._unnamed()
        if two in _OPERATORS:
            return "operator" + _OPERATORS[self.skip(2)]
        raise _Unreadable

    def _unnamed(self) -> str:
        """Parse `Ul <types> E [number] _`, a lambda, or `Ut [number] _`, a type without a name."""
        is_lambda = self.skip(2) == "Ul"
        if is_lambda:
            self.types()
        while self.peek().isdigit():
            self.skip()
        self.skip()
        return "{lambda}" if is_lambda else "{unnamed}"

    def types(self) -> None:
        """Skip types, expressions and template arguments up to the `E` that ends them."""
        self._deeper()
        inside = [""]
        while inside:
            first, two = self.peek(), self.peek(2)
            if first == "E":
                inside.pop()
                self.skip()
            elif first.isdigit():
                self.source_name()
            elif sized := _SIZED.match(self.text, self.at):
                self.at = sized.end()
            elif two in ("DT", "Dt", "Ul", "sp") or two in _STANDARD:
                inside += ["D"] if two in ("DT", "Dt", "Ul") else []
                self.skip(2)
            elif first == "L":
                self._literal(inside)
            elif first in ("S", "T"):
                self._reference()
            else:
                inside += [first] if first in _OPENERS else []
                self.skip()

    def _literal(self, inside: list[str]) -> None:
        """Skip `L <type> <value> E` and `L_Z <encoding> E`."""
        self.skip()
        if self.peek(2) == "_Z":
            self.skip(2)
            inside.append("L")
            return
        kind = self.peek()
        if kind == "N":
            self.skip()
            self.types()
        elif kind == "S":
            self._reference()
        elif kind.isdigit():
            self.source_name()
        else:
            self.skip()
        end = self.text.find("E", self.at)
        if end < 0:
            raise _Unreadable
        self.at = end + 1

    def _reference(self) -> None:
        """Skip `S_`, `S1A_`, `T_`, `T0_`; `Ts`, `Tu` and `Te` elaborate a type."""
        self.skip()
        if self.peek() and self.peek() in "sue":
            self.skip()
            return
        while self.peek().isdigit() or self.peek().isupper():
            self.skip()
        if self.peek() != "_":
            raise _Unreadable
        self.skip()


def function_name(symbol: str) -> str:
    """Return a function's qualified name, `c10d::ProcessGroupMPI::send`, from a mangled symbol or a full signature.

    A name that cannot be parsed is returned unchanged, cut to 200 characters.

    >>> function_name("_ZN4c10d15ProcessGroupMPI4sendERSt6vectorIN2at6TensorESaIS3_EEii")
    'c10d::ProcessGroupMPI::send'
    >>> function_name("void app::check<int>(int, std::vector<int> const&) [with T = int]")
    'app::check'
    """
    plain = _CLONE.sub("", symbol.strip()[:LONGEST])
    if found := _THUNK.match(plain):
        try:
            parts = _Symbol(plain[found.end() :]).encoding()
            plain = parts.rpartition("::")[0] if _RUST_HASH.fullmatch(parts.rpartition("::")[2]) else parts
        except _Unreadable:
            pass
    elif re.search(r"[(<\s]", plain):
        plain = _undeclared(plain)
    return plain[:_LONGEST_NAME]


def _undeclared(declared: str) -> str:
    """Return a declaration's qualified name: no return type, template arguments or parameters."""
    text = _ABI.sub("", declared.partition(" [with ")[0]).replace("(anonymous namespace)", "{anonymous}")
    kept, depth = [], 0
    operator = re.search(r"operator\s*(\(\)|<=>|<<=?|>>=?|->\*?|[<>]=?|[^\w\s(]{1,3})\s*(?=\(|<|$)", text)
    end = operator.end() if operator else 0
    for at, letter in enumerate(text):
        if at >= end and letter == "<":
            depth += 1
        elif at >= end and letter == ">" and depth:
            depth -= 1
        elif at >= end and letter == "(" and not depth:
            break
        elif not depth:
            kept.append(letter)
    words = "".join(kept).split()
    name = words[-1] if words else declared
    if operator and "operator" in words[-2:-1]:
        name = "operator" + name
    return name.lstrip("*&").replace("{anonymous}", "(anonymous namespace)") or declared


_BUILT_FOR = lazy(
    r"(?<=[\w+])[._-](?:o[45]|(?:open-?mpi|ompi|mpich|impi|intel-?mpi|mvapich2?|mvp)[\d.]*)$", re.IGNORECASE
)


def program_name(name: str) -> str:
    """Return a program's name without the suffix of the MPI it was built for; libraries keep theirs.

    >>> [program_name(name) for name in ("heat2d_o5", "app_mpich", "osu_bw.ompi5", "libx_mpich.so.1", "mpich")]
    ['heat2d', 'app', 'osu_bw', 'libx_mpich.so.1', 'mpich']
    """
    return name if ".so" in name else _BUILT_FOR.sub("", name)
