"""What an API server's refusal means, in the errors of the port."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
from lightkube.core.exceptions import ApiError

from data_plane.cluster import port
from data_plane.documents.strict import shown

_BY_CODE: dict[int, type[port.ClusterError]] = {
    400: port.Invalid,
    401: port.Unauthorized,
    403: port.Forbidden,
    404: port.NotFound,
    422: port.Invalid,
    429: port.TooManyRequests,
}
_MANAGER = re.compile(r'conflict with "([^"]*)"')
TEXT_MAX = 1_000
"""How much of a message of an API server we keep."""


class Expired(Exception):  # noqa: N818  # It never leaves the port: a list or a watch starts anew.
    """What we want to go on from is older than what the API server still knows."""


@contextmanager
def as_cluster_errors() -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        raise _of_status(error) from None
    except httpx2.HTTPStatusError as error:
        raise _of_code(error.response.status_code, str(error)) from None
    except (httpx2.HTTPError, TimeoutError, OSError) as error:
        raise port.Unreachable(f"{type(error).__name__}: {error}"[:TEXT_MAX]) from None
    except (
        ValueError
    ) as error:  # What is no JSON, or no Kubernetes object: a proxy's page, an answer cut short.
        raise port.Unreachable(f"an answer that cannot be read: {error}"[:TEXT_MAX]) from None


def _of_status(error: ApiError) -> Exception:
    status = error.status
    text = status.message or status.reason or "no reason given"  # It can quote what a node or a tenant wrote.
    if status.code == 409:
        causes = (status.details.causes if status.details else None) or []
        named = [found[1] for cause in causes if (found := _MANAGER.search(cause.message or ""))]
        return port.Conflict(shown(text, TEXT_MAX), tuple(dict.fromkeys(named)))
    return _of_code(status.code or 500, text)


def _of_code(code: int, text: str) -> Exception:
    if code == 410:
        return Expired(text)
    return _BY_CODE.get(code, port.Unreachable)(shown(text, TEXT_MAX))
