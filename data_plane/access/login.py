"""Which SSH logins a machine accepts: certificates of our authorities, and nothing else.

The files are those of the machine's user data (`control_plane/domain/rendering.py`); a test compares the paths.
"""

from collections.abc import Sequence

from data_plane.access.port import Session, StepFailed, must
from data_plane.access.step import CUSTOMER, Step

DIRECTORY = "/etc/ssh/splitplane"
AUTHORITIES = f"{DIRECTORY}/authorities"
PRINCIPALS = f"{DIRECTORY}/principals"
REVOKED = f"{DIRECTORY}/revoked"

# sshd reads the file at each login. The rename replaces it at once, so that no login finds half of it.
TRUST_AUTHORITIES = Step(
    "trust authorities",
    f"""set -eu
umask 022
new=$(mktemp {DIRECTORY}/.new.XXXXXX)
trap 'rm -f "$new"' EXIT
cat > "$new"
chmod 644 "$new"
mv -f "$new" {AUTHORITIES}
""",
    seconds=10,
    user="root",
)

# What sshd does is asked of sshd itself, for each user: another file of the image may come before ours, or contain a
# Match block. Nobody but us has had access yet, so there is nothing of a customer among what is deleted. cloud-init
# writes keys of users in its network stage, which may still run when our own user exists already: deleted earlier, they
# would come back.
CLOSE_OTHER_LOGINS = Step(
    "close other logins",
    f"""set -eu
for unit in cloud-init.service cloud-init-network.service; do
  for turn in $(seq 60); do
    state=$(systemctl show --property=LoadState,ActiveState --value "$unit" 2>/dev/null | tr '\\n' ' ' || true)
    case "$state" in *loaded*inactive* | *inactive*loaded* | *activating*) sleep 0.25 ;; *) break ;; esac
  done
done
getent passwd | cut -d : -f 6 | sort -u | while read -r home; do
  rm -f "$home/.ssh/authorized_keys" "$home/.ssh/authorized_keys2"
done
for user in "$SUDO_USER" {CUSTOMER} root; do
  effective=$(sshd -T -C "user=$user,host=machine,addr=192.0.2.1")
  for setting in 'trustedusercakeys {AUTHORITIES}' 'authorizedprincipalsfile {PRINCIPALS}/%u' 'revokedkeys {REVOKED}' \
      'authorizedkeysfile none' 'authorizedkeyscommand none' 'passwordauthentication no' \
      'kbdinteractiveauthentication no' 'hostbasedauthentication no'; do
    printf '%s\n' "$effective" | grep -qx "$setting" || {{
      echo "sshd does not have this setting for $user: $setting" >&2
      exit 1
    }}
  done
done
""",
    seconds=40,
    user="root",
)


async def trust(session: Session, authorities: Sequence[str]) -> None:
    """Have the machine trust exactly these authorities, one OpenSSH public key line each. Raises as `must`."""
    if not authorities or any("\n" in line or not line.strip() for line in authorities):
        raise StepFailed(
            TRUST_AUTHORITIES.name, None, "an authority is one public key line, and there is at least one"
        )
    await must(session, TRUST_AUTHORITIES, stdin="".join(f"{line}\n" for line in authorities).encode())


async def close_other_logins(session: Session) -> None:
    """Delete the keys that the provider or the image installed, and check that sshd accepts certificates only.

    The machine answers for itself, so this finds mistakes and not lies. Raises Unreachable, and StepFailed when sshd
    accepts anything else.
    """
    await must(session, CLOSE_OTHER_LOGINS)
