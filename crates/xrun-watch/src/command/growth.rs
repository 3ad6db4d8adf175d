//! Watch for growth while a command runs, and the search for its cause.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::groups::MAIN;
use crate::explain::{self, Explainer, WindowAnswer};
use xrun_results::explanation::{Cause, Certainty, Explanation};
use xrun_results::judge::CommandJudge;
use xrun_results::verdict::{Verdict, VerdictWord};
use xrun_verdict::Axis;
use xrun_verdict::names::{PRIVATE_SUFFIX, UNMAPPED_SHM};

/// Watch for growth while the command runs, which is reported once.
#[derive(Debug, Default)]
pub struct GrowthWatch {
    samples: u64,
    /// Number of samples at which the verdict is looked at again.
    next: u64,
    reported: bool,
}

impl GrowthWatch {
    /// Fewest samples between two looks; a verdict costs more than a sample.
    const EVERY_MIN: u64 = 16;

    /// Verdict on the samples so far, if it is time to look at it: until growth was reported, and beyond that while `needed`.
    /// Called at each sample.
    pub fn look(&mut self, judged: &CommandJudge, needed: bool) -> Option<Verdict> {
        self.samples += 1;
        if (self.reported && !needed) || self.samples < self.next {
            return None;
        }
        let every_min = if needed { Self::EVERY_MIN / 2 } else { Self::EVERY_MIN };
        self.next = self.samples + every_min.max(self.samples / 8);
        Some(judged.verdict())
    }

    /// Has the next sample looked at, as a window has ended without a certain answer.
    pub fn look_soon(&mut self) {
        self.next = 0;
    }

    /// Message of a verdict, once memory grows by it.
    pub fn report(&mut self, verdict: &Verdict) -> Option<String> {
        let reports = verdict.verdict >= VerdictWord::Growing && !std::mem::replace(&mut self.reported, true);
        reports.then(|| verdict.message.clone())
    }

    /// Returns whether growth was reported.
    pub fn has_reported(&self) -> bool {
        self.reported
    }
}

/// Search for the cause of growth in Python programs, which begins once growth is suspected.
#[derive(Debug)]
pub struct CauseSearch {
    explainer: Explainer,
    /// Process id of the main process.
    main: u32,
    /// Time since which it may ask, and that of the first question.
    created: Instant,
    began: Option<Instant>,
    /// Time of the windows so far.
    spent: Duration,
    /// Time of the newest question, and the verdict that it is about.
    asked: Option<(Instant, Verdict)>,
    found: Option<Explanation>,
    /// Rank of the explanation that was reported.
    reported: Option<u32>,
    /// Processes with the owners of their memory and the bytes that the agent has left in them, of all windows.
    left: Vec<(u32, String, u64)>,
}

impl CauseSearch {
    /// Time after the first question within which it is said that the cause was not found.
    const SAID_WITHIN: Duration = Duration::from_secs(18);

    /// Ratio of the time of the command to that of windows, whose samples are not all judged.
    const JUDGED_MIN: u32 = 5;

    /// Search in the processes of a command or below a running process, whose first process is `main`.
    pub fn new(explainer: Explainer, main: u32) -> Self {
        let (created, spent) = (Instant::now(), Duration::ZERO);
        Self {
            explainer,
            main,
            created,
            began: None,
            spent,
            asked: None,
            found: None,
            reported: None,
            left: Vec::new(),
        }
    }

    /// Returns whether a further window may find more, and leaves enough samples to be judged.
    pub fn is_needed(&self) -> bool {
        let certain = self.found.as_ref().is_some_and(|found| found.certainty == Certainty::High);
        !certain && self.explainer.may_ask() && Self::JUDGED_MIN * self.spent <= self.created.elapsed()
    }

    /// Bytes that the agent needs and has left in the processes that still run, by owner; `None` during a census.
    pub fn agent(&self, members: &[u32]) -> Option<BTreeMap<String, u64>> {
        let needs = self.explainer.needs()?.into_iter().map(|(process, bytes)| (process, self.owner(), bytes));
        let mut agent = BTreeMap::new();
        for (_, owner, bytes) in
            self.left.iter().cloned().chain(needs).filter(|(process, ..)| members.contains(process))
        {
            *agent.entry(owner).or_default() += bytes;
        }
        Some(agent)
    }

    /// Owner of the memory of those that were asked; others are none whose growth was suspected.
    fn owner(&self) -> String {
        let asked = self.asked.as_ref().and_then(|(_, verdict)| verdict.owner.clone());
        asked.filter(|owner| owner.ends_with(PRIVATE_SUFFIX)).unwrap_or_else(|| format!("{MAIN}{PRIVATE_SUFFIX}"))
    }

    /// Asks those of the processes for a window that are suspected to grow. Returns whether it asked.
    pub fn ask(&mut self, verdict: &Verdict, members: &[u32]) -> bool {
        let asks = verdict.verdict >= VerdictWord::Suspect && self.is_needed();
        if asks {
            // A census writes the reference counts of all objects, whose pages forked workers then copy: only those are asked
            // that grow.
            let group = verdict.owner.as_deref().and_then(|owner| owner.rsplit_once('/')).map(|(group, _)| group);
            let is_asked = |member: &u32| match group {
                None | Some("") => true,
                Some(group) => (group == MAIN) == (*member == self.main),
            };
            let members: Vec<u32> = members.iter().copied().filter(is_asked).collect();
            let (now, _) = self.asked.insert((Instant::now(), verdict.clone()));
            self.began.get_or_insert(*now);
            self.explainer.ask(&members);
        }
        asks
    }

