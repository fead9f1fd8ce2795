"""The list of providers, which shows in every diff; and a check that the laws run over each of them."""

from pathlib import Path

from providers.registry import discovered
from tests.contract.clouds import clouds

ROSTER = Path(__file__).parent.parent / "golden" / "roster.txt"


def test_every_provider_has_a_cloud_to_prove_its_laws_in() -> None:
    assert sorted(discovered()) == sorted(clouds())


def test_the_roster_shows_every_provider() -> None:
    assert ROSTER.read_text() == "".join(f"{name}\n" for name in discovered())
