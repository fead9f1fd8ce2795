"""What every adapter reads from a provider's listings in the same way: pages, prices, status words, launch keys.

Nothing here depends on the transport. What cannot be read raises UnreadableAnswer, which `rest.py`
turns into the error of the verb; it makes the whole answer unusable, because a listing that is
partly understood is an incomplete listing.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from ipaddress import ip_interface
from typing import TypeVar
from uuid import UUID

from control_plane.domain.ids import LaunchKey, ProviderRef, installation_of
from control_plane.domain.money import NANO_MAX, NANO_PER_USD, Nano
from providers.base import ListedState, Page, Sighting, Verb
from providers.error_law import Meaning, error_for, redacted

LAUNCH_KEY_TAG = "sp-launch-key"
"""The name of the tag that holds the launch key, where a provider has tags with values."""
UNREADABLE_PRICE = Nano(-1)
"""The price of an offer that is no amount of money. `control_plane/domain/listed.py` leaves such an offer out."""
PAGES_MAX = 200
REFERENCE_CHARACTERS_MAX = 256
STATUS_CHARACTERS_MAX = 100
PORT_MAX = 65_535
_NO_ADDRESS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - what providers write for "none yet"; nothing listens there

Item = TypeVar("Item")


class UnreadableAnswer(ValueError):  # noqa: N818 - it says what the answer is
    """A provider's answer does not say what it should. The text is ours and holds nothing of the answer."""


async def whole_listing(
    verb: Verb, read_page: Callable[[str | None], Awaitable[Page[Item]]], *, pages_max: int = PAGES_MAX
) -> tuple[Item, ...]:
    """Every item of a listing that comes in pages, or an error: never a part of it.

    Raises Unavailable when a cursor repeats, when there are more than `pages_max` pages, or when the
    pages do not add up to the total that the provider states, and whatever `read_page` raises.
    """
    items: list[Item] = []
    cursors: set[str | None] = {None}
    cursor: str | None = None
    listed = 0
    for _ in range(pages_max):
        page = await read_page(cursor)
        items.extend(page.items)
        listed += len(page.items) if page.listed is None else page.listed
        if page.next_cursor is None:
            if page.total is not None and page.total != listed:
                raise error_for(verb, Meaning.UNCLEAR, f"{listed} entries were listed of {page.total}")
            return tuple(items)
        if page.next_cursor in cursors:
            raise error_for(verb, Meaning.UNCLEAR, "a cursor came twice, so the listing has no end")
        cursors.add(page.next_cursor)
        cursor = page.next_cursor
    raise error_for(verb, Meaning.UNCLEAR, f"the listing has more than {pages_max} pages")


def nano_usd(amount: Decimal | int | str, *, per_usd: int = 1, units: int = 1) -> Nano:
    """What `units` cost in nano-USD at this price; `per_usd` is 100 for an amount in cents. A fraction is rounded up.

    Declare a price as `Decimal` in the adapter's struct: that reads a JSON number and a JSON string
    digit by digit, and no float is involved. Raises UnreadableAnswer for anything but a finite amount
    of at least zero.

    >>> nano_usd(329, per_usd=100)
    3290000000
    >>> nano_usd("0.5388888888888889")
    538888889
    """
    try:
        exact = Decimal(amount)
        # First of all a bound on the size: 1E+400000 would be a number of that many digits.
        if not (exact.is_finite() and 0 <= exact <= NANO_MAX):
            raise UnreadableAnswer("a price is not an amount of money")
        nano = int((exact * units * NANO_PER_USD / per_usd).to_integral_value(ROUND_CEILING))
    except ArithmeticError:
        raise UnreadableAnswer("a price is not a number") from None
    if nano > NANO_MAX:
        raise UnreadableAnswer("a price is too large")
    return Nano(nano)


def offered_price(amount: Decimal | int | str, *, per_usd: int = 1, units: int = 1) -> Nano:
    """The price of an offer, as `nano_usd` reads it; UNREADABLE_PRICE where that would raise.

    Such an offer is left out of the catalogue with a note, and the provider's other offers are used: nothing is
    bought that is not listed, so a listing of offers need not be complete.
    """
    try:
        return nano_usd(amount, per_usd=per_usd, units=units)
    except UnreadableAnswer:
        return UNREADABLE_PRICE


def state_of(native_status: str, states: Mapping[str, ListedState]) -> ListedState:
    """The state that a status word stands for in the provider's table; UNKNOWN for a word that it lacks."""
    return states.get(native_status, ListedState.UNKNOWN)


def launch_key_among(marks: Iterable[str | None]) -> LaunchKey | None:
    """The first launch key among a machine's tag values, names and labels; None for a machine that is not ours.

    Give the tag first and the name after it: people can change a name in the provider's console.
    """
    return next((LaunchKey(mark) for mark in marks if mark is not None and installation_of(mark)), None)


def ip_address_of(text: str | None) -> str | None:
    """The IP address in a listing, without a prefix length; None where there is none yet.

    >>> ip_address_of("192.0.2.7/32")
    '192.0.2.7'
    """
    if text is None or text in _NO_ADDRESS:
        return None
    try:
        return str(ip_interface(text).ip)
    except ValueError:
        raise UnreadableAnswer("an address is no IP address") from None


def address_or_name(text: str | None) -> str | None:
    """The IP address where a listing may have a host name instead; None for a name and where there is nothing yet.

    >>> address_or_name("box.example.com") is None
    True
    """
    try:
        return ip_address_of(text)
    except UnreadableAnswer:
        return None


def reference_of(native_id: str | int | UUID) -> ProviderRef:
    """A provider's id for a machine or one of its children, as our reference. Raises UnreadableAnswer for an unusable
    one.
    """
    text = str(native_id)
    if not 0 < len(text) <= REFERENCE_CHARACTERS_MAX or not text.isprintable():
        raise UnreadableAnswer("a machine or one of its children has no usable id")
    return ProviderRef(text)


def sighting(
    native_id: str | int,
    marks: Iterable[str | None],
    native_status: str,
    states: Mapping[str, ListedState],
    *,
    address: str | None,
    ssh_port: int = 22,
    native_type: str | None = None,
) -> Sighting | None:
    """A listed machine as the port shows it, or None when it carries none of our launch keys.

    What PostgreSQL would refuse is blanked or left out, because one machine's status, type or port must not cost the
    whole listing: a NUL, and a number that is no port. A machine without a usable port has no address either.
    """
    launch_key = launch_key_among(marks)
    if launch_key is None:
        return None
    reachable = 0 < ssh_port <= PORT_MAX
    return Sighting(
        reference_of(native_id),
        launch_key,
        state_of(native_status, states),
        native_status=redacted(native_status, (), STATUS_CHARACTERS_MAX),
        address=ip_address_of(address) if reachable else None,
        ssh_port=ssh_port if reachable else 22,
        native_type=native_type if native_type and native_type.isprintable() else None,
    )


def ours(found: Iterable[Sighting | None]) -> tuple[Sighting, ...]:
    """The machines of a listing that are ours: each that `sighting` did not turn into None."""
    return tuple(each for each in found if each is not None)
