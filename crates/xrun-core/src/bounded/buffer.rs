//! What is a buffer, before and while it is filled? One declaration, from which the plan and the ledger both take it.

use std::borrow::Cow;

use super::ledger::{Cap, Holding, Ledger, Policy};

/// A buffer as it is declared, once. The plan lists it, and the container that is made of it enters it in the ledger.
///
/// ```
/// use xrun_core::bounded::buffer::Buffer;
/// use xrun_core::bounded::ledger::{Cap, Ledger, Policy};
///
/// let cap = Cap { items: 1_000_000, bytes: 256 << 20 };
/// let cache = Buffer::new("frame_cache", Policy::Evict, cap).key("limits.frame_cache").because("`limits.frame_cache`");
/// let ledger = Ledger::default();
/// let holding = cache.register(&ledger);
/// holding.set(1, 640);
/// assert_eq!((ledger.read()[0].name, ledger.read()[0].bytes), ("frame_cache", 640));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The owner's name; each name at most once in a run.
    pub name: &'static str,
    /// What happens at the cap.
    pub policy: Policy,
    /// The most that it may hold.
    pub cap: Cap,
    /// The dotted key of the experiment that sets the cap; `None` where it follows from several or from the data.
    pub key: Option<Cow<'static, str>>,
    /// The key that sets the cap, or how it follows; for people.
    pub because: String,
    /// Bytes of all that it could ever be asked to hold, where that is known and may be less than the cap.
    pub fills: Option<u64>,
}

impl Buffer {
    /// A buffer of which no more is said than its cap.
    pub fn new(name: &'static str, policy: Policy, cap: Cap) -> Self {
        Self { name, policy, cap, key: None, because: String::new(), fills: None }
    }

    /// The dotted key that sets the cap, such as `limits.frame_cache`.
    pub fn key(self, key: impl Into<Cow<'static, str>>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// Why the cap is what it is, for people.
    pub fn because(self, because: impl Into<String>) -> Self {
        Self { because: because.into(), ..self }
    }

    /// Bytes of all that it could ever be asked to hold.
    pub fn fills(self, bytes: u64) -> Self {
        Self { fills: Some(bytes), ..self }
    }

    /// Enters it in the ledger, for a container of one's own. Panics when the name is taken.
    pub fn register(&self, ledger: &Ledger) -> Holding {
        ledger.enter(self.name, self.cap, self.policy)
    }

    /// The same for a container that does at the cap what it does: a declaration that says otherwise is a fault in xrun.
    pub(super) fn register_as(&self, policy: Policy, ledger: &Ledger) -> Holding {
        assert!(self.policy == policy, "the buffer {} is declared as {:?} and does {policy:?}", self.name, self.policy);
        self.register(ledger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounded::list::CappedList;

    const CAP: Cap = Cap { items: 2, bytes: 100 };

    #[test]
    fn the_ledger_has_the_name_cap_and_policy_that_were_declared() {
        let ledger = Ledger::default();
        let _holding = Buffer::new("queue", Policy::Block, CAP).key("limits.queue").register(&ledger);
        let reading = &ledger.read()[0];
        assert_eq!((reading.name, reading.policy, reading.cap), ("queue", Policy::Block, CAP));
    }

    #[test]
    #[should_panic(expected = "the buffer lines is declared as Evict and does Refuse")]
    fn a_container_does_at_the_cap_what_the_declaration_says() {
        CappedList::<f64>::new(&Ledger::default(), &Buffer::new("lines", Policy::Evict, CAP));
    }
}
