//! Tokenizer: byte-level BPE (Radford et al. 2019): GPT-2's own files, or merges that are learnt.
//!
//! Every text can be written in it and read back: what no merge covers stays single bytes. Text that looks like the end
//! of a text is not taken for it.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use tokenizers::models::bpe::{BPE, BpeTrainer, Merges, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::utils::parallelism;
use tokenizers::{AddedToken, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, Tokenizer as Inner};

use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Ledger, Policy, Registration};
use xrun_core::dataset::digest::digest_of_file;
use xrun_core::dataset::error::DataError;
use xrun_core::files::file;
use xrun_core::units::{Bytes, pluralize};

/// Token of GPT-2 for the end of a text.
pub const END_OF_TEXT: &str = "<|endoftext|>";
/// Maximum size of a vocabulary file.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes of a word that merges are learnt from; longer ones are cut into pieces of so many. Learning takes the square of a word's
/// length: a minute and more for one of 400 kB. No word of a language is as long, and no token: other texts have the same merges.
pub const WORD_BYTES_MAX: usize = 1024;
/// Bytes of different words that merges are learnt from; of later ones none is counted. No language has as many.
const WORDS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Vocabulary of the texts of a data set: GPT-2's files, or one that is learnt from the texts to train on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    /// GPT-2's `encoder.json` and `vocab.bpe`; `None` where the vocabulary is learnt.
    pub files: Option<[PathBuf; 2]>,
    /// Number of tokens to learn.
    pub size: usize,
}

impl Vocabulary {
    /// The vocabulary that the keys `encoder`, `merges` and `vocabulary_size` of a data set name.
    pub fn new(encoder: Option<&String>, merges: Option<&String>, size: usize) -> Self {
        Self { files: encoder.zip(merges).map(|(encoder, merges)| [encoder, merges].map(PathBuf::from)), size }
    }

    /// Reads the files, or learns a vocabulary from the words.
    ///
    /// # Errors
    /// The files are not a vocabulary, the words cannot be collected, or nothing can be learnt from them.
    pub fn tokenizer(&self, words: impl FnOnce() -> Result<Words, DataError>) -> Result<Tokenizer, DataError> {
        match &self.files {
            Some([encoder, merges]) => Tokenizer::read(encoder, merges),
            None => Tokenizer::learn(&words()?, self.size),
        }
    }

    /// Number of tokens in the files; `None` without files, or if they are not a vocabulary.
    pub fn size_of_files(&self) -> Option<usize> {
        let [encoder, _] = self.files.as_ref()?;
        let tokens: HashMap<String, u32> = serde_json::from_str(&text(encoder).ok()?).ok()?;
        Some(tokens.len())
    }

    /// Digests of the files by their key: other merges make other tokens of the same text.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn digests(&self) -> Result<Vec<(String, String)>, DataError> {
        let files = self.files.iter().flatten().zip(["encoder", "merges"]);
        files.map(|(path, key)| Ok((key.to_owned(), digest_of_file(path)?))).collect()
    }
}

/// Stateless tokenizer of byte-level BPE, shared by threads.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: Inner,
    size: usize,
    eos_token: u32,
    /// Bytes of text of each token.
    bytes: Vec<u32>,
    /// Notes about the words that it was learnt from.
    note: Option<String>,
    /// Number of the words that it was learnt from, and bytes that learning took at most; 0 for a vocabulary of files.
    learning: Cap,
}

impl Tokenizer {
    /// From GPT-2's `encoder.json` and `vocab.bpe`.
    pub fn read(encoder: &Path, merges: &Path) -> Result<Self, DataError> {
        let vocabulary = vocabulary(&text(encoder)?, encoder)?;
        let list = merge_list(&text(merges)?, merges, &vocabulary, encoder)?;
        let eos_token = vocabulary[END_OF_TEXT];
        let size = vocabulary.len();
        let vocabulary: Vocab = vocabulary.into_iter().collect();
        let model = BPE::builder().vocab_and_merges(vocabulary, list).cache_capacity(0).build();
        let model = model.map_err(|error| DataError::file(merges, format!("does not fit the encoder: {error}")))?;
        Ok(Self::with(around(model), size, eos_token))
    }

