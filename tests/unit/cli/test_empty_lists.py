"""A list with nothing in it says so; a row of headings over nothing looks like a failure."""

from pathlib import Path
from typing import Any

from tests.support.cases import check_every
from tests.unit.cli import answers
from tests.unit.cli.answers import LEASE_ID
from tests.unit.cli.stand import Answer, Stand
from tests.unit.cli.test_help import COMMANDS

LISTS = [name.removeprefix("splitplane ") for name in COMMANDS if name.endswith(" list")]
LISTS.remove("firewall list")  # SSH and WireGuard are always on it.
OF_A_LEASE = ("ssh-certificate list", "proof list")


EMPTY: Answer = {
    "items": [],
    "next_cursor": None,
    # Of liabilities:
    "count": 0,
    "unpriced": 0,
    "cost_per_hour": answers.usd(0),
    "cost": answers.usd(0),
}


class _Nothing(dict[str, Answer]):
    """Every list is empty."""

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key, EMPTY)


def test_a_list_with_nothing_in_it_says_so_in_words(tmp_path: Path) -> None:
    def check(name: str) -> None:
        stand = Stand(tmp_path, _Nothing({f"GET /v1/leases/{LEASE_ID}": answers.a_lease()}))
        shown = stand.run(*name.split(), *([LEASE_ID] if name in OF_A_LEASE else []))
        assert shown.code == 0, shown.err
        assert any(letter.islower() for letter in shown.out), shown.out

    check_every(LISTS, check)
