"""The Python of the messages is what protoc makes of verifier.proto; `make proto` makes it anew."""

from pathlib import Path

from grpc_tools import protoc

PROTO = Path("data_plane/proof/verifier/service/verifier.proto")


def test_the_generated_messages_are_those_of_the_proto(tmp_path: Path) -> None:
    assert (
        protoc.main(["protoc", "-I.", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", str(PROTO)]) == 0
    )
    made = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert [path.name for path in made] == ["verifier_pb2.py", "verifier_pb2.pyi"]
    for path in made:
        kept = path.relative_to(tmp_path)
        assert kept.read_text() == path.read_text(), f"{kept} is not of {PROTO}: run `make proto`"
