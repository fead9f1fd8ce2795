"""The installed command against the real API process, with the real reconciler and simulated machines."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from demo import prices
from tests.integration.cli.conftest import City, wait_until

pytestmark = [pytest.mark.database, pytest.mark.xdist_group("cli")]
SPLITPLANE = str(Path(sys.executable).with_name("splitplane"))
SKU = "h100-sxm.1x"


def test_a_lease_from_the_quote_to_the_bill(city: City) -> None:
    assert "Would be admitted" in city.run("quote", SKU, "--region", "eu", "--max-price", "5")
    lease = city.answer("lease", "create", SKU, "--name", "story", "--region", "eu")
    assert lease["state"] == "ready"
    assert "story" in city.run("lease", "list")
    assert "splitplane lease ssh story" in city.run("lease", "show", lease["id"][:15])

    why = city.run("why", "story")
    for part in (
        "Admission",
        "Placement 1",
        "Chosen: fake",
        "Attempt 1",
        "GPUs verified, emulated",
        "Journal",
    ):
        assert part in why

    printed = city.run("lease", "ssh", "story", "--print")
    assert f"ubuntu@{lease['machine']['address']}" in printed
    assert city.run("lease", "release", "story", code=2).endswith(
        "To confirm, run: splitplane lease release story --yes\n"
    )
    assert "ended" in city.run("lease", "release", "story", "--yes", "--wait")
    wait_until("its charge", lambda: city.answer("usage")["items"])
    assert city.run("usage", "--csv").startswith("charge_id,")
    assert "story" in city.run("bill")
    assert city.answer("bill")["amount"]["nano"] == sum(
        row["amount"]["nano"] for row in city.answer("usage")["items"]
    )


def test_a_sku_that_demands_proof_takes_no_emulated_machine_and_says_why(city: City) -> None:
    """The whole way: reconciler, simulated prover, challenger and verifier, the API, the terminal."""
    city.run("lease", "create", prices.PROVEN_SKU, "--name", "strict", "--no-wait")
    assert f"proven before they are leased: {prices.PROVEN_SKU}" in city.run("skus")
    wait_until("a challenge", lambda: city.answer("proof", "list", "strict")["items"])
    proof = city.answer("proof", "list", "strict")["items"][-1]
    assert (proof["outcome"], proof["source"]) == ("emulated", "emulated")
    assert "an emulation, which is no proof" in city.run("proof", "show", proof["id"])
    assert "proof emulated" in city.run("why", "strict")
    records = city.answer("proof", "record", **city.operator)["items"]
    assert proof["id"] in {one["id"] for one in records}
    assert not any(one["ended"] for one in records)
    city.run("lease", "release", "strict", "--yes")


def test_several_leases_are_watched_at_a_terminal_with_bars(city: City) -> None:
    names = ["bar-1", "bar-2", "bar-3"]
    for name in names:
        city.run("lease", "create", SKU, "--name", name, "--no-wait")
    seen = _at_a_terminal(city, "lease", "watch", *names)
    for name in names:
        assert name in seen
    assert "━━━━" in seen
    assert "7/7" in seen
    assert re.search(r"\x1b\[3[0-9]m", seen), "colours at a terminal"
    plain = _at_a_terminal(city, "lease", "list", NO_COLOR="1")
    assert not re.search(r"\x1b\[3[0-9]m", plain)
    city.run("lease", "release", *names, "--yes")


def _at_a_terminal(city: City, *arguments: str, **environ: str) -> str:
    leader, follower = pty.openpty()
    size = {"COLUMNS": "80", "LINES": "40"}
    process = subprocess.Popen(
        [SPLITPLANE, *arguments],
        env=city.environ(**size, **environ),
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    seen = b""
    while True:
        try:
            piece = os.read(leader, 65_536)
        except OSError:  # Linux says EIO when the last writer is gone.
            break
        if not piece:
            break
        seen += piece
    os.close(leader)
    assert process.wait(10) == 0, seen
    return seen.decode()


def test_refusals_of_the_real_api_read_well(city: City) -> None:
    assert "see: splitplane skus" in city.run("quote", "nothing", code=1)
    assert "--region takes a jurisdiction" in city.run("quote", SKU, "--region", "Mars", code=1)
    assert "price_above_ceiling" in city.run("quote", SKU, "--max-price", "0.01", code=1)
    assert "lease_not_found" in city.run("lease", "show", f"le_{0:032x}", code=1)
    assert "ssh_key_unknown" in city.run("lease", "create", SKU, "--ssh-key", "nobody", code=1)
    assert "name_taken" in city.run("ssh-key", "add", "laptop", code=1)
    assert "unauthenticated" in city.run(
        "skus", code=1, SPLITPLANE_URL=city.url, SPLITPLANE_API_KEY="spk_wrong"
    )
    gone = {"SPLITPLANE_URL": "http://127.0.0.1:1", "SPLITPLANE_API_KEY": "spk_x"}
    assert "error: unreachable: Cannot reach" in city.run("skus", "--timeout", "3", code=3, **gone)


def test_the_installed_command_speaks_to_the_real_api(city: City) -> None:
    """As a process of its own: exit code, both streams, and a reader that goes away early."""
    done = subprocess.run(
        [SPLITPLANE, "whoami"], env=city.environ(), capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("owner  service account\n")
    assert (done.stderr, city.api_key in done.stdout) == ("", False)
    line = f"{SPLITPLANE} offers --json | head -1; exit ${{PIPESTATUS[0]}}"
    piped = subprocess.run(
        ["bash", "-c", line], env=city.environ(), capture_output=True, text=True, check=True
    )
    assert (piped.stdout, piped.stderr) == ("{\n", "")


def _completed(city: City, line: str) -> set[str]:
    """What a shell offers after the line when Tab is pressed."""
    into = city.home / "completions"
    shell = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(into),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    done = subprocess.run([SPLITPLANE], env=city.environ(**shell), capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    return {word.strip() for word in into.read_text().split("\n")}


def test_a_shell_completes_commands_options_and_the_names_of_the_real_api(city: City) -> None:
    city.run("lease", "create", SKU, "--name", "tab-1", "--no-wait")
    assert _completed(city, "splitplane lease wa") == {"watch"}
    assert "--region" in _completed(city, "splitplane lease create --re")
    assert _completed(city, "splitplane lease watch tab") == {"tab-1"}
    assert SKU in _completed(city, f"splitplane quote {SKU[:3]}")
    city.run("lease", "release", "tab-1", "--yes")


def test_operators_see_organizations_that_finance_tops_up_and_rotate_keys(city: City) -> None:
    secret = city.run("organization", "create", "newcomer", "--quiet", **city.operator).strip()
    assert "newcomer" in city.run("organization", "list", **city.operator)
    paid = ("finance", "topup", "newcomer", "12.50", "--reason", "SEPA 000815", "--yes")
    refused = city.run(*paid, code=1, **city.operator)
    assert "`ledger.post`" in refused
    city.run(*paid, **city.finance)
    assert "12.50 USD" in city.run("organization", "show", "newcomer", **city.operator)
    assert "agree" in city.run("reconciliation", "--organization", "newcomer", **city.operator)
    theirs: dict[str, Any] = {"SPLITPLANE_URL": city.url, "SPLITPLANE_API_KEY": secret}
    rotate = ("api-key", "rotate", "--overlap-hours", "0", "--yes", "--quiet")
    new = city.run(*rotate, **theirs).strip()
    assert new.startswith("spk_")
    assert new != secret
    theirs["SPLITPLANE_API_KEY"] = new
    keys = json.loads(city.run("api-key", "list", "--all", "--json", **theirs))["items"]
    assert [key["expires_at"] is None for key in keys] == [False, True]
    assert "expired" in city.run("api-key", "list", "--all", **theirs)
    assert "agree" in city.run("reconciliation", **theirs)


def test_operators_see_loops_and_accounts(city: City) -> None:
    wait_until("loops report", lambda: city.answer("loops", **city.operator)["items"])
    loops = city.run("loops", **city.operator)
    assert "place_leases" in loops
    assert "● ok" in loops
    assert "fake" in city.run("account", "list", **city.operator)


def test_people_and_machines_get_roles_where_they_work(city: City) -> None:
    city.run("project", "create", "vision")
    city.run("environment", "create", "prod", "--project", "vision")
    city.run("user", "invite", "dora@example.com", "Dora")
    city.run("service-account", "create", "runner")
    city.run("role", "grant", "viewer", "dora@example.com", "--project", "vision")
    city.run("role", "grant", "member", "runner", "--project", "vision", "--environment", "prod")
    secret = city.run("api-key", "create", "nightly", "--owner", "runner", "--days", "90", "--quiet").strip()
    runner: dict[str, Any] = {"SPLITPLANE_URL": city.url, "SPLITPLANE_API_KEY": secret}
    assert "member of environment" in city.run("whoami", **runner)
    where = ("--project", "vision", "--environment", "prod")
    lease = ("lease", "create", SKU, "--name", "nightly", *where, "--no-ssh-key", "--no-wait")
    city.run(*lease, **runner)
    assert "nightly" in city.run("lease", "list", **runner)
    assert "tab-1" not in city.run("lease", "list", "--all", **runner)
    city.run("lease", "create", SKU, "--no-ssh-key", "--no-wait", code=1, **runner)
    city.run("lease", "release", "nightly", "--yes", **runner)
    city.run("service-account", "suspend", "runner")
    assert "unauthenticated" in city.run("whoami", code=1, **runner)
    assert "dora@example.com" in city.run("user", "list")
    binding = city.answer("role", "list", "dora@example.com")["items"][0]["id"]
    city.run("role", "revoke", binding, "--yes")


def test_every_screen_of_the_real_api_has_its_json(city: City) -> None:
    for command in (
        "whoami",
        "ssh-key list",
        "skus",
        "offers",
        "lease list --all",
        "usage",
        "bill",
        "user list",
        "service-account list",
        "role list",
        "environment list",
    ):
        assert isinstance(city.answer(*command.split()), dict), command
    for command in ("loops", "orphan list", "account list", "organization list"):
        assert isinstance(city.answer(*command.split(), **city.operator), dict), command
