//! Cases that were written before the readers and run only after them.

use super::Unit::{Bytes, Percent, Unknown};
use super::*;

#[test]
fn units_come_from_headers_cells_and_tools() {
    let mib = |at: u64| 2000 + at * 2;
    let last = |unit: f64| Bytes(2398.0 * unit);
    assert_read(&[
        case(
            "gigabytes",
            lines("iter,Memory (GB)", 200, |at| format!("{at},{}.{:02}", 12 + at / 100, at % 100)),
            vec![grows("Memory (GB)", Bytes(13.99e9))],
            vec![],
        ),
        case(
            "camel case",
            lines("step,rssKiB", 200, |at| format!("{at},{}", mib(at) << 10)),
            vec![grows("rssKiB", last(MIB))],
            vec![],
        ),
        case(
            "sar -r",
            lines("", 200, |at| {
                let header = "12:00:01 AM kbmemfree   kbavail kbmemused  %memused kbbuffers";
                let header = if at % 40 == 0 { format!("\n{header}\n") } else { String::new() };
                format!(
                    "{header}12:{:02}:{:02} AM  40000000  50000000  {}     37.10    120000",
                    at / 60,
                    at % 60,
                    mib(at) << 10
                )
            }),
            vec![grows("kbmemused", last(MIB))],
            vec!["kbmemfree"],
        ),
        case(
            "pidstat -r",
            lines("Linux 6.1.0 (node7) \t02/24/2025 \t_x86_64_\t(16 CPU)\n", 200, |at| {
                format!(
                    "{}      UID       PID  minflt/s  majflt/s     VSZ     RSS   %MEM  Command\n\
                     {}     1000      4711    120.00      0.00 9000000 {}   3.10  python\n",
                    time(at),
                    time(at + 1),
                    mib(at) << 10
                )
            }),
            vec![grows("RSS", last(MIB))],
            vec!["VSZ"],
        ),
        case(
            "smaps_rollup",
            lines("", 200, |at| {
                format!("Rss:             {} kB\nPss:              512000 kB\nSwap:                0 kB", mib(at) << 10)
            }),
            vec![grows("Rss", last(MIB)), rests("Pss", Bytes(500.0 * MIB))],
            vec![],
        ),
        case(
            "time -v",
            lines("", 150, |at| {
                format!(
                    "\tCommand being timed: \"python t.py\"\n\tUser time (seconds): 12.{:02}\n\
                     \tMaximum resident set size (kbytes): {}\n\tExit status: 0",
                    at % 100,
                    mib(at) << 10
                )
            }),
            vec![grows("Maximum resident set size", Bytes(2298.0 * MIB))],
            vec![],
        ),
        case(
            "sstat",
            lines("JobID MaxRSS AveRSS", 150, |at| format!("77.0 {}K 900000K", mib(at) << 10)),
            vec![grows("MaxRSS", Bytes(2298.0 * MIB)), rests("AveRSS", Bytes(900_000.0 * 1024.0))],
            vec![],
        ),
        case(
            "top in GiB",
            lines("", 200, |at| {
                format!(
                    "    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND\n   4711 ada       20   0   21.1g   {}.{}g  98304 R  99.9   5.0   0:10.17 python",
                    2 + at / 10,
                    at % 10
                )
            }),
            vec![grows("RES", Bytes(21.9 * 1024.0 * MIB))],
            vec!["SHR"],
        ),
        case(
            "bytes of the GPU in JSON",
            lines("", 200, |at| {
                format!("{{\"step\":{at},\"gpu\":{{\"memory_bytes\":{},\"util\":97}}}}", mib(at) << 20)
            }),
            vec![grows("memory_bytes", last(MIB))],
            vec!["gpu.util"],
        ),
        case(
            "no unit beside one",
            lines("step,vram,rss_gb", 200, |at| format!("{at},{}.5,31.25", 40 + at / 4)),
            vec![grows("vram", Unknown), rests("rss_gb", Bytes(31.25e9))],
            vec![],
        ),
        case(
            "flat without a unit",
            lines("step,mem", 200, |at| format!("{at},{}", level(at))),
            vec![rests("mem", Unknown)],
            vec![],
        ),
        case(
            "percent, growing",
            lines("elapsed_s,mem_percent", 200, |at| format!("{},{}.{}", at * 10, 20 + at / 10, at % 10)),
            vec![grows("mem_percent", Percent)],
            vec![],
        ),
        refused("petabytes", lines("step,mem_gb", 200, |at| format!("{at},{}", 70_000 * (at + 2))), None),
    ]);
}

