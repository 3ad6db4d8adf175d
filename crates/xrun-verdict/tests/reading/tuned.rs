//! Cases that were used while the readers were written.

use super::Unit::{Assumed, Bytes, Percent, Unknown};
use super::*;

#[test]
fn units_come_from_headers_cells_and_tools() {
    let last = |unit: f64| Bytes(1299.0 * unit);
    let rows =
        |header: &str, cell: &dyn Fn(u64) -> String| lines(header, 300, |at| format!("{at},{}", cell(1000 + at)));
    assert_read(&[
        case("name", rows("step,rss_kib", &|mib| (mib * 1024).to_string()), vec![grows("rss_kib", last(MIB))], vec![]),
        case("round", rows("step,RSS (KiB)", &|mib| (mib * 1024).to_string()), vec![grows("RSS", last(MIB))], vec![]),
        case("square", rows("step,gpu [MiB]", &|mib| mib.to_string()), vec![grows("gpu", last(MIB))], vec![]),
        case("letter", rows("step,mem", &|mib| format!("{mib}.0M")), vec![grows("mem", last(MIB))], vec![]),
        case("decimal", rows("step,mem", &|mb| format!("{mb} MB")), vec![grows("mem", last(1e6))], vec![]),
        case("kubernetes", rows("step,mem", &|mib| format!("{mib}Mi")), vec![grows("mem", last(MIB))], vec![]),
        case(
            "getrusage",
            rows("step,ru_maxrss", &|mib| (mib * 1024 + 1).to_string()),
            vec![grows("ru", last(MIB))],
            vec![],
        ),
        case(
            "ps",
            lines("", 300, |at| format!("  PID   RSS    VSZ COMMAND\n 4711 {} 9000000 python", (1000 + at) * 1024 + 3)),
            vec![grows("RSS", last(MIB))],
            vec!["VSZ"],
        ),
        case(
            "/proc/N/status",
            lines("", 300, |at| {
                let kib = (1000 + at) * 1024;
                format!("VmPeak:\t 9000000 kB\nVmSize:\t 8000000 kB\nVmRSS:\t {kib} kB\nThreads:\t12")
            }),
            vec![grows("VmRSS", last(MIB))],
            vec!["VmSize", "Threads"],
        ),
        case(
            "psutil",
            lines("time,rss,vms", 300, |at| format!("{at},{},9000000512", (1000 + at) << 20)),
            vec![grows("rss", last(MIB))],
            vec!["vms"],
        ),
        case(
            "unknown",
            lines("step,gpu_mem,cpu_mb", 300, |at| format!("{at},{},{}", 4004 + 5 * at, level(at))),
            vec![grows("gpu_mem", Unknown), rests("cpu_mb", Bytes(1001e6))],
            vec![],
        ),
        case(
            "bytes by their size",
            rows("step,heap", &|mib| ((mib << 20) + 5).to_string()),
            vec![grows("heap", Assumed(1299.0 * MIB))],
            vec![],
        ),
        refused("beyond any machine", rows("step,rss_bytes", &|n| (n << 40).to_string()), None),
    ]);
}

#[test]
fn counters_of_work_are_not_memory() {
    assert_read(&[
        case(
            "tokens",
            lines("step,loss,tokens,total_flos,gpu_mem_gb", 200, |at| {
                format!("{at},2.5,{},{:e},{}.12", (at + 1) * 262_144, (at + 1) as f64 * 3e15, 30)
            }),
            vec![rests("gpu_mem_gb", Bytes(30.12e9))],
            vec!["loss", "tokens", "total_flos"],
        ),
        case(
            "bytes read",
            lines("step,read_bytes,rss_mb", 200, |at| format!("{at},{},{}", (at + 1) << 26, level(at))),
            vec![rests("rss_mb", Bytes(1001e6))],
            vec!["read_bytes"],
        ),
        case(
            "an unknown counter",
            lines("step,seen,rss_mb", 200, |at| format!("{at},{},{}", (at + 1) * 8_388_608, level(at))),
            vec![rests("rss_mb", Bytes(1001e6))],
            vec!["seen"],
        ),
    ]);
}

