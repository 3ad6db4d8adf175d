//! Memory over time, buffers and their caps, and time by part of the loop.

use maud::{Markup, html};

use crate::explanation::{Allocation, SourceLine};
use crate::report::axes::AxisUnit;
use crate::report::formatting::{bytes, duration, number};
use crate::report::page::document::code;
use crate::report::plots::{COLOURS, Curve, CurveStyle, Level, Plot};
use crate::report::run_report::{BufferUsage, suggestion_effect};
use crate::report::trace::MemoryTrace;
use crate::report::verdict::series_label;
use crate::view::RunView;
use xrun_core::bounded::ledger::OWNERS_MAX;
use xrun_core::bounded::planned::MemoryKind;
use xrun_core::printable;
use xrun_core::units::pluralize;

/// Maximum number of phases listed.
const PHASES_SHOWN: usize = 12;

/// Peaks, and the curves of process and device.
pub fn over_time(report: &RunView) -> Markup {
    let memory = report.memory();
    let trace = report.trace();
    let peak = |name: &str, size: Option<u64>| {
        html! { @if let Some(size) = size { div { b { (bytes(size as f64)) } span { (name) } } } }
    };
    let host = [
        Curve::from_series(report.heap_label(), &trace.heap, 1, CurveStyle::Line),
        Curve::from_series("RSS", &trace.rss, 2, CurveStyle::Line),
    ];
    let driver = if trace.driver_is_whole_device { "driver, whole device" } else { "driver, this process" };
    let device = [
        Curve::from_series("in use", &trace.in_use, 1, CurveStyle::Line),
        Curve::from_series("reserved", &trace.reserved, 2, CurveStyle::Line),
        Curve::from_series(driver, &trace.driver, 3, CurveStyle::Line),
    ];
    let utilisation = Curve::from_series("utilisation", &trace.utilisation, 1, CurveStyle::Line).into_iter().collect();
    let power = Curve::from_series("power", &trace.power, 2, CurveStyle::Line).into_iter().collect();
    let plots = [
        plot("The process", AxisUnit::Bytes, host.into_iter().flatten().collect(), trace)
            .map(|plot| plot.with_levels(host_levels(report))),
        plot("The device", AxisUnit::Bytes, device.into_iter().flatten().collect(), trace)
            .map(|plot| plot.with_levels(device_levels(report))),
        stacked(trace),
        plot("Utilisation of the GPU, percent", AxisUnit::Number, utilisation, trace),
        plot("Power of the GPU, watts", AxisUnit::Number, power, trace),
    ];
    html! {
        @if memory.samples > 0 {
            h2 { "Memory" }
            div.numbers {
                (peak(&format!("{}, peak", report.heap_label()), Some(memory.heap_peak)))
                (peak(&format!("{}, at the end", report.heap_label()), Some(memory.heap_at_end)))
                (peak("RSS, peak", memory.rss_peak))
                (peak("device in use, peak between steps", memory.device_in_use_peak))
                (peak("device reserved, peak", memory.device_reserved_peak))
                @if let Some(percent) = memory.gpu_utilisation_mean {
                    div { b { (format!("{percent:.0} %")) } span { "GPU utilisation, mean" } }
                }
                @if let Some(watts) = memory.gpu_power_mean {
                    div { b { (format!("{watts:.0} W")) } span { "GPU power, mean" } }
                }
            }
            (watched(report))
            (verdict(report))
            (explanation(report))
            (post_mortem(report))
            (planned(report))
            (sampling_cost(report))
            (legend(trace))
            div.plots { @for plot in plots.iter().flatten() { (plot.figure()) } }
        }
    }
}

/// Limit and forecast of the memory of the process.
fn host_levels(report: &RunView) -> Vec<Level> {
    let watched = report.watched().and_then(|watched| watched.host_memory);
    let machine = report.manifest().and_then(|manifest| manifest.host.memory_limit.or(manifest.host.memory));
    let limit = match report.limit("limits.host_memory").or(watched) {
        Some(bytes) => Some(level("limit", bytes, true)),
        None => machine.map(|bytes| level("memory of the machine", bytes, true)),
    };
    let forecast = report.plan().and_then(|plan| plan.forecast.as_ref());
    let heap = forecast.map(|forecast| level("forecast, heap", forecast.heap_peak, false));
    let rss = forecast.and_then(|forecast| forecast.rss_peak).map(|bytes| level("forecast, RSS", bytes, false));
    [limit, heap, rss].into_iter().flatten().collect()
}

