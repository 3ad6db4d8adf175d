//! Words of verdicts, each with all that follows from it: its order, text, label, tone, meaning and advice.
//!
//! Pages, the terminal, exit codes, the glossary and the schema of verdicts take these from here. A word that is added needs a row, and
//! the judgement that gives it.

/// Tone of a word: its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// In order.
    Good,
    /// Not decided, or still going on.
    Busy,
    /// A problem.
    Bad,
}

impl Tone {
    /// Class of the style sheet.
    pub fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Busy => "busy",
            Self::Bad => "bad",
        }
    }
}

/// Consequences of a word of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Word as text: `grew, then flat`.
    pub text: &'static str,
    /// Label of a badge: `memory grows`.
    pub label: &'static str,
    /// Tone of the text and of the badge.
    pub tone: Tone,
    /// Meaning, as a sentence.
    pub meaning: &'static str,
    /// Action for the reader.
    pub advice: &'static str,
}

/// Defines the words of a kind of verdict, from harmless to bad, each by its documentation and `tone, text, label, advice`.
macro_rules! words {
    ($(#[$about:meta])* $kind:ident {
        $($(#[doc = $meaning:literal])+ $word:ident: $tone:ident, $text:literal, $label:literal, $advice:literal;)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
        #[cfg_attr(feature = "clap", clap(rename_all = "snake_case"))]
        #[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
        pub enum $kind {
            $($(#[doc = $meaning])+ $word,)+
        }

        impl $kind {
            /// All words, from harmless to bad.
            pub const ALL: &[Self] = &[$(Self::$word),+];

            /// Consequences of the word.
            pub fn word(self) -> Word {
                match self {
                    $(Self::$word => Word {
                        text: $text,
                        label: $label,
                        tone: Tone::$tone,
                        meaning: concat!($($meaning),+).trim_ascii(),
                        advice: $advice,
                    },)+
                }
            }

            /// Word as text: `no growth found`.
            pub fn words(self) -> &'static str {
                self.word().text
            }
        }
    };
}

words! {
    /// Judgement on a series, ordered from harmless to bad.
    VerdictWord {
        /// The run is too short; the sentence says how many more steps are needed, and which buffer explains the growth so far
        Inconclusive: Busy, "inconclusive", "memory not decided", "run longer";
        /// Growth that matters is excluded: over the run as planned, less than 16 MiB (`growth_min`) or 1 % of the level; the sentence
        /// says how much is possible at most
        Bounded: Good, "bounded", "memory bounded", "nothing";
        /// Memory rose once or twice, abruptly, and not since
        Stepped: Good, "stepped", "memory bounded after a rise", "nothing";
        /// Memory grew and then stopped: the last three tenths of the run or more are flat; the sentence has the step and the owner
        GrewThenFlat: Good, "grew, then flat", "memory bounded after a rise", "nothing";
        /// A buffer grows towards a declared end within the limits: its cap, or all data used once; the sentence says after how many
        /// more steps
        Filling: Busy, "filling", "memory fills buffers", "nothing";
        /// No growth found, but growth that matters is not excluded, because the series is short or noisy; the sentence says how much
        /// would have gone unseen
        NoGrowthFound: Good, "no growth found", "no memory growth found", "run longer to exclude it";
        /// Memory rose, and neither growth nor a plateau can be shown yet; the sentence says how many more steps are needed, and since
        /// when memory has been level, if it has
        Suspect: Busy, "suspect", "memory may grow", "run longer";
        /// Memory still rises, clearly more slowly than before: a cache that warms up slowly, or a leak that slows down
        Slowing: Bad, "slowing", "memory still rises", "run longer, or as `growing`";
        /// Memory that is kept but not in use grows: RSS minus heap, pages of a pool minus its tensors, or the driver's number minus
        /// the pool. Causes are C libraries, memory of threads, fragmentation, and pages that are not returned
        Retained: Bad, "retained", "memory is not released", "`cleanup.every_steps`";
        /// Memory, or its peaks above a level floor, rise since a step and no cap explains it: a leak; the sentence says when which
        /// limit is reached
        Growing: Bad, "growing", "memory grows", "fix the leak in the named owner";
        /// A buffer exceeded its cap
        Exceeded: Bad, "exceeded", "memory exceeds its bound", "report it: a bug";
    }
}

words! {
    /// Judgement on the training of a run, ordered from good to bad; `inconclusive` is first.
    TrainingVerdictWord {
        /// Too few steps, validations or validation examples for a verdict
        Inconclusive: Busy, "inconclusive", "inconclusive", "run longer";
        /// The model is better than untrained and than chance, and no longer improving; the sentence says since when
        Improved: Good, "improved", "improved", "nothing";
        /// The model is better than untrained and than chance, and still improved at the end
        StillImproving: Good, "still improving", "still improving", "more steps may help";
        /// The model improved first and then became worse on held-out data: the metric fell, or the loss on held-out data rose
        Overfitting: Bad, "overfitting", "overfitting", "use the best checkpoint; train less, or with more data";
        /// The loss of training fell, but on held-out data the model is no better than chance or the baseline
        NoBetterThanChance: Bad, "no better than chance", "no better than chance", "check the data and the labels";
        /// Neither the loss nor the metric improved
        NoProgress: Bad, "no progress", "no progress", "check the data and the learning rate";
        /// The loss rose above its first value, rose again after a fall, or is not a number
        Diverged: Bad, "diverged", "diverged", "lower the learning rate";
    }
}

impl VerdictWord {
    /// Judgements that memory is at rest.
    pub const AT_REST: &[Self] = &[Self::Bounded, Self::Stepped, Self::GrewThenFlat];

    /// Returns `true` if growth has ended, or will end on its own.
    pub fn ends(self) -> bool {
        (Self::Bounded..=Self::Filling).contains(&self)
    }

    /// Returns `true` if the series rises.
    pub(crate) fn rises(self) -> bool {
        matches!(self, Self::Growing | Self::Slowing | Self::Suspect | Self::Filling | Self::Retained)
    }

    /// Returns `true` if the series rose and rests.
    pub(crate) fn rose_and_rests(self) -> bool {
        matches!(self, Self::GrewThenFlat | Self::Stepped)
    }

    /// Returns `true` if the series may be level from its begin on.
    pub(crate) fn may_be_level(self) -> bool {
        matches!(self, Self::Bounded | Self::NoGrowthFound | Self::Suspect)
    }
}
