#!/bin/busybox sh
# The first process of the emulated machine: mounts what a machine has, with control groups v2 and no v1, and hands over to
# the suites. Whatever fails here leaves a suite without its mark, which the judge takes for a failure.
/bin/busybox --install -s /usr/bin
mount -t devtmpfs devices /dev
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t cgroup2 groups /sys/fs/cgroup
for module in /modules/*.ko; do insmod "$module"; done

# Checkouts and state lie on a disk, as they do on a real machine.
mount -t tmpfs -o size=1g memory /memory
truncate -s 4G /memory/disk
mkfs.ext4 -q -F /memory/disk
mount -o loop /memory/disk /disk

# Nobody can pivot away from the first root a kernel mounts, so the same tree is mounted over it.
mount --bind / /root
for place in dev proc sys memory disk; do mount --move /$place /root/$place; done
cd /root
mount --move . /
exec chroot . sh /suites