/// Limit and forecast of the memory of the device.
fn device_levels(report: &RunView) -> Vec<Level> {
    let watched = report.watched().and_then(|watched| watched.device_memory);
    let own = report.manifest().and_then(|manifest| manifest.device.memory);
    let limit = match report.limit("limits.device_memory").or(watched) {
        Some(bytes) => Some(level("limit", bytes, true)),
        None => own.map(|bytes| level("memory of the device", bytes, true)),
    };
    let forecast = report.plan().and_then(|plan| plan.forecast.as_ref());
    let reserved = forecast.and_then(|forecast| forecast.device_reserved_peak);
    limit.into_iter().chain(reserved.map(|bytes| level("forecast, reserved", bytes, false))).collect()
}

fn level(name: &str, bytes: u64, is_limit: bool) -> Level {
    Level { y: bytes as f64, name: name.to_owned(), is_limit }
}

/// Explains the numbers of a watched command, and what was not measured.
fn watched(report: &RunView) -> Markup {
    let Some(watched) = report.watched() else { return html! {} };
    let steps = watched.step_source.as_deref().unwrap_or("none (judged by the clock)");
    html! {
        p.note {
            b { (report.heap_label()) } " is the private and shared memory of its processes, with swapped pages and files in /dev/shm and \
            without file cache. Each page counts once, however many processes share it. Source of the steps: "
            (printable::line(steps, 300)) "."
            @if !watched.not_measured.is_empty() {
                " Not measured: " (printable::line(&watched.not_measured.join("; "), 600)) "."
            }
        }
    }
}

/// The verdict's message and the series behind it.
fn verdict(report: &RunView) -> Markup {
    let Some(verdict) = report.verdict() else { return html! {} };
    let amount = |unit: &str, value: f64| match unit {
        "bytes" if value < 0.0 => format!("-{}", bytes(-value)),
        "bytes" => bytes(value),
        _ => number(value),
    };
    let length = |places: u64| verdict.axis.length(places as f64);
    let per = verdict.axis.rate_unit(verdict.window);
    html! {
        p { b { (verdict.verdict.words()) } ": " (code(&verdict.message)) }
        details {
            summary { "Verdict on each series" }
            p.note {
                "Judged by the minimum of every " (length(verdict.window)) ", after a warm-up of "
                (length(verdict.warm_up)) ". Slopes are Theil-Sen estimates over the rising part."
            }
            div.wide { table {
                thead { tr { th { "series" } th { "verdict" } th.r { "first" } th.r { "last" } th.r { "peak" }
                    th.r { (per.text) } th.r { "since" } th.r { "windows" } } }
                tbody { @for one in &verdict.series { tr {
                    td { (series_label(one)) }
                    td { (one.findings.verdict.words()) }
                    td.r { (amount(&one.unit, one.first)) }
                    td.r { (amount(&one.unit, one.last)) }
                    td.r { (amount(&one.unit, one.peak)) }
                    td.r { @if let Some(slope) = one.findings.slope { (amount(&one.unit, slope * per.length)) } }
                    td.r { @if let Some(since) = one.findings.since { (verdict.axis.position(since as f64)) } }
                    td.r { (one.findings.windows) }
                } } }
            } }
        }
    }
}

/// The line of a Python program that makes its memory grow, and what else was found.
fn explanation(report: &RunView) -> Markup {
    let Some(found) = report.explanation() else { return html! {} };
    let place = |line: &SourceLine| format!("{}:{}", line.file, line.line);
    let stack = |one: &Allocation| one.frames.iter().map(place).collect::<Vec<_>>().join(" ← ");
    let allocations = |title: &str, list: &[Allocation]| {
        html! {
            @if !list.is_empty() {
                div.wide { table {
                    thead { tr { th { (title) } th.r { "bytes" } th.r { "blocks" } } }
                    tbody { @for one in list { tr {
                        td { (code(&stack(one))) } td.r { (bytes(one.bytes as f64)) } td.r { (one.count) }
                    } } }
                } }
            }
        }
    };
    html! {
        p { b { "explanation" } ": " (code(&found.message)) }
        details {
            summary { "What was born in the window and lives" }
            div.wide { table {
                thead { tr { th { "holder" } th.r { "before" } th.r { "after" } th { "contents" } th.r { "bytes" } th { "created at" } } }
                tbody { @for holder in &found.holders { tr {
                    td { (code(holder.path.as_deref().unwrap_or("no name of the program"))) }
                    td.r { @if let Some(before) = holder.before { (before) } }
                    td.r { (holder.after) }
                    td { (code(&holder.contents)) }
                    td.r { (bytes(holder.bytes as f64)) }
                    td { @if let Some(birth) = holder.births.first() { (code(&stack(birth))) } }
                } } }
            } }
            (allocations("line", &found.allocations))
            (allocations("line, CUDA memory", &found.cuda))
            p.note {
                "Tensors and arrays: " (found.tensors.start.count) " before, " (found.tensors.end.count) " after; with a graph: "
                (found.tensors.start.with_graph) ", " (found.tensors.end.with_graph) "."
                @for note in &found.notes { " " (printable::line(note, 300)) "." }
            }
        }
    }
}

