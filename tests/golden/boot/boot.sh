#!/bin/sh
# Sets up this machine at its first boot; when it is run again, it changes nothing.
set -eu
if [ "$(id -u)" != 0 ]; then exec sudo -n sh "$0"; fi
if [ -e /etc/ssh/splitplane/set-up ]; then exit 0; fi
put() { # content, path, mode
  (umask 077; printf %s "$1" > "$2.new")
  chmod "$3" "$2.new"
  mv "$2.new" "$2"
}
umask 022
mkdir -p /etc/ssh/splitplane/principals /etc/ssh/sshd_config.d
rm -f /etc/ssh/ssh_host_*
put '-----BEGIN TEST HOST KEY-----
not a key: two lines
-----END TEST HOST KEY-----
' /etc/ssh/ssh_host_ed25519_key 600
put 'ssh-ed25519 AAAAhost machine
' /etc/ssh/ssh_host_ed25519_key.pub 644
put 'ssh-ed25519 AAAAsigning
' /etc/ssh/splitplane/authorities 644
put 'sp-0190c2d4-one
' /etc/ssh/splitplane/principals/splitplane 644
put '# Nothing is revoked.
' /etc/ssh/splitplane/revoked 644
put 'TrustedUserCAKeys /etc/ssh/splitplane/authorities
AuthorizedPrincipalsFile /etc/ssh/splitplane/principals/%u
RevokedKeys /etc/ssh/splitplane/revoked
AuthorizedKeysFile none
AuthorizedKeysCommand none
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
HostbasedAuthentication no
GSSAPIAuthentication no
PermitRootLogin no
' /etc/ssh/sshd_config.d/00-splitplane.conf 644
for user in splitplane ubuntu; do
  id "$user" > /dev/null 2>&1 || useradd --create-home --shell /bin/bash "$user"
  usermod --lock --shell /bin/bash "$user"
  put "$user ALL=(ALL) NOPASSWD:ALL
" "/etc/sudoers.d/90-splitplane-$user" 440
done
grep -Eq '^ *Include +/etc/ssh/sshd_config\.d/' /etc/ssh/sshd_config ||
  sed -i '1i Include /etc/ssh/sshd_config.d/*.conf' /etc/ssh/sshd_config
sshd=$(command -v sshd || echo /usr/sbin/sshd)
mkdir -p /run/sshd
"$sshd" -t
touch /etc/ssh/splitplane/set-up
systemctl restart ssh.service 2> /dev/null || systemctl restart sshd.service
