"""How long any credential opens a machine: the figures of docs/security.md, computed from the code."""

import re
from datetime import timedelta
from pathlib import Path

from control_plane.domain.ssh_authority import TRUSTED_AFTER
from control_plane.domain.ssh_certificate import BACKDATED, LASTS
from data_plane.access.authority import CERTIFICATE_LASTS_MAX
from data_plane.access.ssh import SESSION_SECONDS_MAX
from reconciler.ssh_authorities import CLOCKS_DIFFER_MAX, LOGIN_WITHIN

SECURITY, OPERATING = Path("docs/security.md"), Path("docs/operating.md")


def _minutes(page: Path, pattern: str) -> timedelta:
    (found,) = re.findall(pattern, " ".join(page.read_text().split()))
    return timedelta(minutes=int(found))


def test_the_longest_life_of_a_credential_on_a_machine_is_the_figure_in_the_docs() -> None:
    longest = r"The longest life of any credential that opens a machine is (\d+) minutes"
    assert _minutes(SECURITY, longest) == CERTIFICATE_LASTS_MAX
    assert LOGIN_WITHIN + CLOCKS_DIFFER_MAX <= CERTIFICATE_LASTS_MAX
    assert BACKDATED + LASTS <= CERTIFICATE_LASTS_MAX, "a customer's"
    customers = r"the customer's user on the machine of one lease \| (\d+) minutes"
    assert _minutes(SECURITY, customers) == LASTS
    ours = r"a certificate of the reconciler's, with its key \| root on one machine \| (\d+) minutes"
    assert _minutes(SECURITY, ours) == LOGIN_WITHIN
    session = r"A session that it opened is ended by us after (\d+) minutes"
    assert _minutes(SECURITY, session) == timedelta(seconds=SESSION_SECONDS_MAX)


def test_an_authority_is_trusted_until_the_last_certificate_that_it_signed_has_ended() -> None:
    assert TRUSTED_AFTER > CERTIFICATE_LASTS_MAX
    kept = r"The one before is trusted for (\d+) minutes more"
    assert _minutes(OPERATING, kept) == TRUSTED_AFTER