    /// Learns merges from words, until there are `size` tokens or nothing to merge. The same words give the same tokens,
    /// whatever their order.
    pub fn learn(words: &Words, size: usize) -> Result<Self, DataError> {
        let trainer = BpeTrainer::builder()
            .vocab_size(size)
            .min_frequency(2)
            .show_progress(false)
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .special_tokens(vec![AddedToken::from(END_OF_TEXT, true)])
            .build();
        let learnt = |error: tokenizers::Error| DataError::content(format!("no vocabulary can be learnt: {error}"));
        let mut model = BPE::builder().cache_capacity(0).build().map_err(learnt)?;
        // Its threads would be Rayon's, which the run has not started yet: with another number than `limits.threads`, and a panic
        // where the system gives none.
        parallelism::set_parallelism(false);
        let counted = words.counts.iter().map(|(word, count)| (word.as_str().into(), *count)).collect();
        trainer.do_train(&counted, &mut model).map_err(learnt)?;
        let inner = around(model);
        let eos_token =
            inner.token_to_id(END_OF_TEXT).ok_or_else(|| DataError::content("no end of text was learnt"))?;
        let size = inner.get_vocab_size(false);
        Ok(Self { note: words.note(), learning: words.learning(size), ..Self::with(inner, size, eos_token) })
    }

    fn with(inner: Inner, size: usize, eos_token: u32) -> Self {
        // A letter of GPT-2's alphabet is a byte. The end of a text is none of it.
        let bytes =
            |token: u32| inner.id_to_token(token).filter(|_| token != eos_token).map_or(0, |text| text.chars().count());
        let bytes = (0..size as u32).map(|token| bytes(token) as u32).collect();
        Self { inner, size, eos_token, bytes, note: None, learning: Cap { items: 0, bytes: 0 } }
    }

    /// Enters what learning took into the ledger, as a buffer that is empty again; `None` for a vocabulary of files.
    pub fn register_learning(&self, ledger: &Ledger) -> Option<(Buffer, Registration)> {
        let buffer = Buffer::new("vocabulary_learning", Policy::Refuse, self.learning)
            .because("words of the training texts and tables of their pairs, before the first step");
        let registration = (self.learning.items > 0).then(|| buffer.register_opened(ledger, 0, 0))?;
        Some((buffer, registration))
    }

    /// Tokens in the vocabulary.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Notes for people about the words that it was learnt from.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The token that ends a text.
    pub fn eos_token(&self) -> u32 {
        self.eos_token
    }

    /// The tokens of a text, without the one that ends it.
    ///
    /// # Errors
    /// The text cannot be tokenised.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        let encoded = self.inner.encode_fast(text, false);
        let encoded = encoded.map_err(|error| DataError::content(format!("a text cannot be tokenised: {error}")))?;
        Ok(encoded.get_ids().to_vec())
    }

    /// Bytes of text of a token; 0 for the end of text.
    pub fn bytes(&self, token: u32) -> usize {
        self.bytes.get(token as usize).map_or(0, |bytes| *bytes as usize)
    }

    /// The vocabulary as Hugging Face's `vocab.json` and `merges.txt` have it.
    pub fn files(&self) -> (Vec<u8>, Vec<u8>) {
        let mut vocabulary: Vec<(String, u32)> = self.inner.get_vocab(false).into_iter().collect();
        vocabulary.sort_by_key(|(_, number)| *number);
        let tokens: serde_json::Map<String, serde_json::Value> =
            vocabulary.into_iter().map(|(text, number)| (text, number.into())).collect();
        let mut merges = String::from("#version: 0.2\n");
        // The model shows its merges to serde alone.
        let model = serde_json::to_value(self.inner.get_model()).unwrap_or_default();
        for pair in model["merges"].as_array().into_iter().flatten() {
            let text = |at: usize| pair[at].as_str().unwrap_or_default();
            merges += &format!("{} {}\n", text(0), text(1));
        }
        (serde_json::to_vec(&tokens).unwrap_or_default(), merges.into_bytes())
    }

    /// Text of tokens; bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> String {
        let known: Vec<u32> = tokens.iter().copied().filter(|token| *token != self.eos_token).collect();
        self.inner.decode(&known, false).unwrap_or_default()
    }
}

/// Counts of words, from which merges are learnt. Each different word is held once, however long
/// the texts are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Words {
    counts: HashMap<String, u64>,
    /// Bytes of the different words.
    bytes: usize,
    /// Number of words that were cut.
    cut: u64,
}

impl Words {
    /// Counts the words of a text that occurs `times` times.
    pub fn add(&mut self, text: &str, times: u64) -> Result<(), DataError> {
        if times == 0 {
            return Ok(());
        }
        let mut split = PreTokenizedString::from(text);
        let failed = |error| DataError::content(format!("a text cannot be cut into words: {error}"));
        splitter().pre_tokenize(&mut split).map_err(failed)?;
        for (word, _, _) in split.get_splits(OffsetReferential::Original, OffsetType::Byte) {
            let mut rest = word;
            // A letter of GPT-2's alphabet is a byte, and takes up to two.
            while let Some((end, _)) = rest.char_indices().nth(WORD_BYTES_MAX).filter(|_| rest.len() > WORD_BYTES_MAX) {
                self.cut += u64::from(rest.len() == word.len());
                self.count(&rest[..end], times);
                rest = &rest[end..];
            }
            self.count(rest, times);
        }
        Ok(())
    }

