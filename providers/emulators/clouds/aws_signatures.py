"""Whether a request to the emulated AWS carries a valid Signature Version 4, as botocore computes it."""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

_FORM = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/[0-9]{8}/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request, "
    r"SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True)
class Scope:
    region: str
    service: str


@dataclass(frozen=True, slots=True)
class Signed:
    """What the Authorization header says."""

    access_key_id: str
    scope: Scope
    headers: tuple[str, ...]
    """The names of the headers that the signature covers."""
    signature: str


def signed_parts(authorization: str) -> Signed | None:
    match = _FORM.fullmatch(authorization)
    if match is None:
        return None
    key, region, service, headers, signature = match.groups()
    return Signed(key, Scope(region, service), tuple(headers.split(";")), signature)


def is_signed_by(
    secret_access_key: str, signed: Signed, url: str, headers: Mapping[str, str], body: bytes
) -> bool:
    """Whether the signature is that of this key over this request. `headers` has its names in lower case."""
    covered = {name: headers.get(name, "") for name in signed.headers}
    request = AWSRequest("POST", url, headers=covered, data=body)
    request.context["timestamp"] = covered.get("x-amz-date", "")
    credentials = Credentials(signed.access_key_id, secret_access_key)
    signer = SigV4Auth(credentials, signed.scope.service, signed.scope.region)
    expected = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    return secrets.compare_digest(expected.encode(), signed.signature.encode())
