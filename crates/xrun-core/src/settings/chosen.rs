//! A choice between kinds that other crates may add to: `[pipeline.mine]` is the kind `mine` with its settings.
//!
//! The choice is written, read and described in the schema like the closed ones of [`super::kinds`]: one table, whose name is
//! the kind. The kinds of a family are registered when the program starts, before anything is read.
//!
//! In code, `new` chooses a kind by its type, with its settings:
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
//! // As a file, it is the same experiment.
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

/// What a table of settings must be able to do. Every plain type with the usual derives is one.
pub trait SettingsTable:
    fmt::Debug + Clone + PartialEq + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static
{
}

impl<T> SettingsTable for T where
    T: fmt::Debug + Clone + PartialEq + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static
{
}

/// The settings of a kind that is known at run time only.
pub trait AnySettings: fmt::Debug + Send + Sync {
    /// A copy of them.
    fn boxed(&self) -> Box<dyn AnySettings>;
    /// Whether the others are of the same type and have the same values.
    fn equals(&self, other: &dyn AnySettings) -> bool;
    /// The type behind it, to be cast to.
    fn as_any(&self) -> &dyn Any;
    /// The type behind it, to be cast to and changed.
    fn as_any_mut(&mut self) -> &mut dyn Any;
    /// What writes them as the table of their kind.
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

/// Settings of a kind are read by that kind, so they are of its type.
const OF_THEIR_KIND: &str = "settings belong to their kind";

/// The settings as their kind knows them.
pub fn typed<T: SettingsTable>(settings: &dyn AnySettings) -> &T {
    settings.as_any().downcast_ref().expect(OF_THEIR_KIND)
}

/// The same, to be changed.
pub fn typed_mut<T: SettingsTable>(settings: &mut dyn AnySettings) -> &mut T {
    settings.as_any_mut().downcast_mut().expect(OF_THEIR_KIND)
}

/// What every kind says of itself, of whatever family it is.
pub trait Kind: Send + Sync + 'static {
    /// The name of its table.
    fn name(&self) -> &'static str;
    /// The schema of its settings.
    fn schema(&self, generator: &mut SchemaGenerator) -> Schema;
    /// Keys and whole tables of older files, dotted, and the field that each is now: empty for a table that this kind replaces.
    fn moved(&self) -> &'static [(&'static str, &'static str)];
    /// Reads its settings.
    ///
    /// # Errors
    /// What the type refuses.
    fn read(&self, from: &mut dyn erased_serde::Deserializer<'_>) -> Result<Box<dyn AnySettings>, erased_serde::Error>;
}

/// Reads settings of this type; for [`Kind::read`].
///
/// # Errors
/// What the type refuses.
pub fn read_settings<T: SettingsTable>(
    from: &mut dyn erased_serde::Deserializer<'_>,
) -> Result<Box<dyn AnySettings>, erased_serde::Error> {
    erased_serde::deserialize::<T>(from).map(|settings| Box::new(settings) as Box<dyn AnySettings>)
}

/// Kinds among which one is chosen.
pub trait Family: Kind {
    /// What the schema calls the choice.
    const TITLE: &'static str;

    /// Where its kinds are registered.
    fn registered() -> &'static Registered<Self>;
}

/// The kinds of a family. They are added when the program starts, and fixed once the first is asked for.
pub struct Registered<K: ?Sized + 'static> {
    added: Mutex<Vec<&'static K>>,
    fixed: OnceLock<Vec<&'static K>>,
}

impl<K: Family + ?Sized> Default for Registered<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Family + ?Sized> Registered<K> {
    /// No kind yet.
    pub const fn new() -> Self {
        Self { added: Mutex::new(Vec::new()), fixed: OnceLock::new() }
    }

