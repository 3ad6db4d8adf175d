//! `xrun check --devices`: devices of this machine, and what the unusable ones lack.

use super::terminal::{Failure, Terminal};
use crate::device::{self, DeviceInfo};
use crate::report::width::fold;
use crate::units::Bytes;

/// Width of a device's name and the gap after it, in characters.
const LABEL: usize = 11;

pub fn list(json: bool, terminal: &Terminal) -> Result<u8, Failure> {
    let listings = device::list();
    if json {
        let values: Vec<serde_json::Value> = listings
            .iter()
            .map(|listing| match &listing.found {
                Ok(found) => {
                    let devices: Vec<serde_json::Value> = found.iter().map(as_json).collect();
                    serde_json::json!({ "kind": listing.kind, "devices": devices, "missing": null })
                }
                Err(missing) => serde_json::json!({
                    "kind": listing.kind, "devices": [], "missing": missing.what, "cure": missing.cure,
                }),
            })
            .collect();
        terminal.json(&values);
        return Ok(0);
    }
    let width = terminal.width();
    let add = |text: &mut String, line: &str| {
        text.push_str(&fold(line, width, LABEL));
        text.push('\n');
    };
    let mut text = String::new();
    for listing in listings {
        match listing.found {
            Ok(found) => found.iter().for_each(|found| add(&mut text, &line(found))),
            Err(missing) => {
                add(&mut text, &format!("{:<10} not usable: {}", listing.kind, missing.what));
                if !missing.cure.is_empty() {
                    add(&mut text, &format!("{:<10} {}", "", missing.cure));
                }
            }
        }
    }
    if let Ok(chosen) = device::select("auto") {
        text.push('\n');
        add(&mut text, &format!("{:<10} {} ({})", "auto is", chosen.kind, chosen.because));
    }
    terminal.print(&text);
    Ok(0)
}

fn line(found: &DeviceInfo) -> String {
    let memory = match (found.memory, found.free) {
        (Some(all), Some(free)) => format!("  {} memory, {} free", Bytes(all), Bytes(free)),
        (Some(all), None) => format!("  {} memory", Bytes(all)),
        _ => String::new(),
    };
    let driver = found.driver.as_ref().map_or_else(String::new, |driver| format!("  driver {driver}"));
    let capability = found.capability_text().map_or_else(String::new, |of| format!("  compute capability {of}"));
    let llvm = found.llvm.as_ref().map_or_else(String::new, |of| format!("  LLVM {of}"));
    format!("{:<10} {}{memory}{driver}{capability}{llvm}", found.kind.to_string(), found.name)
}

fn as_json(found: &DeviceInfo) -> serde_json::Value {
    serde_json::json!({
        "device": found.kind.to_string(),
        "name": found.name,
        "driver": found.driver,
        "memory": found.memory,
        "free": found.free,
        "compute_capability": found.capability_text(),
        "llvm": found.llvm,
    })
}
