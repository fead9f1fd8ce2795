"""Posts a request of remote write. It does not follow redirects, because the body goes with a bearer token."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import httpx

SECONDS_MAX = 10.0


async def send(url: str, token_path: Path | None, body: bytes, headers: Mapping[str, str]) -> int:
    """Returns the status of the answer. Raises OSError when there is none, or the token cannot be read."""
    given = dict(headers)
    if token_path is not None:
        token = await asyncio.to_thread(token_path.read_text, encoding="utf-8")
        given["Authorization"] = f"Bearer {token.strip()}"
    try:
        async with httpx.AsyncClient(timeout=SECONDS_MAX) as client:
            answer = await client.post(url, content=body, headers=given)
    except (httpx.TransportError, httpx.InvalidURL) as error:
        raise OSError(f"{type(error).__name__}") from error
    return answer.status_code
