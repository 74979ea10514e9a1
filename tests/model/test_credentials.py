"""Variables that programs under test do not inherit."""

from __future__ import annotations

import pytest

from pytest_hetgpu.model.credentials import is_credential, without_credentials

CREDENTIALS = (
    *("GITHUB_TOKEN", "GH_TOKEN", "CI_JOB_TOKEN", "CI_JOB_JWT", "CI_JOB_JWT_V2", "CI_REGISTRY_PASSWORD"),
    *("CI_DEPLOY_PASSWORD", "ACTIONS_RUNTIME_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "SYSTEM_ACCESSTOKEN"),
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN"),
    *("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AZURE_CLIENT_SECRET"),
    *("PGPASSWORD", "MYSQL_PWD", "HETGPU_HISTORY", "VAULT_TOKEN", "HF_TOKEN", "WANDB_API_KEY", "OPENAI_API_KEY"),
    *("NPM_TOKEN", "TWINE_PASSWORD", "DOCKER_AUTH_CONFIG", "SLURM_JWT", "GPG_PASSPHRASE", "SSH_AUTH_SOCK"),
    *("BUILDKITE_AGENT_ACCESS_TOKEN", "CIRCLE_OIDC_TOKEN_V2", "AZURE_DEVOPS_EXT_PAT", "SENTRY_DSN", "github_token"),
    *("GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0", "AZURE_STORAGE_CONNECTION_STRING"),
)
OTHERS = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/root",
    "GITHUB_ACTIONS": "true",
    "CI": "1",
    "AWS_REGION": "eu-central-1",
    "AWS_SHARED_CREDENTIALS_FILE": "/root/.aws/credentials",
    "NCCL_IB_PKEY": "0",
    "UCX_IB_PKEY": "0x7fff",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "SLURM_CONF": "/etc/slurm/slurm.conf",
    "PMIX_MCA_psec": "native",
    "OMPI_MCA_pml": "ucx",
    "HETGPU_STACKS": "/opt/stacks",
    "OLDPWD": "/work",
    "https_proxy": "http://proxy:3128",
    "SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22",
    "KUBECONFIG": "/root/.kube/config",
    "CUDA_VISIBLE_DEVICES": "0",
}


@pytest.mark.parametrize("name", CREDENTIALS)
def test_a_credential_is_left_out_however_short_it_is(name: str) -> None:
    assert is_credential(name, "x7")
    assert without_credentials({name: "x7"}) == {}


def test_a_password_in_a_url_is_one_whatever_the_name() -> None:
    assert is_credential("https_proxy", "http://me:pa55@proxy:3128")
    assert is_credential("CI_REPOSITORY_URL", "https://gitlab-ci-token:abc@gitlab.example/a.git")
    assert is_credential("DATABASE_URL", "postgresql://me:pa55@db/history")


def test_settings_and_paths_stay() -> None:
    assert without_credentials(OTHERS) == OTHERS
