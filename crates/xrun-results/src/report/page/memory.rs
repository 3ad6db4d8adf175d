//! Memory over time.

use maud::{Markup, html};

use crate::format::RungTaken;
use crate::report::axes::AxisUnit;
use crate::report::formatting::signed_bytes;
use crate::report::page::document::code;
use crate::report::plots::{COLOURS, Curve, CurveStyle, Level, Plot};
use crate::report::table::Table;
use crate::report::trace::MemoryTrace;
use crate::report::verdict::series_table;
use crate::view::RunView;
use xrun_core::bounded::ledger::OWNERS_MAX;
use xrun_core::printable;
use xrun_core::units::Bytes;

/// Peaks, and the curves of process and device.
pub fn over_time(report: &RunView) -> Markup {
    let memory = report.memory();
    let trace = report.trace();
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
            p.note { "Peaks: " (report.memory_line()) "." }
            (verdict(report))
            (rungs(report))
            (legend(trace))
            div.plots { @for plot in plots.iter().flatten() { (plot.figure()) } }
        }
    }
}

/// Limit and forecast of the memory of the process.
fn host_levels(report: &RunView) -> Vec<Level> {
    let watched = report.watched().and_then(|watched| watched.host_memory);
    let machine = report.manifest().and_then(|manifest| manifest.host.memory_limit.or(manifest.host.memory));
    let forecast = report.plan().and_then(|plan| plan.forecast.as_ref());
    levels([
        ("limit", report.limit("limits.host_memory").or(watched)),
        ("memory of the machine", machine),
        ("forecast, heap", forecast.map(|forecast| forecast.heap_peak)),
        ("forecast, RSS", forecast.and_then(|forecast| forecast.rss_peak)),
    ])
}

/// Limit and forecast of the memory of the device.
fn device_levels(report: &RunView) -> Vec<Level> {
    let watched = report.watched().and_then(|watched| watched.device_memory);
    let forecast = report.plan().and_then(|plan| plan.forecast.as_ref());
    levels([
        ("limit", report.limit("limits.device_memory").or(watched)),
        ("memory of the device", report.manifest().and_then(|manifest| manifest.device.memory)),
        ("forecast, reserved", forecast.and_then(|forecast| forecast.device_reserved_peak)),
        ("", None),
    ])
}

/// The known ones of a limit, the whole memory, which counts where there is no limit, and forecasts.
fn levels([limit, whole, forecasts @ ..]: [(&str, Option<u64>); 4]) -> Vec<Level> {
    let limit = if limit.1.is_some() { limit } else { whole };
    let known = std::iter::once((true, limit)).chain(forecasts.map(|forecast| (false, forecast)));
    let level = |(is_limit, (name, bytes)): (bool, (&str, Option<u64>))| {
        Some(Level { y: bytes? as f64, name: name.to_owned(), is_limit })
    };
    known.filter_map(level).collect()
}

/// The verdict's message and the series behind it.
fn verdict(report: &RunView) -> Markup {
    let Some(verdict) = report.verdict() else { return html! {} };
    let length = |places: u64| verdict.axis.length(places as f64);
    html! {
        details {
            summary { "Verdict on each series" }
            p.note {
                "Judged by the minimum of every " (length(verdict.window)) ", after a warm-up of "
                (length(verdict.warm_up)) ". Slopes are Theil-Sen estimates over the rising part."
            }
            (series_table(verdict, verdict.series.iter()).html())
        }
        @if let Some(found) = report.explanation() { p { b { "explanation" } ": " (code(&found.message)) } }
    }
}

/// Rungs of `limits.on_pressure` that were taken.
fn rungs(report: &RunView) -> Markup {
    let taken = report.summary().map_or(&[][..], |summary| &summary.rungs);
    let row = |taken: &RungTaken| {
        let gives = taken.gives.map_or_else(String::new, |gives| Bytes(gives).to_string());
        let gave = taken.gave.map_or_else(String::new, |gave| signed_bytes(gave as f64));
        let rung = format!("{}`{}`", if taken.climbed { "back: " } else { "" }, taken.rung.name());
        vec![taken.step.to_string(), rung, gives, gave, taken.bits.words().to_owned(), taken.because.clone()]
    };
    let header = [">step", "short of memory", ">was to give", ">gave", "numbers", "because"];
    html! {
        @if !taken.is_empty() { (Table::new(&header, taken.iter().map(row).collect()).html()) }
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
        rug: trace.cleanups.iter().copied().collect(),
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
