"""Sends files to a machine in parts, so that a connection that breaks costs a part, and keeps them by digest."""

import asyncio

from data_plane.access.port import Session, StepFailed, must
from data_plane.access.step import Step
from data_plane.cluster.k3s_files import K3sFile

FOLDER = "/var/lib/splitplane/files"
PART_BYTES = 8 * 1024 * 1024
"""So much is in memory for each machine that files are sent to."""

# Prints how many bytes are there already. Arguments: digest, size.
FIND = Step(
    "find file",
    f"""set -eu
file={FOLDER}/$1
if [ -f "$file" ] && [ "$(sha256sum < "$file" | cut -c 1-64)" = "$1" ]; then
  echo "$2"
elif [ -f "$file.part" ]; then
  stat -c %s "$file.part"
else
  echo 0
fi
""",
    seconds=60,
    user="root",
)
# Arguments: digest, the offset at which the part begins. What is behind it was sent by a run that broke off.
PUT = Step(
    "send file",
    f"""set -eu
umask 077
mkdir -p {FOLDER}
part={FOLDER}/$1.part
touch "$part"
[ "$(stat -c %s "$part")" -ge "$2" ] || {{ echo 'the part before is missing' >&2; exit 66; }}
truncate -s "$2" "$part"
cat >> "$part"
stat -c %s "$part"
""",
    seconds=120,
    user="root",
)
CHECK = Step(
    "check file",
    f"""set -eu
file={FOLDER}/$1
[ ! -f "$file.part" ] || mv -f "$file.part" "$file"
[ "$(sha256sum < "$file" | cut -c 1-64)" = "$1" ] || {{
  rm -f "$file"
  echo 'what arrived has another digest' >&2
  exit 65
}}
""",
    seconds=60,
    user="root",
)


async def send(session: Session, file: K3sFile) -> None:
    """Have the file on the machine, as `FOLDER`/DIGEST. Raises Unreachable and StepFailed.

    A file that is there already is not sent again, and one that arrived in part is continued.
    """
    at = await _there(session, file)
    while at < file.size:
        part = await asyncio.to_thread(_part, file, at)
        await must(session, PUT, [file.sha256, str(at)], stdin=part)
        at += len(part)
    await must(session, CHECK, [file.sha256])


async def _there(session: Session, file: K3sFile) -> int:
    answer = await must(session, FIND, [file.sha256, str(file.size)])
    try:
        at = int(answer.output)
    except ValueError:
        raise StepFailed(FIND.name, None, "the machine did not answer with a size") from None
    return at if 0 <= at <= file.size else 0


def _part(file: K3sFile, at: int) -> bytes:
    with file.path.open("rb") as opened:
        opened.seek(at)
        return opened.read(PART_BYTES)
