"""Kubeconfigs: what opens the namespace of a project in a cluster, for hours at most."""

from typing import Annotated, Literal

from msgspec import Meta

from control_plane.wire.common import Name, NextCursor, Request, Timestamp, View
from control_plane.wire.vocabulary import (
    ClusterIdText,
    KubeconfigIdText,
    ProjectIdText,
    SubjectIdText,
    one_of,
)

LASTS_MINUTES_DEFAULT = 480
LASTS_MINUTES_MIN = 10
LASTS_MINUTES_MAX = 1_440
OVERLAP_MINUTES_DEFAULT = 60
KubeconfigRoleWord = Annotated[
    str,
    one_of(
        "KubeconfigRole",
        "What the holder of a kubeconfig may do in the namespace.",
        view="Read everything but Secrets.",
        edit="Run workloads, read and write Secrets, and open shells in pods.",
    ),
]
KubeconfigStateWord = Annotated[
    str,
    one_of(
        "KubeconfigState",
        "Its state.",
        wanted="It was requested, and is issued in a moment.",
        issued="It opens the namespace.",
        refused="It was not issued; `refused_why` tells why.",
        revoked="It is taken back; `revoked_why` tells why.",
        expired="Its time is over.",
    ),
]
IssuingRefusalWord = Annotated[
    str,
    one_of(
        "IssuingRefusal",
        "Why a kubeconfig was not issued.",
        waited_too_long="The cluster could not issue it for five minutes. Request another one.",
        credential_ended="The API key or the session that asked for it ended meanwhile.",
        cluster_deleted="The cluster is being deleted.",
        key_unusable="Nothing can be sealed for the public key. Make another key pair.",
    ),
]
KubeconfigRevocationWord = Annotated[
    str,
    one_of(
        "KubeconfigRevocation",
        "Why a kubeconfig was revoked.",
        requested="Somebody revoked it.",
        credential_ended="The API key or the session that asked for it was revoked, or ended.",
        subject_ended="The user or the service account was suspended or removed.",
        role_ended="No role that is left lets its owner create kubeconfigs of the project.",
        organization_suspended="The organization was suspended.",
        organization_closed="The organization was closed.",
    ),
]
RecipientKey = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$(?!\n)",
        description="An X25519 public key: its 32 bytes in base64.",
        examples=["hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="],
        extra={"must": "an X25519 public key: 32 bytes in base64"},
    ),
]


class KubeconfigRequest(Request):
    """A kubeconfig to be issued."""

    name: Name
    """A name for people, such as the machine that it is for."""
    public_key: RecipientKey
    """The key that the file is sealed for, so that nobody but the owner of the private key can read it. Make a new key
    pair for each request."""
    project: Name | None = None
    """The project whose namespace it opens, by its name or its id; the default project when it is left out."""
    role: Literal["view", "edit"] = "edit"
    """What its holder may do there."""
    lasts_minutes: Annotated[int, Meta(ge=LASTS_MINUTES_MIN, le=LASTS_MINUTES_MAX)] = LASTS_MINUTES_DEFAULT
    """How many minutes it is valid: 10 minutes to 24 hours. It ends with the API key or the session at the latest."""


class KubeconfigRotationRequest(Request):
    """How a kubeconfig is to be replaced."""

    public_key: RecipientKey
    """The key that the new file is sealed for."""
    overlap_minutes: Annotated[int, Meta(ge=0, le=LASTS_MINUTES_MAX)] = OVERLAP_MINUTES_DEFAULT
    """For how many minutes the old one still counts once the new one is issued, at most until it would have ended."""


class KubeconfigView(View):
    """A kubeconfig, from its request on."""

    id: KubeconfigIdText
    """The id of the kubeconfig."""
    name: str
    """Its name, for people."""
    cluster_id: ClusterIdText
    """The cluster that it leads to."""
    cluster: str
    """The name of the cluster."""
    project_id: ProjectIdText
    """The project whose namespace it opens."""
    project: str
    """The name of the project."""
    namespace: str
    """The namespace in the cluster."""
    role: KubeconfigRoleWord
    """What its holder may do there."""
    state: KubeconfigStateWord
    """Its state. A new one is `wanted`; ask for it again until it is not."""
    sealed: Annotated[
        str | None,
        Meta(
            description=(
                "The file, sealed by HPKE (RFC 9180, base mode: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM)"
                " for the public key of the request, with the kubeconfig's id as `info`: the encapsulated key of 32"
                " bytes and the ciphertext, in base64. Null unless it is issued."
            )
        ),
    ]
    expires_at: Timestamp | None
    """Until when it is valid; null until it is issued."""
    rotates: KubeconfigIdText | None
    """The kubeconfig that it replaces; null when it replaces none."""
    subject: SubjectIdText
    """Who requested it."""
    credential: Annotated[
        str,
        Meta(
            description="The id of an API key or of a session.",
            examples=["key_0190c2f07d1e7b3a9c54e1f2a3b4c5d6"],
            extra_json_schema={"pattern": "^(key|ses)_[0-9a-f]{32}$"},
        ),
    ]
    """The API key or the session with which it was requested. It ends with that."""
    requested_at: Timestamp
    """When it was requested."""
    issued_at: Timestamp | None
    """When it was issued; null before that."""
    refused_why: IssuingRefusalWord | None
    """Why it was not issued; null unless it was refused."""
    revoked_at: Timestamp | None
    """When it was revoked; null unless it was."""
    revoked_why: KubeconfigRevocationWord | None
    """Why it was revoked; null unless it was."""


class KubeconfigPage(View):
    """A page of kubeconfigs."""

    items: tuple[KubeconfigView, ...]
    """The kubeconfigs, newest first. They are listed for 30 days."""
    next_cursor: NextCursor | None = None
