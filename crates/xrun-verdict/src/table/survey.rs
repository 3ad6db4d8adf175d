//! A trace as a whole: its series and their units, its range, and its processes.

use super::{Asked, Known, PLACE, SERIES_MAX, Sample, Source, Unknown, Wrong};
use crate::axis::Axis;
use crate::context::Context;

/// The most restarts; more are none.
const PARTS_MAX: usize = 1000;
/// The most by which a clock is set back.
const MILLISECONDS_BACK: i64 = 1000;
/// The least memory of a training, in bytes.
const BYTES_MIN: f64 = 1024.0 * 1024.0;

/// The samples of one process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    pub first: i64,
    pub last: i64,
    pub first_line: u64,
    pub last_line: u64,
}

/// Tells where a process ends and the next begins, sample by sample.
#[derive(Clone, Debug)]
pub struct Parts {
    axis: Axis,
    pub list: Vec<Part>,
    samples: u64,
    /// The number of places where steps or times went back.
    falls: u64,
    /// The first of these places, and what is wrong with it.
    first_fall: Option<(u64, String)>,
}

impl Parts {
    pub fn new(axis: Axis) -> Self {
        Self { axis, list: Vec::new(), samples: 0, falls: 0, first_fall: None }
    }

    /// Returns which process a sample is of, and its place there.
    pub fn place(&mut self, sample: &Sample) -> Result<(usize, u64), Wrong> {
        // Inside, a sample has a thousand places, so that windows need not hold many of them.
        let scale = if self.axis == Axis::Samples { 1000 } else { 1 };
        let (line, mut place) = (sample.line, sample.place * scale);
        self.samples += 1;
        let begin = match self.list.last() {
            None => true,
            Some(part) if self.axis == Axis::Clock && place < part.last && place >= part.last - MILLISECONDS_BACK => {
                place = part.last;
                sample.restart
            }
            Some(part) if place < part.last && !sample.restart => {
                self.falls += 1;
                let said = |place: i64| self.axis.place(place as f64);
                let (now, before) = match self.axis {
                    Axis::Clock => ("a time".into(), format!("one that is {} later", said(part.last - place))),
                    _ => (said(place), said(part.last)),
                };
                let message = format!("{now} after {before}; sort the table by {}", self.what());
                self.first_fall.get_or_insert((line, message));
                true
            }
            Some(_) => sample.restart,
        };
        if begin {
            if self.list.len() == PARTS_MAX {
                return Err(Wrong::at(
                    line,
                    format!("more than {PARTS_MAX} restarts; sort the table by {}", self.what()),
                ));
            }
            self.list.push(Part { first: place, last: place, first_line: line, last_line: line });
        }
        let number = self.list.len() - 1;
        let part = &mut self.list[number];
        (part.last, part.last_line) = (place, line);
        let from = match self.axis {
            Axis::Clock | Axis::Samples => part.first,
            Axis::Steps | Axis::Epochs => 0,
        };
        Ok((number, u64::try_from(place.saturating_sub(from)).unwrap_or_default()))
    }

    fn what(&self) -> &'static str {
        match self.axis {
            Axis::Steps => "step",
            Axis::Epochs => "epoch",
            Axis::Samples | Axis::Clock => "time",
        }
    }

    /// Fails on rows in no order, which are no restarts.
    fn sorted(&mut self) -> Result<(), Wrong> {
        match self.first_fall.take() {
            Some((line, message)) if self.falls * 10 > self.samples => Err(Wrong::at(line, message)),
            _ => Ok(()),
        }
    }
}

/// The range of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Held {
    numbers: u64,
    /// The highest of those without a unit beside them.
    bare_peak: Option<f64>,
    first: f64,
    last: f64,
    peak: f64,
}

/// A trace that was read once.
pub struct Survey {
    pub axis: Axis,
    pub parts: Parts,
    known: Vec<Known>,
    held: Vec<Held>,
    notes: Vec<String>,
}

/// The series that are judged, and those that are not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chosen {
    units: Vec<Option<(Known, f64)>>,
    pub left_out: Vec<String>,
    pub unknown: Vec<Unknown>,
    pub notes: Vec<String>,
}

impl Chosen {
    /// A series that is judged, and the bytes of its numbers without a unit.
    pub fn unit(&self, series: usize) -> Option<(&Known, f64)> {
        self.units.get(series)?.as_ref().map(|(known, unit)| (known, *unit))
    }
}