#[test]
fn counters_of_work_are_not_memory() {
    assert_read(&[
        case(
            "input tokens in JSON",
            lines("", 200, |at| {
                format!(
                    "{{\"loss\": 2.1, \"num_input_tokens_seen\": {}, \"step\": {at}, \"mem_gib\": 22.5}}",
                    (at + 1) * 1_048_576
                )
            }),
            vec![rests("mem_gib", Bytes(22.5 * 1024.0 * MIB))],
            vec!["num_input_tokens_seen", "loss"],
        ),
        case(
            "network and disk",
            lines("time,net_sent_mb,disk_write_bytes,uss_mb", 200, |at| {
                format!("{at},{},{},{}", at * 17, at << 24, level(at))
            }),
            vec![rests("uss_mb", Bytes(1001e6))],
            vec!["net_sent_mb", "disk_write_bytes"],
        ),
        case(
            "samples",
            lines("step,consumed_samples,flops,host_mem_mib", 200, |at| {
                format!("{at},{},{}e15,{}", at * 2048 * 512, at + 1, level(at))
            }),
            vec![rests("host_mem_mib", Bytes(1001.0 * MIB))],
            vec!["consumed_samples", "flops"],
        ),
        case(
            "a counter of another name",
            lines("step,ticks,rss_mib", 200, |at| format!("{at},{},{}", at * 3_000_017, level(at))),
            vec![rests("rss_mib", Bytes(1001.0 * MIB))],
            vec!["ticks"],
        ),
    ]);
}

#[test]
fn cells_are_never_shifted() {
    assert_read(&[
        case(
            "decimal commas and dots between thousands",
            lines("Zeit;RSS [MB];CPU %", 200, |at| format!("{};1.{:03},5;40,2", time(at), 500 + at)),
            vec![grows("RSS [MB]", Bytes(1699.5e6))],
            vec!["CPU %"],
        ),
        case(
            "blanks between thousands",
            lines("step;rss_kib", 200, |at| format!("{at};1 {:03} 000", 500 + at)),
            vec![grows("rss_kib", Bytes(1_699_000.0 * 1024.0))],
            vec![],
        ),
        case(
            "quoted decimal commas",
            lines("step,rss_mb", 200, |at| format!("{at},\"{},25\"", 1500 + at)),
            vec![grows("rss_mb", Bytes(1699.25e6))],
            vec![],
        ),
        case(
            "a note with commas at the end",
            lines("step,rss_mb,note", 200, |at| format!("{at},{},loss fell, as hoped, again", 700 + at)),
            vec![grows("rss_mb", Bytes(899e6))],
            vec![],
        ),
        case(
            "a comma in the time and another column",
            lines("timestamp,level,rss_mib", 200, |at| {
                format!("2025-03-04 {},{:03},INFO,{}", time(at), at * 3, 900 + at)
            }),
            vec![grows("rss_mib", Bytes(1099.0 * MIB))],
            vec![],
        ),
        refused(
            "half of the numbers with a comma",
            lines("step,rss_mb,loss", 100, |at| format!("{at},{},7,2,5", 100 + at)),
            Some(2),
        ),
        refused("one comma a row", lines("step,rss_mb,cpu_mb", 100, |at| format!("{at},{},5,40", 100 + at)), Some(2)),
        case(
            "an index with a name and another empty column",
            lines(",step,rank,rss_mb", 200, |at| format!("{at},{},{},{}", at / 2, at % 2, 600 + (at % 2) * at)),
            vec![grows("rss_mb, rank 1", Bytes(799e6)), rests("rss_mb, rank 0", Bytes(600e6))],
            vec![],
        ),
    ]);
}

#[test]
fn lines_of_logs_are_read() {
    assert_read(&[
        case(
            "Python's logging",
            lines("", 200, |at| {
                format!(
                    "2025-03-04 {},{:03} INFO trainer: step={at} loss=2.31 rss={} bytes",
                    time(at),
                    at,
                    (800 + at) << 20
                )
            }),
            vec![grows("rss", Bytes(999.0 * MIB))],
            vec!["loss"],
        ),
        case(
            "used of all",
            lines("", 200, |at| format!("step {at} | VRAM: {}.{}/80.0 GiB", 20 + at / 10, at % 10)),
            vec![grows("VRAM", Bytes(39.9 * 1024.0 * MIB))],
            vec![],
        ),
        case(
            "dictionaries of Python",
            lines("Loading model ...", 200, |at| {
                format!("{{'loss': 2.31, 'grad_norm': 1.5, 'mem_gb': {}.{}, 'step': {at}}}", 30 + at / 10, at % 10)
            }),
            vec![grows("mem_gb", Bytes(49.9e9))],
            vec!["loss", "grad_norm"],
        ),
        case(
            "detectron2",
            lines("", 200, |at| {
                format!(
                    "[03/04 {} d2.utils.events]:  eta: 1:02:03  iter: {}  total_loss: 1.1  time: 0.33  lr: 0.006  max_mem: {}M",
                    time(at),
                    at * 20,
                    3961 + at * 2
                )
            }),
            vec![grows("max_mem", Bytes(4359.0 * MIB))],
            vec!["total_loss", "lr"],
        ),
        case(
            "MetricLogger",
            lines("", 200, |at| {
                format!(
                    "Epoch: [0]  [{:4}/2000]  eta: 0:10:00  lr: 0.000100  loss: 4.1 (4.3)  time: 0.5  data: 0.01  max mem: {}",
                    at * 10,
                    7000 + at
                )
            }),
            vec![grows("max mem", Bytes(7199.0 * MIB))],
            vec!["loss"],
        ),
        case(
            "a line of memory after each step",
            lines("", 200, |at| format!("Step {at}: loss 2.31\nGPU memory allocated: {} MiB", 5000 + at * 3)),
            vec![grows("GPU memory allocated", Bytes(5597.0 * MIB))],
            vec![],
        ),
        case(
            "thousands in a line",
            lines("", 200, |at| format!("batch {at}, memory in use = 1,{:03},000,000 bytes", 100 + at)),
            vec![grows("memory in use", Bytes(1_299_000_000.0))],
            vec![],
        ),
    ]);
}

