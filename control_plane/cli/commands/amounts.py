"""Amounts of money as people type them."""

import msgspec

from control_plane.cli.errors import usage
from control_plane.wire.common import UsdText


def amount(text: str, flag: str) -> str:
    """The amount as the API takes it. Anything else is a usage error that names the flag."""
    try:
        return msgspec.convert(text, UsdText)
    except msgspec.ValidationError:
        raise usage(
            f"{flag}: {text!r} is not an amount in US dollars; use a number without a sign and"
            " with at most nine decimal places, such as 25 or 24.90."
        ) from None
