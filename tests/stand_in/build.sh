#!/bin/sh
# Builds the stand-in into a folder, which then stands for a CUDA toolkit with its driver.
set -e
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?"build.sh DIR"}
mkdir -p "$out/include/crt" "$out/include/cuda"
flags="-std=c11 -O2 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -pthread"
cc $flags -Wl,-soname,libcuda.so.1 -o "$out/libcuda.so.1" "$here/driver.c"
cc $flags -Wl,-soname,libnvidia-ml.so.1 -o "$out/libnvidia-ml.so.1" "$here/management.c" -ldl
cc $flags -Wl,-soname,libnvrtc.so -o "$out/libnvrtc.so" "$here/compiler.c" -ldl
# The compiler of the stand-in reads no headers. xrun asks for one of each wheel.
: >"$out/include/cuda_runtime.h"
: >"$out/include/crt/host_defines.h"
: >"$out/include/cuda/barrier"
: >"$out/include/cooperative_groups.h"
echo "#define CUDART_VERSION  ${STAND_IN_HEADERS:-13000}" >"$out/include/cuda_runtime_api.h"
