"""Reads the rate limits that a provider tells with its answers: the headers RateLimit-Policy and RateLimit.

They are those of the draft of the IETF (draft-ietf-httpapi-ratelimit-headers, read 2026-11-20), which Verda sends:

    RateLimit-Policy: "project";q=500;w=60, "endpoint";q=60;w=60
    RateLimit: "project";r=486;t=37, "endpoint";r=59;t=37
"""

import re
from collections.abc import Mapping

from providers.base import ToldLimit

_ITEM = re.compile(r'"([^"]{1,60})"((?:\s*;\s*[a-z]+=[^;,]*)*)')
_PARAMETER = re.compile(r";\s*([a-z]+)=(\d{1,9})(?=\s*(?:;|$))")


def told_limits(headers: Mapping[str, str]) -> tuple[ToldLimit, ...]:
    """The limits for which both headers have all numbers; what cannot be read is left out.

    >>> told_limits({"RateLimit-Policy": '"all";q=60;w=60', "RateLimit": '"all";r=59;t=37'})
    (ToldLimit(bucket='all', calls=60, seconds=60.0, left=59, resets_seconds=37.0),)
    """
    policies, states = _items(headers.get("RateLimit-Policy", "")), _items(headers.get("RateLimit", ""))
    return tuple(
        ToldLimit(name, policy["q"], float(policy["w"]), states[name]["r"], float(states[name]["t"]))
        for name, policy in policies.items()
        if policy.get("q") and policy.get("w") and {"r", "t"} <= states.get(name, {}).keys()
    )


def _items(header: str) -> dict[str, dict[str, int]]:
    return {
        name: {key: int(value) for key, value in _PARAMETER.findall(parameters)}
        for name, parameters in _ITEM.findall(header)
    }