    /// Adds a kind. One of a name that is there already takes its place, unless kinds were asked for: then the first stays.
    ///
    /// # Panics
    /// When kinds were asked for already and none has this name: what was read until then did not know it.
    pub fn add(&self, kind: &'static K) {
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fixed) = self.fixed.get() {
            let known = fixed.iter().any(|known| known.name() == kind.name());
            assert!(known, "`{}` is registered after an experiment was read", kind.name());
            return;
        }
        match added.iter_mut().find(|known| known.name() == kind.name()) {
            Some(known) => *known = kind,
            None => added.push(kind),
        }
    }

    /// All kinds, in the order in which they were added.
    pub fn all(&self) -> &[&'static K] {
        self.fixed.get_or_init(|| self.added.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// One kind of a family, and its settings.
pub struct Chosen<K: ?Sized + 'static> {
    kind: &'static K,
    settings: Box<dyn AnySettings>,
}

impl<K: Family + ?Sized> Chosen<K> {
    /// A kind with settings that are its own.
    pub(crate) fn with(kind: &'static K, settings: impl SettingsTable) -> Self {
        Self { kind, settings: Box::new(settings) }
    }

    /// The name of the table, as written in the file.
    pub fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// What can be done with the settings.
    pub fn kind(&self) -> &'static K {
        self.kind
    }

    /// The settings as they are kept.
    pub fn any(&self) -> &dyn AnySettings {
        self.settings.as_ref()
    }

    /// The same, to be changed.
    pub fn any_mut(&mut self) -> &mut dyn AnySettings {
        self.settings.as_mut()
    }

    /// The settings, if they are of this type.
    pub fn settings<T: 'static>(&self) -> Option<&T> {
        self.settings.as_any().downcast_ref()
    }

    /// The same, to be changed.
    pub fn settings_mut<T: 'static>(&mut self) -> Option<&mut T> {
        self.settings.as_any_mut().downcast_mut()
    }

    /// All names that may be written.
    pub fn names() -> impl Iterator<Item = &'static str> + Clone {
        K::registered().all().iter().map(|kind| kind.name())
    }

    /// The kinds, each with its field, that have a key of older files today. A field is empty where a whole table moved. `_` in
    /// place of `-` is accepted: a variable of the environment cannot have the other.
    pub fn moved(key: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
        let plain = |key: &str| key.replace('-', "_");
        let key = plain(key);
        K::registered().all().iter().filter_map(move |kind| {
            let is_moved = |(old, field): &&(&str, &str)| {
                let rest = key.strip_prefix(&plain(old));
                rest.is_some_and(|rest| rest.is_empty() || field.is_empty() && rest.starts_with('.'))
            };
            let (_, field) = kind.moved().iter().find(is_moved)?;
            Some((kind.name(), *field))
        })
    }

    /// The kind of this name.
    pub fn find(name: &str) -> Option<&'static K> {
        K::registered().all().iter().copied().find(|kind| kind.name() == name)
    }
}

impl<K: ?Sized> Clone for Chosen<K> {
    fn clone(&self) -> Self {
        Self { kind: self.kind, settings: self.settings.boxed() }
    }
}

impl<K: Family + ?Sized> PartialEq for Chosen<K> {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.settings.equals(other.settings.as_ref())
    }
}

impl<K: ?Sized> fmt::Debug for Chosen<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(formatter)
    }
}

impl<K: Family + ?Sized> Serialize for Chosen<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(self.name(), self.settings.as_serialize())?;
        map.end()
    }
}

impl<'de, K: Family + ?Sized> Deserialize<'de> for Chosen<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OneTable(PhantomData))
    }
}

struct OneTable<K: ?Sized + 'static>(PhantomData<&'static K>);

impl<'de, K: Family + ?Sized> Visitor<'de> for OneTable<K> {
    type Value = Chosen<K>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Chosen::<K>::names().collect();
        write!(formatter, "one table, of {}", names.join(", "))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let name: String = map.next_key()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
        let Some(kind) = Chosen::<K>::find(&name) else {
            return Err(A::Error::custom(format!("unknown kind `{name}`, expected {}", Expected(&self))));
        };
        let settings = map.next_value_seed(SettingsOf(kind))?;
        match map.next_key::<String>()? {
            None => Ok(Chosen { kind, settings }),
            Some(_) => Err(A::Error::invalid_length(2, &self)),
        }
    }
}

/// A visitor's own words for what it takes.
struct Expected<'a, V>(&'a V);

impl<'de, V: Visitor<'de>> fmt::Display for Expected<'_, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(formatter)
    }
}

struct SettingsOf<K: ?Sized + 'static>(&'static K);

impl<'de, K: Family + ?Sized> DeserializeSeed<'de> for SettingsOf<K> {
    type Value = Box<dyn AnySettings>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.read(&mut <dyn erased_serde::Deserializer<'_>>::erase(deserializer)).map_err(D::Error::custom)
    }
}

impl<K: Family + ?Sized> JsonSchema for Chosen<K> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        K::TITLE.into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let kinds = K::registered().all().iter();
        let properties: serde_json::Map<_, _> =
            kinds.map(|kind| (kind.name().to_owned(), kind.schema(generator).to_value())).collect();
        super::kinds::one_of(properties)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As another crate may write it: the schema lets 3 pass, and the type does not.
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

        fn moved(&self) -> &'static [(&'static str, &'static str)] {
            &[]
        }

        fn read(
            &self,
            from: &mut dyn erased_serde::Deserializer<'_>,
        ) -> Result<Box<dyn AnySettings>, erased_serde::Error> {
            read_settings::<Settings>(from)
        }
    }

    static GEARS: Registered<Gear> = Registered::new();

    impl Family for Gear {
        const TITLE: &'static str = "Gear";

        fn registered() -> &'static Registered<Self> {
            &GEARS
        }
    }

    #[test]
    fn what_a_type_refuses_by_itself_is_told_with_its_field() {
        GEARS.add(&Gear);
        let read = |teeth: u8| {
            let values = serde_json::json!({ "machine": { "gear": { "teeth": teeth } } });
            serde_path_to_error::deserialize::<_, std::collections::BTreeMap<String, Chosen<Gear>>>(values)
        };
        assert_eq!(read(4).unwrap()["machine"], Chosen::with(&Gear, Settings { teeth: 4 }));
        let error = read(3).unwrap_err();
        assert_eq!(error.path().to_string(), "machine.gear.teeth");
        assert_eq!(error.inner().to_string(), "an odd number of teeth");
    }
}
