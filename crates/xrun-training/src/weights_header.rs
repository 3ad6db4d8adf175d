//! Check of a file of weights by its header, so that a file that a run would refuse is refused before the data is opened.

use std::collections::BTreeMap;
use std::path::Path;

use super::gpt2_shape::Gpt2Shape;
use xrun_core::files::tensors::{self, TensorInfo};
use xrun_core::problem::{Problem, Problems};
use xrun_core::units::pluralize;
use xrun_data::tokenizer::Vocabulary;

/// Shapes of tensors by their names in Hugging Face's layout.
type Shapes = BTreeMap<String, Vec<usize>>;

/// Layout of a file, as the model reads it.
pub struct WeightsLayout {
    /// Beginning that names of the whole model have, and those of its part alone have not.
    prefix: &'static str,
    /// Tensors that the model lacks and that are no error.
    ignored: fn(&str) -> bool,
    /// Tensors that the model needs.
    shapes: Shapes,
    /// Keys that must agree with the file.
    keys: &'static str,
    /// Sizes that the vocabulary may have, the first dimension of the token embedding; `None` where there is none.
    vocabulary: Option<(usize, usize)>,
}

/// Token embedding of GPT-2.
const EMBEDDING: &str = "wte.weight";
/// Tokens of a vocabulary that is learnt from texts, at least: the bytes and the end of text.
const LEARNT_MIN: usize = 257;
/// Hidden features of the MLP of a block over the features of a token.
const MLP_RATIO: usize = 4;

impl WeightsLayout {
    /// GPT-2 with the vocabulary of a data set.
    pub fn gpt2(shape: &Gpt2Shape, vocabulary: &Vocabulary) -> Self {
        let (width, inner) = (shape.hidden_size, MLP_RATIO * shape.hidden_size);
        let sizes = match vocabulary.files {
            Some(_) => vocabulary.size_of_files().map(|size| (size, size)),
            None => Some((LEARNT_MIN, vocabulary.size)),
        };
        // Files that are no vocabulary are an error of their own.
        let (least, most) = sizes.unwrap_or((0, usize::MAX));
        let mut shapes = Shapes::new();
        let mut add = |name: String, shape: Vec<usize>| drop(shapes.insert(name, shape));
        add(EMBEDDING.into(), vec![most, width]);
        add("wpe.weight".into(), vec![shape.context_length, width]);
        for block in 0..shape.layers {
            for (name, from, to) in [
                ("attn.c_attn", width, 3 * width),
                ("attn.c_proj", width, width),
                ("mlp.c_fc", width, inner),
                ("mlp.c_proj", inner, width),
            ] {
                add(format!("h.{block}.{name}.weight"), vec![from, to]);
                add(format!("h.{block}.{name}.bias"), vec![to]);
            }
            for name in ["ln_1", "ln_2"] {
                norm(&mut add, &format!("h.{block}.{name}"), width);
            }
        }
        norm(&mut add, "ln_f", width);
        let ignored = |name: &str| {
            name == "lm_head.weight"
                || [".attn.bias", ".attn.masked_bias"].iter().any(|end| name.ends_with(end))
                || [".lora.", ".scale_logarithms."].iter().any(|own| name.contains(own))
        };
        let keys = "`layers`, `hidden_size`, `context_length` and the data set's `encoder`";
        Self { prefix: "transformer.", ignored, shapes, keys, vocabulary: Some((least, most)) }
    }

    /// Vision transformer without its class token.
    pub fn vit(width: usize, layers: usize, patch_size: usize, patches: usize) -> Self {
        let mut shapes = encoder(width, layers, [3, patch_size]);
        shapes.insert("embeddings.position_embeddings".into(), vec![1, patches + 1, width]);
        let ignored = |name: &str| {
            name == "embeddings.cls_token" || name.starts_with("pooler.") || name.starts_with("classifier.")
        };
        let keys = "`patch_size`, `vision_hidden_size`, `vision_layers` and the data set's `image_size`";
        Self { prefix: "vit.", ignored, shapes, keys, vocabulary: None }
    }

    /// Audio spectrogram transformer.
    pub fn ast(width: usize, layers: usize, patch_size: usize, tokens: usize) -> Self {
        let mut shapes = encoder(width, layers, [1, patch_size]);
        for (name, tokens) in [("cls_token", 1), ("distillation_token", 1), ("position_embeddings", tokens)] {
            shapes.insert(format!("embeddings.{name}"), vec![1, tokens, width]);
        }
        let keys = "`bands`, `frames`, `patch_size`, `stride`, `hidden_size` and `layers`";
        let ignored = |name: &str| name.starts_with("classifier.");
        Self { prefix: "audio_spectrogram_transformer.", ignored, shapes, keys, vocabulary: None }
    }

    /// Adds a problem at `key` if the file at `path` does not fit.
    pub fn check(&self, key: &str, path: &str, problems: &mut Problems) {
        if !Path::new(path).is_file() {
            return; // a problem of its own
        }
        let found = tensors::read_header(Path::new(path)).and_then(|found| self.compare(&found));
        if let Err(message) = found {
            let problem = Problem::new(key, format!("{path} {message}"));
            problems.add(problem.help(format!("{} must be those of the file", self.keys)).as_disk_problem());
        }
    }

