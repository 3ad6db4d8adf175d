pub struct Entry {
    pub experiment: String,
}
pub fn runs(_: &std::path::Path) -> Vec<Entry> {
    vec![]
}
pub fn find(_: &std::path::Path, t: &str) -> Result<std::path::PathBuf, String> {
    Ok(t.into())
}
