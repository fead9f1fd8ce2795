"""What the API answers about service levels."""

from typing import Any

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
