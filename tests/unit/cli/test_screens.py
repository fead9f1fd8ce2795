"""What every command shows, at 80 columns, held as golden files. GOLDEN=write, then look at the diff."""

from pathlib import Path

import httpx

from tests.support import golden
from tests.support.cases import check_every
from tests.unit.cli import answers
from tests.unit.cli.answers import LEASE_ID, PROOF_ID
from tests.unit.cli.stand import Answer, Stand

FOLDER = Path("tests/golden/cli")
PAGE: Answer = {"items": answers.leases(), "next_cursor": None}
PAGE_OF_PROJECTS = answers.of_two_projects({"items": answers.leases(), "next_cursor": None}, "items")
EMPTY: Answer = {"items": [], "next_cursor": None}
PROBLEM: Answer = httpx.Response(
    403,
    json={
        "type": "urn:splitplane:error:permission_denied",
        "title": "Forbidden",
        "status": 403,
        "detail": "This needs the permission `loops.read`, which the role of your API key does not have.",
        "code": "permission_denied",
        "request_id": "req_1",
        "permission": "loops.read",
    },
)
SHOW = f"GET /v1/leases/{LEASE_ID}"
PROOF = f"GET /v1/proofs/{PROOF_ID}"
WHY = f"GET /v1/leases/{LEASE_ID}/explanation"

SCREENS: dict[str, tuple[str, dict[str, Answer]]] = {
    "whoami": ("whoami", {"GET /v1/organization": answers.ORGANIZATION}),
    "ssh_key_list": ("ssh-key list", {"GET /v1/ssh-keys": answers.SSH_KEYS}),
    "ssh_key_list_empty": ("ssh-key list", {"GET /v1/ssh-keys": EMPTY}),
    "project_list": ("project list", {"GET /v1/projects": answers.PROJECTS}),
    "project_create": ("project create research", {"POST /v1/projects": answers.PROJECTS["items"][1]}),
    "skus": ("skus", {"GET /v1/skus": answers.SKUS}),
    "skus_empty": ("skus", {"GET /v1/skus": EMPTY}),
    "offers": ("offers", {"GET /v1/offers": answers.offers(cost=False)}),
    "offers_operator": ("offers", {"GET /v1/offers": answers.offers(cost=True)}),
    "quote": ("quote h100x8 --region eu", {"POST /v1/quotes": answers.QUOTE}),
    "quote_refused": ("quote h100x8 --region eu", {"POST /v1/quotes": answers.QUOTE_REFUSED}),
    "lease_list": ("lease list --all", {"GET /v1/leases": PAGE}),
    "lease_list_of_projects": ("lease list --all", {"GET /v1/leases": PAGE_OF_PROJECTS}),
    "lease_list_empty": ("lease list", {"GET /v1/leases": EMPTY}),
    "lease_show_pending": (f"lease show {LEASE_ID}", {SHOW: answers.a_lease("placing")}),
    "lease_show_starting": (f"lease show {LEASE_ID}", {SHOW: answers.a_lease("starting")}),
    "lease_show_ready": (f"lease show {LEASE_ID}", {SHOW: answers.a_lease()}),
    "lease_show_ended": (
        f"lease show {LEASE_ID}",
        {SHOW: answers.a_lease("ended", end_reason="released", end_why="released by the customer")},
    ),
    "why": (f"why {LEASE_ID}", {SHOW: answers.a_lease(), WHY: answers.EXPLANATION}),
    "proof_list": (f"proof list {LEASE_ID}", {SHOW: answers.a_lease(), f"{SHOW}/proofs": answers.PROOFS}),
    "proof_list_empty": (f"proof list {LEASE_ID}", {SHOW: answers.a_lease(), f"{SHOW}/proofs": EMPTY}),
    "proof_show_passed": (
        f"proof show {LEASE_ID}",
        {SHOW: answers.a_lease(), PROOF: answers.a_proof("passed")},
    ),
    "proof_show_failed": (f"proof show {PROOF_ID}", {PROOF: answers.a_proof("failed")}),
    "proof_show_unanswered": (f"proof show {PROOF_ID}", {PROOF: answers.UNANSWERED}),
    "proof_show_emulated": (f"proof show {PROOF_ID}", {PROOF: answers.EMULATED}),
    "proof_record": ("proof record", {"GET /v1/operator/proofs": answers.PROOF_RECORDS}),
    "proof_record_none": ("proof record --account local", {"GET /v1/operator/proofs": EMPTY}),
    "account_permit_terminations": (
        "account permit-terminations lambda_cloud --why slices --yes",
        {"POST /v1/operator/termination-permits": answers.PERMIT},
    ),
    "usage": ("usage", {"GET /v1/usage": answers.USAGE}),
    "usage_of_projects": ("usage", {"GET /v1/usage": answers.of_two_projects(answers.USAGE, "items")}),
    "usage_empty": ("usage --since 7d", {"GET /v1/usage": EMPTY}),
    "bill": ("bill", {"GET /v1/bill": answers.BILL}),
    "bill_of_projects": ("bill", {"GET /v1/bill": answers.of_two_projects(answers.BILL, "lines")}),
    "bill_empty": (
        "bill",
        {"GET /v1/bill": answers.BILL | {"lines": [], "amount": answers.usd(0), "unrated": answers.usd(0)}},
    ),
    "loops": ("loops", {"GET /v1/operator/loops": answers.LOOPS}),
    "loops_none": ("loops", {"GET /v1/operator/loops": EMPTY}),
    "orphans": ("orphans", {"GET /v1/operator/orphans": answers.ORPHANS}),
    "orphans_none": ("orphans", {"GET /v1/operator/orphans": EMPTY}),
    "account_list": ("account list", {"GET /v1/operator/accounts": answers.ACCOUNTS}),
    "permission_denied": ("loops", {"GET /v1/operator/loops": PROBLEM}),
}


ANSWERED = [name for name in SCREENS if name != "permission_denied"]


def test_a_screen_reads_as_it_should(tmp_path: Path) -> None:
    def check(name: str) -> None:
        command, known = SCREENS[name]
        shown = Stand(tmp_path, known).run(*command.split())
        golden.check(FOLDER / f"{name}.txt", f"$ splitplane {command}\n{shown.golden()}")

    check_every(SCREENS, check)


def test_a_screen_fits_80_columns_and_ends_its_lines_where_the_text_ends(tmp_path: Path) -> None:
    def check(name: str) -> None:
        command, known = SCREENS[name]
        for line in Stand(tmp_path, known).run(*command.split()).out.splitlines():
            assert len(line) <= 80, line
            assert line == line.rstrip()

    check_every(ANSWERED, check)


def test_json_is_the_answer_itself_on_every_command(tmp_path: Path) -> None:
    def check(name: str) -> None:
        command, known = SCREENS[name]
        shown = Stand(tmp_path, known).run(*command.split(), "--json")
        answered = [answer for answer in known.values() if isinstance(answer, dict)][-1]
        assert httpx.Response(200, text=shown.out).json() == answered

    check_every(ANSWERED, check)
