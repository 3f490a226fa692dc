# What the worker scripts share: rows of a report, packages, and the registration of a runtime with the engine.
# Sourced, never run. A row is `ok`, `to do` (the script will), `MISSING` (you have to, and the row says how) or `-` (not tried).
# shellcheck shell=bash

HERE=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")

# One word per fault or change, so that the end knows.
missing=()
changes=()

row() { # STATE NAME DETAIL [REMEDY]
  printf '%-22s %-8s %s\n' "$2" "$1" "$3"
  if [[ -n ${4-} ]]; then printf '%-31s to get it: %s\n' '' "$4"; fi
  case $1 in
    MISSING) missing+=("$2") ;;
    'to do') changes+=("$2") ;;
  esac
}

say() { printf '%s\n' "$*"; }

die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

usage_error() {
  printf '%s: %s\ntry --help\n' "${0##*/}" "$*" >&2
  exit 2
}

# What this run wrote to daemon.json, and the file before it.
written=false
backup=

check=false
replace=false
root=
daemon_json=
pond=pond
pidfile=/var/run/docker.pid
socket=/var/run/docker.sock

# The flags both scripts have. Returns how many words were taken in $taken, none for a flag that is not one of these.
shared_flag() {
  taken=2
  case $1 in
    --check) check=true taken=1 ;;
    --replace) replace=true taken=1 ;;
    --root) root=$(value "$@") ;;
    --daemon-json) daemon_json=$(value "$@") ;;
    --pond) pond=$(value "$@") ;;
    --pidfile) pidfile=$(value "$@") ;;
    *) taken=0 ;;
  esac
}

value() { # FLAG VALUE
  [[ $# -ge 2 && -n $2 ]] || usage_error "$1 wants a value"
  printf '%s' "$2"
}

settle_places() {
  if [[ -n $root ]]; then
    [[ -d $root ]] || usage_error "--root $root is no directory"
    root=$(realpath -- "$root")
  fi
  daemon_json=${daemon_json:-$root/etc/docker/daemon.json}
  case ${DOCKER_HOST-} in
    '') ;;
    unix:///*) socket=${DOCKER_HOST#unix://} ;;
    *) die "DOCKER_HOST is $DOCKER_HOST; a worker uses an engine of its own machine: write unix:// and an absolute path" ;;
  esac
}

check_host() {
  local machine
  machine=$(uname -m)
  if [[ $(uname -s) == Linux && $machine == x86_64 ]]; then
    row ok host "Linux $(uname -r), $machine"
  else
    row MISSING host "$(uname -s), $machine" 'a machine with Linux on x86-64'
  fi
  if [[ $EUID -eq 0 ]]; then row ok root 'yes'; else row MISSING root "user $EUID" "sudo $0"; fi
}

check_tools() {
  local tool package
  while read -r tool package; do
    if command -v "$tool" >/dev/null; then continue; fi
    row MISSING "$tool" 'not there' "apt-get install $package"
  done <<'END'
python3 python3
timeout coreutils
unshare util-linux
ip iproute2
mkfs.ext4 e2fsprogs
END
}

check_engine() {
  local said
  if said=$(engine registered "$socket" none '{}' 2>&1); then
    row ok engine "answers at $socket"
  else
    row MISSING engine "$said" 'apt-get install docker.io && systemctl start docker, or set DOCKER_HOST'
  fi
}

check_pond() {
  local path
  if path=$(command -v -- "$pond"); then
    row ok pond "$path"
  else
    row MISSING pond "$pond is not a command" 'cargo install --path pond --locked, or say where it is: --pond FILE'
  fi
}

is_in_archive() { # PACKAGE
  command -v apt-get >/dev/null && apt-cache show --no-all-versions "$1" >/dev/null 2>&1
}

# Into the system, or unpacked below --root without touching it.
install_package() { # PACKAGE
  export DEBIAN_FRONTEND=noninteractive
  if [[ -z $root ]]; then
    apt-get install --yes --no-install-recommends "$1" >&2
  else
    unpack_package "$1"
  fi
}

