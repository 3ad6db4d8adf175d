//! Options whose values are those of a setting, by its schema.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::settings::signal::Signal;

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

/// Parser of a signal, with or without `SIG`, in upper or lower case.
pub fn signal() -> impl TypedValueParser<Value = Signal> {
    let aliases = ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"];
    let values = possible_values(Signal::as_str).into_iter().zip(aliases).map(|(value, alias)| value.alias(alias));
    PossibleValuesParser::new(values).try_map(|text| {
        let name = text.to_ascii_uppercase();
        serde_json::from_value(name.strip_prefix("SIG").unwrap_or(&name).into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::sweep::SweepMethod;
    use crate::settings::sections::{FailOn, TrainingFailOn};

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
