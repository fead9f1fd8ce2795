"""The hash chain of the audit log: whatever is changed in a chain is found, and the first wrong line is named."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from control_plane.domain.audit import (
    AuditLine,
    AuditOutcome,
    SubjectKind,
    allowed_details,
    cleaned,
    ids_among,
)
from control_plane.domain.audit_chain import EMPTY, Broken, SealedLine, canonical, check, fields, seal_all
from control_plane.domain.ids import OrganizationId

ORGANIZATION = OrganizationId(UUID(int=7))


def line(number: int, **other: object) -> AuditLine:
    given: dict[str, object] = {
        "id": UUID(int=number),
        "organization_id": ORGANIZATION,
        "at": datetime(2026, 11, 22, 12, 0, number % 60, tzinfo=UTC),
        "event": "leases.create",
        "outcome": AuditOutcome.ALLOWED,
        "subject": f"sa_{number:032x}",
        "subject_kind": SubjectKind.SERVICE_ACCOUNT,
        "targets": (f"le_{number:032x}",),
        "client": 'agent "é"'.encode("ascii", "replace").decode(),
    }
    return AuditLine(**(given | other))  # type: ignore[arg-type] # fields by name


def chain(length: int = 5) -> list[SealedLine]:
    return list(seal_all([line(number) for number in range(1, length + 1)], EMPTY)[0])


def first_fault(lines: list[SealedLine]) -> Broken | None:
    head = EMPTY
    for sealed in lines:
        fault = check(sealed, head)
        if fault is not None:
            return fault
        head = sealed.head
    return None


def test_a_chain_as_it_was_sealed_is_whole() -> None:
    assert first_fault(chain()) is None


MUTATIONS: dict[str, tuple[Callable[[list[SealedLine]], list[SealedLine]], int]] = {
    "changed": (lambda c: [*c[:2], replace(c[2], line=line(99)), *c[3:]], 3),
    "missing": (lambda c: [*c[:2], *c[3:]], 3),
    "the first is missing": (lambda c: c[1:], 1),
    "swapped": (lambda c: [c[0], c[2], c[1], *c[3:]], 2),
    "inserted": (lambda c: [*c[:2], replace(c[2], line=line(99)), *c[2:]], 3),
    "repeated": (lambda c: [*c[:2], c[1], *c[2:]], 3),
    "another hash": (lambda c: [*c[:1], replace(c[1], hash="0" * 64), *c[2:]], 2),
    "another one before": (lambda c: [*c[:1], replace(c[1], previous="0" * 64), *c[2:]], 2),
    "sealed anew": (lambda c: [*c[:2], seal_all([line(99)], c[1].head)[0][0], *c[3:]], 4),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_first_line_that_is_wrong_is_named(name: str) -> None:
    mutate, first = MUTATIONS[name]
    fault = first_fault(mutate(chain()))
    assert fault is not None
    assert fault.sequence == first, fault.why


def test_every_field_of_a_line_is_hashed() -> None:
    whole = canonical(fields(line(1), sequence=1, previous="0" * 64))
    others: dict[str, object] = {
        "id": UUID(int=9),
        "organization_id": None,
        "at": datetime(2026, 11, 22, 12, 0, 0, 1, tzinfo=UTC),
        "event": "leases.release",
        "outcome": AuditOutcome.REFUSED,
        "subject": "else",
        "subject_kind": SubjectKind.USER,
        "targets": (),
        "links": {"journal": [1]},
        "details": {"count": 1},
    }
    for field in AuditLine.__dataclass_fields__:
        changed = replace(line(1), **{field: others.get(field, "else")})  # type: ignore[arg-type] # fields by name
        assert canonical(fields(changed, sequence=1, previous="0" * 64)) != whole, field


def test_the_bytes_of_a_line_are_those_of_the_documentation() -> None:
    assert canonical(fields(line(1), sequence=1, previous="0" * 64)) == (
        b'{"address":null,"at":"2026-11-22T12:00:01.000000Z","chain":"org_00000000000000000000000000000007",'
        b'"client":"agent \\"?\\"","code":null,"credential":null,"details":{},"event":"leases.create",'
        b'"id":"aud_00000000000000000000000000000001","links":{},"outcome":"allowed","previous":"'
        + b"0"
        * 64
        + b'",'
        b'"project":null,"region":null,"request_id":null,"rule":null,"sequence":1,'
        b'"subject":"sa_00000000000000000000000000000001","subject_kind":"service_account",'
        b'"subject_organization":null,"targets":["le_00000000000000000000000000000001"],"version":1}'
    )


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        (None, None),
        ("", None),
        ("curl/8.5", "curl/8.5"),
        ("a\x00b\nc\u2028d", "a?b?c?d"),
        ("spk_" + "x" * 43, "[removed]"),
        ("a spr_" + "x" * 76, "a [removed]"),
        ("b spd_" + "x" * 43, "b [removed]"),
        ("tool Bearer abc.def rest", "tool [removed] rest"),
        ("jwt eyJhbGciOiJFZERTQSJ9.e30.abc", "jwt [removed]"),
        ("x" * 5_000, "x" * 200),
    ],
)
def test_a_clients_name_is_bounded_printable_and_without_secrets(
    text: str | None, stored: str | None
) -> None:
    assert cleaned(text) == stored


def test_only_ids_are_targets() -> None:
    words = ["le_" + "a" * 32, "spk_secret", "le_" + "a" * 32, "../etc", "org_" + "0" * 32]
    assert ids_among(words) == ("le_" + "a" * 32, "org_" + "0" * 32)


def test_details_have_only_the_listed_keys_with_bounded_values() -> None:
    given: dict[str, str | int] = {"operation": "x" * 500, "password": "hunter2", "count": 3}
    assert allowed_details(given) == {"operation": "x" * 200, "count": 3}
