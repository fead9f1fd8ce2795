"""The Python of messages is what protoc makes of their .proto files; `make proto` makes it anew."""

from pathlib import Path

from grpc_tools import protoc

PROTOS = (
    Path("data_plane/proof/verifier/service/verifier.proto"),
    Path("providers/nebius_api/messages.proto"),
    Path("reconciler/remote_write/remote_write.proto"),
)


def test_the_generated_messages_are_those_of_the_proto_files(tmp_path: Path) -> None:
    googles = Path(protoc.__file__).parent / "_proto"
    paths = ["-I.", f"-I{googles}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    assert protoc.main(["protoc", *paths, *map(str, PROTOS)]) == 0
    made = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    names = {f"{proto.stem}_pb2.{ending}" for proto in PROTOS for ending in ("py", "pyi")}
    assert {path.name for path in made} == names
    for path in made:
        kept = path.relative_to(tmp_path)
        assert kept.read_text() == path.read_text(), f"{kept} is not of its .proto file: run `make proto`"


def test_every_proto_file_is_checked_here() -> None:
    folders = ("control_plane", "data_plane", "providers", "reconciler")
    assert {path for folder in folders for path in Path(folder).rglob("*.proto")} == set(PROTOS)
