"""Plays the ways one after the other, and judges each: the refusal, what its answer tells, the control, the line."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.hostile_tenant.things import Things
from tests.support.hostile_tenant.way import OWN, Stand, Way

_CHANGING = frozenset({"date", "x-request-id", "ratelimit", "retry-after", "connection"})
"""Headers of an answer that differ between two equal requests. A server closes the connection of one whose body had not
arrived when it was refused."""
_ID = re.compile(r"\b([a-z]{2,8}_)?[0-9a-f]{32}\b")
_KEY = re.compile(r"AAAA[\w+/=]{40,}|SHA256:[\w+/]{43}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z|\d{10}\d*\.?\d*")


@dataclass
class Verdict:
    way: Way
    faults: list[str] = field(default_factory=list[str])
    request_id: str = ""
    line: Mapping[str, Any] | None = None
    """The line of the attacker's audit log."""

    @property
    def refused(self) -> bool:
        return not self.faults


Digest = Callable[[], Awaitable[str]]
"""Everything that the victim has, as a digest."""
Lines = Callable[[Sequence[str]], Awaitable[Mapping[str, Mapping[str, Any]]]]
"""The refusals in the attacker's audit log, by the ids of these requests."""


def playable(ways: Sequence[Way], stand: Stand) -> list[Way]:
    """The ways that can be tried on this installation."""
    return [
        way
        for way in ways
        if (not way.signs_in or stand.sign_in is not None)
        and (not way.by_operator or stand.operator is not None)
        and all(thing in things.values for thing in way.needs for things in (stand.mine, stand.theirs))
    ]


PAUSE_SECONDS = 3.7
"""Between two attacks: of many refusals within a minute only the first have a line each (docs/audit.md). All attacks
together have to end before the terminal that waits to be signed in does, in 10 minutes."""


