"""From what a person types to a lease: an id, the beginning of one, or a name."""

from collections.abc import Sequence

from control_plane.cli.client import Client
from control_plane.cli.errors import CliError
from control_plane.cli.wire import Lease
from control_plane.domain.ids import MalformedIdError, Prefix, off_wire

LIVE_STATES = ("placing", "starting", "ready", "ending")
PREFIX_DIGITS_MIN = 4
"""Fewer digits of an id would match by chance."""


def find(client: Client, words: Sequence[str]) -> list[Lease]:
    """The leases that the words name, each once. What lives goes before what has ended."""
    live: list[Lease] | None = None
    found: dict[str, Lease] = {}
    for word in words:
        if _is_id(word):
            lease: Lease = client.get(f"/v1/leases/{word}")
        else:
            if live is None:
                live = listed(client, states=LIVE_STATES)
            matching = _matching(live, word) or _matching(listed(client, states=("ended",)), word)
            lease = _only(matching, word)
        found.setdefault(lease["id"], lease)
    return list(found.values())


def listed(client: Client, *, states: Sequence[str]) -> list[Lease]:
    leases: list[Lease] = client.every("/v1/leases", {"state": list(states)})["items"]
    return leases


def _is_id(word: str) -> bool:
    try:
        off_wire(Prefix.LEASE, word)
    except MalformedIdError:
        return False
    return True


def _matching(leases: Sequence[Lease], word: str) -> list[Lease]:
    """Those called so; if there is none, those whose id begins so, with or without its `le_`."""
    named = [lease for lease in leases if lease["name"] == word]
    digits = word.removeprefix(f"{Prefix.LEASE}_")
    if named or len(digits) < PREFIX_DIGITS_MIN:
        return named
    return [lease for lease in leases if lease["id"].startswith(f"{Prefix.LEASE}_{digits}")]


def _only(matching: Sequence[Lease], word: str) -> Lease:
    if not matching:
        raise CliError(
            f"No lease is called {word!r} and no id begins so; see: splitplane lease list --all",
            code="lease_not_found",
        )
    if len(matching) > 1:
        choices = "\n".join(
            f"  {lease['id']}  {lease['name']}  {lease['status']['phase']}" for lease in matching[:20]
        )
        raise CliError(
            f"{word!r} names {len(matching)} leases; give one of their ids:\n{choices}", code="ambiguous"
        )
    return matching[0]
