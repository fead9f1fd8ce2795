"""The user data for providers that only run a shell script at boot: it does what the cloud-config does.

Until it ran, sshd shows the image's own host key, and we wait. Some providers run the script at every boot, so it
changes nothing once it is done: the files that it writes are maintained over SSH from then on.
"""

from shlex import quote

from control_plane.domain.rendering import (
    CUSTOMER_USER,
    LOGIN_USER,
    PRINCIPALS,
    SSH_DIRECTORY,
    BootOrder,
    sshd_files,
)

_HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
_DONE = f"{SSH_DIRECTORY}/set-up"
"""Exists on a machine whose script is done."""

_HEAD = f"""\
#!/bin/sh
# Sets up this machine at its first boot; when it is run again, it changes nothing.
set -eu
if [ "$(id -u)" != 0 ]; then exec sudo -n sh "$0"; fi
if [ -e {_DONE} ]; then exit 0; fi
put() {{ # content, path, mode
  (umask 077; printf %s "$1" > "$2.new")
  chmod "$3" "$2.new"
  mv "$2.new" "$2"
}}
umask 022
mkdir -p {PRINCIPALS} /etc/ssh/sshd_config.d
"""

_TAIL = f"""\
for user in {LOGIN_USER} {CUSTOMER_USER}; do
  id "$user" > /dev/null 2>&1 || useradd --create-home --shell /bin/bash "$user"
  usermod --lock --shell /bin/bash "$user"
  put "$user ALL=(ALL) NOPASSWD:ALL
" "/etc/sudoers.d/90-splitplane-$user" 440
done
grep -Eq '^ *Include +/etc/ssh/sshd_config\\.d/' /etc/ssh/sshd_config ||
  sed -i '1i Include /etc/ssh/sshd_config.d/*.conf' /etc/ssh/sshd_config
sshd=$(command -v sshd || echo /usr/sbin/sshd)
mkdir -p /run/sshd
"$sshd" -t
touch {_DONE}
systemctl restart ssh.service 2> /dev/null || systemctl restart sshd.service
"""


def boot_script(order: BootOrder) -> str:
    host_keys = (
        "rm -f /etc/ssh/ssh_host_*\n",
        _put(order.host_key_private, _HOST_KEY, 600),
        _put(order.host_key_public + "\n", f"{_HOST_KEY}.pub", 644),
    )
    files = (_put(content, path, 644) for path, content in sshd_files(order).items())
    return "".join((_HEAD, *host_keys, *files, _TAIL))


def _put(content: str, path: str, mode: int) -> str:
    return f"put {quote(content)} {path} {mode}\n"