    /// Exchanges messages with the processes, and keeps an explanation that says at least as much as the one before. Returns a
    /// new one.
    pub fn poll(&mut self, newest_step: u64) -> Option<&Explanation> {
        let answers = self.explainer.poll(newest_step)?;
        let owner = self.owner();
        let (since, asked) = self.asked.as_ref()?;
        self.spent += since.elapsed();
        let unmapped = asked.owner.as_deref() == Some(UNMAPPED_SHM);
        let rate = |steps: u64, seconds: f64| growth_within(asked, steps, seconds);
        let left = answers.iter().flatten().map(WindowAnswer::left);
        self.left.extend(left.filter(|(_, bytes)| *bytes > 0).map(|(process, bytes)| (process, owner.clone(), bytes)));
        let found = match answers {
            Ok(answers) => explain::conclude(&answers, self.main, unmapped, rate)?,
            Err(why) => explain::unanswered(self.main, &why),
        };
        if self.found.as_ref().is_some_and(|before| rank(&found) < rank(before)) {
            return None;
        }
        Some(self.found.insert(found))
    }

    /// Message of the explanation, once there is one and `growth_was_reported`. That none was found is said at the end of the
    /// search, or after [`Self::SAID_WITHIN`].
    pub fn report(&mut self, growth_was_reported: bool) -> Option<String> {
        let is_late = self.began.is_some_and(|began| began.elapsed() >= Self::SAID_WITHIN);
        let may_find_more = self.explainer.is_asking() || self.explainer.may_ask();
        if !growth_was_reported {
            return None;
        }
        let Some(found) = &self.found else {
            let says = is_late && self.reported.is_none();
            self.reported = self.reported.or(is_late.then_some(0));
            return says.then(|| explain::unanswered(self.main, "the program has not answered yet").message);
        };
        let says_more = self.reported.is_none_or(|before| rank(found) > before.max(NAMES_NOTHING));
        if !says_more || !(rank(found) > NAMES_NOTHING || is_late || !may_find_more) {
            return None;
        }
        self.reported = Some(rank(found));
        Some(found.message.clone())
    }

    /// Explanation at the end; `None` for growth that was suspected for a while, and ended. Native memory is what remains where
    /// no object accounts for the growth: a suspicion alone does not establish it.
    pub fn end(self, verdict: &Verdict) -> Option<Explanation> {
        let nothing_yet = || self.began.map(|_| explain::unanswered(self.main, "the command ended before the answer"));
        let found = self.found.or_else(nothing_yet).filter(|_| verdict.verdict >= VerdictWord::Suspect)?;
        Some(match found.cause {
            Cause::Native if verdict.verdict == VerdictWord::Suspect => {
                explain::unanswered(self.main, "growth is only suspected")
            }
            _ => found,
        })
    }
}

/// Rank up to which an explanation names neither a line nor a holder.
const NAMES_NOTHING: u32 = 2;

/// Rank of an explanation by what it says.
fn rank(found: &Explanation) -> u32 {
    match (found.cause, found.certainty) {
        (Cause::Unknown, _) => 0,
        (Cause::Native, Certainty::Low) => 1,
        (Cause::Native, _) => 2,
        (_, certainty) => 3 + certainty as u32,
    }
}

/// Growth in bytes within these steps and seconds, by the verdict's slope; 0 where it has none.
fn growth_within(verdict: &Verdict, steps: u64, seconds: f64) -> f64 {
    let slope = verdict.footprint().and_then(|one| one.findings.slope);
    let units = if verdict.axis == Axis::Clock { 1e3 * seconds } else { steps as f64 };
    slope.unwrap_or_default().max(0.0) * units
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_results::format::{HostMemory, MemoryLine};
    use xrun_results::watched::WatchSettings;

    #[test]
    fn growth_is_reported_once_and_bounded_memory_never() {
        let line = |step: u64, heap: u64| {
            let owners = [(format!("{MAIN}{PRIVATE_SUFFIX}"), heap)].into();
            let host =
                HostMemory { heap, heap_peak: heap, rss: Some(heap), rss_peak: Some(heap), ..Default::default() };
            MemoryLine { time_us: 200_000 * step, step, host, owners, ..MemoryLine::default() }
        };
        let reports = |leak: u64| {
            let (mut judged, mut growth) = (CommandJudge::new(&WatchSettings::default()), GrowthWatch::default());
            let reported = (0..400).filter(|step| {
                judged.add(&line(*step, (100 << 20) + leak * step));
                growth.look(&judged, false).and_then(|verdict| growth.report(&verdict)).is_some()
            });
            reported.collect::<Vec<u64>>()
        };
        let leak = reports(1 << 20);
        assert!(leak.len() == 1 && leak[0] < 200, "{leak:?}");
        assert!(reports(0).is_empty());
    }
}
