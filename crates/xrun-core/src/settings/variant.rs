//! An open choice between kinds: `[pipeline.mine]` is the kind `mine`, which another crate may add, with its settings.
//!
//! It is serialised and described in the schema like the closed choices of [`super::kinds`]: one table named after the kind.
//! Kinds are registered when the program starts, before an experiment is read.
//!
//! In code, `new` takes the settings:
//!
//! ```
//! use xrun_core::experiment::Experiment;
//! use xrun_core::experiment::pipeline::Pipeline;
//! use xrun_core::experiment::resolved::to_toml;
//! use xrun_core::pipelines::dummy::settings::Dummy;
//!
//! let dummy = Dummy { steps_per_epoch: 25, ..Dummy::default() };
//! let mut experiment = Experiment::new("quick", Pipeline::new(dummy));
//! experiment.training.epochs = 4;
//! // The same experiment as a file.
//! let text = to_toml(&experiment, None);
//! assert!(text.contains("[pipeline.dummy]") && text.contains("steps_per_epoch = 25"));
//! ```

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, OnceLock, PoisonError};

use dyn_clone::DynClone;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bounds on the settings of a kind; implemented for every type that meets them.
pub trait SettingsTable:
    fmt::Debug + Clone + PartialEq + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static
{
}

impl<T> SettingsTable for T where
    T: fmt::Debug + Clone + PartialEq + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static
{
}

/// Object-safe settings of a kind; implemented for every [`SettingsTable`].
pub trait AnySettings: fmt::Debug + DynClone + Send + Sync + 'static {
    /// `true` if `other` has the same type and equal values.
    fn equals(&self, other: &dyn Any) -> bool;
    /// Upcast for a downcast to the concrete type.
    fn as_any(&self) -> &dyn Any;
    /// Mutable upcast for a downcast to the concrete type.
    fn as_any_mut(&mut self) -> &mut dyn Any;
    /// Serialisable form, the table of the kind.
    fn as_serialize(&self) -> &dyn erased_serde::Serialize;
}

impl<T: SettingsTable> AnySettings for T {
    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn as_serialize(&self) -> &dyn erased_serde::Serialize {
        self
    }
}

/// Paths in settings, with the names of their fields.
pub type Paths<'a> = Vec<(&'static str, &'a mut Option<String>)>;

/// Section of an experiment that chooses a kind: the trait of its settings, as an object. [`section!`] implements it.
pub trait Section: AnySettings {
    /// Name of the section, with a capital letter as the title in the schema.
    const SECTION: &'static str;
    /// Properties of a kind that do not depend on settings.
    type Facts: Send + Sync + 'static;

    /// Registry of its kinds.
    fn registry() -> &'static Registry<Self>;

    /// Paths in the settings.
    fn paths_in(settings: &mut Self) -> Paths<'_>;
}

/// Description of a kind, a constant.
pub struct Kind<S: Section + ?Sized> {
    /// Name of its table.
    pub name: &'static str,
    /// Properties that do not depend on settings.
    pub facts: S::Facts,
    /// Schema of its settings.
    pub(crate) schema: fn(&mut SchemaGenerator) -> Schema,
    /// Deserialises its settings.
    pub(crate) read: Read<S>,
}

/// Function that deserialises settings.
pub(crate) type Read<S> = fn(&mut dyn erased_serde::Deserializer<'_>) -> Result<Box<S>, erased_serde::Error>;

/// Makes a trait of settings a [`Section`]: `section!(PipelineKind, "Pipeline", PipelineFacts)`. The trait has the functions
/// `kind` and `paths`.
macro_rules! section {
    ($trait:ident, $section:literal, $facts:ty) => {
        impl $crate::settings::variant::Section for dyn $trait {
            const SECTION: &'static str = $section;
            type Facts = $facts;

            fn registry() -> &'static $crate::settings::variant::Registry<Self> {
                static REGISTRY: $crate::settings::variant::Registry<dyn $trait> =
                    $crate::settings::variant::Registry::new();
                &REGISTRY
            }

            fn paths_in(settings: &mut Self) -> $crate::settings::variant::Paths<'_> {
                settings.paths()
            }
        }

        impl $crate::settings::variant::Kind<dyn $trait> {
            /// Kind with the name of its table, whose settings are of type `T`.
            pub const fn new<T: $trait + $crate::settings::variant::SettingsTable>(
                name: &'static str,
                facts: $facts,
            ) -> Self {
                let schema = |generator: &mut schemars::SchemaGenerator| generator.subschema_for::<T>();
                Self { name, facts, schema, read: |from| Ok(Box::new(erased_serde::deserialize::<T>(from)?)) }
            }
        }

        impl $crate::settings::variant::Variant<dyn $trait> {
            /// Kind of these settings, for an experiment built in code. Only a registered kind can be read from a file.
            pub fn new<T: $trait>(settings: T) -> Self {
                Self { kind: T::kind(), settings: Box::new(settings) }
            }

            /// Registers a kind for this process, in place of an earlier one of the same name. Must be called before the first
            /// experiment is read.
            ///
            /// # Panics
            /// If an experiment or its schema was read before, and the kind is new.
            pub fn register<T: $trait>() {
                <dyn $trait as $crate::settings::variant::Section>::registry().add(T::kind());
            }
        }
    };
}

