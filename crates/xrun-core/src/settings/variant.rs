//! An open choice between kinds: `[pipeline.mine]` is the kind `mine`, which another crate may add, with its settings.
//!
//! It is serialised and described in the schema like the closed choices of [`super::kinds`]: one table named after the kind.
//! Kinds are registered when the program starts, before an experiment is read.
//!
//! In code, `new` takes the kind as a type:
//!
//! ```
//! use xrun_core::experiment::Experiment;
//! use xrun_core::experiment::pipeline::Pipeline;
//! use xrun_core::experiment::resolved::to_toml;
//! use xrun_core::pipelines::dummy::{Dummy, settings::Settings};
//!
//! let settings = Settings { steps_per_epoch: 25, ..Settings::default() };
//! let mut experiment = Experiment::new("quick", Pipeline::new::<Dummy>(settings));
//! experiment.training.epochs = 4;
//! // The same experiment as a file.
//! let text = to_toml(&experiment, None);
//! assert!(text.contains("[pipeline.dummy]") && text.contains("steps_per_epoch = 25"));
//! ```

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Mutex, OnceLock, PoisonError};

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

/// Object-safe settings of a kind.
pub trait AnySettings: fmt::Debug + Send + Sync {
    /// Boxed clone.
    fn boxed(&self) -> Box<dyn AnySettings>;
    /// `true` if `other` has the same type and equal values.
    fn equals(&self, other: &dyn AnySettings) -> bool;
    /// Upcast for a downcast to the concrete type.
    fn as_any(&self) -> &dyn Any;
    /// Mutable upcast for a downcast to the concrete type.
    fn as_any_mut(&mut self) -> &mut dyn Any;
    /// Serialisable form, the table of the kind.
    fn as_serialize(&self) -> &dyn erased_serde::Serialize;
}

impl<T: SettingsTable> AnySettings for T {
    fn boxed(&self) -> Box<dyn AnySettings> {
        Box::new(self.clone())
    }

    fn equals(&self, other: &dyn AnySettings) -> bool {
        other.as_any().downcast_ref::<T>() == Some(self)
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

/// Invariant: the settings of a kind have the type that the kind reads.
const OF_THEIR_KIND: &str = "settings belong to their kind";

/// Settings as their concrete type. Panics for another type.
pub fn typed<T: SettingsTable>(settings: &dyn AnySettings) -> &T {
    settings.as_any().downcast_ref().expect(OF_THEIR_KIND)
}

/// Mutable settings as their concrete type. Panics for another type.
pub fn typed_mut<T: SettingsTable>(settings: &mut dyn AnySettings) -> &mut T {
    settings.as_any_mut().downcast_mut().expect(OF_THEIR_KIND)
}

/// Object-safe interface of every kind: pipelines, models and data sets.
pub trait Kind: Send + Sync + 'static {
    /// Name of its table.
    fn name(&self) -> &'static str;
    /// Schema of its settings.
    fn schema(&self, generator: &mut SchemaGenerator) -> Schema;
    /// Deserialises its settings.
    ///
    /// # Errors
    /// The settings' type rejects the input.
    fn read(&self, from: &mut dyn erased_serde::Deserializer<'_>) -> Result<Box<dyn AnySettings>, erased_serde::Error>;
}

/// Deserialises settings of type `T`, for [`Kind::read`].
///
/// # Errors
/// The type rejects the input.
pub fn read_settings<T: SettingsTable>(
    from: &mut dyn erased_serde::Deserializer<'_>,
) -> Result<Box<dyn AnySettings>, erased_serde::Error> {
    erased_serde::deserialize::<T>(from).map(|settings| Box::new(settings) as Box<dyn AnySettings>)
}

/// Group of kinds with a registry, such as all pipelines.
pub trait RegisteredKind: Kind {
    /// Name of the section, with a capital letter as the title in the schema.
    const SECTION: &'static str;

    /// Registry of its kinds.
    fn registry() -> &'static Registry<Self>;
}

/// Registry of kinds. It is filled when the program starts, and frozen by the first access.
pub struct Registry<K: ?Sized + 'static> {
    added: Mutex<Vec<&'static K>>,
    frozen: OnceLock<Vec<&'static K>>,
}

impl<K: RegisteredKind + ?Sized> Default for Registry<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: RegisteredKind + ?Sized> Registry<K> {
    /// Empty registry.
    pub const fn new() -> Self {
        Self { added: Mutex::new(Vec::new()), frozen: OnceLock::new() }
    }

    /// Adds a kind, replacing one of the same name. In a frozen registry, a known name is ignored.
    ///
    /// # Panics
    /// If the registry is frozen and has no kind of this name.
    pub fn add(&self, kind: &'static K) {
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(frozen) = self.frozen.get() {
            let known = frozen.iter().any(|known| known.name() == kind.name());
            assert!(known, "`{}` is registered after an experiment was read", kind.name());
            return;
        }
        match added.iter_mut().find(|known| known.name() == kind.name()) {
            Some(known) => *known = kind,
            None => added.push(kind),
        }
    }

