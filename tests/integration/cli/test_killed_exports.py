"""`splitplane export create` as a real process that is killed with SIGKILL at its lines, and then run again.

Whoever finds a manifest finds the files that it describes, at every moment. The next run leaves the same bytes.
"""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import msgspec
import pytest
from moto import mock_aws

from control_plane.cli import destinations, export_files
from control_plane.cli.commands import exports
from tests.support.killed import Nursery, nursery
from tests.unit.cli.test_exports import NAMES, RUN, VIEW, files

POINTS, LAST = 3, 15
"""So many of all lines are tried, and every second one of the last ones, at which files are put where they belong."""
FILES = files()
_TRACED = [str(module.__file__) for module in (exports, destinations)]


class _Api(BaseHTTPRequestHandler):
    """Answers what the API answers about one export, and is the door of S3, which moto plays in the test's process."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self._answer(201, msgspec.json.encode(VIEW))

    def do_GET(self) -> None:
        self._answer(200, FILES[self.path.rsplit("/", 1)[-1]])

    def do_PUT(self) -> None:
        """An object for S3, which has it once all of it is there."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        bucket, _, key = self.path.removeprefix("/").partition("/")
        boto3.client("s3").put_object(Bucket=bucket, Key=key, Body=body)
        self._answer(200, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is written to the terminal of the tests."""


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    home = tmp_path_factory.mktemp("home")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Api) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        yield {
            "HOME": str(home),
            "TMPDIR": str(home),
            "SPLITPLANE_URL": url,
            "AWS_ENDPOINT_URL_S3": url,
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
            "SPLITPLANE_API_KEY": "spk_planted-0123456789",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        server.shutdown()


@pytest.fixture(scope="module")
def born() -> Iterator[Nursery]:
    with nursery() as made:
        yield made


def _create(born: Nursery, environ: dict[str, str], to: str, *, at: int | None = None) -> Any:
    words = ["export", "create", "2026-10", "--to", to]
    return born.run("command", environ=environ, words=words, files=_TRACED, at=at)


def _points(last: int) -> list[int]:
    return sorted({*range(1, last, max(1, last // POINTS)), *range(last - LAST, last + 1, 2)})


def test_a_folder_with_a_manifest_is_whole_whenever_the_command_is_killed(
    born: Nursery, environ: dict[str, str], tmp_path: Path
) -> None:
    whole = _create(born, environ, str(tmp_path / "whole"))
    assert whole.answer == 0
    assert whole.points > LAST
    without = 0
    for at in _points(whole.points):
        to = tmp_path / f"killed-{at}"
        assert _create(born, environ, str(to), at=at).killed
        target = to / "2026-10" / RUN
        if (target / NAMES[2]).exists():
            export_files.check(target)
        else:
            without += 1
        assert _create(born, environ, str(to)).answer == 0, at
        assert {file.name: file.read_bytes() for file in target.iterdir()} == FILES, at
    assert without, "some were killed before the manifest was written"


@pytest.fixture
def bucket(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, value in environ.items():
        if name.startswith("AWS_") and name != "AWS_ENDPOINT_URL_S3":
            monkeypatch.setenv(name, value)
    with mock_aws():
        client = boto3.client("s3")
        client.create_bucket(Bucket="billing")
        yield client


def _objects(client: Any, prefix: str) -> dict[str, bytes]:
    listed = client.list_objects_v2(Bucket="billing", Prefix=f"{prefix}/").get("Contents", [])
    return {
        item["Key"].rsplit("/", 1)[-1]: client.get_object(Bucket="billing", Key=item["Key"])["Body"].read()
        for item in listed
    }


def test_a_bucket_with_a_manifest_is_whole_whenever_the_command_is_killed(
    born: Nursery, environ: dict[str, str], bucket: Any
) -> None:
    whole = _create(born, environ, "s3://billing/whole")
    assert whole.answer == 0
    for at in _points(whole.points):
        to = f"killed-{at}"
        assert _create(born, environ, f"s3://billing/{to}", at=at).killed
        found = _objects(bucket, to)
        assert NAMES[2] not in found or found == FILES, at
        assert _create(born, environ, f"s3://billing/{to}").answer == 0, at
        assert _objects(bucket, to) == FILES, at
