"""The name of an offer across refreshes, and what the failures of its machines count for.

A marketplace sells machines of suppliers, under a number that is used once. Records that count by such a number never
grow: a supplier who cheats offers the machine anew and is trusted like one that nobody knows. So the key of such an
offer names the supplier, and what its machines did counts for all of the supplier's offers.
"""

from control_plane.domain.ids import AccountName

_BY = "@"
_ESCAPED = "%40"


def offer_key(
    account: AccountName,
    native_region: str,
    native_type: str,
    *,
    spot: bool = False,
    supplier: str | None = None,
) -> str:
    """The key of an offer. `supplier` is the provider's id of whoever owns the machine, None for the provider itself.

    >>> offer_key(AccountName("vast"), "NO", "1234", supplier="55")
    'vast:NO:1234@55'
    """
    key = f"{account}:{native_region}:{native_type}".replace(_BY, _ESCAPED) + (":spot" if spot else "")
    return key if supplier is None else f"{key}{_BY}{supplier.replace(_BY, _ESCAPED)}"


def record_key(key: str) -> str:
    """What the record of an offer counts by: its supplier at its account, or the offer where it has no supplier.

    >>> record_key("vast:NO:1234@55")
    'vast@55'
    >>> record_key("lambda:us-east-1:gpu_1x_h100")
    'lambda:us-east-1:gpu_1x_h100'
    """
    offer, by, supplier = key.rpartition(_BY)
    return f"{offer.partition(':')[0]}{_BY}{supplier}" if by else key
