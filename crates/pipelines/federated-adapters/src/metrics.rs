//! Metrics of a validation.

use xrun_core::task::{HeldOutLoss, Metric};

/// Metrics of the server's model, unless their description says otherwise.
pub const METRICS: &[Metric] = &[
    Metric::higher("retrieval", "%").baseline("chance").within("retrieval", "pooled").about(
        "Held-out clips whose pooled output is nearest to the target of their own class, among the trained classes.",
    ),
    Metric::higher("retrieval_tokens", "%")
        .within("retrieval", "tokens")
        .about("Held-out clips whose tokens are nearest to the target of their own class, among the trained classes."),
    Metric::higher("retrieval_node_mean", "%")
        .within("retrieval", "mean of nodes")
        .about("Retrieval on the classes of each node; mean over nodes."),
    Metric::higher("retrieval_node_least", "%")
        .within("retrieval", "worst node")
        .about("Retrieval on the classes of each node; worst node."),
    Metric::higher("retrieval_local", "%").within("retrieval", "nodes alone").about(
        "Retrieval of the nodes' own models at the end of their last turns, on all held-out clips; mean over nodes.",
    ),
    Metric::constant("chance", "%").within("retrieval", "chance").about("Retrieval by guessing a trained class."),
    Metric::higher("retrieval_unheard", "%")
        .within("unheard", "unheard classes")
        .about("Retrieval on clips of untrained classes, among the targets of all classes."),
    Metric::constant("chance_unheard", "%").within("unheard", "chance").about("Retrieval by guessing any class."),
    Metric::lower("loss_pooled", "")
        .held_out_loss(HeldOutLoss::Mean)
        .within("loss", "pooled")
        .about("Loss of the pooled output on held-out clips."),
    Metric::lower("loss_tokens", "").within("loss", "tokens").about("Loss of the tokens on held-out clips."),
    Metric::lower("drift", "").about(
        "RMS distance of the nodes' models of the last round from their mean, relative to the norm of the mean.",
    ),
];