impl Survey {
    pub fn of(source: &mut dyn Source) -> Result<Self, Wrong> {
        let axis = source.axis();
        let (mut parts, mut held) = (Parts::new(axis), Vec::<Held>::new());
        let mut sample = Sample::default();
        while source.next_sample(&mut sample)? {
            parts.place(&sample)?;
            for value in sample.values.iter().filter(|value| value.series < SERIES_MAX) {
                if held.len() <= value.series {
                    held.resize(value.series + 1, Held::default());
                }
                let one = &mut held[value.series];
                let number = value.number * value.unit.unwrap_or(1.0);
                if one.numbers == 0 {
                    one.first = number;
                }
                (one.last, one.peak) = (number, one.peak.max(number));
                one.numbers += 1;
                if value.unit.is_none() {
                    one.bare_peak = Some(one.bare_peak.unwrap_or_default().max(value.number));
                }
            }
        }
        parts.sorted()?;
        let (mut known, mut notes) = (source.known(), source.notes());
        if known.len() >= SERIES_MAX {
            known.truncate(SERIES_MAX);
            notes.push(format!("only the first {SERIES_MAX} series are followed"));
        }
        held.resize(known.len(), Held::default());
        Ok(Self { axis, parts, known, held, notes })
    }

    /// The context of a process: its length.
    pub fn context(&self, part: usize) -> Context {
        let Some(part) = self.parts.list.get(part) else { return Context { axis: self.axis, ..Context::default() } };
        let steps = u64::try_from(part.last - part.first).unwrap_or_default();
        Context { steps, axis: self.axis, ..Context::default() }
    }

    /// Chooses what is judged: what was asked for, or else all that may be memory.
    pub fn choose(&self, asked: &Asked) -> Result<Chosen, Wrong> {
        let found = || self.known.iter().map(|known| known.name.as_str()).collect::<Vec<_>>().join(", ");
        let is = |known: &Known, wanted: &String| known.name == *wanted || known.column == *wanted;
        for wanted in &asked.columns {
            if !self.known.iter().any(|known| is(known, wanted)) {
                return Err(Wrong::Asked(format!("no column is named `{wanted}` (found: {})", found())));
            }
        }
        let asked_unit = asked.bytes()?;
        let mut chosen = Chosen { units: vec![None; self.known.len()], ..Chosen::default() };
        for (number, (known, held)) in self.known.iter().zip(&self.held).enumerate() {
            let wanted = asked.columns.iter().any(|wanted| is(known, wanted));
            let place = known.broken.as_deref() == Some(PLACE);
            if !wanted && (place || !asked.columns.is_empty()) {
                continue;
            }
            let empty = || match held.bare_peak {
                _ if held.numbers == 0 => Some("holds no number".to_owned()),
                // Zero in any unit; its verdict would speak for columns that have none.
                Some(0.0) if known.unit.or(asked_unit).is_none() && held.peak == 0.0 => Some("holds only 0".into()),
                _ => None,
            };
            let hint = known.hint.clone().filter(|_| !wanted);
            if let Some(why) = hint.or_else(|| known.broken.clone()).or_else(empty) {
                if wanted {
                    return Err(Wrong::whole(format!("column `{}` cannot be judged: {why}", known.name)));
                }
                let said = format!("`{}` ({why})", known.column);
                if !chosen.left_out.contains(&said) {
                    chosen.left_out.push(said);
                }
                continue;
            }
            // Beside each number there may be a unit.
            let bare = held.bare_peak.is_some();
            let peak = held.bare_peak.unwrap_or_default();
            let taken = known.unit.or(asked_unit).or_else(|| (!bare).then_some(1.0));
            match taken {
                Some(unit) => chosen.units[number] = Some((known.clone(), unit)),
                None if peak >= BYTES_MIN => {
                    chosen.notes.push(format!(
                        "`{}` has no unit and is taken for bytes; `--unit KiB` says another",
                        known.name
                    ));
                    chosen.units[number] = Some((known.clone(), 1.0));
                }
                None => chosen.unknown.push(Unknown {
                    name: known.name.clone(),
                    first: held.first,
                    last: held.last,
                    peak: held.peak,
                }),
            }
        }
        match chosen.units.iter().any(Option::is_some) {
            true => Ok(chosen),
            false => Err(Wrong::whole(nothing(&chosen))),
        }
    }

    /// Notes on what the trace was taken for.
    pub fn notes(&self, more: Vec<String>) -> Vec<String> {
        let parts = &self.parts.list;
        let restarts = parts.get(1).map(|second| match parts.len() {
            2 => format!("another process begins at line {}; each is judged by itself", second.first_line),
            many => format!(
                "{many} processes, of which the second begins at line {}; each is judged by itself",
                second.first_line
            ),
        });
        self.notes.iter().cloned().chain(restarts).chain(more).collect()
    }
}

/// The reason why nothing is judged.
fn nothing(chosen: &Chosen) -> String {
    let unknown = chosen.unknown.iter().map(|one| {
        let why = "has no unit, and is too small for bytes; `--unit MiB` says one";
        format!("`{}` (up to {}: {why})", one.name, one.peak)
    });
    let all: Vec<String> = unknown.chain(chosen.left_out.iter().cloned()).collect();
    match all.is_empty() {
        true => "no column can be judged: there is none but that of the steps or times".into(),
        false => format!("no column can be judged: {}; `--column NAME` chooses one", all.join(", ")),
    }
}
