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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::sweep::SweepMethod;
    use crate::settings::sections::{FailOn, TrainingFailOn};
    use crate::settings::signal::Signal;

    #[test]
    fn each_value_has_its_name_and_help() {
        let all = [
            possible_values(SweepMethod::as_str),
            possible_values(FailOn::as_str),
            possible_values(TrainingFailOn::as_str),
            possible_values(Signal::as_str),
        ];
        assert_eq!(all.each_ref().map(Vec::len), [5; 4]);
        assert!(all.iter().flatten().all(|value| value.get_help().is_some()));
    }
}
