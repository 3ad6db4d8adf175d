use super::Experiment;
pub fn to_toml(e: &Experiment, _: Option<&std::collections::BTreeMap<String, String>>) -> String {
    toml::to_string(e).unwrap_or_default()
}