#[test]
fn cells_are_never_shifted() {
    assert_read(&[
        case(
            "index of pandas",
            lines(",step,rss_mb", 300, |at| format!("{at},{},512", at * 10)),
            vec![rests("rss_mb", Bytes(512e6))],
            vec![],
        ),
        refused("decimal commas", lines("zeit,rss_mb,cpu", 100, |at| format!("{at},{},5,40,2", 1500 + at)), Some(2)),
        case(
            "thousands",
            lines("time,rss_mb", 300, |at| format!("{at},\"1,{}\"", 500 + at)),
            vec![grows("rss_mb", Bytes(1799e6))],
            vec![],
        ),
        case(
            "a comma at the end",
            lines("step,rss_mb", 300, |at| format!("{at},{},", 500 + at)),
            vec![grows("rss_mb", Bytes(799e6))],
            vec![],
        ),
        case(
            "a comma in the time",
            lines("time,rss_mb", 300, |at| format!("2024-01-02 {},{:03},{}", time(at), at % 1000, 500 + at)),
            vec![grows("rss_mb", Bytes(799e6))],
            vec![],
        ),
    ]);
}

#[test]
fn lines_of_logs_are_read() {
    let percent = |at: u64| {
        let tenth = if at % 7 == 3 { "9.9" } else { "10.0" };
        format!("[13/12/22 {}][job.progress][INFO] -   Epoch {at}: Train 4.8e-01   Memory {tenth}%", time(at))
    };
    let of = TableOptions { of: Some("16GiB".into()), ..TableOptions::default() };
    assert_read(&[
        case(
            "usage",
            lines("", 120, |at| format!("usage:  {} KB", 330_400 + at * 2000)),
            vec![grows("usage", Bytes(568_400e3))],
            vec![],
        ),
        case(
            "iteration",
            lines("2.4.0-dev2020", 300, |at| format!("iteration {at}: rss {} MB (+1024 KB; +1024 KB/it.)", 600 + at)),
            vec![grows("rss", Bytes(899e6))],
            vec![],
        ),
        case("percent", lines("", 200, percent), vec![rests("Memory", Percent)], vec![]),
        Case {
            options: of,
            ..case(
                "percent of",
                lines("", 200, percent),
                vec![rests("Memory", Bytes(0.099 * 16.0 * 1024.0 * MIB))],
                vec![],
            )
        },
        case(
            "uniq -c",
            lines("", 100, |at| format!("{:7} memory_usage: 996.{:03}", 1 + at % 3, 100 + at % 7)),
            vec![rests("memory_usage", Unknown)],
            vec![],
        ),
        case(
            "bare numbers",
            lines("", 200, |at| (1_266_020 + at * 24_000).to_string()),
            vec![grows("", Unknown)],
            vec![],
        ),
    ]);
}

#[test]
fn tables_for_people_are_read() {
    assert_read(&[
        case(
            "Markdown",
            lines("| Step | Without fix | With fix   |\n|------|-------------|-----|", 150, |at| {
                format!("| {at}    | {} MB (+5) | 941 MB (=) |", 968 + at * 5)
            }),
            vec![grows("Without fix", Bytes(1713e6)), rests("With fix", Bytes(941e6))],
            vec![],
        ),
        case(
            "tabulate",
            lines("", 200, |at| {
                let rows = [1, 2].map(|pid| format!(" {}  146{pid}  2.7G   {}.5M", 86_300 + at, 500 + pid * at));
                format!("  time   PID  rss    uss\n------  -----  -----  ------\n{}", rows.join("\n"))
            }),
            vec![grows("uss, PID 1462", Bytes(898.5 * MIB)), rests("rss, PID 1461", Bytes(2.7 * 1024.0 * MIB))],
            vec!["PID"],
        ),
        case(
            "docker stats",
            lines("", 200, |at| {
                format!(
                    "CONTAINER ID   NAME      CPU %     MEM USAGE / LIMIT   MEM %     NET I/O       BLOCK I/O   PIDS\n\
                     1a2b3c4d5e6f   trainer   99.5%     {}MiB / 31.1GiB   3.90%     1.2kB / 3MB   0B / 0B     12",
                    1000 + at * 2
                )
            }),
            vec![grows("MEM USAGE", Bytes(1398.0 * MIB))],
            vec!["NET I/O", "PIDS"],
        ),
        case(
            "kubectl top",
            lines("", 200, |at| {
                format!("NAME        CPU(cores)   MEMORY(bytes)\ntrainer-0   {}m         {}Mi", 300 + at % 9, 1000 + at)
            }),
            vec![grows("MEMORY(bytes)", Bytes(1199.0 * MIB))],
            vec!["CPU(cores)"],
        ),
    ]);
}

