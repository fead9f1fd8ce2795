"""AWS KMS with the two policies that we ship: the API makes data keys and opens none, the reconciler opens them.

moto stands in for AWS, with users that have exactly these policies; `tests/support/iam.py` decides as IAM does.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources
from itertools import product
from typing import Any
from uuid import UUID

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from moto import mock_aws

from control_plane.db.signing_keys import StoredKey
from control_plane.domain.ids import DataKeyId, OrganizationId, SecretId
from control_plane.domain.secret import KeyContext, MasterKey, Plain, Purpose, Sealed
from control_plane.vault import token_keys
from control_plane.vault.errors import KeyManagerRefused, KeyManagerUnavailable, NotOpened
from control_plane.vault.kms import Kms
from control_plane.vault.sealing.aws_kms import KmsKeyMaker
from control_plane.vault.sealing.envelope import seal
from control_plane.vault.token_keys_kms import KmsTokenKeys
from control_plane.vault.unsealing.aws_kms import KmsKeyManager
from control_plane.vault.unsealing.envelope import unseal
from tests.support import iam
from tests.support.clock import START

REGION, ACCOUNT = "eu-central-1", "123456789012"
CONTEXT = KeyContext(OrganizationId(UUID(int=1)), Purpose.PROVIDER_CREDENTIALS)
OTHERS = KeyContext(OrganizationId(UUID(int=2)), Purpose.PROVIDER_CREDENTIALS)


def _policy(name: str, *masters: str) -> str:
    """One of our policies for these keys; there are two while an operator rotates the master key."""
    text = (resources.files("control_plane.vault") / "policies" / f"{name}.json").read_text()
    return text.replace('"${MASTER_KEY_ARN}"', ", ".join(f'"{arn}"' for arn in masters)).replace(
        "${ACCOUNT_ID}", ACCOUNT
    )


class _As(Kms):
    """KMS as one user of IAM calls it."""

    def __init__(self, keys: dict[str, str]) -> None:
        super().__init__()
        self._keys = keys

    def _client(self, name: str) -> Any:
        return boto3.client("kms", region_name=name, **self._keys)


@dataclass(frozen=True)
class Aws:
    master: MasterKey
    second: MasterKey
    elsewhere: MasterKey
    """In another region."""
    api: Kms
    reconciler: Kms

    def sealing(self) -> KmsKeyMaker:
        return KmsKeyMaker(self.master, self.api)

    def unsealing(self) -> KmsKeyManager:
        return KmsKeyManager(self.master, self.reconciler)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        masters = [
            MasterKey(boto3.client("kms", region_name=region).create_key()["KeyMetadata"]["Arn"])
            for region in (REGION, REGION, "us-east-1")
        ]
        users = {
            "api": _user("api", _policy("api", masters[0])),
            "reconciler": _user("reconciler", _policy("reconciler", *masters)),
        }
        with iam.enforced():
            yield Aws(
                master=masters[0],
                second=masters[1],
                elsewhere=masters[2],
                api=_As(users["api"]),
                reconciler=_As(users["reconciler"]),
            )


def _user(name: str, policy: str) -> dict[str, str]:
    """A user with exactly this policy; returns the arguments of boto3 that sign as that user."""
    iam = boto3.client("iam", region_name=REGION)
    iam.create_user(UserName=name)
    iam.put_user_policy(UserName=name, PolicyName="vault", PolicyDocument=policy)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}


async def _sealed(aws: Aws) -> Sealed:
    ids = SecretId(UUID(int=3)), DataKeyId(UUID(int=4))
    return await seal(aws.sealing(), CONTEXT, Plain(b"top secret"), secret_id=ids[0], key_id=ids[1])


async def test_what_the_api_seals_the_reconciler_opens(aws: Aws) -> None:
    sealed = await _sealed(aws)
    assert sealed.key.master == aws.master
    assert (await unseal(aws.unsealing(), sealed)).reveal == b"top secret"


async def test_the_apis_policy_opens_and_rewraps_nothing_not_even_what_the_api_sealed(aws: Aws) -> None:
    sealed = await _sealed(aws)
    stolen = KmsKeyManager(aws.master, aws.api)
    for attempt in (stolen.unwrap(sealed.key), stolen.rewrap(sealed.key, aws.second)):
        with pytest.raises(KeyManagerRefused, match="AccessDenied"):
            await attempt


async def test_the_api_opens_the_keys_of_tokens_and_the_reconciler_does_not(aws: Aws) -> None:
    keys = KmsTokenKeys(aws.master, aws.api)
    made, nonce, ciphertext = await token_keys.seal(keys, "key-1", Plain(b"planted"))
    times = (START, START, None)
    stored = StoredKey("key-1", b"", *times, made.master, made.wrapped.reveal, nonce, ciphertext)
    assert (await token_keys.unseal(keys, stored)).reveal == b"planted"
    with pytest.raises(NotOpened):
        await token_keys.unseal(keys, replace(stored, id="key-2"))
    with pytest.raises(KeyManagerRefused, match="AccessDenied"):
        await token_keys.unseal(KmsTokenKeys(aws.master, aws.reconciler), stored)
    secret = await _sealed(aws)
    other = replace(stored, wrapped=secret.key.wrapped)
    with pytest.raises(NotOpened, match="InvalidCiphertext"):
        await token_keys.unseal(keys, other)


async def test_a_data_key_does_not_open_in_the_context_of_another_tenant_or_purpose(aws: Aws) -> None:
    sealed = await _sealed(aws)
    for context in (OTHERS, KeyContext(CONTEXT.organization_id, Purpose.SSH_AUTHORITY)):
        with pytest.raises(NotOpened, match="InvalidCiphertext"):
            await aws.unsealing().unwrap(replace(sealed.key, context=context))


async def test_a_data_key_moves_to_another_master_key_and_to_another_region(aws: Aws) -> None:
    sealed = await _sealed(aws)
    for master in (aws.second, aws.elsewhere, aws.master):
        sealed = replace(sealed, key=await aws.unsealing().rewrap(sealed.key, master))
        assert sealed.key.master == master
        assert (await unseal(aws.unsealing(), sealed)).reveal == b"top secret"


async def test_an_organizations_own_master_key_wraps_its_data_keys_instead_of_ours(aws: Aws) -> None:
    made = await aws.unsealing().make_data_key(CONTEXT, aws.second)
    assert made.master == aws.second
    with pytest.raises(KeyManagerRefused, match="AccessDenied"):  # A key of ours that the API was not given.
        await aws.sealing().make_data_key(CONTEXT, aws.second)


async def test_a_master_key_that_does_not_exist_is_refused_with_the_code_of_aws(aws: Aws) -> None:
    gone = MasterKey(f"arn:aws:kms:{REGION}:210987654321:key/00000000-0000-0000-0000-000000000000")
    with pytest.raises(KeyManagerRefused, match="NotFoundException"):
        await KmsKeyMaker(gone, aws.api).make_data_key(CONTEXT)
    with pytest.raises(KeyManagerRefused, match="not the ARN"):
        await KmsKeyMaker(MasterKey("alias/ours"), aws.api).make_data_key(CONTEXT)


class _Silent(Kms):
    def _client(self, name: str) -> Any:
        class Client:
            def generate_data_key(self, **_: object) -> None:
                raise EndpointConnectionError(endpoint_url="https://kms")

        return Client()


async def test_a_key_manager_without_an_answer_is_unavailable_and_is_not_asked_again_by_boto3() -> None:
    with pytest.raises(KeyManagerUnavailable):
        await KmsKeyMaker(MasterKey(f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1"), _Silent()).make_data_key(
            CONTEXT
        )
    client = Kms()._client(REGION)
    assert client.meta.config.retries["total_max_attempts"] == 1


def test_neither_policy_permits_a_call_without_the_context_or_with_another_key_of_ours() -> None:
    ours, customers = (f"arn:aws:kms:{REGION}:{account}:key/1" for account in (ACCOUNT, "210987654321"))
    ours_too = f"{ours}2"
    actions = ("GenerateDataKey", "Encrypt", "Decrypt", "ReEncryptFrom", "ReEncryptTo", "CreateGrant")
    may = {"api": {"GenerateDataKey"}, "reconciler": set(actions) - {"CreateGrant"}}
    for name, action in product(may, actions):
        policies = [json.loads(_policy(name, ours))]
        for key, context, permitted in (
            (ours, CONTEXT.pairs(), action in may[name]),
            (customers, CONTEXT.pairs(), action in may[name]),
            (ours_too, CONTEXT.pairs(), False),
            (ours, {}, False),
            (ours, {"purpose": "provider_credentials"}, False),
            (ours, {"organization": "0" * 32}, False),
            (customers, {"organization": "0" * 32}, False),
            (customers, {"purpose": "provider_credentials"}, False),
        ):
            assert iam.permits(policies, f"kms:{action}", key, context) is permitted, (name, action, key)


def test_the_api_can_open_nothing_even_when_another_policy_allows_it() -> None:
    everything = {"Statement": [{"Effect": "Allow", "Action": "kms:*", "Resource": "*"}]}
    arn = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1"
    for action in ("Decrypt", "ReEncryptFrom", "ReEncryptTo", "CreateGrant"):
        policies = [json.loads(_policy("api", arn)), everything]
        assert not iam.permits(policies, f"kms:{action}", arn, CONTEXT.pairs()), action
