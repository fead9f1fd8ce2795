import dataclasses

import pytest

from control_plane.domain.ids import AccountName
from providers import fake, lambda_cloud
from providers.registry import AccountOffError, UnknownProviderError, configured, discovered

LAMBDA, RESEARCH, FAKE = (AccountName(name) for name in ("lambda_cloud", "lambda_cloud/research-eu", "fake"))


def test_settings_come_from_the_variables_of_their_account() -> None:
    one, two, three = configured(
        [LAMBDA, RESEARCH, FAKE],
        {
            "PROVIDER_LAMBDA_CLOUD_API_KEY": "first",
            "PROVIDER_LAMBDA_CLOUD_RESEARCH_EU_API_KEY": "second",
            "PROVIDER_LAMBDA_CLOUD_RESEARCH_EU_BASE_URL": "http://127.0.0.1:9002/api/v1",
            "PROVIDER_FAKE_BOOT_SECONDS": "2.5",
        },
    )
    assert one.settings == lambda_cloud.Settings(api_key="first")
    assert two.settings == lambda_cloud.Settings("second", "http://127.0.0.1:9002/api/v1")
    assert three.settings == fake.Settings(boot_seconds=2.5)
    assert isinstance(three.connect(), fake.FakeProvider)
    assert [account.provider for account in (one, two, three)] == ["lambda_cloud", "lambda_cloud", "fake"]


def test_an_account_without_its_key_is_off_and_names_the_variable_and_the_others_work() -> None:
    off, on = configured([RESEARCH, FAKE], {"PROVIDER_LAMBDA_CLOUD_API_KEY": "of another account"})
    assert (off.on, on.on) == (False, True)
    assert off.off_because == "PROVIDER_LAMBDA_CLOUD_RESEARCH_EU_API_KEY is not set"
    with pytest.raises(AccountOffError, match="API_KEY is not set"):
        off.connect()


@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_variable_is_not_set(blank: str) -> None:
    (account,) = configured([LAMBDA], {"PROVIDER_LAMBDA_CLOUD_API_KEY": blank})
    assert account.off_because == "PROVIDER_LAMBDA_CLOUD_API_KEY is not set"


def test_an_unreadable_variable_turns_the_account_off_without_repeating_the_value() -> None:
    (account,) = configured([FAKE], {"PROVIDER_FAKE_STOCK": "a-secret-in-the-wrong-place"})
    assert account.off_because == "PROVIDER_FAKE_STOCK cannot be read as int"


def test_an_account_of_no_provider_or_with_a_bad_or_repeated_name_stops_the_start() -> None:
    with pytest.raises(UnknownProviderError, match=r"nimbus.*lambda_cloud"):
        configured([AccountName("nimbus")], {})
    for names in (["Fake"], ["fake/"], ["fake/a b"], ["fake", "fake"]):
        with pytest.raises(ValueError, match="account"):
            configured([AccountName(name) for name in names], {})


def test_no_settings_show_a_secret() -> None:
    hints = ("key", "token", "secret", "password", "credential")
    for module in discovered().values():
        for field in dataclasses.fields(module.Settings):
            if any(hint in field.name for hint in hints):
                assert not field.repr, f"{module.NAME}.Settings.{field.name}"
    (account,) = configured([LAMBDA], {"PROVIDER_LAMBDA_CLOUD_API_KEY": "planted"})
    assert "planted" not in repr(account)
