"""Requests of another tenant, sent again: a stored answer could be theirs."""

import httpx

from tests.support.hostile_tenant.way import OWN, Call, Stand, Way


def _is_replay(answer: httpx.Response) -> bool:
    return answer.is_success and answer.headers.get("idempotency-replayed") == "true"


async def _own_replay(stand: Stand) -> httpx.Response:
    call = Call(
        "POST", "/v1/projects", {"name": "{replayed name}"}, headers={"Idempotency-Key": "{idempotency key}"}
    )
    return await call.send(stand, stand.mine)


def _replay(name: str, why: str, key: str, body: dict[str, str]) -> Way:
    call = Call("POST", "/v1/projects", body, headers={"Idempotency-Key": key})
    return Way(
        name=name,
        why=why,
        attempt=call.send,
        refused=OWN,
        control=_own_replay,
        succeeds=_is_replay,
        no_line="it is no refusal",
        makes=True,
    )


WAYS = (
    _replay(
        "repeat a request of theirs with its Idempotency-Key",
        "the stored answer is found by the key",
        "{idempotency key}",
        {"name": "{replayed name}"},
    ),
    _replay(
        "use an Idempotency-Key of theirs for another request",
        "a refusal of the other body would tell that they used the key",
        "{second idempotency key}",
        {"name": "{marker} something else"},
    ),
    _replay(
        "write their account into the Idempotency-Key",
        "stored keys begin with the id of the subject",
        "{attacker} {idempotency key}",
        {"name": "{replayed name} once more"},
    ),
)
