pub fn template(_: &str) -> Option<String> {
    None
}
