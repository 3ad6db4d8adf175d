//! Watch for growth while a command runs, and the search for its cause.

use super::groups::MAIN;
use crate::explain::{self, Explainer};
use xrun_results::explanation::{Cause, Certainty, Explanation};
use xrun_results::judge::CommandJudge;
use xrun_results::verdict::{Verdict, VerdictWord};
use xrun_verdict::names::UNMAPPED_SHM;

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
    /// Number of windows that were asked for.
    windows: u32,
    /// True if files in /dev/shm grow.
    unmapped: bool,
    found: Option<Explanation>,
    /// True if it was reported.
    reported: bool,
}

impl CauseSearch {
    /// Cap on the windows of a command.
    const WINDOWS_MAX: u32 = 3;

    /// Search in the processes of a command or below a running process, whose first process is `main`.
    pub fn new(explainer: Explainer, main: u32) -> Self {
        Self { explainer, main, windows: 0, unmapped: false, found: None, reported: false }
    }

    /// Returns whether a further window may find more.
    pub fn is_needed(&self) -> bool {
        let certain = self.found.as_ref().is_some_and(|found| found.certainty == Certainty::High);
        self.windows < Self::WINDOWS_MAX && !certain && !self.explainer.is_asking()
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
            self.windows += 1;
            self.unmapped = verdict.owner.as_deref() == Some(UNMAPPED_SHM);
            self.explainer.ask(&members);
        }
        asks
    }

    /// Exchanges messages with the processes, and keeps an explanation that is at least as certain as the one before. Returns a
    /// new one.
    pub fn poll(&mut self, newest_step: u64) -> Option<&Explanation> {
        let answers = self.explainer.poll(newest_step)?;
        let found = explain::conclude(&answers, self.main, self.unmapped)?;
        if self.found.as_ref().is_some_and(|before| found.certainty < before.certainty) {
            return None;
        }
        Some(self.found.insert(found))
    }

    /// Message of the explanation, once there is one and `growth_was_reported`.
    pub fn report(&mut self, growth_was_reported: bool) -> Option<String> {
        let found = self.found.as_ref().filter(|_| growth_was_reported && !self.reported)?;
        self.reported = true;
        Some(found.message.clone())
    }

    /// Explanation at the end; `None` for growth that was suspected for a while, and ended. Native memory is what remains where
    /// no object accounts for the growth: a suspicion alone does not establish it.
    pub fn end(self, verdict: &Verdict) -> Option<Explanation> {
        self.found.filter(|found| match found.cause {
            Cause::Native => verdict.verdict > VerdictWord::Suspect,
            _ => verdict.verdict >= VerdictWord::Suspect,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_results::format::MemoryLine;
    use xrun_results::watched::WatchSettings;

    #[test]
    fn growth_is_reported_once_and_bounded_memory_never() {
        let line = |step: u64, heap: u64| {
            let text = format!(
                r#"{{"version":1,"segment":0,"time_us":{},"step":{step},"epoch":0,"point":"step","host":{{"heap":{heap},
                "heap_peak":{heap},"heap_high":null,"heap_allocations":0,"rss":{heap},"rss_peak":{heap},
                "anonymous":null,"file":0,"swap":0,"libraries":null}},"device":null,"driver":null,"container":null,
                "owners":{{"main/private":{heap}}},"freed":null,"phases_us":{{}},"cost_us":0,"processes":{{"count":1,
                "threads":1,"open_files":3,"inexact":0,"groups":{{}},"unmapped_shared":0,"pressure":null,
                "oom_kills":null,"charged":null}}}}"#,
                200_000 * step
            );
            serde_json::from_str::<MemoryLine>(&text).unwrap()
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
