"""What is read from a listing: all of it or nothing, exact prices, known words, our keys."""

from decimal import Decimal

import msgspec
import pytest

from control_plane.domain.ids import ProviderRef
from control_plane.domain.listed import oddity
from control_plane.domain.money import NANO_MAX
from providers.base import ListedState, Page, Sighting, Unavailable, Verb
from providers.listings import (
    UNREADABLE_PRICE,
    UnreadableAnswer,
    ip_address_of,
    nano_usd,
    offered_price,
    reference_of,
    sighting,
    state_of,
    whole_listing,
)
from tests.contract.clouds import a_key
from tests.support.values import an_offer

STATES = {"active": ListedState.RUNNING, "gone": ListedState.GONE}


async def read(*pages: Page[int], pages_max: int = 200) -> tuple[int, ...]:
    asked: list[str | None] = []
    left = list(pages)

    async def read_page(cursor: str | None) -> Page[int]:
        asked.append(cursor)
        return left.pop(0)

    items = await whole_listing(Verb.INVENTORY, read_page, pages_max=pages_max)
    assert asked == [None, *(page.next_cursor for page in pages[:-1])]
    return items


async def test_pages_are_read_to_the_last_in_their_order() -> None:
    assert await read(Page([1, 2], "a"), Page([], "b"), Page([3], None)) == (1, 2, 3)
    assert await read(Page([1], "a", total=3), Page([2, 3], None, total=3)) == (1, 2, 3)
    assert await read(Page([1], "", listed=2, total=3), Page([], None, listed=1, total=3)) == (1,)


@pytest.mark.parametrize(
    "pages",
    [
        [Page([1], "a"), Page([2], "a")],
        [Page([1], "a"), Page([2], "b"), Page([3], "a")],
        [Page([1], "a", total=3), Page([2], None, total=3)],
        [Page([1, 2], None, total=1)],
        [Page([1], "a"), Page([2], "b"), Page([3], "c"), Page([4], "d")],
    ],
    ids=["a cursor twice", "a circle", "too few", "too many", "no end"],
)
async def test_a_listing_that_is_not_whole_is_an_error(pages: list[Page[int]]) -> None:
    with pytest.raises(Unavailable):
        await read(*pages, pages_max=4)


class Priced(msgspec.Struct):
    price: Decimal


@pytest.mark.parametrize(
    ("body", "nano"),
    [
        ('{"price": "3.17"}', 3_170_000_000),
        ('{"price": 3.17}', 3_170_000_000),
        ('{"price": 0.1}', 100_000_000),
        ('{"price": 0.5388888888888889}', 538_888_889),
        ('{"price": 1e-10}', 1),
        ('{"price": 0}', 0),
        ('{"price": 9223372036.854775807}', NANO_MAX),
    ],
)
def test_a_price_is_read_digit_by_digit_from_a_number_or_a_string(body: str, nano: int) -> None:
    assert nano_usd(msgspec.json.decode(body, type=Priced).price) == nano


def test_cents_are_whole_or_not_and_a_fraction_of_a_nano_is_rounded_up() -> None:
    assert nano_usd(329, per_usd=100) == 3_290_000_000
    assert nano_usd(Decimal("32.9"), per_usd=100) == 329_000_000
    assert nano_usd("0.0000000001", per_usd=100) == 1


@pytest.mark.parametrize(
    "text", ["NaN", "Infinity", "-1", "-0.01", "1e400000", "9223372036.854775808", "", "free"]
)
def test_an_invalid_amount_makes_the_answer_unreadable(text: str) -> None:
    with pytest.raises(UnreadableAnswer):
        nano_usd(text)


def test_an_offer_without_a_readable_price_is_one_that_the_catalogue_leaves_out() -> None:
    assert offered_price("2.5") == nano_usd("2.5")
    assert offered_price(250, per_usd=100) == nano_usd("2.5")
    for text in ("NaN", "-1", "1e400000", "free"):
        assert offered_price(text) == UNREADABLE_PRICE, text
        assert oddity(an_offer(cost_nano_per_hour=offered_price(text))) is not None, text


def test_a_status_word_is_known_or_unknown_and_never_guessed() -> None:
    assert [state_of(word, STATES) for word in ("active", "Active", "ACTIVE ", "")] == [
        ListedState.RUNNING,
        *[ListedState.UNKNOWN] * 3,
    ]


def test_a_machine_is_ours_by_the_first_mark_that_is_a_launch_key() -> None:
    def found(*marks: str | None) -> Sighting | None:
        return sighting("m-1", marks, "active", STATES, address="192.0.2.7/32", ssh_port=2222)

    shown = Sighting(ProviderRef("m-1"), a_key(1), ListedState.RUNNING, "active", "192.0.2.7", 2222)
    assert found(a_key(1), a_key(2)) == found(None, "", "renamed", a_key(1)) == shown
    assert found() is found(None, "sp-looks-like-ours", a_key(1) + "x") is None


def test_what_cannot_be_stored_or_shown_is_refused_in_an_id_and_blanked_in_a_status() -> None:
    for native_id in ("m\0", "m\n1", "m\x1b[2J", "m" * 257):
        with pytest.raises(UnreadableAnswer):
            sighting(native_id, (a_key(1),), "active", STATES, address=None)
    found = sighting("m-1", (a_key(1),), "odd\0\x1b" + "x" * 200, STATES, address=None)
    assert found is not None
    assert (found.state, found.native_status) == (ListedState.UNKNOWN, "odd  " + "x" * 95)


def test_a_type_or_a_port_that_cannot_be_stored_is_left_out_and_costs_no_listing() -> None:
    for port, native_type, shown in (
        (2222, "gpu-1x", ("192.0.2.7", 2222, "gpu-1x")),
        (2222, "gpu\0", ("192.0.2.7", 2222, None)),
        (0, "gpu-1x", (None, 22, "gpu-1x")),
        (65_536, "", (None, 22, None)),
        (2**40, None, (None, 22, None)),
    ):
        found = sighting(
            "m-1", (a_key(1),), "active", STATES, address="192.0.2.7", ssh_port=port, native_type=native_type
        )
        assert found is not None
        assert (found.address, found.ssh_port, found.native_type) == shown


def test_an_id_is_a_reference_also_when_it_is_a_number_and_never_empty() -> None:
    assert [reference_of(each) for each in ("m-1", 7)] == ["m-1", "7"]
    for unusable in ("", "x" * 300):
        with pytest.raises(UnreadableAnswer):
            reference_of(unusable)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (None, None),
        ("", None),
        ("0.0.0.0", None),
        ("192.0.2.7", "192.0.2.7"),
        ("192.0.2.7/32", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::1"),
    ],
)
def test_an_address_is_an_ip_address_or_none_yet(text: str | None, address: str | None) -> None:
    assert ip_address_of(text) == address


def test_an_address_that_is_no_ip_address_makes_the_answer_unreadable() -> None:
    with pytest.raises(UnreadableAnswer):
        ip_address_of("$(reboot)")
