#!/usr/bin/env bash
# A cell over two containers without the plugin: what bench.py holds it against.
#
#   by_hand.sh COUNT IMAGE PROGRAMS COMMAND...
#
# makes two nodes, joins them, runs COMMAND on the first as often as COUNT says, and removes everything.
# COMMAND (an mpirun) and PROGRAMS (a folder) are those of `pytest --hetgpu-plan`, which also says node0, node1 and
# /tmp/hetgpu. NAME in the environment is what the containers and the network are called by.
set -euo pipefail
name=${NAME:-by-hand-$$}
count=$1 image=$2 programs=$3
shift 3

node() {
  docker run -d --rm --init --name "$name-$1" --hostname "$1" --network "$name" --network-alias "$1" \
    --entrypoint sleep "$image" infinity >/dev/null
}

up() {
  docker network create "$name" >/dev/null
  # Side by side, and all that is to do in a container in one exec: each call of docker takes its time.
  node node0 &
  node node1
  wait $!
  public=$(docker exec "$name-node0" sh -ec '
    mkdir -m 700 /tmp/hetgpu
    ssh-keygen -q -t ed25519 -N "" -f /tmp/hetgpu/key
    cat /tmp/hetgpu/key.pub')
  host_key=$(docker exec -i "$name-node1" sh -ec '
    mkdir -m 700 /tmp/hetgpu
    mkdir -p /run/sshd
    cat >/tmp/hetgpu/authorized_keys
    ssh-keygen -q -t ed25519 -N "" -f /tmp/hetgpu/host_key
    "$(PATH=$PATH:/usr/sbin command -v sshd)" -f /dev/null -p 2222 -h /tmp/hetgpu/host_key \
      -o AuthorizedKeysFile=/tmp/hetgpu/authorized_keys -o StrictModes=no -o PasswordAuthentication=no \
      -o KbdInteractiveAuthentication=no -o UsePAM=no -o PidFile=none -o "SetEnv=PATH=$PATH"
    cat /tmp/hetgpu/host_key.pub' <<<"$public")
  docker exec -i "$name-node0" sh -ec 'cat >/tmp/hetgpu/ssh_config; echo "$0" >/tmp/hetgpu/known_hosts' \
    "[node1]:2222 $host_key" <<'END'
Host node1
  Port 2222
  User root
  IdentityFile /tmp/hetgpu/key
  IdentitiesOnly yes
  UserKnownHostsFile /tmp/hetgpu/known_hosts
  StrictHostKeyChecking yes
  BatchMode yes
END
  docker cp "$programs" "$name-node0:/tmp/hetgpu/programs"
  docker cp "$programs" "$name-node1:/tmp/hetgpu/programs"
}

down() {
  docker rm -f "$name-node0" "$name-node1" >/dev/null || true
  docker network rm "$name" >/dev/null
}

trap down EXIT
up
for _ in $(seq "$count"); do
  docker exec "$name-node0" "$@"
done
