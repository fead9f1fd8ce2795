"""Values of secrets show nothing, contexts differ, and a data key is renewed when it has to be."""

from datetime import timedelta
from itertools import product
from uuid import UUID

import structlog

from control_plane.domain.ids import DataKeyId, OrganizationId, SecretId
from control_plane.domain.secret import (
    KeyContext,
    MasterKey,
    Plain,
    Purpose,
    Renewal,
    Sealed,
    WrappedKey,
    kms_region,
    renewal,
)
from tests.support.clock import START

CONTEXT = KeyContext(OrganizationId(UUID(int=1)), Purpose.PROVIDER_CREDENTIALS)
KEY = WrappedKey(DataKeyId(UUID(int=2)), CONTEXT, MasterKey("old"), b"planted wrapped")
SEALED = Sealed(SecretId(UUID(int=3)), KEY, b"planted nonce", b"planted ciphertext")
NINETY_DAYS = timedelta(days=90)


def test_no_repr_and_no_formatted_text_shows_what_is_sealed() -> None:
    for value in (Plain(b"planted plain"), KEY, SEALED):
        for shown in (repr(value), str(value), f"{value}", f"{[value]!r}", repr({"secret": value})):
            assert "planted" not in shown, type(value)


def test_a_line_of_the_log_shows_nothing_of_what_is_sealed() -> None:
    for value in (Plain(b"planted plain"), KEY, SEALED):
        for render in (structlog.processors.JSONRenderer(), structlog.processors.KeyValueRenderer()):
            assert "planted" not in str(render(None, "info", {"event": "sealed", "value": value}))


def test_contexts_of_two_tenants_two_purposes_or_two_secrets_are_never_the_same_bytes() -> None:
    organizations = [OrganizationId(UUID(int=number)) for number in (1, 2)]
    contexts = [
        KeyContext(organization, purpose) for organization, purpose in product(organizations, Purpose)
    ]
    secrets = [SecretId(UUID(int=number)) for number in (1, 2)]
    of_keys = {context.associated_data() for context in contexts}
    of_secrets = {context.of_secret(secret) for context, secret in product(contexts, secrets)}
    assert len(of_keys) == len(contexts)
    assert len(of_secrets) == len(contexts) * len(secrets)
    assert not of_keys & of_secrets
    assert len({frozenset(context.pairs().items()) for context in contexts}) == len(contexts)


def test_a_data_key_is_wrapped_anew_under_another_master_key_and_replaced_when_it_is_old() -> None:
    cases = [
        (timedelta(0), "old", None),
        (timedelta(0), "new", Renewal.REWRAP),
        (NINETY_DAYS - timedelta(seconds=1), "old", None),
        (NINETY_DAYS, "old", Renewal.REPLACE),
        (NINETY_DAYS, "new", Renewal.REPLACE),
    ]
    for age, newest, expected in cases:
        found = renewal(KEY, made_at=START, newest=MasterKey(newest), now=START + age, lasts=NINETY_DAYS)
        assert found == expected, (age, newest)


def test_only_the_arn_of_a_key_names_a_region_and_no_alias_does() -> None:
    account = "123456789012"
    assert kms_region(f"arn:aws:kms:eu-central-1:{account}:key/1234abcd-12ab") == "eu-central-1"
    assert kms_region(f"arn:aws-us-gov:kms:us-gov-west-1:{account}:key/mrk-1") == "us-gov-west-1"
    for wrong in (f"arn:aws:kms:eu-central-1:{account}:alias/ours", "local:ab", "1234abcd-12ab", ""):
        assert kms_region(wrong) is None, wrong
