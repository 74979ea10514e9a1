"""The C library's text for an errno, and the failed operation that a program names: strerror(3), perror(3).

The texts are those of glibc's sysdeps/gnu/errlist.c and, for names, sysdeps/posix/gai_strerror.c; Rust's std prints
them with `(os error N)`, Go's syscall package begins them with a small letter.
"""

from __future__ import annotations

import re

from pytest_hetgpu.extensions.signatures.base import Priority
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

# Errors that programs wait out or ignore are left out: EINTR, EAGAIN, EINPROGRESS, EALREADY, EPIPE, and Success.
_ERRORS = (
    *("Operation not permitted", "No such file or directory", "No such process", "Input/output error"),
    *("No such device or address", "Argument list too long", "Bad file descriptor", "No child processes"),
    *("Permission denied", "Bad address", "Block device required", "Device or resource busy", "File exists"),
    *("Invalid cross-device link", "No such device", "Not a directory", "Is a directory", "Invalid argument"),
    *("Too many open files in system", "Too many open files", "Inappropriate ioctl for device", "Text file busy"),
    *("File too large", "Illegal seek", "Read-only file system", "Too many links"),
    *("Numerical argument out of domain", "Numerical result out of range", "Resource deadlock avoided"),
    *("File name too long", "No locks available", "Function not implemented", "Directory not empty"),
    *("Too many levels of symbolic links", "Identifier removed", "Protocol error", "Bad message"),
    *("Value too large for defined data type", "Invalid or incomplete multibyte or wide character"),
    *("Too many users", "Socket operation on non-socket", "Message too long", "Protocol not supported"),
    *("Operation not supported", "Address family not supported by protocol", "Address already in use"),
    *("Cannot assign requested address", "No buffer space available", "Stale file handle", "Remote I/O error"),
    *("Disk quota exceeded", "Operation canceled", "Owner died", "State not recoverable", "Key has expired"),
    *("Memory page has hardware error", "Exec format error", "Communication error on send"),
)
_MEMORY = ("Cannot allocate memory", "Out of memory")
_SHARED = "/dev/shm"  # noqa: S108 - a text that is looked for
_SPACE = "No space left on device"
_NETWORK = (
    *("Connection refused", "Connection timed out", "No route to host", "Network is unreachable", "Network is down"),
    *("Host is down", "Network dropped connection on reset", "Machine is not on the network"),
    *("Name or service not known", "Temporary failure in name resolution", "No such host"),
)
_PEER_GONE = (
    *("Connection reset by peer", "Software caused connection abort", "Transport endpoint is not connected"),
    "Cannot send after transport endpoint shutdown",
)
_NEAR_THE_END = 300
WORDS = (*_ERRORS, *_MEMORY, _SPACE, *_NETWORK, *_PEER_GONE)

_SAID = lazy(
    r"(?:: |\(|, |\] | - |errno[ =:]{0,3}\d{1,3} |\" ?)['\"(]?(?P<words>"
    + "|".join(f"[{word[0]}{word[0].lower()}]{re.escape(word[1:])}" for word in WORDS)
    + r")['\"]?(?: ?[\[(](?:(?:os error|errno|error|E?code)?[ =:]{0,3}-?\d{1,3}|E[A-Z]{2,15})[\])])?[)\]}!.]{0,3}\s*$"
)


def errno(text: str) -> tuple[str, str]:
    """Return the errno text that a line ends in, capitalized, and the text before it; empty for other lines."""
    found = _SAID.search(text, max(0, len(text) - _NEAR_THE_END))
    return (found["words"][0].upper() + found["words"][1:], text[: found.start()]) if found else ("", "")


def kind_of(words: str, text: str) -> tuple[Kind, Priority]:
    """Return kind and priority of a failure with this errno text, if a program gives up with `text`."""
    if words in _MEMORY or (words == _SPACE and _SHARED in text):
        return Kind.OUT_OF_MEMORY, Priority.RELAYED
    if words in _NETWORK:
        return Kind.NETWORK_FAILURE, Priority.RELAYED
    if words in _PEER_GONE:
        return Kind.NETWORK_FAILURE, Priority.SYMPTOM
    return Kind.ERROR, Priority.RELAYED