    fn count(&mut self, word: &str, times: u64) {
        match self.counts.get_mut(word) {
            Some(count) => *count += times,
            None if self.bytes + word.len() > WORDS_BYTES_MAX => {}
            None => {
                self.bytes += word.len();
                self.counts.insert(word.to_owned(), times);
            }
        }
    }

    /// Number of words, and an upper bound of the bytes that learning `size` tokens takes, with the words themselves.
    fn learning(&self, size: usize) -> Cap {
        /// A letter in the trainer's words, and the word in the list of each of its pairs.
        const LETTER: usize = 64;
        /// A word in a hash table, which may be half empty.
        const WORD: usize = 160;
        /// A pair of letters with its count, its list of words and its place in the queue.
        const PAIR: usize = 256;
        let pairs = self.bytes.min(1 << 16) + size;
        let words = self.counts.capacity() * (size_of::<(String, u64)>() + 1) + self.bytes;
        let trainer = self.bytes * LETTER + self.counts.len() * WORD + pairs * PAIR;
        Cap { items: self.counts.len() as u64, bytes: (words + trainer) as u64 }
    }

    /// A note for people about words that were cut; `None` where none was.
    pub fn note(&self) -> Option<String> {
        let words = pluralize(self.cut, "word");
        let (are, size) = (if self.cut == 1 { "is" } else { "are" }, Bytes(WORD_BYTES_MAX as u64));
        let it = if self.cut == 1 { "it is" } else { "they are" };
        (self.cut > 0).then(|| {
            format!("the text has {words} that {are} longer than {size}; {it} cut for the vocabulary to be learnt")
        })
    }
}

/// Splits as GPT-2 does: before spaces, at marks, between letters and digits.
fn splitter() -> ByteLevel {
    ByteLevel::new(false, true, true)
}

fn around(model: BPE) -> Inner {
    let mut inner = Inner::new(model);
    inner.with_pre_tokenizer(Some(splitter()));
    inner.with_decoder(Some(splitter()));
    inner
}

fn text(path: &Path) -> Result<String, DataError> {
    let bytes = file::bytes(path, FILE_BYTES_MAX);
    let bytes = bytes.map_err(|error| DataError::file(path, format!("cannot be read: {error}")))?;
    String::from_utf8(bytes).map_err(|error| DataError::file(path, format!("is not UTF-8: {error}")))
}

/// `encoder.json`: an object of token texts and their numbers, which begin at 0 and leave none out.
fn vocabulary(text: &str, path: &Path) -> Result<BTreeMap<String, u32>, DataError> {
    let wrong = |message: String| Err(DataError::file(path, format!("is not GPT-2's encoder: {message}")));
    let tokens: BTreeMap<String, u32> = match serde_json::from_str(text) {
        Ok(tokens) => tokens,
        Err(error) => return wrong(format!("{error}; expected an object of texts and numbers")),
    };
    let mut numbers: Vec<u32> = tokens.values().copied().collect();
    numbers.sort_unstable();
    if let Some((at, found)) = numbers.iter().enumerate().find(|(at, number)| *at != **number as usize) {
        return wrong(format!("its {} numbers must be 0, 1, 2, …; where {at} should be, {found} is", numbers.len()));
    }
    if !tokens.contains_key(END_OF_TEXT) {
        return wrong(format!("it has no \"{END_OF_TEXT}\""));
    }
    let mut bytes: Vec<char> = ByteLevel::alphabet().into_iter().collect();
    bytes.sort_unstable();
    match bytes.into_iter().find(|byte| !tokens.contains_key(byte.to_string().as_str())) {
        Some(byte) => wrong(format!("it has no token for the byte that GPT-2 writes as \"{byte}\"")),
        None => Ok(tokens),
    }
}

/// `vocab.bpe`: a line with the version, then two texts a line, most frequent first.
fn merge_list(
    text: &str,
    path: &Path,
    vocabulary: &BTreeMap<String, u32>,
    encoder: &Path,
) -> Result<Merges, DataError> {
    let mut list = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() || (number == 0 && line.starts_with("#version")) {
            continue;
        }
        let wrong = |message: String| Err(DataError::file(path, format!("line {}: {message}", number + 1)));
        let Some((left, right)) = line.split_once(' ').filter(|(_, right)| !right.contains(' ')) else {
            return wrong(format!("expected two texts with a space between them, found \"{line}\""));
        };
        let whole = format!("{left}{right}");
        if let Some(unknown) = [left, right, &whole].into_iter().find(|part| !vocabulary.contains_key(*part)) {
            return wrong(format!("\"{unknown}\" is not in {}; the two files belong together", encoder.display()));
        }
        list.push((left.to_owned(), right.to_owned()));
    }
    Ok(list)
}

#[cfg(test)]
#[path = "tokenizer_tests.rs"]
mod tests;
