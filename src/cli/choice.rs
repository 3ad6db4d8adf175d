//! Options whose values are those of a setting, by its schema.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

/// The values of a setting, by their names in a file, with their help.
pub fn possible_values<T: JsonSchema + DeserializeOwned>(name: fn(T) -> &'static str) -> Vec<PossibleValue> {
    let schema = schemars::schema_for!(T).to_value();
    let variants = schema["oneOf"].as_array().cloned().unwrap_or_default();
    let value = |variant: serde_json::Value| {
        let help = variant["description"].as_str()?.trim_end_matches('.').replace('\n', " ");
        let value = serde_json::from_value(variant["const"].clone()).ok()?;
        Some(PossibleValue::new(name(value)).help(help))
    };
    variants.into_iter().filter_map(value).collect()
}

/// Parser of a setting.
pub fn parser<T>(name: fn(T) -> &'static str) -> impl TypedValueParser<Value = T>
where
    T: JsonSchema + DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(possible_values(name)).try_map(|text| serde_json::from_value(text.into()))
}
