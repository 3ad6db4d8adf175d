//! Metrics of a validation.

use std::sync::{Mutex, PoisonError};

use xrun_core::task::{HeldOutLoss, Metric};
use xrun_training::metrics::fields::FIELDS_MAX;

/// Figures of a report.
const FIELDS: &str = "Field accuracy";
const BY_FIELD: &str = "Accuracy of each field";
const FORM: &str = "Form of the answers";
const LOSS: &str = "Loss on held-out answers";

const EXACT_MATCH: &str = "exact_match";
const UNSEEN: &str = "field_accuracy_unseen";
const GREY: &str = "field_accuracy_grey";
/// Prefix of the metric of a field.
const FIELD: &str = "field_";

/// Metrics of free answers to held-out examples, unless their description says otherwise. A field is a leaf of the true
/// object.
pub const METRICS: &[Metric] = &[
    Metric::higher("field_accuracy", "%")
        .within(FIELDS, "free answers")
        .baseline(GREY)
        .about("Fields of the true objects that a free answer has right."),
    Metric::higher("field_accuracy_forced", "%")
        .within(FIELDS, "structure given")
        .about("Fields whose tokens are all the most probable ones after the true text before them (teacher forcing)."),
    Metric::higher(UNSEEN, "%")
        .within(FIELDS, "unseen pairs")
        .about("Fields of unseen pairs: combinations that no training example has."),
    Metric::lower(GREY, "%")
        .within(FIELDS, "grey images")
        .about("Fields with a grey image in place of each: the accuracy of the text alone, a baseline and not a goal."),
    Metric::higher("valid_json", "%")
        .within(FORM, "valid JSON")
        .about("Free answers that are one JSON object without duplicate keys."),
    Metric::higher("exact_object", "%")
        .within(FORM, "exact object")
        .about("Free answers with exactly the fields of the truth, all of them right."),
    Metric::higher(EXACT_MATCH, "%")
        .chance(0.0)
        .within(FORM, "exact text")
        .about("Free answers with the text of the truth."),
    Metric::lower("loss_value", "")
        .held_out_loss(HeldOutLoss::Mean)
        .within(LOSS, "values")
        .about("Mean loss of value tokens, masked or not, after the true text."),
    Metric::lower("loss_key", "").within(LOSS, "keys").about("Mean loss of key tokens."),
    Metric::lower("loss_structure", "").within(LOSS, "structure").about("Mean loss of the other tokens of JSON."),
    Metric::lower("loss_all", "").within(LOSS, "all").about("Mean loss of all tokens of the answer, masked or not."),
    Metric::lower("perplexity_value", "").about("Perplexity of value tokens; 1 is the minimum."),
];

/// Name of the metric of a field: `field_shape` for the JSON pointer `/shape`. Different pointers have different names.
pub fn field_metric_name(pointer: &str) -> String {
    let name = format!("{FIELD}{}", pointer.strip_prefix('/').unwrap_or(pointer));
    match METRICS.iter().any(|metric| metric.name == name) {
        // A field named `accuracy`; no pointer ends with `~`.
        true => name + "~",
        false => name,
    }
}

/// Metrics of fields by their pointers. A process can have [`FIELDS_MAX`] different ones; the others are left out.
pub fn field_metrics<'a>(pointers: impl IntoIterator<Item = &'a str>) -> Vec<Metric> {
    static NAMES: Mutex<InternedNames> = Mutex::new(InternedNames { known: Vec::new() });
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    names.metrics(pointers)
}

/// Metrics that the data allows. Without fields, answers are compared as texts, and the exact match selects the best checkpoint.
pub fn available(fields: &[String], has_unseen: bool, has_grey: bool) -> Vec<Metric> {
    let missing = |metric: &Metric| match metric.name {
        UNSEEN if !has_unseen => true,
        GREY if !has_grey => true,
        _ => metric.family == FIELDS && fields.is_empty(),
    };
    let mut metrics: Vec<Metric> = METRICS.iter().copied().filter(|metric| !missing(metric)).collect();
    if fields.is_empty() {
        metrics.sort_by_key(|metric| metric.name != EXACT_MATCH);
    }
    metrics.extend(field_metrics(fields.iter().map(String::as_str)));
    metrics
}

/// Interned names of field metrics: a [`Metric`] has a static name, and fields are known from the data alone.
struct InternedNames {
    known: Vec<&'static str>,
}

impl InternedNames {
    fn metrics<'a>(&mut self, pointers: impl IntoIterator<Item = &'a str>) -> Vec<Metric> {
        let metric = |name: &'static str| {
            Metric::higher(name, "%")
                .within(BY_FIELD, &name[FIELD.len()..])
                .about("Free answers that have this field right, among those whose truth has it.")
        };
        pointers.into_iter().filter_map(|pointer| self.intern(&field_metric_name(pointer))).map(metric).collect()
    }

    fn intern(&mut self, name: &str) -> Option<&'static str> {
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
    fn a_process_interns_a_limited_number_of_names() {
        let mut names = InternedNames { known: Vec::new() };
        let pointers: Vec<String> = (0..40).map(|field| format!("/f{field}")).collect();
        let mut named = || names.metrics(pointers.iter().map(String::as_str));
        assert_eq!(named(), named());
        assert_eq!(named().len(), FIELDS_MAX);
        assert_eq!((named()[3].name, named()[3].line, named()[3].family), ("field_f3", "f3", BY_FIELD));
    }

    #[test]
    fn different_fields_have_different_names() {
        let pointers = ["/shape", "/accuracy", "//accuracy", "/accuracy_grey", "/a/b", "/a~1b", "/a.b"];
        let mut names: Vec<String> = pointers.iter().map(|pointer| field_metric_name(pointer)).collect();
        assert_eq!(names[0], "field_shape");
        names.extend(METRICS.iter().map(|metric| metric.name.to_owned()));
        let different: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(different.len(), names.len(), "{names:?}");
    }

    #[test]
    fn metrics_that_the_data_does_not_allow_are_left_out() {
        let names = |fields: &[String], unseen, grey| {
            available(fields, unseen, grey).iter().map(|metric| metric.name).collect::<Vec<_>>()
        };
        let all = names(&["/shape".to_owned()], true, true);
        assert_eq!((all[0], all.last(), all.len()), ("field_accuracy", Some(&"field_shape"), METRICS.len() + 1));
        let fewer = names(&["/shape".to_owned()], false, false);
        assert_eq!(fewer.len(), all.len() - 2);
        let without_fields = names(&[], true, true);
        assert_eq!(without_fields[0], EXACT_MATCH);
        assert!(without_fields.iter().all(|name| !name.starts_with(FIELD)), "{without_fields:?}");
    }
}
