//! Declaration of a buffer: the one source of its entry in the plan and in the ledger.

use std::borrow::Cow;

use super::ledger::{Cap, Ledger, Policy, Registration};
use crate::settings::rung::Rung;

/// Declaration of a buffer. The plan lists it, and the container built from it registers it in the ledger.
///
/// ```
/// use xrun_core::bounded::buffer::Buffer;
/// use xrun_core::bounded::ledger::{Cap, Ledger, Policy};
///
/// let cap = Cap { items: 1_000_000, bytes: 256 << 20 };
/// let cache = Buffer::new("frame_cache", Policy::Evict, cap).key("limits.frame_cache").because("`limits.frame_cache`");
/// let ledger = Ledger::default();
/// let registration = cache.register(&ledger);
/// registration.set(1, 640);
/// assert_eq!((ledger.read()[0].name, ledger.read()[0].bytes), ("frame_cache", 640));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Name of the owner; unique in a run.
    pub name: &'static str,
    /// Behaviour at the cap.
    pub policy: Policy,
    /// Maximum contents.
    pub cap: Cap,
    /// Dotted key of the experiment that sets the cap; `None` where the cap follows from several keys or from the data.
    pub key: Option<Cow<'static, str>>,
    /// Origin of the cap, human-readable: the key, or a derivation.
    pub because: String,
    /// Bytes of everything that could ever be put into the buffer, where known; may be less than the cap.
    pub working_set_bytes: Option<u64>,
    /// Rung of `limits.on_pressure` that makes the buffer smaller.
    pub rung: Option<Rung>,
}

impl Buffer {
    /// A buffer without a key, reason, size of contents or rung.
    pub fn new(name: &'static str, policy: Policy, cap: Cap) -> Self {
        Self { name, policy, cap, key: None, because: String::new(), working_set_bytes: None, rung: None }
    }

    /// Cache of which the dotted `key` sets the size; everything that could ever be in it has `working_set_bytes`.
    pub fn cache(name: &'static str, key: impl Into<Cow<'static, str>>, cap: Cap, working_set_bytes: u64) -> Self {
        let key = key.into();
        let cache = Self::new(name, Policy::Evict, cap).rung(Rung::Caches).because(format!("`{key}`"));
        cache.key(key).working_set_bytes(working_set_bytes)
    }

    /// Sets the dotted key that sets the cap, such as `limits.frame_cache`.
    pub fn key(self, key: impl Into<Cow<'static, str>>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// Sets the reason for the cap, human-readable.
    pub fn because(self, because: impl Into<String>) -> Self {
        Self { because: because.into(), ..self }
    }

    /// Sets the bytes of everything that could ever be put into the buffer.
    pub fn working_set_bytes(self, bytes: u64) -> Self {
        Self { working_set_bytes: Some(bytes), ..self }
    }

    /// Sets the rung of `limits.on_pressure` that makes the buffer smaller.
    pub fn rung(self, rung: Rung) -> Self {
        Self { rung: Some(rung), ..self }
    }

    /// Registers the buffer in the ledger, for a container outside this module. Panics when the name is taken.
    pub fn register(&self, ledger: &Ledger) -> Registration {
        ledger.register(self.name, self.cap, self.policy, self.rung)
    }

    /// Registers a buffer that was full while its data was opened, and holds this much from now on.
    pub fn register_opened(&self, ledger: &Ledger, items: u64, bytes: u64) -> Registration {
        let registration = self.register(ledger);
        registration.set(self.cap.items, self.cap.bytes);
        registration.set(items, bytes);
        registration
    }

    /// Registers the buffer for a container that implements `policy`. Panics when the declaration has another policy.
    pub(super) fn register_as(&self, policy: Policy, ledger: &Ledger) -> Registration {
        assert!(
            self.policy == policy,
            "buffer {} is declared as {:?}, but its container implements {policy:?}",
            self.name,
            self.policy
        );
        self.register(ledger)
    }
}

/// One buffer or several.
pub trait BufferSet {
    /// All of them, in the order of their declaration.
    fn all(&self) -> Vec<&Buffer>;
}

impl BufferSet for Buffer {
    fn all(&self) -> Vec<&Buffer> {
        vec![self]
    }
}

impl BufferSet for Option<Buffer> {
    fn all(&self) -> Vec<&Buffer> {
        self.iter().collect()
    }
}

/// Declares the struct of a component's buffers. Its fields, but for those after a `;`, are the list for the plan, which
/// therefore has each of them.
#[macro_export]
macro_rules! buffers {
    ($(#[$doc:meta])* pub struct $name:ident {
        $($(#[$field_doc:meta])* pub $field:ident: $type:ty,)*
        $(; $($(#[$other_doc:meta])* $other:ident: $other_type:ty,)*)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
            $($($(#[$other_doc])* $other: $other_type,)*)?
        }

        impl $crate::bounded::buffer::BufferSet for $name {
            fn all(&self) -> Vec<&$crate::bounded::buffer::Buffer> {
                [$($crate::bounded::buffer::BufferSet::all(&self.$field)),*].concat()
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounded::list::CappedList;

    const CAP: Cap = Cap { items: 2, bytes: 100 };

    #[test]
    #[should_panic(expected = "lines")]
    fn a_container_of_another_policy_than_declared_panics() {
        CappedList::<f64>::new(&Ledger::default(), &Buffer::new("lines", Policy::Evict, CAP));
    }
}
