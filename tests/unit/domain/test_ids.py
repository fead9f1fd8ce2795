"""Ids wear a prefix outside and have one spelling; launch keys say whose they are."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.ids import (
    MalformedIdError,
    Prefix,
    installation_of,
    launch_key,
    off_wire,
    on_wire,
)

PREFIXES = st.sampled_from(Prefix)
INSTALLATION = "0a1b2c3d"


@given(PREFIXES, st.uuids())
def test_an_id_comes_back_from_the_wire_as_it_left(prefix: Prefix, value: UUID) -> None:
    assert off_wire(prefix, on_wire(prefix, value)) == value


@given(PREFIXES, PREFIXES, st.uuids())
def test_an_id_of_another_kind_is_refused(prefix: Prefix, other: Prefix, value: UUID) -> None:
    if prefix is not other:
        with pytest.raises(MalformedIdError, match=f"{prefix}_"):
            off_wire(prefix, on_wire(other, value))


@given(PREFIXES, st.uuids(), st.integers(0, 31), st.sampled_from("Ax_-{} +\n٣"))
def test_an_id_has_one_spelling(prefix: Prefix, value: UUID, place: int, odd: str) -> None:
    tail = value.hex[:place] + odd + value.hex[place + 1 :]
    text = f"{prefix}_{tail}"
    try:
        read = off_wire(prefix, text)
    except MalformedIdError:
        return
    assert on_wire(prefix, read) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "le",
        "le_",
        "le_" + "0" * 31,
        "le_" + "0" * 33,
        "le_" + "g" * 32,
        "le_" + "1_" * 15 + "11",
        "le_0x" + "1" * 30,
        "le_ " + "1" * 31,
        "le_" + "1" * 31 + "\n",
        "le_" + "A" * 32,
        "le_" + "٣" * 32,
        "0" * 32,
        " le_" + "0" * 32,
    ],
)
def test_an_invalid_id_is_refused_by_its_parser(text: str) -> None:
    with pytest.raises(MalformedIdError):
        off_wire(Prefix.LEASE, text)


def test_a_refusal_repeats_only_the_beginning_of_what_was_pasted() -> None:
    with pytest.raises(MalformedIdError) as refused:
        off_wire(Prefix.LEASE, "x" * 10_000)
    assert len(str(refused.value)) < 200


def test_prefixes_are_unique_and_need_no_escape_in_a_url() -> None:
    assert len(set(Prefix)) == len(Prefix)
    assert all(prefix.value.isalpha() and prefix.value.islower() for prefix in Prefix)


@given(st.uuids())
def test_a_launch_key_names_its_installation_and_fits_every_providers_name_rule(value: UUID) -> None:
    key = launch_key(INSTALLATION, value)
    assert installation_of(key) == INSTALLATION
    assert len(key) == 44
    assert key.replace("-", "").isalnum()
    assert key == key.lower()


@given(st.uuids(), st.uuids())
def test_two_attempts_never_share_a_launch_key(one: UUID, other: UUID) -> None:
    assert (launch_key(INSTALLATION, one) == launch_key(INSTALLATION, other)) == (one == other)


@pytest.mark.parametrize(
    "name",
    ["", "web-1", "sp-", f"sp-{INSTALLATION}-", f"sp-{INSTALLATION}-{'0' * 31}", f"xsp-{INSTALLATION}"],
)
def test_a_name_that_is_no_launch_key_belongs_to_no_installation(name: str) -> None:
    assert installation_of(name) is None


def test_a_name_that_only_contains_a_launch_key_is_not_one() -> None:
    key = launch_key(INSTALLATION, UUID(int=1))
    assert installation_of(f"{key}-backup") is None
    assert installation_of(f"{key}\n") is None
