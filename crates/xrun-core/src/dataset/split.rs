//! Splits of a data set.

/// Purpose of a sample, or of a class of them. No sample has two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Split {
    /// Trained on.
    Train,
    /// Validated on, and never trained on.
    Validation,
    /// Validated on by itself: combinations of attributes that training never shows. Few data sets have it.
    Unseen,
}

impl Split {
    /// All splits, in the order in which data sets count them.
    pub const ALL: [Self; 3] = [Self::Train, Self::Validation, Self::Unseen];
}
