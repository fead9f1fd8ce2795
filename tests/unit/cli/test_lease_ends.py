"""An operator ends a single lease on the command line: named by its id, or by the machine that it holds."""

import json
from pathlib import Path

from tests.unit.cli import answers
from tests.unit.cli.stand import Answer, Stand

FRESH = answers.OTHER_ORGANIZATION
LEASE = answers.LEASE_ID
HELD = answers.FLEET["items"][0] | {"lease_id": LEASE, "lease": "train-1"}
MACHINES = "GET /v1/operator/fleet/machines"


def _stand(home: Path, *held: dict[str, object]) -> Stand:
    known: dict[str, Answer] = {
        "GET /v1/operator/organizations": answers.ORGANIZATIONS,
        MACHINES: {"items": list(held), "next_cursor": None},
        f"POST /v1/operator/organizations/{FRESH['id']}/leases/{LEASE}/end": answers.LEASE_END,
    }
    return Stand(home, known)


def test_a_lease_is_named_by_its_id_or_by_the_machine_that_it_holds(tmp_path: Path) -> None:
    for word in (LEASE, "train-1"):
        stand = _stand(tmp_path, HELD, HELD)
        shown = stand.run("organization", "end-lease", "fresh", word, "--reason", "ticket 4711", "--yes")
        assert (shown.code, "ticket 4711" in shown.out) == (0, True), shown.err
        assert json.loads(stand.requests[-1].content) == {"reason": "ticket 4711"}
    query = next(request.url.params for request in stand.requests if request.url.path.endswith("/machines"))
    assert query["organization"] == FRESH["id"]


def test_a_name_that_no_machine_or_several_leases_have_ends_nothing(tmp_path: Path) -> None:
    other = HELD | {"lease_id": f"le_{'8' * 32}"}
    for held, words in (((), "use the id of the lease"), ((HELD, other), "Use an id")):
        stand = _stand(tmp_path, *held)
        shown = stand.run("organization", "end-lease", "fresh", "train-1", "--reason", "abuse", "--yes")
        assert (shown.code, words in shown.err) == (1, True)
        assert {request.method for request in stand.requests} == {"GET"}
