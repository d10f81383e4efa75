#!/usr/bin/env bash
# libmemcached's command line tools against the server at HOST PORT, in the DIALECT text or binary. Exits with 1 at the
# first surprise. Left out, for they fail on memcached as well: memcslap's buffered requests, memcaslap's overwriting
# (-o), which takes its own new values for wrong ones, and its reconnecting (-R), which does not end.
set -uo pipefail
host=$1 port=$2 dialect=$3
servers=--servers=$host:$port
case $dialect in
  text) binary=() load_binary=() ;;
  binary) binary=(--binary) load_binary=(--binary) ;;
  *) echo "libmemcached: no dialect $dialect" && exit 1 ;;
esac
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1

fail() {
  echo "libmemcached: $dialect: $*"
  cat "$folder"/said* 2>/dev/null
  exit 1
}
# tool NAME ARGUMENT ...: what it says goes to the file "said".
tool() { timeout 60 "$1" "$servers" "${binary[@]}" "${@:2}" >said 2>said.error; }
works() { tool "$@" || fail "$* ends with $?"; }
refuses() {
  tool "$@"
  local status=$?
  [ "$status" = 1 ] || fail "$* ends with $status, not with 1"
}
says() {
  local wanted=$1
  works "${@:2}"
  [ "$(cat said)" = "$wanted" ] || fail "${*:2}: wanted: $wanted, got:"
}

printf 'hello\r\nthere' >one
printf 'other' >two
head -c 900000 /dev/urandom >large

files() {
  works memcflush
  works memccp --set one two large
  for name in one two large; do
    works memccat --file=back "$name"
    cmp "$name" back || fail "memccat $name gives other bytes"
  done
  says "$(cat one; echo; cat two)" memccat one two
  refuses memccat none
  refuses memccp --add one
  works memccp --replace one
  works memccp --set --flags=77 two
  says "$(printf '77\nother')" memccat --flags two
  works memcexist one
  refuses memcexist none
  works memcrm one
  refuses memcrm one
  refuses memcexist one
  refuses memccp --replace one
  works memccp --add one
  # Each tool is a process to start: the item must live until the next has touched it.
  works memccp --set --expire=3 one two
  works memctouch --expire=100 two
  refuses memctouch --expire=100 none
  sleep 4.2
  refuses memcexist one
  works memcexist two
  works memcflush
  refuses memcexist two
}

server() {
  works memcstat
  for key in pid uptime version curr_items cmd_get limit_maxbytes threads; do
    grep -q "^[[:blank:]]*$key: ." said || fail "memcstat does not say $key:"
  done
  works memcstat settings
  grep -q 'maxbytes: [1-9]' said || fail "memcstat settings does not say maxbytes:"
  works memcstat items
  works memcstat --server-version
  grep -q "$host:$port [1-9][0-9]*\.[0-9]" said.error || fail "memcstat does not understand the version:"
  timeout 60 memcping "$servers" || fail "memcping ends with $?"
}

# memcslap counts what it stored and found, and stops at a wrong answer.
slap() {
  for way in --non-blocking --tcp-nodelay --noreply; do
    for kind in set get mget; do
      works memcslap "$way" --test=$kind --concurrency=2 --execute-number=2000 --flush
      grep -q "Time to $kind  *4000 keys by" said || fail "memcslap $way $kind did not do all:"
    done
  done
}

# memcaslap compares every value that it reads with the one that it stored.
load() {
  for way in '' '--division=20' '--exp_verify=0.3'; do
    timeout 60 memcaslap -s "$host:$port" "${load_binary[@]}" --threads=2 --concurrency=8 --execute_number=20000 \
      --verify=1 ${way:+"$way"} >said 2>said.error || fail "memcaslap $way ends with $?"
    for line in 'cmd_get: 18000' 'cmd_set: 2000' 'get_misses: 0' 'verify_misses: 0' 'verify_failed: 0'; do
      grep -q "^$line\$" said || fail "memcaslap $way: wanted $line:"
    done
  done
  ! grep -Eq '^(expired_get|unexpired_unget): [1-9]' said || fail "memcaslap finds items expired too late or too early:"
}

files
server
slap
load
echo "libmemcached: all well in $dialect"
