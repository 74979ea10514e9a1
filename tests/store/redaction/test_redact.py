"""No secret reaches a report, and harmless text that resembles one stays readable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.model.credentials import is_secret_name
from pytest_hetgpu.store.redaction import redact as redaction
from pytest_hetgpu.store.redaction.redact import (
    clear_secrets,
    redact,
    redact_argv,
    redact_env,
    redact_json,
    register_secrets,
)
from pytest_hetgpu.store.redaction.rules import REDACTED

# Put together here, so that no scanner takes this file for a leak.
AWS_ID = "AKIA" + "IOSFODNN7EXAMPLE"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG" + "/bPxRfiCYEXAMPLEKEY"
GITHUB = "ghp_" + "a1B2" * 9
GITLAB = "glpat-" + "x" * 20
HUGGING = "hf_" + "abcDEF12" * 4
SLACK = "xoxb-" + "123456789012-abcdef"
JWT = "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxIn0." + "sflKxwRJSM"
BODY = "MIIEowIBAAKCAQEA7bq9\nq83vEjRWeJA=\n"
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}-----END RSA PRIVATE KEY-----"
OPENSSH = PEM.replace("RSA", "OPENSSH")

SECRETS = [
    (f"id {AWS_ID} used", AWS_ID, "used"),
    (f"AWS_SECRET_ACCESS_KEY={AWS_SECRET} next", AWS_SECRET, "next"),
    (f"aws_secret_access_key = {AWS_SECRET}", AWS_SECRET, "aws_secret_access_key"),
    (f"git clone https://x:{GITHUB}@github.com/a/b", GITHUB, "github.com/a/b"),
    (f"remote said {GITHUB}.", GITHUB, "remote said"),
    ("github_pat_" + "A1_" * 12 + " end", "A1_A1_", "end"),
    (f"token: {GITLAB}", GITLAB, "token:"),
    ("key sk-" + "proj-" + "Ab1" * 10 + " ok", "Ab1Ab1", "ok"),
    (f"huggingface {HUGGING} ok", HUGGING, "ok"),
    (f"slack {SLACK} ok", SLACK, "ok"),
    ("https://hooks.slack.com/services/T0/B0/abcdef x", "T0/B0", "hooks.slack.com"),
    ("pypi-" + "AgEIcHlwaS5vcmcCJ" * 2, "EIcHlwaS5", ""),
    (f"session {JWT} ok", "eyJzdWI", "ok"),
    ("ftp://user:p@ss:word@host:21/x", "p@ss:word", "host:21/x"),
    ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz", "Authorization"),
    ("'Authorization': 'Bearer abc.def'", "abc.def", "Authorization"),
    ("curl -H 'PRIVATE-TOKEN: abcdef' https://x", "abcdef", "https://x"),
    ("sent Bearer abcdefghijklmnop to x", "abcdefghijklmnop", "to x"),
    ("GET /a?X-Amz-Signature=deadbeef&x=1", "deadbeef", "x=1"),
    ("env MY_API_TOKEN=s3cr3t prog", "s3cr3t", "prog"),
    ("env 'DB_PASSWORD=two words' prog", "two", "prog"),
    ('export HF_TOKEN="two words" done', "words", "done"),
    ("MYSQL_PWD=hunter2 x", "hunter2", "x"),
    ('{"password": "hun\\"ter2", "user": "me"}', "ter2", '"user": "me"'),
    ("password: hunter2", "hunter2", "password"),
    ("password='unclosed", "unclosed", "password"),
    ("hf_token=abc", "abc", "hf_token"),
    ("prog --token=abc x", "abc", "x"),
    (f"before\n{PEM}\nafter", "q83vEjRWeJA", "after"),
    (f"before\n{OPENSSH}\nafter", "q83vEjRWeJA", "before"),
    (f"killed while\n{PEM[:60]}", "MIIEow", "killed while"),
    (f"{BODY}-----END RSA PRIVATE KEY-----\nafter", "q83vEjRWeJA", "after"),
    (PEM.replace("\n", "\\n"), "q83vEjRWeJA", ""),
    ('{"token": "abcdefgh", "user": "me"}', "abcdefgh", '"user": "me"'),
    ("{'HOME': '/root', 'MY_KEY': 'abc9', 'A': 'b'}", "abc9", "'A': 'b'"),
    ('"NPM_PAT":"abc9", "A": "b"', "abc9", '"A": "b"'),
    ("secret_key: abc123", "abc123", "secret_key: "),
    ("secretKey=abc123 next", "abc123", "next"),
    ("git clone https://Zq9x7Wv5Ut3s1@github.com/a/b", "Zq9x7Wv5", "@github.com/a/b"),
    ("pip install git+https://abcdefghijklmnopqrst@h/a", "abcdefgh", "@h/a"),
    ("env GIT_CREDS=me:abc AZURE_EXT_PAT=abc9 prog", "abc9", "prog"),
    ("env GIT_CREDS=me:abc prog", "me:abc", "prog"),
    ("LDAP_BINDPW=abc9 x", "abc9", "x"),
    ("bindpw abc9", "abc9", "bindpw"),
    ("ldap_bindpw: abc9", "abc9", "ldap_bindpw"),
    ("ERLANG_COOKIE=QWERTY x", "QWERTY", "x"),
    ("cookie=abc9 rank 3 failed", "abc9", "rank 3 failed"),
    ("Cookie: a=b; session=abc9", "abc9", "Cookie"),
    ("set-cookie: session=abc9; path=/", "abc9", "set-cookie"),
    ("prog --password correcthorsebattery now", "correcthorsebattery", "now"),
    ("prog --password swordfish --size 8", "swordfish", "--size 8"),
    ("aws_credential: abc9", "abc9", "aws_credential"),
    ("my_token: 0123456789", "0123456789", "my_token"),
    ("password: 123456", "123456", "password"),
    ("MASTERKEY=abc9 SSLKEY=abc9", "abc9", "MASTERKEY"),
    ("MODEL_TOKENIZER_API_KEY=abc9", "abc9", "MODEL_TOKENIZER_API_KEY"),
]

HARMLESS = [
    "UCX_IB_PKEY=0x7fff NCCL_IB_PKEY=1 UCX_RKEY_PTR_SEG_SIZE=512K",
    "TOKENIZERS_PARALLELISM=false MAX_TOKENS=4096",
    "PWD=/home/me OLDPWD=/ SSH_AUTH_SOCK=/tmp/agent.1",
    "uct_mkey rkey=0x5 lkey: 7, unexpected token: ';'",
    "SIGSEGV@libuct_rocm.so!uct_rocm_copy_ep_put_short",
    "[host:123:0] tcp_ep.c:1176 UCX ERROR send(25) failed: Input/output error",
    "https://github.com/openucx/ucc/issues/1043",
    "http://[::1]:8080/x git@github.com:a/b 12:30:01 a=b",
    "mca_base_component_find: unable to open mca_pml_ucx",
    "sk-learn hf_hub task-force",
    "UCX_IB_SMKEY_BLOCK_SIZE=8 MODEL_TOKENIZER=meta-llama/Llama-3.1-8B KEYMAP=us PMIX_KEY=pmix.rank",
    "PMIX_ERR_INVALID_KEY: a key MPI_ERR_INFO_KEY: invalid key argument",
    "Unable to decode credential: Expired",
    "me@node1's password: Permission denied, please try again.",
    "cookie=0x123 rank 3 failed to connect",
    "error: expected ';' before token: hipMemcpyAsync_spt",
    "first_token: 0.52 s next_token=12ms max_token: 512 'first_token': '0.5 s' per_token: 3.5.",
    '{"tokenizer": "gpt2-medium-en", "key": "SIGSEGV@libc.so!x", "sort_key": "size", "token": 17}',
    "https://alice@dev.example.com/x ssh://buildserviceaccount12@host/x https://h/@scope/name",
    "option --password requires an argument; use --token or --api-key instead",
    "PATH=/usr/bin NLSPATH=x PATTERN=a SHELL_PATTERN=b",
]


@pytest.mark.parametrize(("text", "secret", "kept"), SECRETS)
def test_a_secret_goes_and_its_surroundings_stay(text: str, secret: str, kept: str) -> None:
    assert secret in text
    redacted = redact(text)
    assert secret not in redacted
    assert REDACTED in redacted
    assert kept in redacted


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


GLUE = [" ", "\n", '"', "'", "=", ": ", "@", "://", ","]
FRAGMENTS = st.sampled_from([*(text for text, _, _ in SECRETS), *HARMLESS, *GLUE])


@given(st.lists(FRAGMENTS | st.text(max_size=5), max_size=6).map("".join))
def test_redacting_twice_changes_nothing(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@given(st.text())
def test_any_text_can_be_redacted(text: str) -> None:
    assert isinstance(redact(text), str)


@pytest.mark.parametrize(
    "line",
    ["A" * 1_000_000, "key=" * 250_000, "a.key-" * 160_000, "://" * 300_000, 'TOKEN="' * 140_000, "eyJ" * 300_000,
     "-----BEGIN PRIVATE KEY-----" * 30_000, "password" + " " * 1_000_000, "private " + "A" * 1_000_000 + "-----END",
     "https://" + "a" * 1_000_000, "--password aaaaa" * 60_000, '_KEY": "' * 120_000, "cookie: " * 120_000],
    ids=lambda line: line[:12],
)  # fmt: skip
def test_a_line_of_a_megabyte_takes_linear_time(line: str) -> None:
    secret = f"{line} id {AWS_ID}"
    assert AWS_ID not in redact(secret)


@pytest.mark.parametrize(
    "name",
    ["AWS_SECRET_ACCESS_KEY", "MyApiKey", "HF_TOKEN", "db_passwd", "CREDENTIALS", "DB_PASS", "GIT_CREDS", "AZURE_PAT",
     "LDAP_BINDPW", "ROOTPW", "ERLANG_COOKIE", "MASTERKEY", "PGSSLKEY", "TOKENIZER_API_KEY", "PMIX_KEY_SECRET"],
)  # fmt: skip
def test_names_that_say_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["UCX_IB_PKEY", "NCCL_IB_PKEY", "PWD", "PATH", "TOKENIZERS_PARALLELISM", "COMPASS", "UCX_IB_SMKEY_BLOCK_SIZE",
     "UCX_RKEY_PTR_SEG_SIZE", "MODEL_TOKENIZER", "KEYMAP", "XKB_KEYMAP", "PMIX_KEY", "MAX_NEW_TOKENS", "PATTERN"],
)  # fmt: skip
def test_names_that_do_not(name: str) -> None:
    assert not is_secret_name(name)


def test_an_environment() -> None:
    env = {"HF_TOKEN": "x", "EMPTY_KEY": "", "UCX_TLS": "tcp", "NOTE": f"see {GITHUB}"}
    assert redact_env(env) == {
        "HF_TOKEN": REDACTED,
        "EMPTY_KEY": "",
        "UCX_TLS": "tcp",
        "NOTE": f"see {REDACTED}",
    }


def test_a_command_line() -> None:
    argv = ["env", "A_KEY=two words", "-genv", "B_TOKEN", "c d", "-env", "UCX_TLS", "tcp"]
    assert redact_argv([*argv, "--password", "p", "-x", "HF_TOKEN", "prog"]) == [
        *("env", f"A_KEY={REDACTED}", "-genv", "B_TOKEN", REDACTED, "-env", "UCX_TLS", "tcp"),
        *("--password", REDACTED, "-x", "HF_TOKEN", "prog"),
    ]


def test_json_is_redacted_by_what_it_means() -> None:
    data = {
        "signature": {"key": "SIGSEGV@libc.so!x"},
        "env": {"MY_KEY": "x", "A": "b"},
        "argv": ["env", "MY_KEY=a b"],
        "nested": [{"why": f"saw {AWS_ID}"}, 1, None, True],
        "label": f"on-{GITLAB}",
        "axes": {"placement": f"on-{GITLAB}"},
    }
    assert redact_json(data) == {
        "signature": {"key": "SIGSEGV@libc.so!x"},
        "env": {"MY_KEY": REDACTED, "A": "b"},
        "argv": ["env", f"MY_KEY={REDACTED}"],
        "nested": [{"why": f"saw {REDACTED}"}, 1, None, True],
        "label": f"on-{GITLAB}",
        "axes": {"placement": f"on-{GITLAB}"},
    }


def test_a_text_under_the_name_of_a_secret_is_one() -> None:
    data = {"build_args": {"DB_PASSWORD": "abc9", "BASE": "debian"}, "signature": {"key": "SIGSEGV@x"}, "token": ""}
    shown = {"build_args": {"DB_PASSWORD": REDACTED, "BASE": "debian"}, "signature": {"key": "SIGSEGV@x"}, "token": ""}
    assert redact_json(data) == shown


PIECES = [
    *(
        "",
        "a b",
        "UCX_TLS=tcp",
        "TLS",
        "MY_TOKEN",
        "token",
        "key",
        "env",
        "--password",
        "-genv",
        "-x",
        "curl -u",
        "me:pw",
    ),
    *(
        "curl",
        "-u",
        "sshpass",
        "-p",
        "login x",
        "password y",
        "--api-key=x",
        "A_KEY=v",
        "-----BEGIN RSA",
        "PRIVATE KEY-----",
    ),
    *(AWS_ID, f"id {GITHUB}", f"x\n{PEM}\ny", "LONG=value", "learned-value-1", "Bearer", "abcdefghijklmnop", "docker"),
]
TREES = st.recursive(
    st.sampled_from(PIECES) | st.integers() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(PIECES), inner, max_size=4)
        | st.dictionaries(st.sampled_from(["env", "argv", "label", "key", "why"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(tree=TREES)
def test_data_taken_for_clean_are_what_redacting_each_text_gives(tree: object) -> None:
    register_secrets({"MY_PASSWORD": "learned-value-1"})
    try:
        assert redact_json(tree) == redaction._redact_value(tree)
    finally:
        clear_secrets()
