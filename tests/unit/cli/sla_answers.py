"""What the API answers about service levels."""

from typing import Any

from tests.unit.cli import answers

Json = dict[str, Any]


def _tier(tier: str, priority: int, **promises: Any) -> Json:
    nothing = {
        "version": 2,
        "ready_seconds": None,
        "ready_credit_percent": "0.00",
        "replacement_seconds": None,
        "replacement_credit_percent": "0.00",
        "degraded_seconds": None,
        "notice_seconds": None,
        "notice_credit_percent": "0.00",
        "replace_before_end": False,
    }
    return {"tier": tier, "priority": priority} | nothing | promises


def _below(*steps: tuple[str, str]) -> list[Json]:
    return [{"below_percent": below, "credit_percent": credit} for below, credit in steps]


TIERS: Json = {
    "items": [
        _tier("bronze", 50, availability=_below(("99.00", "10.00"))),
        _tier(
            "gold",
            80,
            ready_seconds=900,
            ready_credit_percent="10.00",
            replacement_seconds=900,
            replacement_credit_percent="25.00",
            degraded_seconds=600,
            notice_seconds=259_200,
            notice_credit_percent="12.50",
            availability=_below(("99.90", "10.00"), ("99.00", "50.00")),
            replace_before_end=True,
        ),
    ],
    "next_cursor": None,
}


EVIDENCE: list[Json] = [
    {
        "at": answers.at(days=2),
        "until": None,
        "what": f"machine {answers.MACHINE_ID} was lost: its provider lists it as down",
        "source": "provider",
    },
    {
        "at": answers.at(days=2),
        "until": answers.at(days=1, hours=22),
        "what": "not available for 7,200 s: its machine had failed, or was being replaced; nothing was billed",
        "source": "bill",
    },
]


def _breach(promise: str, why: str, credit: int | None, **changes: Any) -> Json:
    breach = {
        "id": f"br_{'0' * 31}1",
        "organization_id": answers.ORGANIZATION["id"],
        "lease_id": answers.LEASE_ID,
        "promise": promise,
        "month": "2026-11",
        "sla": "gold",
        "sla_version": 2,
        "since": answers.at(days=2),
        "found_at": answers.at(days=1, hours=23),
        "why": why,
        "evidence": EVIDENCE,
        "charged": None if credit is None else answers.usd(1_000_000_000_000),
        "credit": None if credit is None else answers.usd(credit),
        "credited": answers.usd(credit or 0),
        "credited_at": None if credit is None else answers.at(hours=1),
        "waiting": answers.usd(0),
        "waiting_since": None,
        "refused_at": None,
        "refused_why": None,
    }
    return breach | changes


_LATE = "its machine failed and was not back, or replaced, within 900 s: 6,300 s more"
_SCARCE = "it was available for 2,671,200 of 2,678,400 s (99.73 %); 99.90 % are promised"
BREACHES: list[Json] = [
    _breach("availability", _SCARCE, 100_000_000_000),
    _breach("replacement", _LATE, None, id=f"br_{'0' * 31}2"),
]
STANDING: Json = {
    "lease_id": answers.LEASE_ID,
    "sla": "gold",
    "sla_version": 2,
    "at": answers.at(),
    "promises": [
        {
            "promise": "availability",
            "standing": "at_risk",
            "promised": "99.90 % of a calendar month (UTC)",
            "so_far": "99.73 % of 2026-11 so far",
        },
        {
            "promise": "replacement",
            "standing": "broken",
            "promised": "a machine that fails is back, or replaced, within 900 s",
            "so_far": "the longest failure took 7,200 s",
        },
        {
            "promise": "ready",
            "standing": "kept",
            "promised": "ready after its creation within 900 s",
            "so_far": "it took 312 s",
        },
        {"promise": "notice", "standing": "not_promised", "promised": "nothing", "so_far": "-"},
    ],
    "months": [
        {
            "month": "2026-11",
            "available_percent": "99.73",
            "promised_seconds": 2_678_400,
            "down_seconds": 7_200,
            "down": [
                {
                    "since": answers.at(days=2),
                    "until": answers.at(days=1, hours=22),
                    "length_seconds": 7_200,
                    "cause": "failed",
                }
            ],
            "charged": answers.usd(1_000_000_000_000),
            "settled": False,
        }
    ],
    "breaches": BREACHES,
    "credited": answers.usd(100_000_000_000),
    "counts": [
        "Time in which its machine had failed, or was being replaced: the seconds that were not billed."
    ],
    "does_not_count": ["Time in which you had the machine stopped, or shut it down."],
}
NOTHING: Json = STANDING | {
    "sla": "bronze",
    "sla_version": None,
    "promises": [],
    "months": [],
    "breaches": [],
}
WAITING: Json = {
    "items": [
        _breach(
            "availability",
            _SCARCE,
            100_000_000_000,
            credited=answers.usd(0),
            credited_at=None,
            waiting=answers.usd(100_000_000_000),
            waiting_since=answers.at(hours=3),
        )
    ],
    "next_cursor": None,
}
DECIDED: list[Json] = [
    WAITING["items"][0],
    WAITING["items"][0]
    | {
        "waiting": answers.usd(0),
        "waiting_since": None,
        "refused_at": answers.at(hours=1),
        "refused_why": "NVML of this machine was replaced",
    },
]
REPORT: Json = {
    "month": "2026-11",
    "tiers": [
        {
            "sla": "gold",
            "leases": 3,
            "kept": 7,
            "breaches": 2,
            "breached_leases": 1,
            "available_percent": "99.97",
            "promised_seconds": 24_105_600,
            "down_seconds": 7_200,
            "credit": answers.usd(100_000_000_000),
            "credited": answers.usd(100_000_000_000),
        }
    ],
    "items": BREACHES,
    "next_cursor": None,
}
WITHOUT_BREACH: Json = REPORT | {
    "tiers": [
        REPORT["tiers"][0]
        | {
            "kept": 9,
            "breaches": 0,
            "breached_leases": 0,
            "available_percent": "100.00",
            "down_seconds": 0,
            "credit": answers.usd(0),
            "credited": answers.usd(0),
        }
    ],
    "items": [],
}
APPROVAL: Json = {
    "approved_at": answers.at(),
    "approved_by": answers.USER,
    "reason": "looked at",
    "waiting": 41,
}
BILLED: list[Json] = [
    {
        "breach_id": f"br_{'0' * 31}1",
        "lease_id": answers.LEASE_ID,
        "lease_name": "train-1",
        "promise": "availability",
        "why": _SCARCE,
        "amount": answers.usd(100_000_000_000),
    }
]