pub(crate) use section;

/// Registry of kinds. It is filled when the program starts, and frozen by the first access.
pub struct Registry<S: Section + ?Sized> {
    added: Mutex<Vec<&'static Kind<S>>>,
    frozen: OnceLock<Vec<&'static Kind<S>>>,
}

impl<S: Section + ?Sized> Registry<S> {
    /// Empty registry.
    #[expect(clippy::new_without_default, reason = "only statics are registries")]
    pub const fn new() -> Self {
        Self { added: Mutex::new(Vec::new()), frozen: OnceLock::new() }
    }

    /// Adds a kind, replacing one of the same name. In a frozen registry, a known name is ignored.
    ///
    /// # Panics
    /// If the registry is frozen and has no kind of this name.
    pub fn add(&self, kind: &'static Kind<S>) {
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(frozen) = self.frozen.get() {
            let known = frozen.iter().any(|known| known.name == kind.name);
            assert!(known, "`{}` is registered after an experiment was read", kind.name);
            return;
        }
        match added.iter_mut().find(|known| known.name == kind.name) {
            Some(known) => *known = kind,
            None => added.push(kind),
        }
    }

    /// All kinds in the order of registration; freezes the registry.
    pub fn all(&self) -> &[&'static Kind<S>] {
        self.frozen.get_or_init(|| self.added.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// A kind with its settings, to which it dereferences.
pub struct Variant<S: Section + ?Sized> {
    pub(crate) kind: &'static Kind<S>,
    pub(crate) settings: Box<S>,
}

impl<S: Section + ?Sized> Variant<S> {
    /// Name of the table in the file.
    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    /// Properties of the kind.
    pub fn facts(&self) -> &'static S::Facts {
        &self.kind.facts
    }

    /// Settings, if they are of type `T`.
    pub fn settings<T: 'static>(&self) -> Option<&T> {
        self.settings.as_any().downcast_ref()
    }

    /// Mutable settings, if they are of type `T`.
    pub fn settings_mut<T: 'static>(&mut self) -> Option<&mut T> {
        self.settings.as_any_mut().downcast_mut()
    }

    /// Paths in the settings with their dotted keys.
    pub fn paths(&mut self) -> impl Iterator<Item = (String, &mut String)> {
        let name = self.name();
        let key = move |field| format!("{}.{name}.{field}", S::SECTION.to_ascii_lowercase());
        S::paths_in(&mut self.settings).into_iter().filter_map(move |(field, path)| Some((key(field), path.as_mut()?)))
    }

    /// Names of all registered kinds.
    pub fn names() -> impl Iterator<Item = &'static str> + Clone {
        S::registry().all().iter().map(|kind| kind.name)
    }

    /// Registered kind of this name.
    pub fn find(name: &str) -> Option<&'static Kind<S>> {
        S::registry().all().iter().copied().find(|kind| kind.name == name)
    }
}

impl<S: Section + ?Sized> Deref for Variant<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.settings
    }
}

impl<S: Section + ?Sized> DerefMut for Variant<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.settings
    }
}

impl<S: Section + ?Sized> Clone for Variant<S> {
    fn clone(&self) -> Self {
        Self { kind: self.kind, settings: dyn_clone::clone_box(&*self.settings) }
    }
}

impl<S: Section + ?Sized> PartialEq for Variant<S> {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.settings.equals(other.settings.as_any())
    }
}

impl<S: Section + ?Sized> fmt::Debug for Variant<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(formatter)
    }
}

impl<S: Section + ?Sized> Serialize for Variant<S> {
    fn serialize<T: Serializer>(&self, serializer: T) -> Result<T::Ok, T::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(self.name(), self.settings.as_serialize())?;
        map.end()
    }
}

impl<'de, S: Section + ?Sized> Deserialize<'de> for Variant<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OneTable(PhantomData))
    }
}

struct OneTable<S: ?Sized>(PhantomData<fn() -> Box<S>>);

impl<'de, S: Section + ?Sized> Visitor<'de> for OneTable<S> {
    type Value = Variant<S>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Variant::<S>::names().collect();
        write!(formatter, "exactly one table of {}", names.join(", "))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let name: String = map.next_key()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
        let Some(kind) = Variant::<S>::find(&name) else {
            return Err(A::Error::custom(format!("unknown kind `{name}`")));
        };
        let settings = map.next_value_seed(SettingsOf(kind))?;
        match map.next_key::<String>()? {
            None => Ok(Variant { kind, settings }),
            Some(_) => Err(A::Error::invalid_length(2, &self)),
        }
    }
}

struct SettingsOf<S: Section + ?Sized>(&'static Kind<S>);

impl<'de, S: Section + ?Sized> DeserializeSeed<'de> for SettingsOf<S> {
    type Value = Box<S>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        (self.0.read)(&mut <dyn erased_serde::Deserializer<'_>>::erase(deserializer)).map_err(D::Error::custom)
    }
}

impl<S: Section + ?Sized> JsonSchema for Variant<S> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        S::SECTION.into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let kinds = S::registry().all().iter();
        let properties: serde_json::Map<_, _> =
            kinds.map(|kind| (kind.name.to_owned(), (kind.schema)(generator).to_value())).collect();
        super::kinds::one_of(properties)
    }
}
