//! Parts of a JSON text as slices of it, in their order and with repeated keys.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Maximum nesting, that of serde_json.
pub const DEPTH_MAX: usize = 127;

/// Value of a text.
pub enum Part<'a> {
    /// Keys, with their quotes, and values of an object.
    Object(Vec<(&'a RawValue, &'a RawValue)>),
    /// Items of a list.
    List(Vec<&'a RawValue>),
    /// String, number, `true`, `false` or `null`.
    Leaf,
}

/// Returns the parts of a text that begins with its value; `None` if it is not JSON.
pub fn part(text: &str) -> Option<Part<'_>> {
    match text.as_bytes().first()? {
        b'{' => serde_json::from_str(text).ok().map(|Members(members)| Part::Object(members)),
        b'[' => serde_json::from_str(text).ok().map(Part::List),
        _ => serde_json::from_str::<&RawValue>(text).ok().map(|_| Part::Leaf),
    }
}

struct Members<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfMap<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for OfMap<'a> {
            type Value = Members<'a>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'a>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(OfMap(PhantomData))
    }
}