#[test]
fn blocks_of_tools_are_read() {
    let top = lines("", 200, |at| {
        format!(
            "top - {} up 3 days,  1 user,  load average: 1.00, 1.00, 1.00\nTasks: 200 total,   2 running\n\
             %Cpu(s): 12.5 us,  0.3 sy\nMiB Mem :  64000.0 total,  30000.0 free,   9000.0 used,  25000.0 buff/cache\n\
             MiB Swap:   2048.0 total,   2048.0 free,      0.0 used.  54000.0 avail Mem\n\n    \
             PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND\n   \
             4711 ada       20   0   21.1g {}  98304 R  99.9   5.0   {}:10.17 python",
            time(at * 3),
            (1000 + at) * 1024,
            at / 60
        )
    });
    let smi = lines("", 200, |at| {
        let gpu = |index: u64, used: u64| {
            format!(
                "|   {index}  NVIDIA A100-SXM4-40GB          On  | 00000000:07:00.0 Off |                    0 |\n\
                 | N/A   30C    P0              55W / 400W |  {used:5}MiB / 40960MiB |     97%      Default |\n\
                 +-----------------------------------------+----------------------+----------------------+"
            )
        };
        format!(
            "Mon Feb 24 {} 2025\n+---------------------------------------------------------------+\n\
             | NVIDIA-SMI 535.104.05   Driver Version: 535.104.05   CUDA Version: 12.2     |\n\
             | GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |\n{}\n{}\n\
             | Processes:                                                    |\n\
             |    1   N/A  N/A     12345      C   python                      {}MiB |",
            time(at),
            gpu(0, 700),
            gpu(1, 5000 + at * 4),
            4900 + at * 4
        )
    });
    let query = lines("", 200, |at| {
        format!(
            "\n==============NVSMI LOG==============\n\nTimestamp                                 : Mon Feb 24 {} 2025\n\
             Driver Version                            : 570.133.20\nAttached GPUs                             : 1\n\
             GPU 00000000:CA:00.0\n    FB Memory Usage\n        Total                             : 46068 MiB\n        \
             Used                              : {} MiB\n        Free                              : 37499 MiB\n    \
             BAR1 Memory Usage\n        Used                              : 1 MiB",
            time(at),
            8000 + at * 3
        )
    });
    let dmon = lines("", 200, |at| {
        let header = "# gpu   pwr gtemp    sm   mem    fb  bar1\n# Idx     W     C     %     %    MB    MB\n";
        let header = if at % 20 == 0 { header } else { "" };
        format!("{header}    0    60    40    98    50  {}     5", 3000 + at * 2)
    });
    assert_read(&[
        case("top", top, vec![grows("RES", Bytes(1199.0 * MIB))], vec!["VIRT", "%MEM"]),
        case("nvidia-smi", smi, vec![grows("GPU 1", Bytes(5796.0 * MIB)), rests("GPU 0", Bytes(700.0 * MIB))], vec![]),
        case("nvidia-smi -q", query, vec![grows("FB Memory Usage Used", Bytes(8597.0 * MIB))], vec![]),
        case("nvidia-smi dmon", dmon, vec![grows("fb", Bytes(3398.0 * MIB))], vec!["mem", "pwr"]),
        case(
            "psrecord with another header",
            lines("# Timestamp   Elapsed time   CPU (%)     Real (MB)   Virtual (MB)", 300, |at| {
                format!("{}.286        {at}.000       97.100      {}.922  3284499.703", 1_716_033_718 + at, 338 + at)
            }),
            vec![grows("Real (MB)", Bytes(637.922 * MIB))],
            vec!["Virtual (MB)"],
        ),
    ]);
}

#[test]
fn json_is_read() {
    let mmdet = lines("{\"env_info\": \"sys.platform: linux\", \"seed\": 0}", 200, |at| {
        format!(
            "{{\"mode\": \"train\", \"epoch\": 1, \"iter\": {}, \"lr\": 0.0005, \"memory\": {}, \"data_time\": 0.006, \
             \"loss\": 5.5, \"time\": 0.43}}",
            (at + 1) * 50,
            6000 + at
        )
    });
    let array = format!(
        "[\n{}\n]",
        (0..200).map(|at| format!("  {{\"step\": {at}, \"rss_mb\": {}}}", 900 + at)).collect::<Vec<_>>().join(",\n")
    );
    assert_read(&[
        case("mmdet", mmdet, vec![grows("memory", Bytes(6199.0 * MIB))], vec!["lr", "loss"]),
        case("array", array, vec![grows("rss_mb", Bytes(1099e6))], vec![]),
    ]);
}

