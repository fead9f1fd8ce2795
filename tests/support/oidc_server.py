"""An OpenID provider in a process of its own: `oidc-provider-mock`, which is built on Authlib.

`python -m tests.support.oidc_server PORT` runs it. It differs from the package's own command in two points: it checks
PKCE, and it replaces its signing key on request (`POST /rotate`).
"""

import base64
import hashlib
import os
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

import httpx

from demo.ports import free_port


@dataclass
class Provider:
    """The running provider, as a test drives it."""

    issuer: str

    def user(self, subject: str, **claims: object) -> None:
        """Add a user, or replace the claims of one."""
        httpx.put(f"{self.issuer}/users/{subject}", json=claims, trust_env=False).raise_for_status()

    def rotate(self) -> None:
        httpx.post(f"{self.issuer}/rotate", trust_env=False).raise_for_status()

    def sign_in(self, url: str, subject: str) -> str:
        """Sign in at the authorization URL as a person would. Returns where the browser is sent then."""
        answer = httpx.post(url, data={"sub": subject}, trust_env=False)
        assert answer.status_code == 302, answer.text
        return str(answer.headers["location"])


@contextmanager
def running() -> Iterator[Provider]:
    port = free_port()
    command = [sys.executable, "-m", "tests.support.oidc_server", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_until_it_answers(port, process)
        yield Provider(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(10)


def _wait_until_it_answers(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        assert process.poll() is None, "the OpenID provider ended"
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise TimeoutError("the OpenID provider does not answer")


def serve(port: int) -> None:
    warnings.simplefilter("ignore")
    os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"
    import flask  # noqa: PLC0415 - the libraries are needed in the provider's process alone
    import oidc_provider_mock._app as mock  # noqa: PLC0415 - only this process has it

    app: flask.Flask = mock.app(require_nonce=True)
    app.debug = False
    challenges: dict[str, str] = {}

    @app.post("/rotate")
    def rotate() -> tuple[str, int]:
        mock.storage.jwk = mock.jose.RSAKey.generate_key(is_private=True)
        return "", 204

    @app.after_request
    def remember_challenge(response: flask.Response) -> flask.Response:
        if flask.request.path == "/oauth2/authorize" and response.status_code == 302:
            code = parse_qs(urlsplit(response.headers["Location"]).query).get("code", [""])[0]
            assert flask.request.args["code_challenge_method"] == "S256"
            challenges[code] = flask.request.args["code_challenge"]
        return response

    @app.before_request
    def check_verifier() -> tuple[dict[str, str], int] | None:
        if flask.request.path != "/oauth2/token":
            return None
        verifier = flask.request.form.get("code_verifier", "")
        digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        if challenges.get(flask.request.form.get("code", "")) != digest:
            return {"error": "invalid_grant"}, 400
        return None

    app.run("127.0.0.1", port)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
