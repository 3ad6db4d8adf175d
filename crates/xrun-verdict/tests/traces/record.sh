#!/bin/sh
# Records the traces of this directory again, in about two minutes. Needs a Python with
# `pip install memory_profiler psrecord memray`, and procps.
set -eu
cd "$(dirname "$0")"

mprof run --interval 0.2 -o mprof_leak.dat python leak.py 0.2 45 &
mprof run --interval 0.2 -o mprof_flat.dat python leak.py 0 45 &
mprof run --interval 0.5 --multiprocess -o mprof_children.dat python children.py 0.2 60 &
mprof run --interval 0.2 -o mprof_functions.dat functions.py 1 45 &
psrecord "python leak.py 0.2 45" --include-children --interval 0.2 --log psrecord_leak.txt &
psrecord "python leak.py 0 30" --include-children --include-io --interval 0.2 --log psrecord_io.txt &
psrecord "python leak.py 0.2 45" --include-children --interval 0.2 --log-format csv --log psrecord_leak.csv &
memray run -q -f -o memray.bin leak.py 0.2 45 &
wait
memray flamegraph -f --max-memory-records 400 -o memray_flamegraph.html memray.bin
# The scripts that the page carries are nine tenths of it.
awk 'length($0) > 20000 { print "// cut out: a line of", length($0), "characters"; next } { print }' \
    memray_flamegraph.html >memray.html && mv memray.html memray_flamegraph.html
rm memray.bin

# The whole machine: a leak that is more than its noise.
python leak.py 6 62 &
free -m -s 1 -c 60 >free_m.txt &
(for _ in $(seq 60); do date; free -b -w; sleep 1; done >free_date.txt) &
# One call a sample: vmstat of procps-ng 4.0.2 repeats the memory of its first line.
(for _ in $(seq 60); do vmstat -t; sleep 1; done >vmstat_t.txt) &
wait