#[test]
fn ranks_and_processes_are_told_apart() {
    let ranks = lines("step,gpu_mem_mb", 300, |at| match at % 20 {
        // The second rank lags by a step.
        7 => format!("{at},{}\n{},{}", 5000 + at, at + 1, 5000 + at + 1),
        8 => format!("{},3000\n{at},3000", at - 1),
        _ => format!("{at},{}\n{at},3000", 5000 + at),
    });
    let summer = lines("", 240, |at| {
        let minute = 60 + at;
        let (hour, zone) = if minute < 180 { (minute / 60, "CEST") } else { (minute / 60 - 1, "CET") };
        format!(
            "Sun Oct 26 {hour:02}:{:02}:00 {zone} 2025\n              total        used        free      shared  \
             buff/cache   available\nMem:          64000       {}       40000          12       15988       55000",
            minute % 60,
            8000 + at * 10
        )
    });
    assert_read(&[
        case("two ranks", ranks, vec![grows("rank 0", Bytes(5299e6)), rests("rank 1", Bytes(3000e6))], vec![]),
        case("end of summer time", summer, vec![grows("used", Assumed(10_390.0 * MIB))], vec![]),
    ]);
}

#[test]
fn a_short_series_says_how_much_is_missing() {
    for (text, more) in [
        (lines("step,rss_mb", 5, |at| format!("{at},{}", 500 + at)), "more steps"),
        (lines("elapsed_s,rss_mb", 4, |at| format!("{},{}", at * 60, 500 + at)), "another"),
        (lines("rss_mb,note", 4, |at| format!("{},x", 500 + at)), "more samples"),
    ] {
        let read = read(&case("short", text, vec![], vec![])).unwrap();
        assert_eq!(read.verdict.verdict, VerdictWord::Inconclusive);
        let missing = read.verdict.series[0].findings.more_steps.unwrap();
        let unit = if read.verdict.axis == xrun_verdict::Axis::Samples { 1000 } else { 1 };
        assert!(missing >= 4 * unit && read.verdict.window >= unit, "{missing}: {}", read.verdict.message);
        assert!(read.verdict.message.contains(more), "{}", read.verdict.message);
    }
}

