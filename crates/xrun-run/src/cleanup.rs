//! What does a cleanup do, and what does it give back?

use super::clock::{Clock, LOOP};
use xrun_core::heap;
use xrun_core::settings::sections::CleanupAction;
use xrun_core::task::{Phases, Task};
use xrun_watch::memory::sources;

/// Performs the actions in their order; returns the bytes given back, as far as that is known.
pub fn clean(task: &mut dyn Task, actions: &[CleanupAction], clock: &mut Clock) -> u64 {
    clock.enter("cleanup");
    let freed = actions.iter().map(|action| perform(task, *action)).sum();
    clock.enter(LOOP);
    freed
}

fn perform(task: &mut dyn Task, action: CleanupAction) -> u64 {
    if action != CleanupAction::Heap {
        return task.clean(action);
    }
    let before = sources::resident();
    heap::return_free_pages();
    before.zip(sources::resident()).map_or(0, |(before, after)| before.saturating_sub(after))
}
