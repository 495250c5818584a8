#!/bin/sh
# Install s2bl and its packages into a virtual environment. make calls it, and sets PYTHONS and PYTHON.
#
#     sh tools/install.sh VENV CONSTRAINTS [PIP TARGET ...]
#
# PYTHONS lists the interpreters that may be used. PYTHON names the one to use; without it, VENV keeps its own, and a new
# VENV takes the first that is allowed. Nothing happens if VENV already has what is asked for. A failure is one line
# on stderr and exit code 1.
set -u
venv=$1 constraints=$2
shift 2
[ $# -gt 0 ] || set -- --editable '.[dev]'
ready=$venv/.s2bl-ready           # what the last install that finished has installed
installing=$venv/.s2bl-installing # the process id of an install that has not finished
log=$venv/install.log
downloads=${TMPDIR:-/tmp}

fail() {
    echo "$1" >&2
    exit 1
}
version_of() { # in a syntax that every Python reads
    "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2> /dev/null
}
is_allowed() {
    version=$(version_of "$1") && case " $PYTHONS " in *" ${version%.*} "*) ;; *) false ;; esac
}
disk_of() {
    df -Pk "$1" | awk 'NR == 2 { print $6 }'
}
check_disk() { # FOLDER GB
    free=$(df -Pk "$1" | awk 'NR == 2 { printf "%.1f", $4 / 1048576 }')
    [ "${free%.*}" -ge "$2" ] || fail "$venv: the install needs $2 GB of free disk in $1, found $free GB: make room there, or set TMPDIR for the downloads"
}
run_pip() { # the exit code goes into the log, because a pipe would lose it
    "$venv/bin/python" -m pip install --disable-pip-version-check --retries 3 -c "$constraints" "$@" 2>> "$log"
    echo "exit code $?" >> "$log"
}
install_packages() { # a terminal shows pip's progress, anything else the large downloads
    if [ -t 1 ]; then run_pip "$@"; else run_pip "$@" | awk '/^ *Downloading .* [MG]B\)/ { print; fflush() }'; fi
    [ "$(tail -n 1 "$log")" = "exit code 0" ] && return
    ! grep -q "No space left" "$log" || fail "$venv: the disk is full: make room in $venv and $downloads, and run make again"
    rm -f "$installing" # pip changes nothing before it has everything, so there is nothing to repair
    ! grep -qE "Retrying|[Mm]ax retries|timed out|Connection(Error| )|ProxyError" "$log" ||
        fail "$venv: the packages cannot be downloaded, there seems to be no network: run make again when there is one (pip's words: $log)"
    fail "$venv: pip failed ($(grep -i "error:" "$log" | head -n 1)): see $log; if pyproject.toml has changed, run make lock"
}

if [ -e "$installing" ]; then
    pid=$(cat "$installing")
    case $(ps -p "${pid:-0}" -o args= 2> /dev/null) in # not kill -0, which takes a zombie for alive
        *install.sh*) fail "$venv: process $pid is installing into it: wait for it, or delete $installing" ;;
    esac
    echo "The last install into $venv was cut off: starting over"
    rm -rf "$venv"
fi

python=${PYTHON:-}
if [ -z "$python" ]; then
    for python in "$venv/bin/python" python3 $(printf 'python%s ' $PYTHONS) python3; do
        ! is_allowed "$python" || break
    done
fi
if ! is_allowed "$python"; then
    version=$(version_of "$python") || version="missing"
    fail "s2bl needs Python ${PYTHONS%% *} to ${PYTHONS##* }; $python is $version: install one of these, or name it, as in make PYTHON=python3.12 test"
fi
wanted="Python $version, $(cat "$constraints" pyproject.toml | cksum), $*"
[ "$(cat "$ready" 2> /dev/null)" != "$wanted" ] || exit 0

if [ "$(version_of "$venv/bin/python")" != "$version" ]; then
    "$python" -c 'import ensurepip, venv' 2> /dev/null ||
        fail "$python: its modules ensurepip and venv make $venv, and are missing: install them (Debian and Ubuntu: apt install python3-venv)"
    rm -rf "$venv"
fi
if [ -e "$ready" ]; then
    echo "Updating $venv to $constraints and pyproject.toml"
else
    if [ "$(uname)" != Linux ]; then # only there torch comes with CUDA
        check_disk . 3
    elif [ "$(disk_of .)" = "$(disk_of "$downloads")" ]; then
        check_disk . 10
    else
        check_disk . 7
        check_disk "$downloads" 3
    fi
    echo "Installing the packages of $constraints into $venv with Python $version (on Linux 3 GB to download, 6 GB on disk: a few minutes)"
fi
trap 'fail "$venv: the install was interrupted: run make again to start over"' INT TERM HUP
mkdir -p "$venv" && echo $$ > "$installing" && : > "$log" || fail "$venv: cannot be written: check the permissions of this folder"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv" 2>> "$log" || fail "$venv: $python -m venv failed: see $log"
case $1 in --editable) install_packages --quiet pip hatchling editables ;; esac
install_packages --no-build-isolation "$@"
echo "$wanted" > "$ready"
rm -f "$installing"
echo "$venv is ready"