#[test]
fn further_forms_are_read() {
    let gpustat = lines("", 200, |at| {
        format!(
            "node7  Mon Feb 24 {} 2025  535.104\n[0] NVIDIA A100-SXM4-40GB | 45'C,  97 % | {} / 40960 MB | ada(900M)\n\
             [1] NVIDIA A100-SXM4-40GB | 40'C,   0 % |     5 / 40960 MB |",
            time(at),
            5000 + at * 4
        )
    });
    let mmdet = lines("", 200, |at| {
        format!(
            "2025-03-04 {},123 - mmdet - INFO - Epoch [{}][{}/5000]\tlr: 1.000e-02, eta: 1 day, 2:03:04, time: 0.530, \
             data_time: 0.010, memory: {}, loss: 5.5",
            time(at),
            1 + at / 100,
            (at % 100 + 1) * 50,
            3961 + at * 2
        )
    });
    let columns = format!(
        "{{\"step\": {:?}, \"rss_mb\": {:?}}}",
        (0..200).collect::<Vec<u64>>(),
        (500..700).collect::<Vec<u64>>()
    );
    let node = lines("", 200, |at| format!("{{\n  rss: {},\n  heapUsed: 40000123\n}}", (1100 + at) << 20));
    assert_read(&[
        case(
            "a row of units",
            lines("time,rss,cpu\ns,MB,%", 200, |at| format!("{at},{},{}", 500 + at, at % 7)),
            vec![grows("rss [MB]", Bytes(699e6))],
            vec!["cpu [%]"],
        ),
        case(
            "German dates",
            lines("Zeit;Speicher (MB)", 200, |at| format!("24.02.2025 {};{},5", time(at * 10), 1500 + at)),
            vec![grows("Speicher", Bytes(1699.5e6))],
            vec!["Zeit"],
        ),
        case(
            "ps aux without its header",
            lines("", 200, |at| {
                format!(
                    "ada       4711 99.0  3.1 9000000 {} pts/0    Rl+  09:59   0:10 python t.py --lr 0.1",
                    (900 + at) << 10
                )
            }),
            vec![grows("RSS", Bytes(1099.0 * MIB))],
            vec!["VSZ"],
        ),
        case(
            "free without its header",
            lines("", 200, |at| format!("Mem:   64000   {}   40000   12   15988   55000", 8000 + at * 10)),
            vec![grows("used", Assumed(9990.0 * MIB))],
            vec![],
        ),
        case(
            "RSS alone",
            lines("", 200, |at| format!("  RSS\n{}", (900 + at) << 10)),
            vec![grows("RSS", Bytes(1099.0 * MIB))],
            vec![],
        ),
        case(
            "kubectl without headers",
            lines("", 200, |at| format!("trainer-0   {}m   {}Mi", 900 + at % 9, 2000 + at)),
            vec![grows("column 3", Bytes(2199.0 * MIB))],
            vec!["column 2"],
        ),
        case(
            "names before a colon",
            lines("", 200, |at| format!("main: rss 500 MB\nworker: rss {} MB", 600 + at)),
            vec![grows("rss, worker", Bytes(799e6)), rests("rss, main", Bytes(500e6))],
            vec![],
        ),
        case(
            "sizes on lines after their step",
            lines("", 200, |at| format!("Step {at}: loss=2.3\n  GPU 0: 4000 MiB\n  GPU 1: {} MiB", 4000 + at)),
            vec![grows("GPU 1", Bytes(4199.0 * MIB)), rests("GPU 0", Bytes(4000.0 * MIB))],
            vec!["loss"],
        ),
        case(
            "gpustat",
            gpustat,
            vec![grows("memory, GPU 0", Bytes(5796e6)), rests("memory, GPU 1", Bytes(5e6))],
            vec![],
        ),
        case("epochs of mmdet", mmdet, vec![grows("memory", Bytes(4359.0 * MIB))], vec!["data_time"]),
        case(
            "before and after each epoch",
            lines("", 120, |at| {
                format!("Memory before epoch {at}: 900MB\nMemory after epoch {at}: {}MB", 1200 + at * 2)
            }),
            vec![grows("Memory after", Bytes(1438e6)), rests("Memory before", Bytes(900e6))],
            vec!["epoch"],
        ),
        case(
            "date and a number",
            lines("", 120, |at| format!("Tue Mar  4 {} UTC 2025\n{}", time(at * 5), 900_001 + at * 1000)),
            vec![grows("value", Unknown)],
            vec!["time"],
        ),
        case(
            "an index in brackets",
            lines("", 200, |at| format!("[{at}] used memory: {}.{} GiB / 80.0 GiB", 10 + at / 10, at % 10)),
            vec![grows("used memory", Bytes(29.9 * 1024.0 * MIB))],
            vec![],
        ),
        case(
            "lines before the header",
            lines("\"Author:\",\"me\",\"\"\n\"Host:\",\"node7\",\"\"\n\"used\",\"free\",\"\"", 200, |at| {
                format!("{}.0,{}.0,", (9000 + at * 2) << 20, 1 << 30)
            }),
            vec![grows("used", Assumed(9398.0 * MIB))],
            vec!["free"],
        ),
        case(
            "sstat with bars",
            lines("JobID|MaxRSS|Tasks", 200, |at| format!("77.0|{}K|1", 900_000 + at * 1000)),
            vec![grows("MaxRSS", Bytes(1_099_000.0 * 1024.0))],
            vec!["JobID"],
        ),
        case(
            "eight ranks without an order",
            lines("", 200, |at| {
                let row = |rank: u64| format!("step {} gpu_mem {}MB", (at + 2).saturating_sub(rank % 3), 3000 + at);
                (0..8).map(row).collect::<Vec<String>>().join("\n")
            }),
            vec![grows("gpu_mem", Bytes(3199e6))],
            vec!["step"],
        ),
        case("columns in JSON", columns, vec![grows("rss_mb", Bytes(699e6))], vec![]),
        case("objects of JavaScript", node, vec![grows("rss", Assumed(1299.0 * MIB))], vec![]),
    ]);
}

#[test]
fn a_column_of_memory_that_cannot_be_read_is_marked() {
    let table = |cell: &str| lines("step,gpu_mem_mb,rss_mb", 120, |at| format!("{at},{cell},500"));
    for (cell, unreadable) in [("many", true), ("[N/A]", true), ("0", false), ("7000", false)] {
        let read = read(&case("unreadable", table(cell), vec![], vec![])).unwrap();
        assert_eq!(read.verdict.not_judged.iter().any(|one| one.unreadable_memory), unreadable, "{cell}");
    }
    let text = lines("step,memory_format,rss_mb", 120, |at| format!("{at},channels_last,500"));
    let read = read(&case("text", text, vec![], vec![])).unwrap();
    assert!(!read.verdict.not_judged.iter().any(|one| one.unreadable_memory), "{:?}", read.verdict.not_judged);
}
