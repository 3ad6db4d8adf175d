//! What does a validation tell?

use xrun_core::task::Metric;

/// Of the model that the server has, unless it says otherwise.
pub const METRICS: &[Metric] = &[
    Metric::higher("retrieval", "%")
        .within("retrieval", "pooled")
        .about("Held-out clips whose pooled output is nearest to the target of their own class, among the classes that are learnt."),
    Metric::higher("retrieval_tokens", "%").within("retrieval", "tokens").about("The same by the tokens."),
    Metric::higher("retrieval_node_mean", "%")
        .within("retrieval", "mean of nodes")
        .about("Each node's own classes alone; the mean over nodes."),
    Metric::higher("retrieval_node_least", "%")
        .within("retrieval", "worst node")
        .about("Each node's own classes alone; the worst node."),
    Metric::higher("retrieval_local", "%")
        .within("retrieval", "nodes alone")
        .about("The nodes' own models at the end of their last turns, on all held-out clips; the mean over nodes."),
    Metric::constant("chance", "%").within("retrieval", "chance").about("What guessing one of the classes would give."),
    Metric::higher("retrieval_unheard", "%")
        .within("unheard", "unheard classes")
        .about("Clips of classes that no training had, among the targets of all classes."),
    Metric::constant("chance_unheard", "%").within("unheard", "chance").about("What guessing would give there."),
    Metric::lower("loss_pooled", "").within("loss", "pooled").about("The loss of the pooled output on held-out clips."),
    Metric::lower("loss_tokens", "").within("loss", "tokens").about("The loss of the tokens on held-out clips."),
    Metric::lower("drift", "")
        .about("How far the nodes' models of the last round lay from their mean, as a fraction of its length."),
];
