use super::Experiment;
use crate::problem::*;
use std::collections::BTreeMap;
use std::path::Path;
pub struct Checked {
    pub experiment: Experiment,
    pub origins: BTreeMap<String, String>,
    pub text: Vec<u8>,
    pub files: Vec<std::path::PathBuf>,
}
pub fn read(path: &Path, o: &[String], _: impl Iterator<Item = (String, String)>) -> Result<Checked, Problems> {
    let mut t = std::fs::read_to_string(path).map_err(|e| {
        let mut p = Problems::default();
        p.add(Problem::new("", e.to_string()));
        p
    })?;
    let text = t.clone().into_bytes();
    let mut v: toml::Table = t.parse().map_err(|e: toml::de::Error| {
        let mut p = Problems::default();
        p.add(Problem::new("", e.to_string()));
        p
    })?;
    for s in o {
        let (k, val) = s.split_once('=').unwrap_or((s, ""));
        let parts: Vec<&str> = k.split('.').collect();
        let value: toml::Value = format!("a={val}")
            .parse::<toml::Table>()
            .map(|t| t["a"].clone())
            .unwrap_or(toml::Value::String(val.into()));
        let mut tab = &mut v;
        for p in &parts[..parts.len() - 1] {
            tab = tab.entry(p.to_string()).or_insert(toml::Value::Table(Default::default())).as_table_mut().unwrap();
        }
        tab.insert(parts[parts.len() - 1].into(), value);
    }
    t = v.to_string();
    let mut e: Experiment = toml::from_str(&t).map_err(|e| {
        let mut p = Problems::default();
        p.add(Problem::new("", e.to_string()));
        p
    })?;
    if e.experiment.name.is_empty() {
        e.experiment.name = path.file_stem().map_or(String::new(), |s| s.to_string_lossy().into_owned());
    }
    Ok(Checked { experiment: e, origins: BTreeMap::new(), text, files: vec![] })
}
pub fn read_resolved(path: &Path, o: &[String]) -> Result<Checked, Problems> {
    read(path, o, std::iter::empty())
}
