#!/usr/bin/env bash
# Makes this machine one on which `pond run --backend firecracker` works, as far as it can be: registers Kata Containers with the
# Docker engine, with Firecracker before QEMU, and keeps of these what pond's own canary proves. Kata itself is not installed where
# the distribution has no package of it. A host that lacks something is left as it was, and told what.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=worker.bash
. "$(dirname -- "${BASH_SOURCE[0]}")/worker.bash"

readonly PACKAGE=kata-containers
# Best first: pond looks for the names in this order.
readonly MONITORS=(fc qemu)
kata=

usage() {
  cat <<'END'
kata-worker.sh [--check] [OPTION…]

  --check             say what is there and what is missing, and change nothing
  --kata DIR          where Kata Containers is (default: /opt/kata, then /usr)
  --replace           replace other registrations under the names kata-fc and kata-qemu
  --pond FILE         the pond that has the last word (default: pond on the path)
  --daemon-json FILE  the engine's configuration (default: /etc/docker/daemon.json)
  --pidfile FILE      the engine's process (default: /var/run/docker.pid)
  --root DIR          write what is not the engine's configuration below DIR

DOCKER_HOST says where the engine answers. Exit codes: 0 all is there, or with --check can be made; 1 it cannot; 2 usage.
END
}

parse() {
  while [[ $# -gt 0 ]]; do
    shared_flag "$@"
    if [[ $taken -eq 0 ]]; then
      taken=2
      case $1 in
        --kata) kata=$(value "$@") ;;
        --help | -h) usage && exit 0 ;;
        *) usage_error "unknown word: $1" ;;
      esac
    fi
    shift "$taken"
  done
}

check_kvm() {
  local said
  if said=$(timeout --kill-after=5 20 python3 "$HERE/kvm.py" 2>&1); then
    row ok kvm 'a virtual machine ran'
  else
    row MISSING kvm "${said:-a virtual machine did not end}" \
      'a machine with virtualisation switched on; inside a virtual machine, nested virtualisation'
  fi
}

check_vsock() {
  if [[ -c /dev/vhost-vsock ]]; then
    row ok vhost_vsock '/dev/vhost-vsock'
  elif modprobe --dry-run vhost_vsock 2>/dev/null; then
    row 'to do' vhost_vsock 'load the module'
  else
    row MISSING vhost_vsock 'no /dev/vhost-vsock, and no module of this name for this kernel' \
      'a kernel with CONFIG_VHOST_VSOCK (those of distributions have it)'
  fi
}

# Kata is a shim of containerd's, which engines register by type; older ones know only paths of runtimes like runc.
check_shims() {
  local trial
  trial=$(mktemp)
  printf '{"runtimes": {"kata-fc": %s}}' "$(entry fc)" >"$trial"
  if dockerd --validate --config-file "$trial" >/dev/null 2>&1; then
    row ok shims 'the engine takes runtimes by their type'
  else
    row MISSING shims 'this dockerd takes no runtimes by their type' 'Docker 23 or newer (Debian 13 has one)'
  fi
  rm -- "$trial"
}

entry() { # MONITOR
  printf '{"runtimeType": "io.containerd.kata-%s.v2"}' "$1"
}

configuration() { # MONITOR
  local place
  for place in "$kata/share/defaults/kata-containers" /etc/kata-containers; do
    if [[ -f $place/configuration-$1.toml ]]; then
      printf '%s' "$place/configuration-$1.toml"
      return 0
    fi
  done
  return 1
}

find_kata() {
  local place
  [[ -z $kata ]] || kata=$(realpath --canonicalize-missing -- "$kata")
  for place in ${kata:-/opt/kata /usr}; do
    if [[ -x $place/bin/containerd-shim-kata-v2 ]]; then
      kata=$place
      return 0
    fi
  done
  return 1
}

check_kata() {
  local monitor file
  if ! find_kata; then
    if is_in_archive "$PACKAGE"; then
      row 'to do' kata "install the package $PACKAGE"
    else
      row MISSING kata "no containerd-shim-kata-v2 in ${kata:-/opt/kata or /usr}, and this distribution has no package $PACKAGE" \
        "unpack the Kata project's own static release at /opt/kata, or say where it is: --kata DIR"
    fi
    return
  fi
  row ok kata "$kata"
  for monitor in "${MONITORS[@]}"; do
    if file=$(configuration "$monitor"); then
      row ok "kata-$monitor" "$file"
      check_registration "kata-$monitor" "$(entry "$monitor")"
    else
      row - "kata-$monitor" "no configuration-$monitor.toml in this release"
    fi
  done
}

check_all() {
  check_host
  check_tools
  check_engine
  check_pond
  check_kvm
  check_vsock
  check_shims
  check_kata
}

# containerd looks for a shim by its name; each says with which monitor it starts.
write_shim() { # MONITOR CONFIGURATION
  local shim=$root/usr/local/bin/containerd-shim-kata-$1-v2 fresh
  fresh=$(mktemp)
  printf '#!/bin/sh\nKATA_CONF_FILE=%q exec %q "$@"\n' "$2" "$kata/bin/containerd-shim-kata-v2" >"$fresh"
  if ! cmp --silent "$fresh" "$shim"; then
    install -D --mode=755 "$fresh" "$shim"
    say "written: $shim"
  fi
  rm -- "$fresh"
}

set_up() {
  local monitor file proven=()
  [[ -c /dev/vhost-vsock ]] || modprobe vhost_vsock
  find_kata || { install_package "$PACKAGE" && find_kata; } || die "the package $PACKAGE brought no containerd-shim-kata-v2"
  for monitor in "${MONITORS[@]}"; do
    file=$(configuration "$monitor") || continue
    write_shim "$monitor" "$file"
    register "kata-$monitor" "$(entry "$monitor")"
    if verify_with_image firecracker SWARM_KATA_RUNTIME "kata-$monitor"; then
      proven+=("kata-$monitor")
      written=false
    else
      unregister
    fi
  done
  [[ ${#proven[@]} -gt 0 ]] || die 'pond accepts none of them; daemon.json is as it was'
  if [[ ${#changes[@]} -eq 0 ]]; then say 'nothing was changed'; fi
  say "this host is a firecracker worker (${proven[*]})"
}

parse "$@"
settle_places
check_all
conclude_check firecracker
set_up
