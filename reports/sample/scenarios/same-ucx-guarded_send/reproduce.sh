#!/bin/sh
# Reproduces SIGSEGV@libuct.so!uct_tcp_ep_am_short: same-ucx-guarded_send of the matrix containers.
# Needs a POSIX shell, docker, and the files beside it.
# --build-arg and --network of docker build are of the site that this was found at: leave them out.
set -eu
cd "$(dirname "$0")"
clean() {
  set +e
  docker rm -f hetgpu-containers-same-node0 >/dev/null 2>&1
  docker rm -f hetgpu-containers-same-node1 >/dev/null 2>&1
  docker network rm hetgpu-containers-same >/dev/null 2>&1
}
trap 'exit 130' INT TERM HUP
trap clean EXIT
docker build -t hetgpu/cpu-ompi5:9aa80bdfc7a8 --build-arg BASE=hetgpu-base:bookworm --network host images/cpu-ompi5
docker network create hetgpu-containers-same
docker run -d --rm --init --name hetgpu-containers-same-node0 --hostname node0 --network hetgpu-containers-same --network-alias node0 --entrypoint sleep hetgpu/cpu-ompi5:9aa80bdfc7a8 infinity
docker run -d --rm --init --name hetgpu-containers-same-node1 --hostname node1 --network hetgpu-containers-same --network-alias node1 --entrypoint sleep hetgpu/cpu-ompi5:9aa80bdfc7a8 infinity
docker exec hetgpu-containers-same-node0 mkdir -m 700 /tmp/hetgpu
docker cp programs hetgpu-containers-same-node0:/tmp/hetgpu/programs
docker exec hetgpu-containers-same-node1 mkdir -m 700 /tmp/hetgpu
docker cp programs hetgpu-containers-same-node1:/tmp/hetgpu/programs
docker exec hetgpu-containers-same-node0 ssh-keygen -q -t ed25519 -N '' -f /tmp/hetgpu/key
docker exec hetgpu-containers-same-node1 ssh-keygen -q -t ed25519 -N '' -f /tmp/hetgpu/host_key
docker exec hetgpu-containers-same-node0 cat /tmp/hetgpu/key.pub | docker exec -i hetgpu-containers-same-node1 tee /tmp/hetgpu/authorized_keys
docker exec hetgpu-containers-same-node1 sh -c 'mkdir -p /run/sshd; exec "$(PATH=$PATH:/usr/sbin command -v sshd)" -f /dev/null -p 2222 -h /tmp/hetgpu/host_key -o AuthorizedKeysFile=/tmp/hetgpu/authorized_keys -o StrictModes=no -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no -o UsePAM=no -o PidFile=none -o "SetEnv=PATH=$PATH"'
docker exec hetgpu-containers-same-node1 cat /tmp/hetgpu/host_key.pub | sed 's/^/node1 /' | docker exec -i hetgpu-containers-same-node0 tee -a /tmp/hetgpu/known_hosts
docker exec -i hetgpu-containers-same-node0 tee /tmp/hetgpu/ssh_config <<'END'
Host node1
  HostName node1
  HostKeyAlias node1
  Port 2222
  User root
  IdentityFile /tmp/hetgpu/key
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile /tmp/hetgpu/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  PreferredAuthentications publickey
  KexAlgorithms curve25519-sha256@libssh.org
  BatchMode yes
  ConnectTimeout 10
  ServerAliveInterval 15
END
status=0
timeout 15 docker exec hetgpu-containers-same-node0 mpirun --allow-run-as-root --prtemca plm_ssh_agent 'ssh -F /tmp/hetgpu/ssh_config' --prtemca prte_if_include eth0 --bind-to none --mca coll '^acoll,fca,hcoll,sm,smdirect,xhc' --mca ompi_display_comm mpi_init --mca opal_common_ucx_devices any --mca opal_common_ucx_tls any --mca pml ucx -np 2 -H node0:1,node1:1 env UCX_LOG_LEVEL=info UCX_NET_DEVICES=eth0 UCX_TLS=tcp,self python3 -m mpi4py /tmp/hetgpu/programs/guarded_send.py --sizes 64 --dtypes float32 --memory guarded --iterations 1 --warmup 0 || status=$?
echo "ended with exit code $status"
exit $status