/// The memory limit that ended the run, and suggestions.
fn post_mortem(report: &RunView) -> Markup {
    let Some(post_mortem) = report.post_mortem() else { return html! {} };
    html! {
        p {
            b { "stopped at a memory limit" } ": " (code(&post_mortem.message)) " at step " (post_mortem.step)
            "; outside all buffers: " (bytes(post_mortem.unattributed as f64))
            @if let Some(growth) = &post_mortem.growth { "; " (code(&growth.message)) }
        }
        @if !post_mortem.suggestions.is_empty() {
            div.wide { table {
                thead { tr { th { "suggestion" } th { "estimated effect" } } }
                tbody { @for suggestion in &post_mortem.suggestions { tr {
                    td { code { (suggestion.key) " = " (suggestion.value) } }
                    td { (suggestion_effect(post_mortem, suggestion)) }
                } } }
            } }
        }
    }
}

/// Table of forecast and measured memory.
fn planned(report: &RunView) -> Markup {
    let pairs = report.final_summary().map_or(&[][..], |summary| &summary.plan_and_actual);
    let pairs: Vec<_> = pairs.iter().filter(|pair| pair.planned.max(pair.actual) > 0).collect();
    html! {
        @if !pairs.is_empty() {
            details {
                summary { "Forecast and actual memory" }
                div.wide { table {
                    thead { tr { th { "component" } th.r { "forecast" } th.r { "actual" } th.r { "error" } } }
                    tbody { @for pair in &pairs { tr {
                        td { (pair.name) }
                        td.r { (bytes(pair.planned as f64)) }
                        td.r { (bytes(pair.actual as f64)) }
                        td.r { @if let Some(error) = pair.error { (format!("{:+.1} %", 100.0 * error)) } }
                    } } }
                } }
                @if let Some(why) = report.forecast_error_reason() { p.note { (why) "." } }
            }
        }
    }
}

fn sampling_cost(report: &RunView) -> Markup {
    let (samples, seconds) = report.samples();
    let processes = report.processes();
    html! {
        p.note {
            "Sampling: " (pluralize(samples, "sample")) @if processes > 1 { " in " (processes) " processes" } ", " (duration(seconds))
            @if let Some(fraction) = report.memory().trace_share {
                ", " (number(100.0 * fraction)) " % of training time" (report.last_process_suffix())
            }
            @if let Some(advice) = report.sampling_advice() { "; " (advice) }
            "."
            @if report.trace().cleanups.count > 0 {
                " " (pluralize(report.trace().cleanups.count, "cleanup")) " released " (bytes(report.trace().freed as f64)) " in total."
            }
        }
    }
}

fn legend(trace: &MemoryTrace) -> Markup {
    let every = |every: u64| if every > 1 { format!(" (one of {every})") } else { String::new() };
    html! {
        p.note {
            @if trace.validations.count > 0 { span.key { i.band { } "validation" (every(trace.validations.every())) } }
            @if trace.cleanups.count > 0 { span.key { i.rug { } "cleanup" (every(trace.cleanups.every())) } }
            @if trace.resumes.count > 0 { span.key { i.boundary { } "resumed" (every(trace.resumes.every())) } }
        }
    }
}

fn plot(title: &str, unit: AxisUnit, curves: Vec<Curve>, trace: &MemoryTrace) -> Option<Plot> {
    let plot = Plot::fitted(title, ("training time", AxisUnit::Seconds), unit, curves)?;
    Some(Plot {
        x: (0.0, trace.seconds.max(plot.x.1)),
        bands: trace.validations.iter().copied().collect(),
        rug: trace.cleanups.iter().map(|cleanup| cleanup.0).collect(),
        boundaries: trace.resumes.iter().copied().collect(),
        ..plot
    })
}

