"""What every page of the wire shares: the two kinds of body, the text types, money.

Times are RFC 3339 in UTC. Money is an exact decimal text in US dollars with nine places, and the same
amount as integer nano-US-dollars. Ids have a prefix (`le_`, `mc_`, `org_`, `prj_`, `key_`, `ssh_`, `pf_`, `ch_`).

A request with an unknown field is refused. An answer may gain fields, and a reader passes over those that it
does not know; a field that is added later has a default, so that a new reader understands an older API.
"""

from typing import Annotated

from msgspec import Meta, Struct

# In Python's regular expressions `$` also matches before a final newline; `(?!\n)` excludes that.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9 ._@:+-]*$(?!\n)"
NAME_LENGTH_MAX = 63
Name = Annotated[
    str,
    Meta(
        pattern=NAME_PATTERN,
        max_length=NAME_LENGTH_MAX,
        description="1 to 63 letters, digits, spaces or . _ @ : + -, starting with a letter or digit.",
    ),
]
SkuName = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]*$(?!\n)", max_length=64)]
RegionName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z]{2}(-[a-z0-9]+)*$(?!\n)",
        max_length=48,
        description="A jurisdiction (`eu`) or a region in it (`eu-central-1`).",
    ),
]
ProviderName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*$(?!\n)", max_length=48)]
ACCOUNT_PATTERN = r"^[a-z][a-z0-9_]*(/[a-z][a-z0-9-]*)?$(?!\n)"
ACCOUNT_LENGTH_MAX = 100
AccountText = Annotated[
    str,
    Meta(
        pattern=ACCOUNT_PATTERN,
        max_length=ACCOUNT_LENGTH_MAX,
        description="A provider account, such as `lambda_cloud/research`.",
    ),
]
# No control characters, and none that hide text or change its direction: terminals and auditors read it.
Sentence = Annotated[
    str,
    Meta(
        pattern=r"^(?=.*\S)[^\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]*$(?!\n)",
        max_length=500,
        description="One line of up to 500 characters. It is stored with the id of the API key that sent it.",
    ),
]
SshKeyIdText = Annotated[str, Meta(pattern=r"^ssh_[0-9a-f]{32}$(?!\n)", max_length=36)]
UsdText = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{1,9}(\.[0-9]{1,9})?$(?!\n)",
        max_length=19,
        description="A decimal amount in US dollars with at most nine places, as text: `25` or `2.49`.",
    ),
]


class Request(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of a request. What is left at its default is not sent, so that an older API accepts it."""


class View(Struct):
    """The body of an answer."""


class Money(View):
    usd: str
    """US dollars, exact, with nine decimal places: `2.490000000`."""
    nano: int
    """The same amount in nano-US-dollars (1e-9 USD). It may exceed 2^53."""
