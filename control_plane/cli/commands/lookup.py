"""Find a lease by what a person types: an id, the beginning of one, or a name."""

from collections.abc import Sequence

from control_plane.cli.answers import Answer
from control_plane.cli.client import Client
from control_plane.cli.errors import CliError
from control_plane.domain.ids import MalformedIdError, Prefix, off_wire
from control_plane.wire.leases import LeasePage, LeaseView

LIVE_STATES = ("placing", "starting", "ready", "ending")
PREFIX_DIGITS_MIN = 4
"""Fewer digits of an id would match by chance."""

Found = Answer[LeaseView]


def find(client: Client, words: Sequence[str]) -> list[Found]:
    """The leases that the words name, each once. A live lease wins over one that has ended."""
    live: list[Found] | None = None
    found: dict[str, Found] = {}
    for word in words:
        if _is_id(word):
            lease = client.get(f"/v1/leases/{word}", LeaseView)
        else:
            if live is None:
                live = listed(client, states=LIVE_STATES)
            matching = _matching(live, word) or _matching(listed(client, states=("ended",)), word)
            lease = _only(matching, word)
        found.setdefault(lease.value.id, lease)
    return list(found.values())


def listed(client: Client, *, states: Sequence[str]) -> list[Found]:
    page = client.every("/v1/leases", LeasePage, {"state": list(states)})
    return [
        Answer(content, value) for content, value in zip(page.content["items"], page.value.items, strict=True)
    ]


def _is_id(word: str) -> bool:
    try:
        off_wire(Prefix.LEASE, word)
    except MalformedIdError:
        return False
    return True


def _matching(leases: Sequence[Found], word: str) -> list[Found]:
    """The leases with this name; if there are none, those whose id begins so, with or without its `le_`."""
    named = [lease for lease in leases if lease.value.name == word]
    digits = word.removeprefix(f"{Prefix.LEASE}_")
    if named or len(digits) < PREFIX_DIGITS_MIN:
        return named
    return [lease for lease in leases if lease.value.id.startswith(f"{Prefix.LEASE}_{digits}")]


def _only(matching: Sequence[Found], word: str) -> Found:
    if not matching:
        raise CliError(
            f"No lease is called {word!r} and no id begins so; see: splitplane lease list --all",
            code="lease_not_found",
        )
    if len(matching) > 1:
        leases = [lease.value for lease in matching[:20]]
        choices = "\n".join(f"  {lease.id}  {lease.name}  {lease.status.phase}" for lease in leases)
        raise CliError(
            f"{word!r} matches {len(matching)} leases; use one of their ids:\n{choices}", code="ambiguous"
        )
    return matching[0]