/// Stacked areas of the buffers, the largest at the bottom.
fn stacked(trace: &MemoryTrace) -> Option<Plot> {
    let samples = trace.owners.points();
    let names = trace.owner_names.len().min(OWNERS_MAX);
    let mut order: Vec<usize> = (0..names).filter(|&at| trace.owner_peaks[at] > 0).collect();
    order.sort_by(|&a, &b| {
        trace.owner_peaks[b].cmp(&trace.owner_peaks[a]).then_with(|| trace.owner_names[a].cmp(&trace.owner_names[b]))
    });
    let alone = if order.len() > COLOURS { COLOURS - 1 } else { order.len() };
    let (largest, rest) = order.split_at(alone);
    let mut base = vec![0.0; samples.len()];
    let mut curves = Vec::new();
    let groups = largest.iter().map(std::slice::from_ref).chain((!rest.is_empty()).then_some(rest));
    for (at, group) in groups.enumerate() {
        let held: Vec<f64> =
            samples.iter().map(|sample| group.iter().map(|&owner| sample.extra[owner] as f64).sum()).collect();
        let top: Vec<f64> = base.iter().zip(&held).map(|(base, held)| base + held).collect();
        let extreme = |pick: fn(f64, f64) -> f64| held.iter().copied().reduce(pick).unwrap_or(0.0);
        curves.push(Curve {
            name: match group {
                [owner] => printable::line(&trace.owner_names[*owner], 60),
                _ => format!("{} smaller buffers", group.len()),
            },
            points: samples.iter().zip(&top).map(|(sample, &y)| (sample.x, y)).collect(),
            colour: at as u8 + 1,
            shape: CurveStyle::Area { base: std::mem::replace(&mut base, top) },
            numbers: [
                held.first().copied().unwrap_or(0.0),
                extreme(f64::min),
                extreme(f64::max),
                held.last().copied().unwrap_or(0.0),
            ],
        });
    }
    let plot = plot("Buffers, stacked", AxisUnit::Bytes, curves, trace)?;
    Some(Plot { caption: "Bytes held by each buffer at each sample.".into(), ..plot })
}

/// Table of all buffers with their caps.
pub fn buffers(report: &RunView) -> Markup {
    let buffers = report.buffers();
    html! {
        @if !buffers.is_empty() {
            h2 { "Buffers and their caps" }
            div.wide { table.full {
                thead { tr {
                    th { "buffer" } th.r { "peak" } th.r { "of cap" } th { "" } th.r { "cap" } th { "policy" }
                    th { "memory" } th.why { "cap set by" }
                } }
                tbody { @for buffer in &buffers { (buffer_row(buffer)) } }
            } }
        }
    }
}

fn buffer_row(buffer: &BufferUsage) -> Markup {
    let size = |size: Option<u64>| size.map_or("–".into(), |size| bytes(size as f64));
    let place = match buffer.place {
        Some(MemoryKind::Host) => "host",
        Some(MemoryKind::Device) => "device",
        None => "–",
    };
    let policy = buffer.policy.map_or("–".into(), |policy| format!("{policy:?}").to_lowercase());
    let fraction = buffer.fraction_of_cap();
    html! {
        tr {
            th scope="row" { (printable::line(&buffer.name, 80)) }
            td.r.strong { (size(buffer.peak_bytes)) }
            td.r { @if let Some(fraction) = fraction { (format!("{:.0} %", 100.0 * fraction)) } @else { "–" } }
            // A leak has no cap and exceeds any.
            td.barred { @if buffer.is_leak() { (bar(f64::INFINITY)) } @else if let Some(fraction) = fraction { (bar(fraction)) } }
            td.r { @if buffer.is_leak() { b.bad { "none" } } @else { (size(buffer.cap_bytes)) } }
            td { (policy) } td { (place) }
            td.why { (code(&printable::line(&buffer.because, 120))) }
        }
    }
}

fn bar(fraction: f64) -> Markup {
    let width = format!("width:{:.1}%", 100.0 * fraction.clamp(0.0, 1.0));
    html! { span.bar.over[fraction > 1.0] aria-hidden="true" { i style=(width) { } } }
}

/// Table of the slowest parts of the loop.
pub fn phases(report: &RunView) -> Markup {
    let phases = report.phases();
    let total: f64 = phases.iter().map(|phase| phase.seconds).sum();
    let longest = phases.first().map_or(0.0, |phase| phase.seconds);
    let has_longest = phases.iter().any(|phase| phase.longest.is_some());
    html! {
        @if total > 0.0 {
            h2 { "Where the time went" }
            @if report.processes() > 1 && !has_longest { p.note { "All " (report.processes()) " processes." } }
            @else if report.processes() > 1 { p.note { "Last process only." } }
            div.wide { table {
                thead { tr {
                    th { "part of the loop" } th.r { "time" } th.r { "of total" } th { "" }
                    @if has_longest { th.r { "times" } th.r { "longest" } }
                } }
                tbody {
                    @for phase in phases.iter().take(PHASES_SHOWN) {
                        tr {
                            th scope="row" { (printable::line(&phase.name, 80)) }
                            td.r.strong { (duration(phase.seconds)) }
                            td.r { (format!("{:.1} %", 100.0 * phase.seconds / total)) }
                            td.barred { (bar(phase.seconds / longest)) }
                            @if has_longest {
                                td.r { @if let Some(count) = phase.count { (count) } }
                                td.r { @if let Some(longest) = phase.longest { (duration(longest)) } }
                            }
                        }
                    }
                }
            } }
            @if phases.len() > PHASES_SHOWN { p.note { (phases.len() - PHASES_SHOWN) " shorter ones are not listed." } }
        }
    }
}
