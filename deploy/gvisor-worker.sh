#!/usr/bin/env bash
# Makes this machine one on which `pond run --backend gvisor` works: installs runsc from the distribution's packages, registers
# it with the Docker engine, and has pond prove it. What can only be known by trying (the platform, the network stack) is tried.
# A second run changes nothing; a host that lacks something is left as it was, and told what.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=worker.bash
. "$(dirname -- "${BASH_SOURCE[0]}")/worker.bash"

readonly BOOT_ID=/proc/sys/kernel/random/boot_id
readonly NEWER='a newer runsc (that of Debian 13 works on kernels where that of Debian 12 does not) with --runsc FILE'
runsc=
name=runsc
network=host
platforms=(kvm systrap ptrace)
platform=

usage() {
  cat <<'END'
gvisor-worker.sh [--check] [OPTION…]

  --check             say what is there and what is missing, and change nothing
  --runsc FILE        take this runsc instead of the distribution's package
  --name NAME         register it under this name (default: runsc; pond is told others by SWARM_GVISOR_RUNTIME)
  --platform NAME     try this one alone (default: the first of kvm, systrap and ptrace that works)
  --network host      the container's own network namespace, as pond's gateway needs it (the default)
  --network sandbox   gVisor's own network stack: for sealed jobs alone
  --replace           replace another registration under that name
  --pond FILE         the pond that has the last word (default: pond on the path)
  --daemon-json FILE  the engine's configuration (default: /etc/docker/daemon.json)
  --pidfile FILE      the engine's process (default: /var/run/docker.pid)
  --root DIR          unpack packages below DIR instead of installing them

DOCKER_HOST says where the engine answers. Exit codes: 0 all is there, or with --check can be made; 1 it cannot; 2 usage.
END
}

parse() {
  while [[ $# -gt 0 ]]; do
    shared_flag "$@"
    if [[ $taken -eq 0 ]]; then
      taken=2
      case $1 in
        --runsc) runsc=$(value "$@") ;;
        --name) name=$(value "$@") ;;
        --network) network=$(value "$@") ;;
        --platform) platforms=("$(value "$@")") ;;
        --help | -h) usage && exit 0 ;;
        *) usage_error "unknown word: $1" ;;
      esac
    fi
    shift "$taken"
  done
  [[ $name =~ ^[a-z0-9][a-z0-9_.-]*$ ]] || usage_error "--name $name: small letters, digits, dots and dashes"
  [[ $network == host || $network == sandbox ]] || usage_error "--network $network: host or sandbox"
  [[ -z $runsc || (-x $runsc && $runsc == /*) ]] || usage_error "--runsc $runsc: an absolute path of an executable"
  [[ ${platforms[0]} =~ ^[a-z]+$ ]] || usage_error "--platform ${platforms[0]}: a name such as systrap"
}

# A program in a sandbox, in a network namespace with a loopback like a container's; it says which boot its kernel is of, by which
# pond tells gVisor from the host. A platform that hangs does not work.
works() { # PLATFORM NETWORK
  local patience=30 place said status=0
  if [[ $1 == kvm ]]; then patience=8; fi
  place=$(mktemp --directory)
  said=$(TMPDIR=$place timeout --kill-after=5 "$patience" unshare --net sh -c 'ip link set lo up && exec "$@"' sh \
    "$runsc" --ignore-cgroups --root="$place" --platform="$1" --network="$2" 'do' cat "$BOOT_ID" 2>/dev/null </dev/null) || status=1
  rm --recursive --force --one-file-system -- "$place"
  [[ $status -eq 0 && -n $said && $said != "$(cat "$BOOT_ID")" ]]
}

# The fastest first. Having /dev/kvm is not enough: on many virtual machines it is there and never returns.
choose_platform() {
  local candidate
  for candidate in "${platforms[@]}"; do
    if [[ $candidate == kvm && ! -w /dev/kvm ]]; then continue; fi
    if works "$candidate" host; then
      platform=$candidate
      return 0
    fi
  done
  return 1
}

no_platform() {
  printf '%s runs nothing on this kernel, or does not say of which boot its own is' "$runsc"
}

entry() {
  printf '{"path": %s, "runtimeArgs": ["--platform=%s", "--network=%s"]}' "$(as_json "$runsc")" "$platform" "$network"
}

find_runsc() {
  if [[ -z $runsc && -x $root/usr/bin/runsc ]]; then runsc=$root/usr/bin/runsc; fi
}

check_runsc() {
  if [[ -n $runsc ]]; then
    row ok runsc "$runsc, $("$runsc" --version 2>&1 | head -n 1)"
  elif is_in_archive runsc; then
    row 'to do' runsc "install the package runsc${root:+ below $root}"
  else
    row MISSING runsc 'not there, and no package of this name in the package lists' \
      'apt-get update, or a release that has it (Debian 12 or newer), or --runsc FILE'
  fi
}

check_platform() {
  if [[ -z $runsc ]]; then
    row - platform 'tried once runsc is there'
  elif choose_platform; then
    row ok platform "$platform"
    check_network
  else
    row MISSING platform "$(no_platform)" "$NEWER"
  fi
}

check_network() {
  local own='works on this kernel'
  works "$platform" sandbox || own='refuses this kernel'
  if [[ $network == sandbox && $own == refuses* ]]; then
    row MISSING network "gVisor's own stack $own" '--network host'
  else
    row ok network "$network (gVisor's own stack $own)"
  fi
}

check_all() {
  check_host
  check_tools
  check_engine
  check_pond
  find_runsc
  check_runsc
  check_platform
  if [[ -n $platform ]]; then
    check_registration "$name" "$(entry)"
  else
    check_registration "$name" '{}'
  fi
}

install() {
  if [[ -z $runsc ]]; then
    install_package runsc
    find_runsc
    [[ -n $runsc ]] || die "the package runsc brought no $root/usr/bin/runsc"
    say "installed: $runsc"
    choose_platform || die "$(no_platform); nothing was registered. To get it: $NEWER"
  fi
  register "$name" "$(entry)"
  verify || {
    unregister
    die 'pond does not accept it; daemon.json is as it was'
  }
}

# A stack of gVisor's own has no loopback that a gateway could be opened on.
verify() {
  local profiles=(untrusted-code-read)
  if [[ $network == host ]]; then profiles+=(untrusted-code-write); fi
  verify_with_pond gvisor SWARM_GVISOR_RUNTIME "$name" "${profiles[@]}" || return 1
  if [[ ${#changes[@]} -eq 0 ]]; then say 'nothing was changed'; fi
  say "this host is a gvisor worker ($name, $platform, network $network)"
}

parse "$@"
settle_places
check_all
conclude_check gvisor
install
