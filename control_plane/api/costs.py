"""What a request costs its API key and its organization, in tokens of their rates. This is the only list.

A request costs one token, unless it is named here. A list costs one more for each 50 rows that it may return beyond
the first 50. What an answer weighs is charged when it is sent: see `door.py`.
"""

from collections.abc import Mapping
from urllib.parse import parse_qsl

TOKENS: Mapping[str, int] = {
    "createQuote": 5,
    "createSshCertificate": 5,
    "createKubeconfig": 5,
    "createConsole": 5,
    "rotateKubeconfig": 5,
    "explainLease": 3,
    "exportUsage": 20,
    "exportBalanceEntries": 20,
    "exportAuditEvents": 20,
    "getExportFile": 20,
    "getExportFileOfAll": 20,
    "exportAnyAuditEvents": 20,
    "getBill": 5,
    "getMargin": 20,
    "getUsageSums": 5,
    "getMatch": 20,
    "importSupplierInvoice": 20,
    "getReconciliation": 5,
    "getOrganizationReconciliation": 5,
    "listOffers": 2,
    "listUsage": 2,
    "listUsageOfAll": 20,
    "listBalanceEntries": 2,
}
"""By operation id: what computes, or reads much."""
APART = frozenset({"getMe"})
"""Who the caller is. It costs no query, is limited apart, and answers a caller whose rate is used up."""
ROWS_PER_TOKEN = 50


def cost(operation_id: str | None, query: bytes) -> int:
    """The tokens of a request. Its query was not checked yet."""
    base = TOKENS.get(operation_id or "", 1)
    return base + max(0, _limit(query) - 1) // ROWS_PER_TOKEN


def _limit(query: bytes) -> int:
    """The `limit` of a list; 0 where there is none, or none that the endpoint will accept."""
    if b"limit=" not in query:
        return 0
    try:
        pairs = parse_qsl(query.decode("ascii"), max_num_fields=32)
    except ValueError:
        return 0
    values = [value for name, value in pairs if name == "limit"]
    return int(values[0]) if len(values) == 1 and values[0].isdecimal() and len(values[0]) <= 3 else 0
