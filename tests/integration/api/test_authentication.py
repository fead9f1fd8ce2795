"""Without a valid API key no endpoint answers."""

import pytest

from tests.integration.api.conftest import Shared
from tests.integration.api.endpoints import ENDPOINTS
from tests.integration.api.problems import SOME_ID, hold
from tests.support.cases import case

pytestmark = pytest.mark.database


def _wrong(secret: str) -> list[str | None]:
    """Authorization headers that are not those of the key."""
    return [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Basic {secret}",
        secret,
        f"Bearer {secret[:-1]}",
        f"Bearer {secret}x",
        f"Bearer {secret.upper()}",
        "Bearer spk_",
        "Bearer spk_" + "x" * 30_000,
        "Bearer spk_\x00",
        "Bearer spk_ÿ",
    ]


async def test_without_a_key_that_is_known_nothing_answers(shared: Shared) -> None:
    anonymous = shared.api.anonymous
    for endpoint in ENDPOINTS:
        if endpoint.public:
            continue
        path = endpoint.at(f"{endpoint.id_prefix}_{SOME_ID}")
        for authorization in _wrong(shared.acme.secret):
            headers = [] if authorization is None else [(b"Authorization", authorization.encode("latin-1"))]
            with case(endpoint, (authorization or "no header")[:20]):
                answer = await anonymous.request(endpoint.method, path, json=endpoint.body, headers=headers)
                hold(answer, "unauthenticated")
                assert answer.headers["www-authenticate"].startswith("Bearer")
