"""Gets a page of text from a program on this machine or in one of its pods, within bounds of time and size.

HTTP/1.0, in which an answer ends with its connection, so that whatever the program does, reading is a loop with a
deadline.
"""

import re
import socket
import time
from collections.abc import Callable

SECONDS = 2
"""For the whole answer."""
BYTES_MAX = 2 * 1024 * 1024
"""vLLM's metrics of one model are about 100 kB. Of longer ones, nothing is read."""
_OK = re.compile(rb"HTTP/1\.[01] 200(?: |\r\n)")


def get(
    host: str, port: int, path: str, *, monotonic: "Callable[[], float]" = time.monotonic
) -> "str | None":
    """The text; None if the answer is another one. Raises OSError when nobody answers in time."""
    deadline = monotonic() + SECONDS
    head = (
        f"GET {path} HTTP/1.0",
        f"Host: {host}:{port}",
        "User-Agent: splitplane-agent",
        "Accept: text/plain",
    )
    content = bytearray()
    with socket.create_connection((host, port), SECONDS) as line:
        line.sendall("".join(f"{each}\r\n" for each in (*head, "")).encode())
        while True:
            left = deadline - monotonic()
            if left <= 0:
                raise TimeoutError("the answer takes too long")
            line.settimeout(left)
            piece = line.recv(65_536)
            if not piece:
                break
            content += piece
            if len(content) > BYTES_MAX:
                return None
    status, _, body = bytes(content).partition(b"\r\n\r\n")
    return body.decode("utf-8", "replace") if _OK.match(status) else None
