//! What does a validation tell?

use std::sync::{Mutex, PoisonError};

use crate::metrics::fields::FIELDS_MAX;
use xrun_core::task::Metric;

/// Figures of a report.
const FIELDS: &str = "Field accuracy";
const BY_FIELD: &str = "Accuracy of each field";
const FORM: &str = "Form of the answers";
const LOSS: &str = "Loss on held-out answers";

const EXACT_MATCH: &str = "exact_match";
const UNSEEN: &str = "field_accuracy_unseen";
const GREY: &str = "field_accuracy_grey";
/// What the metric of a field begins with.
const FIELD: &str = "field_";

/// Of free answers to held-out examples, unless it says otherwise. A field is a leaf of the true object.
pub const METRICS: &[Metric] = &[
    Metric::higher("field_accuracy", "%")
        .within(FIELDS, "free answers")
        .about("Fields of the true objects that a free answer has right."),
    Metric::higher("field_accuracy_forced", "%").within(FIELDS, "structure given").about(
        "Fields whose tokens are all the likeliest ones after the true text before them: free answers with the structure given.",
    ),
    Metric::higher(UNSEEN, "%")
        .within(FIELDS, "unseen pairs")
        .about("Fields of the examples that are unlike all that were trained on."),
    Metric::lower(GREY, "%").within(FIELDS, "grey pictures").about(
        "Fields with a grey picture in place of each: what the text alone gives. It falls to that and no further; nothing \
         is to be made better by it.",
    ),
    Metric::higher("valid_json", "%")
        .within(FORM, "valid JSON")
        .about("Free answers that are one JSON object without a key that occurs twice."),
    Metric::higher("exact_object", "%")
        .within(FORM, "exact object")
        .about("Free answers with the same fields as the truth, all of them right."),
    Metric::higher(EXACT_MATCH, "%").within(FORM, "exact text").about("Free answers with the text of the truth."),
    Metric::lower("loss_value", "").within(LOSS, "values").about("A token of values, masked or not, after the true text."),
    Metric::lower("loss_key", "").within(LOSS, "keys").about("A token of keys."),
    Metric::lower("loss_structure", "").within(LOSS, "structure").about("A token of the rest of JSON."),
    Metric::lower("loss_all", "").within(LOSS, "all").about("A token of the answer, masked or not."),
    Metric::lower("perplexity_value", "").about("Of the tokens of values; 1 is certainty."),
];

/// The metric of a field, by its JSON pointer such as `/shape`: `field_shape`. Different pointers have different names.
pub fn name_of_field(pointer: &str) -> String {
    let name = format!("{FIELD}{}", pointer.strip_prefix('/').unwrap_or(pointer));
    match METRICS.iter().any(|metric| metric.name == name) {
        // A field that is called `accuracy`. No pointer ends so.
        true => name + "~",
        false => name,
    }
}

/// Metrics of these fields, by their pointers. A process has at most [`FIELDS_MAX`] different ones; of others there is none.
pub fn of_fields<'a>(pointers: impl IntoIterator<Item = &'a str>) -> Vec<Metric> {
    static NAMES: Mutex<Names> = Mutex::new(Names { known: Vec::new() });
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    names.metrics(pointers)
}

/// What can be measured on this data. Answers without fields are compared as texts, which then chooses the best checkpoint.
pub fn of_data(fields: &[String], has_unseen: bool, has_grey: bool) -> Vec<Metric> {
    let missing = |metric: &Metric| match metric.name {
        UNSEEN if !has_unseen => true,
        GREY if !has_grey => true,
        _ => metric.family == FIELDS && fields.is_empty(),
    };
    let mut metrics: Vec<Metric> = METRICS.iter().copied().filter(|metric| !missing(metric)).collect();
    if fields.is_empty() {
        metrics.sort_by_key(|metric| metric.name != EXACT_MATCH);
    }
    metrics.extend(of_fields(fields.iter().map(String::as_str)));
    metrics
}

/// Names that live as long as the process: a metric's is static, and those of fields are in the data.
struct Names {
    known: Vec<&'static str>,
}

impl Names {
    fn metrics<'a>(&mut self, pointers: impl IntoIterator<Item = &'a str>) -> Vec<Metric> {
        let metric = |name: &'static str| {
            Metric::higher(name, "%")
                .within(BY_FIELD, &name[FIELD.len()..])
                .about("Free answers that have this field right, of those whose truth has it.")
        };
        pointers.into_iter().filter_map(|pointer| self.name(&name_of_field(pointer))).map(metric).collect()
    }

    fn name(&mut self, name: &str) -> Option<&'static str> {
        if let Some(known) = self.known.iter().find(|known| **known == name) {
            return Some(known);
        }
        (self.known.len() < FIELDS_MAX).then(|| {
            let name: &'static str = String::leak(name.to_owned());
            self.known.push(name);
            name
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_names_for_a_few_fields_and_no_more() {
        let mut names = Names { known: Vec::new() };
        let pointers: Vec<String> = (0..40).map(|field| format!("/f{field}")).collect();
        let mut named = || names.metrics(pointers.iter().map(String::as_str));
        assert_eq!(named(), named());
        assert_eq!(named().len(), FIELDS_MAX);
        assert_eq!((named()[3].name, named()[3].line, named()[3].family), ("field_f3", "f3", BY_FIELD));
    }

    #[test]
    fn each_field_has_a_name_of_its_own() {
        let pointers = ["/shape", "/accuracy", "//accuracy", "/accuracy_grey", "/a/b", "/a~1b", "/a.b"];
        let mut names: Vec<String> = pointers.iter().map(|pointer| name_of_field(pointer)).collect();
        assert_eq!(names[0], "field_shape");
        names.extend(METRICS.iter().map(|metric| metric.name.to_owned()));
        let different: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(different.len(), names.len(), "{names:?}");
    }

    #[test]
    fn what_the_data_cannot_tell_is_not_promised() {
        let names = |fields: &[String], unseen, grey| {
            of_data(fields, unseen, grey).iter().map(|metric| metric.name).collect::<Vec<_>>()
        };
        let all = names(&["/shape".to_owned()], true, true);
        assert_eq!((all[0], all.last(), all.len()), ("field_accuracy", Some(&"field_shape"), METRICS.len() + 1));
        let fewer = names(&["/shape".to_owned()], false, false);
        assert_eq!(fewer.len(), all.len() - 2);
        let plain = names(&[], true, true);
        assert_eq!(plain[0], EXACT_MATCH);
        assert!(plain.iter().all(|name| !name.starts_with(FIELD)), "{plain:?}");
    }
}