#[test]
fn tables_for_people_are_read() {
    let bar = "+------+-----------+";
    assert_read(&[
        case(
            "grid",
            lines(&format!("{bar}\n| step | rss       |\n{bar}"), 200, |at| {
                format!("| {at:4} | {} MiB  |\n{bar}", 800 + at)
            }),
            vec![grows("rss", Bytes(999.0 * MIB))],
            vec![],
        ),
        case(
            "psql",
            lines(" step | rss_mb | note \n------+--------+------", 200, |at| format!("  {at:3} |   {} | x", 800 + at)),
            vec![grows("rss_mb", Bytes(999e6))],
            vec![],
        ),
        case(
            "two containers of docker",
            lines("", 150, |at| {
                format!(
                    "\u{1b}[2J\u{1b}[HCONTAINER ID   NAME      CPU %     MEM USAGE / LIMIT     MEM %     NET I/O     BLOCK I/O   PIDS\n\
                     1a2b3c4d5e6f   db        1.5%      512MiB / 31.1GiB      1.60%     1kB / 3MB   0B / 0B     8\n\
                     9a8b7c6d5e4f   trainer   99.5%     {}.{}GiB / 31.1GiB   3.90%     1kB / 3MB   0B / 0B     12",
                    1 + at / 10,
                    at % 10
                )
            }),
            vec![grows("trainer", Bytes(15.9 * 1024.0 * MIB)), rests("db", Bytes(512.0 * MIB))],
            vec![],
        ),
        case(
            "containers of a pod",
            lines("POD         NAME      CPU(cores)   MEMORY(bytes)", 200, |at| {
                format!("train-0     sidecar   3m           40Mi\ntrain-0     trainer   900m         {}Mi", 2000 + at)
            }),
            vec![grows("trainer", Bytes(2199.0 * MIB)), rests("sidecar", Bytes(40.0 * MIB))],
            vec![],
        ),
        case(
            "columns of ultralytics",
            lines("", 100, |at| {
                let header = "      Epoch    GPU_mem   box_loss   cls_loss  Instances       Size";
                format!(
                    "{header}\n    {}/100      {}.{:02}G      1.512      3.401         18        640",
                    at + 1,
                    3 + at / 20,
                    at % 20 * 5
                )
            }),
            vec![grows("GPU_mem", Bytes(7.95 * 1024.0 * MIB))],
            vec!["box_loss"],
        ),
    ]);
}

