"""What every page of the wire shares: the two kinds of body, the text types, money.

Times are RFC 3339 in UTC. Money is an exact decimal text in US dollars with nine places, and the same
amount as integer nano-US-dollars. Ids have a prefix (`le_`, `mc_`, `org_`, `prj_`, `env_`, `user_`, `sa_`,
`rb_`, `key_`, `ssh_`, `pf_`, `ch_`).

A request with an unknown field is refused. An answer may gain fields, and a reader passes over those that it
does not know; a field that is added later has a default, so that a new reader understands an older API.
"""

from datetime import datetime
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
        examples=["train"],
        extra={
            "must": "a text of 1 to 63 letters, digits, spaces or . _ @ : + -, starting with a letter or digit"
        },
    ),
]
SkuName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9][a-z0-9._-]*$(?!\n)",
        max_length=64,
        description="The name of a SKU: 1 to 64 lower-case letters, digits or . _ -",
        examples=["h100-sxm.1x"],
        extra={"must": "the name of a SKU: 1 to 64 lower-case letters, digits or . _ -"},
    ),
]
REGION_PATTERN = r"^[a-z]{2}(-[a-z0-9]+)*$(?!\n)"
PROVIDER_PATTERN = r"^[a-z][a-z0-9_]*$(?!\n)"
PLACE_LENGTH_MAX = 48
RegionName = Annotated[
    str,
    Meta(
        pattern=REGION_PATTERN,
        max_length=PLACE_LENGTH_MAX,
        description="A jurisdiction (`eu`) or a region in it (`eu-central-1`).",
        examples=["eu", "eu-central-1"],
        extra={"must": "a jurisdiction such as `eu`, or a region in it such as `eu-central-1`"},
    ),
]
ProviderName = Annotated[
    str,
    Meta(
        pattern=PROVIDER_PATTERN,
        max_length=PLACE_LENGTH_MAX,
        description="The name of a provider: lower-case letters, digits or _, at most 48.",
        examples=["lambda_cloud"],
        extra={"must": "the name of a provider: lower-case letters, digits or _, at most 48"},
    ),
]
ACCOUNT_PATTERN = r"^[a-z][a-z0-9_]*(/[a-z][a-z0-9-]*)?$(?!\n)"
ACCOUNT_LENGTH_MAX = 100
AccountText = Annotated[
    str,
    Meta(
        pattern=ACCOUNT_PATTERN,
        max_length=ACCOUNT_LENGTH_MAX,
        description="A provider account, such as `lambda_cloud/research`.",
        examples=["lambda_cloud/research"],
        extra={"must": "a provider account such as `lambda_cloud/research`"},
    ),
]
AddressText = Annotated[
    str,
    Meta(
        pattern=r"^[0-9A-Za-z]([0-9A-Za-z.:-]*[0-9A-Za-z])?$(?!\n)",
        max_length=253,
        description="An IPv4 address, an IPv6 address, or a host name.",
        examples=["192.0.2.10"],
        extra={"must": "an IPv4 address, an IPv6 address, or a host name"},
    ),
]
NODE_POOL_ID_PATTERN = r"^np_[0-9a-f]{32}$(?!\n)"
NodePoolIdQuery = Annotated[
    str,
    Meta(
        pattern=NODE_POOL_ID_PATTERN,
        description="The id of a node pool.",
        examples=["np_0190c2f07d1e7b3a9c54e1f2a3b4c5d6"],
        extra={"must": "the id of a node pool: np_ and 32 lower-case hexadecimal digits"},
    ),
]
ORGANIZATION_ID_PATTERN = r"^org_[0-9a-f]{32}$(?!\n)"
NamedOrganizationId = Annotated[
    str,
    Meta(
        pattern=ORGANIZATION_ID_PATTERN,
        description="The id of an organization.",
        examples=["org_0190c2f07d1e7b3a9c54e1f2a3b4c5d6"],
        extra={"must": "the id of an organization: org_ and 32 lower-case hexadecimal digits"},
    ),
]
PROJECT_ID_PATTERN = r"^prj_[0-9a-f]{32}$(?!\n)"
ProjectIdQuery = Annotated[
    str,
    Meta(
        pattern=PROJECT_ID_PATTERN,
        description="The id of a project.",
        examples=["prj_0190c2f07d1e7b3a9c54e1f2a3b4c5d6"],
        extra={"must": "the id of a project: prj_ and 32 lower-case hexadecimal digits"},
    ),
]
LEASE_ID_PATTERN = r"^le_[0-9a-f]{32}$(?!\n)"
LeaseIdQuery = Annotated[
    str,
    Meta(
        pattern=LEASE_ID_PATTERN,
        description="The id of a lease.",
        examples=["le_0190c2f07d1e7b3a9c54e1f2a3b4c5d6"],
        extra={"must": "the id of a lease: le_ and 32 lower-case hexadecimal digits"},
    ),
]
MACHINE_ID_PATTERN = r"^mc_[0-9a-f]{32}$(?!\n)"
MachineIdQuery = Annotated[
    str,
    Meta(
        pattern=MACHINE_ID_PATTERN,
        description="The id of a machine.",
        examples=["mc_0190c2f07d1e7b3a9c54e1f2a3b4c5d6"],
        extra={"must": "the id of a machine: mc_ and 32 lower-case hexadecimal digits"},
    ),
]
# No control characters, and none that hide text or change its direction: terminals and auditors read it.
_HIDDEN = r"\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
_PRINTABLE = f"[^{_HIDDEN}]"
_PRINTABLE_AND_NO_SPACE = rf"[^{_HIDDEN}\s]"
PersonName = Annotated[
    str,
    Meta(
        pattern=rf"^{_PRINTABLE_AND_NO_SPACE}({_PRINTABLE}*{_PRINTABLE_AND_NO_SPACE})?$(?!\n)",
        max_length=100,
        description="The name of a person: 1 to 100 characters, without control characters.",
        examples=["Ada Lovelace"],
        extra={"must": "a name of 1 to 100 characters, without control characters or spaces at its ends"},
    ),
]
PROVIDER_REF_PATTERN = rf"^{_PRINTABLE}+$(?!\n)"
PROVIDER_REF_LENGTH_MAX = 256
ProviderRefText = Annotated[
    str,
    Meta(
        pattern=PROVIDER_REF_PATTERN,
        max_length=PROVIDER_REF_LENGTH_MAX,
        description="A provider's own id of a machine.",
        examples=["0920582c7ff041399e34823a0be62549"],
        extra={"must": "the provider's id of a machine, as the list of orphans shows it"},
    ),
]
"""As long as `providers/listings.py` accepts one, so that every orphan which is listed can be named."""
LINE_PATTERN = rf"^{_PRINTABLE}*{_PRINTABLE_AND_NO_SPACE}{_PRINTABLE}*$(?!\n)"
"""One line that is not blank."""
Sentence = Annotated[
    str,
    Meta(
        pattern=LINE_PATTERN,
        max_length=500,
        description="One line of up to 500 characters. It is stored with who sent it.",
        examples=["These machines are slices of one GPU."],
        extra={"must": "one line of 1 to 500 characters, without control characters"},
    ),
]
SshKeyIdText = Annotated[
    str,
    Meta(
        pattern=r"^ssh_[0-9a-f]{32}$(?!\n)",
        max_length=36,
        description="The id of one of your SSH keys.",
        examples=["ssh_0190c2f07d1e7b3a9c54e1f2a3b4c5d6"],
        extra={"must": "the id of an SSH key: ssh_ and 32 lower-case hexadecimal digits"},
    ),
]
USD_PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,9})?$(?!\n)"
UsdText = Annotated[
    str,
    Meta(
        pattern=USD_PATTERN,
        max_length=19,
        description="A decimal amount in US dollars with at most nine places, as text: `25` or `2.49`.",
        examples=["25", "2.49"],
        extra={
            "must": "an amount in US dollars as text, with at most nine decimal places, such as `25` or `2.49`"
        },
    ),
]
PositiveUsdText = Annotated[
    UsdText,
    # Our own check of the struct refuses zero; this tells the document.
    Meta(extra_json_schema={"not": {"pattern": "^[0.]*$"}}),
]


