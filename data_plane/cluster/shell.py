"""Parts of scripts that servers and agents of K3s share."""

from data_plane.cluster.files import FOLDER

CONFIG = "/etc/rancher/k3s/config.yaml"
BINARY = "/usr/local/bin/k3s"
IMAGES = "/var/lib/rancher/k3s/agent/images"
SETTINGS_FILE = "/etc/sysctl.d/90-splitplane-kubelet.conf"
SETTINGS_BEFORE = "/var/lib/splitplane/kernel-settings"
"""The settings as they were before ours, a line each."""

# What the kubelet insists on with protect-kernel-defaults (https://docs.k3s.io/security/hardening-guide, 2026-11-20,
# and setupKernelTunables of kubelet 1.36). The last two are the kernel's own defaults.
KERNEL_SETTINGS = {
    "vm.panic_on_oom": "0",
    "vm.overcommit_memory": "1",
    "kernel.panic": "10",
    "kernel.panic_on_oops": "1",
    "kernel.keys.root_maxkeys": "1000000",
    "kernel.keys.root_maxbytes": "25000000",
}
# K3s turns these on and leaves them so.
_OF_K3S = ("net.ipv4.conf.all.forwarding", "net.ipv4.conf.default.forwarding")

# `read_setting NAME`, `put_settings`, `restore_settings`. A setting is written only if it differs, because some
# machines let nobody write what is right already.
SETTINGS = f"""
at_setting() {{
  printf /proc/sys/; printf '%s' "$1" | tr . /
}}
read_setting() {{
  cat "$(at_setting "$1")" 2>/dev/null || true
}}
put_setting() {{
  [ "$(read_setting "$1")" = "$2" ] || printf '%s' "$2" > "$(at_setting "$1")"
}}
put_settings() {{
  wanted='{" ".join(f"{name}={value}" for name, value in KERNEL_SETTINGS.items())}'
  if [ ! -e {SETTINGS_BEFORE} ]; then
    mkdir -p "$(dirname {SETTINGS_BEFORE})"
    for name in {" ".join((*KERNEL_SETTINGS, *_OF_K3S))}; do
      echo "$name=$(read_setting "$name")"
    done > {SETTINGS_BEFORE}.new
    mv -f {SETTINGS_BEFORE}.new {SETTINGS_BEFORE}
  fi
  lines=$(printf '%s\\n' $wanted)
  [ "$(cat {SETTINGS_FILE} 2>/dev/null)" = "$lines" ] || printf '%s\\n' "$lines" > {SETTINGS_FILE}
  for pair in $wanted; do put_setting "${{pair%%=*}}" "${{pair#*=}}"; done
}}
restore_settings() {{
  rm -f {SETTINGS_FILE}
  [ -e {SETTINGS_BEFORE} ] || return 0
  while IFS='=' read -r name value; do
    [ -z "$value" ] || put_setting "$name" "$value" || true
  done < {SETTINGS_BEFORE}
  rm -f {SETTINGS_BEFORE} {SETTINGS_BEFORE}.new
}}
"""

# `place_images NAME DIGEST ...`, `place_binary DIGEST`, from the files that were sent. Images are linked where the disk
# allows it, because they are large.
PLACING = f"""
place_images() {{
  mkdir -p {IMAGES}
  while [ $# -ge 2 ]; do
    cmp -s "{FOLDER}/$2" "{IMAGES}/$1" || ln -f "{FOLDER}/$2" "{IMAGES}/$1" 2>/dev/null ||
      cp -f "{FOLDER}/$2" "{IMAGES}/$1"
    shift 2
  done
}}
place_binary() {{
  cmp -s "{FOLDER}/$1" {BINARY} && [ -x {BINARY} ] && return
  install -m 755 "{FOLDER}/$1" {BINARY}.new
  mv -f {BINARY}.new {BINARY}
  changed=true
}}
"""

# From version 1.35 on, the kubelet refuses hosts with the first version of control groups unless it is told not to.
KUBELET_ARGUMENTS = """[ -e /sys/fs/cgroup/cgroup.controllers ] || echo 'kubelet-arg: ["fail-cgroupv1=false"]' >> "$new"
"""