#[test]
fn blocks_of_tools_are_read() {
    assert_read(&[
        case(
            "date and ps",
            lines("", 200, |at| {
                format!(
                    "Sat Nov  1 {} UTC 2025\nUSER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\nada         4711 99.0  3.1 9000000 {} pts/0    Rl+  09:59   0:{:02} python train.py --lr 0.1",
                    time(at * 5),
                    (900 + at) << 10,
                    at % 60
                )
            }),
            vec![grows("RSS", Bytes(1099.0 * MIB))],
            vec!["VSZ"],
        ),
        case(
            "nvidia-smi without a header",
            lines("", 200, |at| format!("2025/02/24 {}.446, {} MiB", time(at), 4000 + at)),
            vec![grows("", Bytes(4199.0 * MIB))],
            vec![],
        ),
        case(
            "dmon with dates and two GPUs",
            lines(
                "#Date       Time        gpu    pwr   fb   bar1\n#YYYYMMDD   HH:MM:SS    Idx      W   MB     MB",
                200,
                |at| {
                    format!(
                        " 20250224   {}      0     60   {}   3\n 20250224   {}      1     60   700   3",
                        time(at),
                        4000 + at * 2,
                        time(at)
                    )
                },
            ),
            vec![grows("fb, GPU 0", Bytes(4398.0 * MIB)), rests("fb, GPU 1", Bytes(700.0 * MIB))],
            vec!["bar1"],
        ),
        case(
            "two GPUs of nvidia-smi -q",
            lines("", 150, |at| {
                let gpu = |bus: &str, used: u64| {
                    format!(
                        "GPU 00000000:{bus}:00.0\n    FB Memory Usage\n        Total                             : 81559 MiB\n        Used                              : {used} MiB\n    BAR1 Memory Usage\n        Used                              : 2 MiB"
                    )
                };
                format!(
                    "==============NVSMI LOG==============\n\nTimestamp                                 : Tue Mar  4 {} 2025\n{}\n{}",
                    time(at),
                    gpu("17", 500),
                    gpu("CA", 9000 + at * 2)
                )
            }),
            vec![
                grows("FB Memory Usage Used, GPU 00000000:CA", Bytes(9298.0 * MIB)),
                rests("FB Memory Usage Used, GPU 00000000:17", Bytes(500.0 * MIB)),
            ],
            vec![],
        ),
    ]);
}

#[test]
fn json_is_read() {
    let history = format!(
        "{{\n  \"best_metric\": null,\n  \"log_history\": [\n{}\n  ],\n  \"max_steps\": 200\n}}",
        (0..200)
            .map(|at| format!(
                "    {{\n      \"loss\": 2.5,\n      \"mem_mib\": {},\n      \"step\": {at}\n    }}",
                3000 + at
            ))
            .collect::<Vec<_>>()
            .join(",\n")
    );
    let docker = lines("", 200, |at| {
        format!(
            "{{\"CPUPerc\":\"99.5%\",\"MemPerc\":\"4.0%\",\"MemUsage\":\"{}MiB / 31.1GiB\",\"Name\":\"trainer\",\"PIDs\":\"12\"}}",
            1000 + at
        )
    });
    assert_read(&[
        case("trainer_state.json", history, vec![grows("mem_mib", Bytes(3199.0 * MIB))], vec!["loss"]),
        case("docker stats --format json", docker, vec![grows("MemUsage", Bytes(1199.0 * MIB))], vec![]),
    ]);
}

#[test]
fn ranks_and_processes_are_told_apart() {
    let torchrun = lines("", 200, |at| {
        format!("[rank0]: step {at} mem 4000 MiB\n[rank1]: step {} mem {} MiB", at.saturating_sub(2), 4000 + at)
    });
    let four = lines("iteration,rss_mb", 150, |at| {
        (0..4)
            .map(|rank| format!("{},{}", at * 10, 2000 + rank * 100 + if rank == 2 { at * 2 } else { 0 }))
            .collect::<Vec<_>>()
            .join("\n")
    });
    let autumn = lines("", 200, |at| {
        let minute = 30 + at;
        let (hour, zone) = if minute < 120 { (minute / 60, "EDT") } else { (minute / 60 - 1, "EST") };
        format!("Sun Nov  2 {hour:02}:{:02}:00 {zone} 2025\n  PID   RSS\n 4711 {}", minute % 60, (3000 + at * 4) << 10)
    });
    let local = lines("timestamp, memory.used [MiB]", 300, |at| {
        let minute = 60 + at;
        let hour = if minute < 180 { minute / 60 } else { minute / 60 - 1 };
        format!("2025/10/26 {hour:02}:{:02}:00.123, {} MiB", minute % 60, 3000 + at)
    });
    assert_read(&[
        case(
            "torchrun",
            torchrun,
            vec![grows("rank 1", Bytes(4199.0 * MIB)), rests("rank 0", Bytes(4000.0 * MIB))],
            vec![],
        ),
        case("four ranks", four, vec![grows("rank 2", Bytes(2498e6)), rests("rank 0", Bytes(2000e6))], vec![]),
        case(
            "pids in lines",
            lines("", 300, |at| format!("pid {} rss {} MB", 300 + at % 2, 800 + (at % 2) * at)),
            vec![grows("pid 301", Bytes(1099e6)), rests("pid 300", Bytes(800e6))],
            vec![],
        ),
        case("end of daylight saving time", autumn, vec![grows("RSS", Bytes(3796.0 * MIB))], vec![]),
        case("local times without a zone", local, vec![grows("memory.used", Bytes(3299.0 * MIB))], vec![]),
    ]);
    let read = read(&case(
        "two runs",
        lines("", 2, |_| lines("step,rss_mb", 200, |at| format!("{at},{}", 500 + at))),
        vec![],
        vec![],
    ));
    assert!(read.unwrap().verdict.message.contains("process 2 of 2"), "a run from its first step is another process");
}
