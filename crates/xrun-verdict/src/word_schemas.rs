//! Schemas of the words of verdicts.

use crate::words::{TrainingVerdictWord, VerdictWord};

macro_rules! schemas {
    ($($kind:ident),+) => {$(
        /// The words are listed in the schema of the verdict only.
        impl schemars::JsonSchema for $kind {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($kind).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string" })
            }
        }

        impl $kind {
            /// Schema that lists all words.
            pub(crate) fn listed(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let word = |word: &Self| schemars::json_schema!({ "const": word, "description": word.word().meaning });
                let words: Vec<schemars::Schema> = Self::ALL.iter().map(word).collect();
                schemars::json_schema!({ "oneOf": words })
            }
        }
    )+};
}

schemas!(VerdictWord, TrainingVerdictWord);
