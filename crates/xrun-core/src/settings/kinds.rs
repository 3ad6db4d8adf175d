//! `kinds!`: a closed choice between kinds, selected by the name of a table.
//!
//! `[optimizer.adamw]` is an externally tagged enum, which gives exact messages and spans and a schema that editors
//! understand. The macro generates the enum and its schema (one property per kind, exactly one of them).

/// `kinds! { pub enum Optimizer { "adamw" => AdamW(AdamW), … } }`
#[macro_export]
macro_rules! kinds {
    (
        $(#[$about:meta])*
        pub enum $name:ident { $($kind:literal => $variant:ident($settings:ty)),+ $(,)? }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $(#[doc = concat!("The table `", $kind, "`.")] #[serde(rename = $kind)] $variant($settings),)+
        }

        impl $name {
            /// Names of all tables.
            pub const KINDS: &[&str] = &[$($kind),+];

            /// Name of the table in the file.
            pub fn kind(&self) -> &'static str {
                match self { $(Self::$variant(_) => $kind,)+ }
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let mut properties = serde_json::Map::new();
                $(properties.insert($kind.into(), generator.subschema_for::<$settings>().to_value());)+
                $crate::settings::kinds::one_of(properties)
            }
        }
    };
}

pub use kinds;

/// Schema of a table with exactly one of these properties.
pub fn one_of(properties: serde_json::Map<String, serde_json::Value>) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
        "minProperties": 1,
        "maxProperties": 1
    })
}
