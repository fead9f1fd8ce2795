"""Revokes certificates of customers on a machine, and ends the sessions that were opened with them.

The list is a KRL, OpenSSH's format for revoked keys, because only a KRL names certificates by serial. The machine's own
ssh-keygen writes it: it comes with every sshd and writes what that sshd reads, and no library of ours has the format.
sshd reads the list at each login. It holds for the certificates of any authority (`-s none`), so that it also holds for
one that the machine does not trust yet.

Which certificate opened a session is in sshd's log: journald stores which process wrote a line, and no user but root
can write one in the name of another process. A session whose login the journal does not hold any more is ended too,
because nobody can tell that it was not opened with a revoked certificate.
"""

from collections.abc import Collection

from data_plane.access.authority import SERIAL_MAX
from data_plane.access.login import DIRECTORY, REVOKED
from data_plane.access.port import Session, StepFailed, must
from data_plane.access.step import CUSTOMER, Step

SERIALS_MAX = 10_000
"""More than can be valid at once, by far: `RECENT_MAX` for each subject. With more, every session is ended."""

# A session is a process of root's, `sshd: ubuntu [priv]` (`sshd-session:` since OpenSSH 9.8), whose child has the
# user's rights. The first round asks it to end, so that it logs out properly. The second one kills what is left, such
# as a child that its user has stopped, and finds a login that was under way while the list was replaced. What the
# user started otherwise lives on.
REVOKE = Step(
    "revoke certificates",
    f"""set -eu
umask 022
work=$(mktemp -d /run/splitplane.XXXXXX)
new=$(mktemp {DIRECTORY}/.new.XXXXXX)
trap 'rm -rf "$work" "$new"' EXIT
cat > "$work/serials"
sed 's/^/serial: /' "$work/serials" > "$work/spec"
ssh-keygen -q -k -f "$work/krl" -s none "$work/spec"
cat "$work/krl" > "$new"
chmod 644 "$new"
mv -f "$new" {REVOKED}
for signal in TERM KILL; do
  journalctl --sync
  find /proc -maxdepth 1 -name '[0-9]*' -user root | cut -d / -f 3 | while read -r pid; do
    case "$(tr '\\0' ' ' < "/proc/$pid/cmdline" 2>/dev/null)" in
      'sshd: {CUSTOMER} [priv]'* | 'sshd-session: {CUSTOMER} [priv]'*) ;;
      *) continue ;;
    esac
    serial=$(journalctl --quiet --no-pager --boot --output=cat "_PID=$pid" _UID=0 |
      sed -n 's/^Accepted publickey for {CUSTOMER} from .* (serial \\([0-9]*\\)) CA .*$/\\1/p' | tail -n 1)
    [ "$1" = every ] || [ -z "$serial" ] || grep -qx "$serial" "$work/serials" || continue
    children=$(grep -lsx "PPid:[[:space:]]*$pid" /proc/[0-9]*/status | cut -d / -f 3)
    kill -$signal "$pid" $children 2>/dev/null || true
  done
  [ $signal = KILL ] || sleep 1
done
""",
    seconds=30,
    user="root",
)


async def revoke(session: Session, serials: Collection[int], *, every_session: bool = False) -> None:
    """Have the machine refuse exactly the certificates with these serials, and end the sessions that they opened.

    With `every_session` the customer's sessions end whatever opened them, and who still may log in does it again.
    Sessions of other certificates live on, and so does what a session started and detached. A customer with root can
    prevent all of this. Raises Unreachable, and StepFailed, also for a serial that is none.
    """
    if len(serials) > SERIALS_MAX or not all(0 < serial <= SERIAL_MAX for serial in serials):
        raise StepFailed(REVOKE.name, None, f"at most {SERIALS_MAX} serials from 1 to {SERIAL_MAX}")
    lines = "".join(f"{serial}\n" for serial in sorted(serials)).encode()
    await must(session, REVOKE, ["every" if every_session else "revoked"], stdin=lines)