async def play(
    ways: Sequence[Way],
    stand: Stand,
    *,
    digest: Digest,
    lines: Lines,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> list[Verdict]:
    """Try every way. Ways that make something come last, because what they make is in the answers to others."""
    verdicts: list[Verdict] = []
    for makes in (False, True):
        some = [way for way in ways if way.makes is makes]
        verdicts += await _play(some, stand, digest=digest, lines=lines, sleep=sleep)
    return verdicts


async def _play(
    ways: Sequence[Way],
    stand: Stand,
    *,
    digest: Digest,
    lines: Lines,
    sleep: Callable[[float], Awaitable[object]],
) -> list[Verdict]:
    """First all attacks, and then what each is compared with, and its control."""
    verdicts: list[Verdict] = []
    answers: list[httpx.Response] = []
    sent = ""
    for way in ways:
        await sleep(PAUSE_SECONDS)
        before = await digest()
        answer = await way.attempt(stand, stand.theirs)
        faults = _faults_of(way, answer, stand.theirs, known=sent if way.echoes else "")
        verdict = Verdict(way, faults, answer.headers.get("x-request-id", ""))
        sent += _sent(answer)
        if await digest() != before:
            verdict.faults.append("something of the victim's has changed")
        verdicts.append(verdict)
        answers.append(answer)
    await _find_lines(verdicts, lines)
    for verdict, answer in zip(verdicts, answers, strict=True):
        if verdict.way.compared:
            verdict.faults += await _difference(verdict.way, stand, answer)
    for verdict in verdicts:
        controlled = await verdict.way.control(stand)
        if not verdict.way.succeeds(controlled):
            verdict.faults.append(f"the control failed: {controlled.status_code} {controlled.text[:300]}")
    return verdicts


def _faults_of(way: Way, answer: httpx.Response, theirs: Things, *, known: str) -> list[str]:
    faults = []
    if way.refused == OWN:
        if not answer.is_success:
            faults.append(f"answered {answer.status_code} instead of a success: {answer.text[:300]}")
    elif not refused_with(answer, way.refused):
        faults.append(f"answered {answer.status_code}, not refused with {way.refused!r}: {answer.text[:300]}")
    found = set(told(answer, theirs)) - {theirs[what] for what in way.known}
    found = {value for value in found if value not in known}
    if found:
        faults.append(f"the answer tells {sorted(found)}")
    return faults


def refused_with(answer: httpx.Response, code: str) -> bool:
    """Whether an answer is the refusal with this code, whatever its form: problem details, OAuth's, or a page."""
    if answer.is_success or answer.is_redirect:
        return False
    if "json" not in answer.headers.get("content-type", "") or not answer.content:
        return code in answer.text
    body = answer.json()
    return code in (body.get("code"), body.get("error"))


def told(answer: httpx.Response, theirs: Things) -> list[str]:
    """What is the victim's in an answer, other than what the attacker has sent itself."""
    sent, got = _sent(answer), f"{answer.headers} {answer.text}"
    return [value for value in set(theirs.planted) if value in got and value not in sent]


def _sent(answer: httpx.Response) -> str:
    """What the request had of which this is the answer."""
    request = answer.request
    sent = f"{request.url} {request.headers} {request.content.decode(errors='replace')}"
    return _plain(f"{sent} {httpx.URL(request.url).query.decode()} {httpx.QueryParams(request.url.query)}")


def _plain(sent: str) -> str:
    """What was sent, also as it is without the percent signs of a URL."""
    return sent + httpx.QueryParams(f"x={sent.replace('&', ' ')}")["x"]


async def _difference(way: Way, stand: Stand, answer: httpx.Response) -> list[str]:
    invented = stand.theirs.invented()
    other = await way.attempt(stand, invented)
    told_of = _comparable(answer, stand.theirs), _comparable(other, invented)
    if told_of[0] == told_of[1]:
        return []
    return [f"what nobody has is answered differently: {told_of[1]} instead of {told_of[0]}"]


def _comparable(answer: httpx.Response, things: Things) -> tuple[int, list[tuple[str, str]], str]:
    """An answer without what differs between two equal requests, and without what was asked for."""

    def named(text: str) -> str:
        for what, value in sorted(things.values.items(), key=lambda item: -len(item[1])):
            text = text.replace(value, f"<{what}>")
        return _TIME.sub(
            "<time>", _ID.sub("<id>", _KEY.sub("<key>", text.replace(things.marker, "<marker>")))
        )

    headers = [(name, named(value)) for name, value in answer.headers.items() if name not in _CHANGING]
    return answer.status_code, sorted(headers), named(answer.text)


async def _find_lines(verdicts: Sequence[Verdict], lines: Lines) -> None:
    found = await lines([verdict.request_id for verdict in verdicts])
    for verdict in verdicts:
        verdict.line = found.get(verdict.request_id)
        expected = verdict.way.event
        if expected is None:
            if verdict.line is not None and not verdict.way.no_line:
                verdict.faults.append(f"a line that was not expected: {verdict.line}")
        elif verdict.line is None:
            verdict.faults.append(f"no line {expected} in the attacker's audit log")
        elif (verdict.line["event"], verdict.line["outcome"]) != (expected, "refused"):
            verdict.faults.append(f"the line says {verdict.line['event']} {verdict.line['outcome']}")


async def witnessed(http: httpx.AsyncClient, things: Things) -> str:
    """Everything that a tenant sees of its own, as text, without what changes by itself. Reading leaves no line."""
    seen = []
    for path in (
        *LISTS,
        *(f"/v1/leases/{things[lease]}/ssh-certificates" for lease in ("lease", "second lease")),
    ):
        answer = await http.get(path)
        answer.raise_for_status()
        seen.append(json.dumps(_lasting(answer.json())))
    return "\n".join(seen)


_BY_ITSELF = frozenset({"last_used_at", "sighted_at", "balance", "available", "held", "use"})
"""What changes while machines run, and nobody does anything."""


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lasting(part) for name, part in value.items() if name not in _BY_ITSELF}
    return [_lasting(part) for part in value] if isinstance(value, list) else value


LISTS = (
    *("/v1/organization", "/v1/organization/envelope", "/v1/users", "/v1/service-accounts", "/v1/api-keys"),
    *("/v1/role-bindings", "/v1/sessions", "/v1/ssh-keys", "/v1/projects", "/v1/quota-requests"),
    *("/v1/admission-decisions", "/v1/leases", "/v1/audit-events", "/v1/node-pools", "/v1/kubeconfigs"),
)
"""Lists of which the first page holds everything of a tenant that was made for this."""
