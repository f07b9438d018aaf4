#!/usr/bin/env bash
# A cluster of network namespaces on this machine (needs root). Node I, counted from 1, has the
# address 10.77.0.I on its eth0; all meet on a bridge in a namespace of its own, so nothing is added
# to the machine's main one, and clusters of different prefixes do not see each other.
#
#   scripts/netns.sh up COUNT [PREFIX]     prints the prefix (default: dl and this shell's pid)
#   scripts/netns.sh down PREFIX           ends what still runs inside, removes all of it
#
#   ip netns exec PREFIX1 COMMAND …        runs a command on node 1; its /etc/hosts and resolv.conf
#                                          are those of /etc/netns/PREFIX1
#   ip -n PREFIXsw link set p2 down        pulls node 2's cable: its address and route stay
set -Eeuo pipefail

usage() {
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
  exit 2
}

up() {
  local count=$1 prefix=$2 switch=$2sw node i j
  trap 'down "$prefix"' ERR
  ip netns add "$switch"
  ip -n "$switch" link set lo up
  ip -n "$switch" link add br0 type bridge
  ip -n "$switch" link set br0 up
  for ((i = 1; i <= count; ++i)); do
    node=$prefix$i
    ip netns add "$node"
    ip -n "$node" link set lo up
    ip link add name eth0 netns "$node" type veth peer name "p$i" netns "$switch"
    ip -n "$switch" link set "p$i" master br0 up
    ip -n "$node" addr add "10.77.0.$i/24" dev eth0
    ip -n "$node" link set eth0 up
    mkdir -p "/etc/netns/$node"
    printf '127.0.0.1 localhost\n' >"/etc/netns/$node/hosts"
    for ((j = 1; j <= count; ++j)); do
      printf '10.77.0.%d node%d\n' "$j" "$((j - 1))" >>"/etc/netns/$node/hosts"
    done
    # No name server answers there, and that at once.
    printf 'nameserver 127.0.0.1\n' >"/etc/netns/$node/resolv.conf"
  done
  echo "$prefix"
}

down() {
  local prefix=$1 node pids
  for node in $(ip netns list | awk -v prefix="$prefix" '$1 ~ "^" prefix "([0-9]+|sw)$" {print $1}'); do
    pids=$(ip netns pids "$node")
    # shellcheck disable=SC2086
    [[ -z $pids ]] || kill -KILL $pids 2>/dev/null || true
    ip netns del "$node"
    rm -rf "/etc/netns/$node"
  done
}

[[ $# -ge 2 ]] || usage
case $1 in
  up)
    [[ $2 =~ ^[1-9][0-9]{0,2}$ ]] || usage
    prefix=${3:-dl$$}
    # "sw" and three digits have to fit behind it.
    [[ $prefix =~ ^[a-z][a-z0-9]*[a-z_x]$ || $# -lt 3 ]] || {
      echo "a prefix is lower-case letters and digits, and ends with a letter" >&2
      exit 2
    }
    [[ $# -ge 3 ]] || prefix+=x
    up "$2" "$prefix"
    ;;
  down) down "$2" ;;
  *) usage ;;
esac
