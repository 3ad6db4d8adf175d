use crate::problem::Problems;
pub fn text(p: &Problems, _: bool) -> String {
    p.to_string()
}
pub fn json(_: &Problems) -> serde_json::Value {
    serde_json::Value::Null
}
