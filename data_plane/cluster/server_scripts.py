"""The scripts that run on a server host. Secrets come by standard input, never by arguments."""

from data_plane.access.step import Step
from data_plane.cluster.files import FOLDER

API_PORT = 6_443
_CONFIG = "/etc/rancher/k3s/config.yaml"

# Settings of the CIS hardening guide that the kubelet insists on with protect-kernel-defaults
# (https://docs.k3s.io/security/hardening-guide, 2026-11-20).
_SYSCTLS = """
put_sysctls() {
  wanted=$(printf '%s\\n' vm.panic_on_oom=0 vm.overcommit_memory=1 kernel.panic=10 kernel.panic_on_oops=1)
  file=/etc/sysctl.d/90-splitplane-kubelet.conf
  [ "$(cat "$file" 2>/dev/null)" = "$wanted" ] || printf '%s\\n' "$wanted" > "$file"
  for line in $wanted; do
    name=/proc/sys/$(printf '%s' "${line%%=*}" | tr . /)
    [ "$(cat "$name")" = "${line#*=}" ] || sysctl -q "$line"
  done
}
"""

# Arguments: the address at which nodes and customers reach the host, its address in the overlay, the overlay's
# interface, the ranges of pods and services, the digests of k3s and install.sh, then name and digest of each archive of
# images. Input: the credential of servers, and that of agents, a line each.
INSTALL = Step(
    "install server",
    f"""set -eu
umask 077
outside=$1
address=$2
interface=$3
pods=$4
services=$5
binary={FOLDER}/$6
installer={FOLDER}/$7
shift 7
read -r token
read -r agent_token
{_SYSCTLS}
put_sysctls
mkdir -p /etc/rancher/k3s /var/lib/rancher/k3s/agent/images
images=/var/lib/rancher/k3s/agent/images
while [ $# -ge 2 ]; do
  cmp -s "{FOLDER}/$2" "$images/$1" || cp -f "{FOLDER}/$2" "$images/$1"
  shift 2
done
new=$(mktemp {_CONFIG}.XXXXXX)
trap 'rm -f "$new"' EXIT
cat > "$new" <<END
token: "$token"
agent-token: "$agent_token"
node-ip: "$address"
advertise-address: "$address"
flannel-iface: "$interface"
tls-san:
  - "$address"
  - "$outside"
cluster-cidr: "$pods"
service-cidr: "$services"
disable: [traefik, servicelb, metrics-server, local-storage]
node-taint: ["node-role.kubernetes.io/control-plane=true:NoSchedule"]
secrets-encryption: true
protect-kernel-defaults: true
write-kubeconfig-mode: "0600"
END
# From version 1.35 on, the kubelet refuses hosts with the first version of control groups unless it is told not to.
[ -e /sys/fs/cgroup/cgroup.controllers ] || echo 'kubelet-arg: ["fail-cgroupv1=false"]' >> "$new"
changed=false
cmp -s "$new" {_CONFIG} || {{ mv -f "$new" {_CONFIG}; changed=true; }}
cmp -s "$binary" /usr/local/bin/k3s || {{
  install -m 755 "$binary" /usr/local/bin/k3s.new
  mv -f /usr/local/bin/k3s.new /usr/local/bin/k3s
  changed=true
}}
if $changed || ! systemctl is-active --quiet k3s; then
  INSTALL_K3S_SKIP_DOWNLOAD=true INSTALL_K3S_EXEC=server INSTALL_K3S_FORCE_RESTART=true sh "$installer" >&2
fi
end=$(($(date +%s) + 120))
until k3s kubectl get --raw /readyz >/dev/null 2>&1; do
  [ "$(date +%s)" -lt "$end" ] || {{
    journalctl --no-pager --output cat --lines 8 --unit k3s >&2 || true
    echo 'the API server is not ready after 120 s' >&2
    exit 70
  }}
  sleep 1
done
""",
    seconds=300,
    user="root",
)

# Prints the version, then the certificate authority and the administrator's kubeconfig in base64, a line each.
READ = Step(
    "read server",
    """set -eu
k3s --version | sed -n '1s/^k3s version \\([^ ]*\\).*/\\1/p'
base64 -w 0 /var/lib/rancher/k3s/server/tls/server-ca.crt
echo
base64 -w 0 /etc/rancher/k3s/k3s.yaml
echo
""",
    seconds=20,
    user="root",
)

DISMANTLE = Step(
    "dismantle server",
    f"""set -eu
if [ -x /usr/local/bin/k3s-uninstall.sh ]; then
  /usr/local/bin/k3s-uninstall.sh >&2
fi
# A disk may be mounted there, whose folder cannot be removed.
rm -rf /var/lib/rancher 2>/dev/null || [ -z "$(ls -A /var/lib/rancher)" ] || {{
  echo '/var/lib/rancher is not empty' >&2
  exit 70
}}
rm -rf /etc/rancher {FOLDER} /etc/sysctl.d/90-splitplane-kubelet.conf
! systemctl is-active --quiet k3s || {{ echo 'k3s still runs' >&2; exit 70; }}
[ ! -e /usr/local/bin/k3s ] || {{ echo 'k3s is still installed' >&2; exit 70; }}
""",
    seconds=180,
    user="root",
)
