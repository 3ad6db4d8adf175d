pub fn schema() -> serde_json::Value {
    serde_json::Value::Null
}
pub fn result_schemas() -> Vec<(&'static str, serde_json::Value)> {
    vec![]
}