unpack_package() { # PACKAGE
  local place
  place=$(mktemp --directory)
  (cd "$place" && apt-get --option APT::Sandbox::User= download "$1" >&2 && dpkg-deb --extract ./*.deb "$root")
  rm --recursive -- "$place"
}

as_json() { python3 -c 'import json, sys; print(json.dumps(sys.argv[1]))' "$1"; }

engine() { python3 "$HERE/daemon_json.py" "$@"; }

check_registration() { # NAME ENTRY
  local found
  if ! found=$(engine look "$daemon_json" "$1" "$2" 2>&1); then
    row MISSING daemon.json "$daemon_json: $found" 'repair the file; dockerd would not start with it either'
    return
  fi
  case $found in
    same) row ok daemon.json "$daemon_json has $1" ;;
    absent) row 'to do' daemon.json "register $1 in $daemon_json" ;;
    different)
      if $replace; then
        row 'to do' daemon.json "replace $1 in $daemon_json"
      else
        row MISSING daemon.json "$daemon_json has another $1" '--replace, or another name: --name NAME'
      fi
      ;;
  esac
}

# Writes the file and tells the engine. What it does not take is undone.
register() { # NAME ENTRY
  if [[ $(engine look "$daemon_json" "$1" "$2") != same ]]; then
    backup=$(engine put "$daemon_json" "$1" "$2")
    written=true
    say "written: $daemon_json${backup:+ (before: $backup)}"
  elif [[ $(engine registered "$socket" "$1" "$2") == yes ]]; then
    return 0
  fi
  if reload_engine && wait_for_runtime "$1" "$2"; then return 0; fi
  unregister
  die "the engine did not take $1 from $daemon_json, which is as it was; its log says why (journalctl -u docker)"
}

# Takes back what this run wrote.
unregister() {
  $written || return 0
  if [[ -n $backup ]]; then engine restore "$daemon_json" "$backup"; else engine restore "$daemon_json"; fi
  written=false
  reload_engine || true
}

trap 'unregister; exit 130' INT TERM

# The engine reads its runtimes again without a restart, and no container notices.
reload_engine() {
  local pid
  pid=$(cat -- "$pidfile") || return 1
  [[ $(cat "/proc/$pid/comm" 2>/dev/null) == dockerd ]] || return 1
  kill -HUP "$pid"
}

wait_for_runtime() { # NAME ENTRY
  local tries
  for ((tries = 0; tries < 100; tries++)); do
    if [[ $(engine registered "$socket" "$1" "$2") == yes ]]; then return 0; fi
    sleep 0.1
  done
  return 1
}

# What each of the jobs is: flags, and its command.
trial=(-- true)

# A job of each profile, on an empty directory with a state of their own: pond proves the kernel in each.
verify_with_pond() { # BACKEND VARIABLE NAME PROFILE…
  local place profile said status=0
  place=$(mktemp --directory)
  mkdir "$place/checkout"
  for profile in "${@:4}"; do
    if said=$(env "$2=$3" DOCKER_HOST="unix://$socket" POND_STATE_DIR="$place/state" timeout --kill-after=10 120 \
      "$pond" run --quiet --backend "$1" --profile "$profile" --checkout "$place/checkout" "${trial[@]}" 2>&1 </dev/null); then
      row ok "$profile" "a job ran on $1"
    else
      row MISSING "$profile" "${said:-pond gave no answer within two minutes}"
      status=1
      break
    fi
  done
  rm --recursive --one-file-system -- "$place"
  return "$status"
}

# The same where the job sees no toolchain of this host's and no gateway reaches it. Pond is one file that needs nothing else, so an image
# of it alone is enough to prove the kernel.
verify_with_image() { # BACKEND VARIABLE NAME
  local image status=0
  image=$(engine give "$socket" "$(command -v -- "$pond")") || return 1
  trial=(--image "$image" -- /program --version)
  verify_with_pond "$1" "$2" "$3" untrusted-code-read || status=1
  engine take "$socket" "$image" >/dev/null || status=1
  return "$status"
}

# Ends a check, or refuses to go on.
conclude_check() { # WORKER
  if [[ ${#missing[@]} -gt 0 ]]; then
    say "this host cannot be a $1 worker yet: ${missing[*]}"
    say 'nothing was changed'
    exit 1
  fi
  $check || return 0
  if [[ ${#changes[@]} -gt 0 ]]; then
    say "this host can be a $1 worker: run ${0##*/} without --check"
  else
    say "this host is set up as a $1 worker"
  fi
  exit 0
}