    /// All kinds in the order of registration; freezes the registry.
    pub fn all(&self) -> &[&'static K] {
        self.frozen.get_or_init(|| self.added.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// A kind with its settings.
pub struct Variant<K: ?Sized + 'static> {
    kind: &'static K,
    settings: Box<dyn AnySettings>,
}

impl<K: RegisteredKind + ?Sized> Variant<K> {
    /// A kind with settings of its type.
    pub(crate) fn with(kind: &'static K, settings: impl SettingsTable) -> Self {
        Self { kind, settings: Box::new(settings) }
    }

    /// Name of the table in the file.
    pub fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// Kind, which interprets the settings.
    pub fn kind(&self) -> &'static K {
        self.kind
    }

    /// Type-erased settings.
    pub fn any(&self) -> &dyn AnySettings {
        self.settings.as_ref()
    }

    /// Mutable type-erased settings.
    pub fn any_mut(&mut self) -> &mut dyn AnySettings {
        self.settings.as_mut()
    }

    /// Settings, if they are of type `T`.
    pub fn settings<T: 'static>(&self) -> Option<&T> {
        self.settings.as_any().downcast_ref()
    }

    /// Mutable settings, if they are of type `T`.
    pub fn settings_mut<T: 'static>(&mut self) -> Option<&mut T> {
        self.settings.as_any_mut().downcast_mut()
    }

    /// Names of all registered kinds.
    pub fn names() -> impl Iterator<Item = &'static str> + Clone {
        K::registry().all().iter().map(|kind| kind.name())
    }

    /// Registered kind of this name.
    pub fn find(name: &str) -> Option<&'static K> {
        K::registry().all().iter().copied().find(|kind| kind.name() == name)
    }
}

impl<K: ?Sized> Clone for Variant<K> {
    fn clone(&self) -> Self {
        Self { kind: self.kind, settings: self.settings.boxed() }
    }
}

impl<K: RegisteredKind + ?Sized> PartialEq for Variant<K> {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.settings.equals(other.settings.as_ref())
    }
}

impl<K: ?Sized> fmt::Debug for Variant<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(formatter)
    }
}

impl<K: RegisteredKind + ?Sized> Serialize for Variant<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(self.name(), self.settings.as_serialize())?;
        map.end()
    }
}

impl<'de, K: RegisteredKind + ?Sized> Deserialize<'de> for Variant<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OneTable(PhantomData))
    }
}

struct OneTable<K: ?Sized + 'static>(PhantomData<&'static K>);

impl<'de, K: RegisteredKind + ?Sized> Visitor<'de> for OneTable<K> {
    type Value = Variant<K>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Variant::<K>::names().collect();
        write!(formatter, "exactly one table of {}", names.join(", "))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let name: String = map.next_key()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
        let Some(kind) = Variant::<K>::find(&name) else {
            return Err(A::Error::custom(format!("unknown kind `{name}`, expected {}", Expected(&self))));
        };
        let settings = map.next_value_seed(SettingsOf(kind))?;
        match map.next_key::<String>()? {
            None => Ok(Variant { kind, settings }),
            Some(_) => Err(A::Error::invalid_length(2, &self)),
        }
    }
}

/// Displays what a visitor expects.
struct Expected<'a, V>(&'a V);

impl<'de, V: Visitor<'de>> fmt::Display for Expected<'_, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(formatter)
    }
}

struct SettingsOf<K: ?Sized + 'static>(&'static K);

impl<'de, K: RegisteredKind + ?Sized> DeserializeSeed<'de> for SettingsOf<K> {
    type Value = Box<dyn AnySettings>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.read(&mut <dyn erased_serde::Deserializer<'_>>::erase(deserializer)).map_err(D::Error::custom)
    }
}

impl<K: RegisteredKind + ?Sized> JsonSchema for Variant<K> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        K::SECTION.into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let kinds = K::registry().all().iter();
        let properties: serde_json::Map<_, _> =
            kinds.map(|kind| (kind.name().to_owned(), kind.schema(generator).to_value())).collect();
        super::kinds::one_of(properties)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settings whose type rejects values that the schema permits, such as 3.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    struct Settings {
        #[serde(deserialize_with = "even")]
        teeth: u8,
    }

    fn even<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
        let number = u8::deserialize(deserializer)?;
        if number % 2 == 0 { Ok(number) } else { Err(D::Error::custom("an odd number of teeth")) }
    }

    struct Gear;

    impl Kind for Gear {
        fn name(&self) -> &'static str {
            "gear"
        }

        fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
            generator.subschema_for::<Settings>()
        }

        fn read(
            &self,
            from: &mut dyn erased_serde::Deserializer<'_>,
        ) -> Result<Box<dyn AnySettings>, erased_serde::Error> {
            read_settings::<Settings>(from)
        }
    }

    static GEARS: Registry<Gear> = Registry::new();

    impl RegisteredKind for Gear {
        const SECTION: &'static str = "Gear";

        fn registry() -> &'static Registry<Self> {
            &GEARS
        }
    }

    #[test]
    fn an_error_of_the_settings_type_has_the_path_of_its_field() {
        GEARS.add(&Gear);
        let read = |teeth: u8| {
            let values = serde_json::json!({ "machine": { "gear": { "teeth": teeth } } });
            serde_path_to_error::deserialize::<_, std::collections::BTreeMap<String, Variant<Gear>>>(values)
        };
        assert_eq!(read(4).unwrap()["machine"], Variant::with(&Gear, Settings { teeth: 4 }));
        let error = read(3).unwrap_err();
        assert_eq!(error.path().to_string(), "machine.gear.teeth");
        assert_eq!(error.inner().to_string(), "an odd number of teeth");
    }
}
