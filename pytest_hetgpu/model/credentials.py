"""Variables that give access to something, found by their names and by passwords in URLs. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from pytest_hetgpu.model.lazy_regex import lazy

LOCATION_NAME = re.compile(
    r"(?i)_(?:FILE|PATH|DIR|SOCK|SOCKET|URL|URI|HOST|USER|USERNAME|TYPE|HELPER|METHOD|ALGORITHM|MODE)$"
)
URL_PASSWORD = re.compile(r"://[^\s/:@'\"]*:([^\s/'\"]+)@")

_SECRET_NAME = lazy(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|_PWD$|(?:^|_)(?:PASS|AUTH|CREDS|PAT|COOKIES?)$|(?:^|_|BIND|ROOT)PW$"
    r"|(?:^|_)JWT(?:_V\d)?$"
)
# Harmless settings of UCX, NCCL, PMIx and Hugging Face: partition keys, memory keys, counts, switches.
_HARMLESS = lazy(
    r"(?:IB|OPENIB)_PKEY|(?:^|_)[A-Z]?[LMR]KEY(?=_|$)|KEYVAL|KEYMAP|KEYBOARD|^PMIX_KEY|TOKENIZERS?(?=_|$)"
    r"|(?:MAX|MIN|NEW|NUM)_TOKENS"
)
# They open something though neither name nor value is secret: an ssh agent signs for each process that reaches its
# socket. git gets the header of a login in a numbered variable, and fails if it gets only some of the others.
_OPENS = lazy(
    r"^(?:HETGPU_HISTORY|SSH_AUTH_SOCK|AWS_CONTAINER_CREDENTIALS_\w+|GIT_CONFIG_(?:COUNT|PARAMETERS|VALUE_\d+))$"
    r"|_AUTH_CONFIG$|_DSN$|CONNECTION_STRING$"
)
_SWITCHES = ("", "0", "1", "false", "no", "off", "on", "true", "yes")


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Return whether a variable of this name holds a secret, judged by the name alone."""
    return _SECRET_NAME.search(_HARMLESS.sub("", name.upper())) is not None


def is_credential(name: str, value: str) -> bool:
    """Return whether a variable gives access to something: a token of CI, a password, an ssh agent.

    The path of a file with a credential is none, and neither is a switch.
    """
    if _opens(name) or ("://" in value and URL_PASSWORD.search(value)):
        return True
    return is_secret_name(name) and not LOCATION_NAME.search(name) and value.lower() not in _SWITCHES


def without_credentials(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that programs under test inherit. A matrix gives them others by `env`."""
    return {name: value for name, value in environ.items() if not is_credential(name, value)}


@lru_cache(maxsize=1024)
def _opens(name: str) -> bool:
    return _OPENS.search(name.upper()) is not None
