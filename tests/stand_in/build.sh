#!/bin/sh
# Builds the stand-in into a directory, which then has the libraries of a driver.
set -e
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?"build.sh DIR"}
mkdir -p "$out"
flags="-std=c11 -O2 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -pthread"
cc $flags -Wl,-soname,libcuda.so.1 -o "$out/libcuda.so.1" "$here/driver.c" "$here/launches.c"
cc $flags -Wl,-soname,libnvidia-ml.so.1 -o "$out/libnvidia-ml.so.1" "$here/management.c" -ldl
