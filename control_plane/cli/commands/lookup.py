"""Find a lease, or what else has a name, by what a person types: an id, the beginning of one, or a name."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from control_plane.cli.answers import Answer
from control_plane.cli.client import Client
from control_plane.cli.errors import CliError
from control_plane.cli.parsing import is_id, suggestion
from control_plane.wire.leases import LeasePage, LeaseView
from control_plane.wire.subjects import ServiceAccountPage, UserPage

LIVE_STATES = ("placing", "starting", "ready", "ending")
PREFIX = "le"
PREFIX_DIGITS_MIN = 4
"""Fewer digits of an id would match by chance."""

LEASE_HELP = "name, id, or the unambiguous beginning of an id"
Found = Answer[LeaseView]


class Named(Protocol):
    """What a person can name: by its name, its id, or the beginning of its id."""

    id: str
    name: str


N = TypeVar("N", bound=Named)


def find(client: Client, words: Sequence[str]) -> list[Found]:
    """The leases that the words name, each once. A live lease wins over one that has ended."""
    live: list[Found] | None = None
    found: dict[str, Found] = {}
    for word in words:
        if is_id(PREFIX, word):
            lease = client.get(f"/v1/leases/{word}", LeaseView)
        else:
            if live is None:
                live = listed(client, states=LIVE_STATES)
            matching = _matching(live, word) or _matching(listed(client, states=("ended",)), word)
            lease = _only(matching, word, live)
        found.setdefault(lease.value.id, lease)
    return list(found.values())


def named(items: Sequence[N], word: str) -> list[N]:
    """The items with this name or id; if there are none, those whose id begins so."""
    found = [item for item in items if word in (item.name, item.id)]
    if found or len(word.partition("_")[2]) < PREFIX_DIGITS_MIN:
        return found
    return [item for item in items if item.id.startswith(word)]


SUBJECT_PREFIXES = ("user", "sa")


def find_subject(client: Client, word: str) -> str:
    """The id of a user, by its email address, or of a service account, by its name; an id is taken as it is."""
    if any(is_id(prefix, word) for prefix in SUBJECT_PREFIXES):
        return word
    if "@" in word:
        users = client.every("/v1/users", UserPage).value.items
        found = [user.id for user in users if user.email.lower() == word.lower()]
        known = [user.email for user in users]
    else:
        accounts = client.every("/v1/service-accounts", ServiceAccountPage).value.items
        found = [account.id for account in named(accounts, word)]
        known = [account.name for account in accounts]
    if len(found) != 1:
        near = suggestion(word, known)
        raise CliError(
            f"There is no user or service account {word!r}.{near} See: splitplane user list,"
            " splitplane service-account list",
            code="subject_unknown",
        )
    return found[0]


def listed(client: Client, *, states: Sequence[str]) -> list[Found]:
    page = client.every("/v1/leases", LeasePage, {"state": list(states)})
    return each_of(page.content["items"], page.value.items)


def each_of(contents: Sequence[Any], values: Sequence[LeaseView]) -> list[Found]:
    """Leases that were answered together, each in both of its forms."""
    return [Answer(content, value) for content, value in zip(contents, values, strict=True)]


def _matching(leases: Sequence[Found], word: str) -> list[Found]:
    """The leases with this name; if there are none, those whose id begins so, with or without its `le_`."""
    named = [lease for lease in leases if lease.value.name == word]
    digits = word.removeprefix(f"{PREFIX}_")
    if named or len(digits) < PREFIX_DIGITS_MIN:
        return named
    return [lease for lease in leases if lease.value.id.startswith(f"{PREFIX}_{digits}")]


def _only(matching: Sequence[Found], word: str, live: Sequence[Found]) -> Found:
    if not matching:
        near = suggestion(word, (lease.value.name for lease in live))
        raise CliError(
            f"No lease is called {word!r} and no id begins so.{near}",
            code="lease_not_found",
        )
    if len(matching) > 1:
        leases = [lease.value for lease in matching[:20]]
        choices = "\n".join(f"  {lease.id}  {lease.name}  {lease.state}" for lease in leases)
        raise CliError(
            f"{word!r} matches {len(matching)} leases; use one of their ids:\n{choices}", code="ambiguous"
        )
    return matching[0]