_LABEL_KEY, _LABEL_VALUE = "[a-z0-9]([a-z0-9._/-]*[a-z0-9])?", f"{_PRINTABLE}*"
LABEL_PATTERN = rf"^{_LABEL_KEY}={_LABEL_VALUE}$(?!\n)"
"""A label as a filter has it: `key=value`."""
LABEL_KEY_PATTERN = rf"^{_LABEL_KEY}$(?!\n)"
LABEL_LENGTH_MAX = 63
LABELS_MAX = 32
LabelKey = Annotated[
    str,
    Meta(
        pattern=LABEL_KEY_PATTERN,
        max_length=LABEL_LENGTH_MAX,
        description="1 to 63 lower-case letters, digits or . _ / -, starting and ending with a letter or digit.",
        examples=["team"],
        extra={
            "must": "1 to 63 lower-case letters, digits or . _ / -, starting and ending with a letter or digit"
        },
    ),
]
LabelValue = Annotated[
    str,
    Meta(
        pattern=rf"^{_LABEL_VALUE}$(?!\n)",
        max_length=LABEL_LENGTH_MAX,
        description="Up to 63 printable characters.",
        examples=["vision"],
        extra={"must": "a text of at most 63 printable characters"},
    ),
]
Labels = Annotated[
    dict[LabelKey, LabelValue],
    Meta(
        max_length=LABELS_MAX,
        description="Up to 32 labels of your own: a key and a value each.",
        examples=[{"team": "vision"}],
    ),
]


Timestamp = Annotated[
    datetime,
    # Without `tz`, msgspec accepts times without an offset, and the document does not call them date-time.
    Meta(tz=True, examples=["2026-11-22T10:58:13.497336Z"]),
]


class RequestError(ValueError):
    """What a request must have and has not, as the end of a sentence. msgspec makes it an error of the body, as any
    ValueError, and the command line shows it.
    """


def require_a_year_of_ours(name: str, at: datetime | None) -> None:
    """For the `__post_init__` of requests. The first moment of the year 1 and the last of the year 9999 are infinity to
    the database, and nothing can be added to a time near them.
    """
    if at is not None and not 2000 <= at.year <= 2200:
        raise RequestError(f"must have `{name}` in the years 2000 to 2200")


class Request(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of a request. What is left at its default is not sent, so that an older API accepts it."""


class View(Struct):
    """The body of an answer."""


class Money(View):
    """An amount of US dollars, exact, in two notations."""

    usd: Annotated[
        str, Meta(examples=["2.490000000"], extra_json_schema={"pattern": r"^-?[0-9]+\.[0-9]{9}$"})
    ]
    """US dollars, exact, with nine decimal places: `2.490000000`."""
    nano: Annotated[int, Meta(examples=[2_490_000_000], extra_json_schema={"format": "int64"})]
    """The same amount in nano-US-dollars (1e-9 USD). It may exceed 2^53."""


NextCursor = Annotated[
    str,
    Meta(
        description="Pass it as `?cursor=`, unchanged, to get the next page. Null on the last page.",
        examples=["bGVhc2VzOjE3NjM3NzYwMDA"],
    ),
]
