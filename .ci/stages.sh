# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# The machinery of a test run, sourced by ./dev and by its own test (tests/lint/test_stages.py).
# A run is a row of stages. Whatever a stage does (it fails, hangs, never starts, is killed), the
# run goes on with the next, ends before its deadline, and its last line is
#     N passed, N failed, N skipped
# with exit status 0 only if nothing failed and something passed. Usage:
#     stages_begin DEADLINE_SECONDS
#     step NAME LIMIT COMMAND...          a build, an install: counts only where it fails
#     tests NAME LIMIT BUILDDIR ARGS...   meson tests: counted one by one from their log; where at
#                                         most three failed, each has a second try, alone
#     stages_end
# The caller stands in the root of the repository.

stages_begin()
{
    stage_deadline=$1
    stage_start=$SECONDS
    stage_child=
    stage_done=
    stage_logs=()
    stage_failed=()
    stage_times=()
    trap stage_finish EXIT
    trap 'stage_stop INT' INT
    trap 'stage_stop TERM' TERM
}

# All stages were asked: without this call the end is an abort, and counts as a failure.
stages_end()
{
    stage_done=1
    exit 0 # the trap decides
}

stage_stop()
{
    stage_failed+=("stopped by SIG$1")
    stage_done=1
    # timeout(1) leads the process group of what it runs, and passes the signal on to it
    [[ -z $stage_child ]] || kill -TERM "$stage_child" 2>/dev/null || true
    exit 1
}

stage_finish()
{
    local status=$?

    trap - EXIT
    trap '' INT TERM
    [[ -n $stage_done ]] || stage_failed+=("stopped early with status $status")
    printf '== times\n'
    printf '%s\n' "${stage_times[@]+"${stage_times[@]}"}"
    status=0
    /usr/bin/python3 tests/lint/test_summary.py \
        "${stage_failed[@]+"${stage_failed[@]/#/--failed=}"}" \
        "${stage_logs[@]+"${stage_logs[@]}"}" || status=$?
    exit "$status"
}

# min(own limit, what the deadline leaves), in seconds; nothing and status 1 where none is left
stage_left()
{
    local left=$((stage_deadline - (SECONDS - stage_start)))

    ((left < $1)) || left=$1
    ((left > 0)) && echo "$left"
}

# LIMIT COMMAND...: its status; 124 or 137 where it ran out of time. In the background, so that a
# signal to us does not wait for it; a background command would ignore SIGINT, and so would every
# program that a test starts.
stage_run()
{
    local status=0

    env --default-signal=INT,QUIT timeout -k 30 "$1" "${@:2}" </dev/null &
    stage_child=$!
    wait "$stage_child" || status=$?
    stage_child=
    return "$status"
}

stage_note() # NAME SECONDS_AT_START STATUS
{
    stage_times+=("$(printf '%5d s  %s%s' $((SECONDS - $2)) "$1" "${3:+ ($3)}")")
}

step() # NAME LIMIT COMMAND...
{
    local t status=0 from=$SECONDS

    echo "== $1"
    if ! t=$(stage_left "$2"); then
        stage_failed+=("$1: out of time")
        stage_note "$1" "$from" 'out of time'
        return 0
    fi
    stage_run "$t" "${@:3}" || status=$?
    case $status in
    0) stage_note "$1" "$from" '' ;;
    124 | 137)
        stage_failed+=("$1: out of time")
        stage_note "$1" "$from" 'out of time'
        ;;
    *)
        stage_failed+=("$1")
        stage_note "$1" "$from" "status $status"
        ;;
    esac
}

tests() # NAME LIMIT BUILDDIR ARGS...
{
    local t status=0 from=$SECONDS log=$3/meson-logs/$1.json

    echo "== $1"
    if ! t=$(stage_left "$2"); then
        stage_failed+=("$1: out of time")
        stage_note "$1" "$from" 'out of time'
        return 0
    fi
    rm -f "$log"
    stage_logs+=("$log")
    rm -f "${log%.json}-again.json"
    stage_run "$t" meson test -C "$3" --no-rebuild --print-errorlogs --logbase "$1" "${@:4}" ||
        status=$?
    case $status in
    124 | 137)
        stage_failed+=("$1: out of time")
        stage_note "$1" "$from" 'out of time'
        ;;
    *)
        ((status == 0)) || stage_again "$log" "$2" "$3"
        stage_note "$1" "$from" "$([[ $status -eq 0 ]] || echo "status $status")"
        ;;
    esac
}

# What failed beside other tests on a machine with other work runs once more, one at a time. Both
# results stay: the summary names what passed only then. See docs/decisions/0001-one-script.md.
stage_again() # LOG LIMIT BUILDDIR
{
    local t names name=${1##*/}

    mapfile -t names < <(/usr/bin/python3 tests/lint/test_summary.py --again "$1")
    [[ -n ${names[0]:-} ]] && t=$(stage_left "$2") || return 0
    echo "== ${name%.json}, once more: ${names[*]}"
    stage_run "$t" meson test -C "$3" --no-rebuild --print-errorlogs --num-processes 1 \
        --logbase "${name%.json}-again" "${names[@]}" || true
}