    fn compare(&self, found: &BTreeMap<String, TensorInfo>) -> Result<(), String> {
        let found: BTreeMap<&str, &[usize]> = found
            .iter()
            .map(|(name, about)| (name.strip_prefix(self.prefix).unwrap_or(name), about.shape.as_slice()))
            .collect();
        for (name, shape) in &found {
            match self.shapes.get(*name) {
                Some(expected) if !self.fits(name, expected, shape) => {
                    return Err(format!(
                        "has `{name}` of shape {shape:?}, the model {}",
                        self.expected(name, expected)
                    ));
                }
                None if !(self.ignored)(name) => return Err(format!("has the tensor `{name}`, which the model lacks")),
                _ => {}
            }
        }
        let mut missing = self.shapes.keys().filter(|name| !found.contains_key(name.as_str()));
        match missing.next() {
            Some(first) => {
                let others = match missing.count() as u64 {
                    0 => String::new(),
                    others => format!(" and {}", pluralize(others, "other tensor")),
                };
                Err(format!("lacks the tensor `{first}`{others}"))
            }
            None => Ok(()),
        }
    }

    fn fits(&self, name: &str, expected: &[usize], found: &[usize]) -> bool {
        match (self.vocabulary.filter(|_| name == EMBEDDING), found) {
            (Some((least, most)), [tokens, width]) => (least..=most).contains(tokens) && *width == expected[1],
            _ => expected == found,
        }
    }

    fn expected(&self, name: &str, expected: &[usize]) -> String {
        match self.vocabulary.filter(|_| name == EMBEDDING) {
            Some((least, most)) if least != most => format!(
                "[{least} to {most}, {}] with a vocabulary that is learnt (`vocabulary_size`); name that of the file with \
                 `encoder` and `merges`",
                expected[1]
            ),
            Some((tokens, _)) => format!("{expected:?}: the vocabulary has {tokens} tokens"),
            None => format!("{expected:?}"),
        }
    }
}

fn norm(add: &mut impl FnMut(String, Vec<usize>), name: &str, width: usize) {
    ["weight", "bias"].iter().for_each(|part| add(format!("{name}.{part}"), vec![width]));
}

/// Blocks, last normalisation and patches of a vision transformer and its descendants.
fn encoder(width: usize, layers: usize, [channels, patch_size]: [usize; 2]) -> Shapes {
    let inner = MLP_RATIO * width;
    let mut shapes = Shapes::new();
    let mut add = |name: String, shape: Vec<usize>| drop(shapes.insert(name, shape));
    let patches = "embeddings.patch_embeddings.projection";
    add(format!("{patches}.weight"), vec![width, channels, patch_size, patch_size]);
    add(format!("{patches}.bias"), vec![width]);
    for block in (0..layers).map(|block| format!("encoder.layer.{block}")) {
        for (name, outputs, inputs) in [
            ("attention.attention.query", width, width),
            ("attention.attention.key", width, width),
            ("attention.attention.value", width, width),
            ("attention.output.dense", width, width),
            ("intermediate.dense", inner, width),
            ("output.dense", width, inner),
        ] {
            add(format!("{block}.{name}.weight"), vec![outputs, inputs]);
            add(format!("{block}.{name}.bias"), vec![outputs]);
        }
        for name in ["layernorm_before", "layernorm_after"] {
            norm(&mut add, &format!("{block}.{name}"), width);
        }
    }
    norm(&mut add, "layernorm", width);
    shapes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(name: &str) -> BTreeMap<String, TensorInfo> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/reference");
        tensors::read_header(&directory.join(name)).unwrap()
    }

    /// Files of `transformers` (`tests/reference/*.py`).
    #[test]
    fn files_of_transformers_fit_the_model_that_they_are_of_and_no_other() {
        let learnt = Vocabulary { files: None, size: 512 };
        let shape = Gpt2Shape { layers: 2, heads: 2, hidden_size: 8, context_length: 8 };
        let gpt2 = |shape: &Gpt2Shape, tokens: usize| {
            let mut layout = WeightsLayout::gpt2(shape, &learnt);
            layout.vocabulary = Some((tokens, tokens));
            layout.shapes.insert(EMBEDDING.into(), vec![tokens, shape.hidden_size]);
            layout
        };
        let found = |layout: WeightsLayout, file: &str| layout.compare(&reference(file)).err();
        assert_eq!(found(gpt2(&shape, 11), "gpt2_tiny.safetensors"), None);
        assert_eq!(found(WeightsLayout::vit(8, 2, 4, 16), "vit_tiny.safetensors"), None);
        assert_eq!(found(WeightsLayout::ast(8, 2, 4, 14), "ast_tiny.safetensors"), None);
        for (layout, file, part) in [
            (gpt2(&shape, 12), "gpt2_tiny", "`wte.weight` of shape [11, 8], the model [12, 8]"),
            (gpt2(&Gpt2Shape { layers: 1, ..shape }, 11), "gpt2_tiny", "has the tensor `h.1.attn.c_attn.bias`, which"),
            (gpt2(&Gpt2Shape { layers: 3, ..shape }, 11), "gpt2_tiny", "`h.2.attn.c_attn.bias` and 11 other tensors"),
            (gpt2(&Gpt2Shape { context_length: 9, ..shape }, 11), "gpt2_tiny", "`wpe.weight` of shape [8, 8]"),
            (WeightsLayout::gpt2(&shape, &learnt), "gpt2_tiny", "[257 to 512, 8]"),
            (
                WeightsLayout::vit(8, 2, 4, 9),
                "vit_tiny",
                "position_embeddings` of shape [1, 17, 8], the model [1, 10, 8]",
            ),
            (WeightsLayout::vit(8, 2, 8, 16), "vit_tiny", "[8, 3, 4, 4]"),
            (WeightsLayout::ast(8, 3, 4, 14), "ast_tiny", "lacks the tensor `encoder.layer.2"),
            (WeightsLayout::ast(12, 2, 4, 14), "ast_tiny", "the model ["),
        ] {
            let message = found(layout, &format!("{file}.safetensors")).unwrap();
            assert!(message.contains(part), "{message}");
        }
    }
}
