"""A run seeded with sixty kinds of secret in every source of text: no report, issue or bundle holds one."""

from __future__ import annotations

import tarfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.model.job import Command
from pytest_hetgpu.model.outcome import Finding
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.reporting import report
from pytest_hetgpu.reporting.upstream.bundle import write_bundle
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.redaction.redact import redact
from tests.reporting.report_samples import CRASHED, KEY, SIGNATURE, job, result, scenario

RANDOM = "aB3dE5gH7jK9mN1pQ3sT5vX7zA9cE1gH"
HEX = "0123456789abcdef"
# Put together here, so that no scanner takes this file for a leak: a text, and what of it must not be seen.
KINDS = {
    "netrc": ("machine git.example.com login me password hunter2xyz", "hunter2xyz"),
    "netrc2": ("machine h login me\n  password hunter2xyz", "hunter2xyz"),
    "docker auth": ('{"auths": {"r.io": {"auth": "dXNlcjpwYXNzd29yZA=="}}}', "dXNlcjpwYXNz"),
    "docker idtoken": ('"identitytoken": "abcdef0123456789abcdef"', "abcdef0123456789"),
    "npmrc": ("//registry.npmjs.org/:_authToken=0123-4567-abcdef", "0123-4567-abcdef"),
    "azure conn": (
        "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=" + RANDOM + "==;EndpointSuffix=core",
        RANDOM,
    ),
    "gcp": ('"private_key_id": "0123456789abcdef0123456789abcdef01234567"', "0123456789abcdef0123"),
    "stripe": ("sk_li" + "ve_" + RANDOM, RANDOM[:20]),
    "sendgrid": ("SG." + RANDOM[:22] + "." + RANDOM, RANDOM[:20]),
    "mailgun": ("key-" + "0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef"),
    "digitalocean": ("dop_v1_" + "fedcba9876543210" * 4, "fedcba9876543210fedc"),
    "databricks": ("dapi" + "0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef"),
    "vault": ("hvs." + RANDOM, RANDOM),
    "terraform": (RANDOM[:14] + ".atlasv1." + RANDOM * 2, RANDOM * 2),
    "discord": ("https://discord.com/api/webhooks/123456789012345678/" + RANDOM * 2, RANDOM),
    "telegram": ("123456789:AA" + RANDOM + "a", RANDOM),
    "google oauth": ("ya29." + RANDOM, RANDOM),
    "google": ("AIza" + "b" * 35, "b" * 35),
    "anthropic": ("sk-ant-" + "api03-" + RANDOM, RANDOM),
    "openai": ("sk-" + RANDOM + RANDOM[:16], RANDOM),
    "rubygems": ("rubygems_" + "76543210fedcba98" * 3, "76543210fedcba98"),
    "age": ("AGE-SECRET-KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" * 2, "QPZRY9X8GF2TVDW0"),
    "sshpass": ("sshpass -p hunter2xyz ssh host", "hunter2xyz"),
    "sshpass2": ("sshpass -phunter2xyz ssh host", "hunter2xyz"),
    "curl -u": ("curl -u me:hunter2xyz https://x", "hunter2xyz"),
    "curl --user": ("curl --user me:hunter2xyz https://x", "hunter2xyz"),
    "jdbc": ("jdbc:mysql://h/db?user=me&password=hunter2xyz&x=1", "hunter2xyz"),
    "jdbc2": ("jdbc:sqlserver://h;user=me;password=hunter2xyz;x=1", "hunter2xyz"),
    "kube": ("    client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQo=", "LS0tLS1CRUdJTiBSU0E"),
    "kube token": ("    token: 0123abcdxyz0123abcdxyz", "0123abcdxyz0123abcdxyz"),
    "pg": ("PGPASSWORD=hunter2xyz psql", "hunter2xyz"),
    "wandb": ("WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567", "0123456789abcdef"),
    "wandb login": ("wandb login 0123456789abcdef0123456789abcdef01234567", "0123456789abcdef0123"),
    "aws session": ("AWS_SESSION_TOKEN=FwoGZXIvYXdzE" + RANDOM, RANDOM),
    "ldap": ("userPassword: hunter2xyz", "hunter2xyz"),
    "ipmi": ("ipmitool -H bmc -U admin -P hunter2xyz power", "hunter2xyz"),
    "redis": ("redis-cli -a hunter2xyz ping", "hunter2xyz"),
    "azure sas": ("https://x.blob.core.windows.net/c?sv=2022&sig=abcDEF%3D&se=1", "abcDEF%3D"),
    "basic": ("Proxy-Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    "cookie": ("Set-Cookie: session=abcdef012345", "abcdef012345"),
    "amqp": ("amqp://me:hunter2xyz@mq:5672", "hunter2xyz"),
    "smtp": ("smtp_password: hunter2xyz", "hunter2xyz"),
    "shopify": ("shpat_" + "0123456789abcdef" * 2, "0123456789abcdef"),
    "linear": ("lin_api_" + RANDOM + RANDOM[:8], RANDOM),
    "grafana": ("glsa_" + RANDOM + "_0123abcd", RANDOM),
    "newrelic": ("NRAK-" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ1", "ABCDEFGHIJ"),
    "docker pat": ("dckr_pat_" + RANDOM[:27], RANDOM[:27]),
    "slack app": ("xapp-1-" + RANDOM, RANDOM),
    "pgp": ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQHYBF\nabc\n-----END PGP PRIVATE KEY BLOCK-----", "lQHYBF"),
    "munge": ("MUNGE:AwQDAAC" + RANDOM + ":", RANDOM),
    "aws id": ("AKIA" + "IOSFODNN7EXAMPLE", "IOSFODNN7EXAMPLE"),
    "aws secret": ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "wJalrXUtnFEMI"),
    "github": ("remote said ghp_" + "a1B2" * 9, "a1B2a1B2"),
    "gitlab": ("glpat-" + "Xy9" * 7, "Xy9Xy9Xy9"),
    "hugging face": ("hf_" + "abcDEF12" * 4, "abcDEF12abc"),
    "hugging face org": ("api_org_" + "QrsTUV34" * 4, "QrsTUV34Qrs"),
    "slack hook": ("https://hooks.slack.com/services/T0Q/B0Q/zzyyxx", "zzyyxx"),
    "jwt": ("eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxIn0." + "sflKxwRJSM", "sflKxwRJSM"),
    "private token": ("curl -H 'PRIVATE-TOKEN: abcdefprivate' https://x", "abcdefprivate"),
    "url": ("https://alice:hunter2xyz@host/x", "hunter2xyz"),
    "option": ("prog --password hunter2xyz --size 8", "hunter2xyz"),
    "option token": ("prog --api-key Qq7-ww8 run", "Qq7-ww8"),
    "docker login": ("docker login -u me -p hunter2xyz r.io", "hunter2xyz"),
    "mysql": ("mysql -u me -phunter2xyz db", "hunter2xyz"),
    "colour": ("\x1b[32mghp_" + "c3D4" * 9 + "\x1b[0m", "c3D4c3D4"),
    "of a url": ("next=%2Fghp_" + "e5F6" * 9, "e5F6e5F6"),
    "of json": ('{"text": "a\\nghp_' + "g7H8" * 9 + '\\npassword=hunter2xyz"}', "g7H8g7H8"),
    "pem": ("-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBA\nKCAQEA7bq9\n-----END RSA PRIVATE KEY-----", "KCAQEA7bq9"),
    "ngc": ("nvapi-" + RANDOM + RANDOM, RANDOM),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_known(kind: str) -> None:
    text, secret = KINDS[kind]
    assert secret in text
    assert secret not in redact(text)
    assert redact(redact(text)) == redact(text)


def test_no_report_holds_any(tmp_path: Path) -> None:
    assert len(KINDS) >= 60
    folder = RunFolder.create(tmp_path / "reports")
    texts = [text for text, _ in KINDS.values()]
    with closing(Journal(folder.path, "main")) as journal:
        journal.session_started([MatrixFile("aws", "aws.yaml", "0" * 64)], ["pytest", *texts])
        for number, text in enumerate(texts):
            line = text.split("\n")[0]
            signature = replace(SIGNATURE, primary_line=line, line=3)
            outcome = replace(
                CRASHED,
                why=text,
                stack=text,
                notes=(text,),
                concerns=(text,),
                facts={"fact": text},
                signature=signature,
            )
            outcome = replace(outcome, findings=(Finding("signature", Kind.CRASH, text, signature),))
            made = job(f"mixed-ucx-w{number}", command=Command(("mpirun", text, *text.split()), {"SETTING": text}))
            folder.start_log(made.label).write_text(f"first\n\n{text}\nlast\n")
            log = folder.publish(made.label)
            journal.planned(made)
            journal.started(made)
            ended = replace(result(str(log)), argv=made.command.argv)
            journal.finished(made, ended)
            folder.write_job(made, ended)
            journal.judged(made, outcome)
            journal.skipped(scenario(f"cpu-nccl-w{number}"), text)
    report.build(folder.path, "pytest --hetgpu-cell {label}")
    archives: list[Path] = []
    for wanted in (KEY, *(f"mixed-ucx-w{number}" for number in range(len(texts)))):
        archives += write_bundle(folder.path, wanted, tmp_path / f"{len(archives)}.tar.gz").files
    written = {str(path): path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    for path in archives:
        with tarfile.open(path) as archive:
            written |= {f"{path.name}/{entry.name}": archive.extractfile(entry).read() for entry in archive}  # type: ignore[union-attr]
    assert {Path(name).name for name in written} >= {
        "junit.xml",
        "summary.md",
        "index.html",
        "issue.md",
        "reproduce.sh",
    }
    seen = {
        (kind, name) for name, data in written.items() for kind, (_, secret) in KINDS.items() if secret.encode() in data
    }
    # Of the page only what a run put there: plotly's own script is packed.
    assert seen == set()
