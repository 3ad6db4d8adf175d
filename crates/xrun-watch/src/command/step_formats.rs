//! Formats in which trainers print their progress, and the reading of a line in one of them.

use std::sync::LazyLock;

use regex_lite::{Captures, Regex};

/// Progress that one line shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Name of the format, for people.
    pub format: &'static str,
    /// True for a bar, whose number counts completed steps.
    pub is_bar: bool,
    /// Title of a bar without numbers, or the name of the number in a line.
    pub title: String,
    /// Number of the step; `None` for a line that has only a loss.
    pub step: Option<u64>,
    pub total: Option<u64>,
    /// Number of the epoch, where the line has one.
    pub epoch: Option<u64>,
    /// True if a loss or a word shows that it is a training.
    pub is_training: bool,
    /// Loss, finite or not.
    pub loss: Option<f64>,
    pub learning_rate: Option<f64>,
}

/// Format of a line: an expression with the groups `step`, and optionally `title`, `total`, `epoch`, `loss` and `rest`.
struct Format {
    name: &'static str,
    is_bar: bool,
    /// Text of every line in the format, which is cheaper to look for than the expression.
    needs: &'static str,
    expression: &'static str,
}

const fn bar(name: &'static str, needs: &'static str, expression: &'static str) -> Format {
    Format { name, is_bar: true, needs, expression }
}

const fn line(name: &'static str, needs: &'static str, expression: &'static str) -> Format {
    Format { name, is_bar: false, needs, expression }
}

const EPOCH_AND_STEP: &str = "lines with an epoch and a step";

/// Lines with a loss and no number of their own, which are counted where nothing else shows a step.
pub const LOSSES: &str = "lines with losses, each counted as a step";

/// Formats with the number at a fixed place; the first one that fits counts. `NUM` is a number, also of thousands.
const FORMATS: &[Format] = &[
    bar("tqdm", "%|", r"^(?<title>.*?)\s*\d+%\|[^|]*\|\s*(?<step>NUM)/(?<total>NUM) \[(?<rest>.*)"),
    bar("tqdm", " [", r"^(?:(?<title>.*?): )?\s*(?<step>NUM)(?:it| ?[A-Za-z]+) \[\d+:\d\d(?<rest>.*)"),
    bar("Ultralytics", "% ", r"^(?<title>.*?)\s*\d+% [━╸╺─]+ (?<step>NUM)/(?<total>NUM) (?<rest>.*)"),
    bar("rich", "━", r"^(?<title>[^━]*?)\s*━[━╸╺ ]*\s(?:\d+%\s+)?(?<step>\d+)/(?<total>\d+)\s+(?<rest>.*)"),
    bar("Keras", "/", r"^\s*(?<step>\d+)/(?<total>\d+|Unknown)\s+(?<rest>(?:━|\[[=>.]|-? ?\d+m?s ).*)"),
    bar(
        "fastai",
        "% [",
        r"^(?<title>[^|]*)\|[^|]*\| \S+% \[(?<step>\d+)/(?<total>\d+) \S+<\S+ (?<loss>[\d.]+)(?<rest>.*)",
    ),
    bar("XGBoost", "]\t", r"^\[(?<step>\d+)\]\t(?<rest>[^\t:]+:.*)"),
    bar("alive-progress", "%]", r"^(?<title>[^|]*)\|[^|]*\| (?<step>\d+)/(?<total>\d+) \[\d+%\](?<rest>.*)"),
    line(
        EPOCH_AND_STEP,
        "]",
        r"(?i)epoch(?:\(train\))?:?\s*\[\s*(?<epoch>\d+)(?:/\d+)?\]\s*\[\s*(?<step>\d+)/(?<total>\d+)\](?<rest>.*)",
    ),
    line(
        EPOCH_AND_STEP,
        "]",
        r"(?i)epoch:?\s*\[\s*(?<epoch>\d+)(?:/\d+)?\]\s+\[\s*(?<step>\d+)/(?<total>\d+)\](?<rest>.*)",
    ),
    line(
        EPOCH_AND_STEP,
        "%)]",
        r"(?i)train:\s*(?<epoch>\d+)\s*\[\s*(?<step>\d+)/(?<total>\d+) \(\s*\d+%\)\](?<rest>.*)",
    ),
    // The number is that of samples.
    line("lines with samples", "%)]", r"(?i)train epoch:\s*(?<epoch>\d+)\s*\[\s*\d+/\d+ \(\s*\d+%\)\](?<rest>.*)"),
    line("lines with an iteration", "Iter", r"Iter(?:\(train\))?\s*\[\s*(?<step>\d+)/(?<total>\d+)\](?<rest>.*)"),
    line(EPOCH_AND_STEP, "[", r"^\[(?<epoch>\d+),\s*(?<step>\d+)\](?<rest>.*)"),
    line("lines with a step", "|", r"^\s*(?<step>\d+) \| (?<rest>loss.*)"),
    line("lines with a step", "] ", r"(?:^|\s)\[(?<step>\d+)\] (?<rest>.*)"),
    line("lines with a loss and a step", "  [", r"^loss: (?<loss>[\d.]+)\s+\[\s*(?<step>\d+)/\s*(?<total>\d+)\]"),
    line("Darknet", "avg loss", r"^\s*(?<step>\d+): [\d.]+, (?<loss>[\d.]+) avg loss(?<rest>.*)"),
];
const NUM: &str = r"\d+(?:\.\d+)?[kMG]?";

/// Names of the number of a step, the best first; also keys of JSON lines. Lists of words are separated by `|`.
const STEP_NAMES: &str = "\
    global_step/max_steps|global_step|global step|num_updates|current_steps|current_step|step|steps|\
    iter|iteration|iters|iterations|update|updates|batch";
/// Names of the loss of a training, the best first. Of other names with `loss` one alone counts.
const LOSS_NAMES: &str = "\
    loss|train_loss|training_loss|total_loss|loss_total|train_total_loss|loss_train|train_loss_step|\
    loss_step|step_loss|lm_loss|reduced_train_loss|avr_loss|avg_loss|mean_loss";
/// Rank of a loss with another name.
const OTHER_LOSS: usize = usize::MAX;
const LEARNING_RATE_NAMES: &[&str] = &["learning_rate", "learning rate", "lr", "base_lr"];
/// Beginnings of the words of work that is not training.
const OTHER_WORK: &str = "\
    val|eval|sanity|test|predict|infer|download|upload|fetch|loading|map|token|pretoken|generat|filter|\
    saving|scan|cach|preproc|prepar|indexing|extract|parsing|reading|encoding|converting|collat|shuffl|\
    unzip|hashing|verif|checking|calibrat|resolv|counting|building|collecting|processing|computing|\
    creating|packing|grouping|formatting|applying|adding|writing|copying|search|featur";
/// Beginnings of the words of training.
const TRAINING: &[&str] = &["train", "epoch", "step", "iter", "batch", "fit", "learn", "optimi"];
/// Text of a rate of bytes, or of the samples that `datasets` prepares.
const RATES_OF_DATA: &[&str] = &["B/s", "examples/s"];
const TITLE_CHARACTERS_MAX: usize = 80;

/// Expressions of [`FORMATS`], in their order.
static EXPRESSIONS: LazyLock<Vec<Regex>> =
    LazyLock::new(|| FORMATS.iter().map(|format| compiled(&format.expression.replace("NUM", NUM))).collect());
/// Number of a step by its name.
static STEP: LazyLock<Regex> = LazyLock::new(|| {
    // A longer name comes before its beginning.
    let names: Vec<&str> = STEP_NAMES.split('|').rev().collect();
    compiled(&format!(
        r#"(?:^|[^a-z0-9_/])(?<name>{})['"]?\s*[:=#]?\s*['"\[(]?\s*(?<step>\d[\d,]*(?:\.\d+)?)(?:\s*/\s*(?<total>\d[\d,]*))?"#,
        names.join("|")
    ))
});
/// Number of an epoch by its name.
static EPOCH: LazyLock<Regex> = LazyLock::new(|| {
    compiled(r#"(?:^|[^a-z0-9_])epochs?['"]?\s*[:=#]?\s*['"\[(]?\s*(?<step>\d+(?:\.\d+)?)(?:\s*/\s*(?<total>\d+))?"#)
});
/// Part of an epoch.
static PERCENTAGE: LazyLock<Regex> = LazyLock::new(|| compiled(r"[ (\[]\d+(?:\.\d+)? ?%"));
/// Epoch at the head of the columns of a bar: `3/10   3.31G`.
static EPOCH_COLUMN: LazyLock<Regex> = LazyLock::new(|| compiled(r"^\s*(?<step>\d+)/\d+\s"));
/// Colours, and the backspaces of older versions of Keras.
static DECORATION: LazyLock<Regex> = LazyLock::new(|| compiled(r"\x1b\[[0-9;?]*[A-Za-z]|\x08+"));

/// Compiles an expression of the formats and phases; their tests cover all of them.
#[expect(clippy::unwrap_used, reason = "constants in the source")]
pub fn compiled(text: &str) -> Regex {
    Regex::new(text).unwrap()
}

/// Reader of lines. It remembers the head of a table and the epoch of a heading, which belong to the lines that follow.
#[derive(Clone, Debug, Default)]
pub struct LineReader {
    /// Names of the columns before a bar: `Epoch GPU_mem box_loss cls_loss`.
    columns: Vec<String>,
    /// Epoch of a heading such as `Epoch 2/10`.
    epoch: Option<u64>,
}

impl LineReader {
    /// Reads the progress of a line; `None` where it shows none, or that of other work than training.
    pub fn read(&mut self, line: &str) -> Option<Progress> {
        if !line.bytes().any(|byte| byte.is_ascii_digit()) {
            self.read_columns(line);
            return None;
        }
        let line = match line.contains(['\u{1b}', '\u{8}']) {
            true => DECORATION.replace_all(line, ""),
            false => line.into(),
        };
        let lower = line.to_ascii_lowercase();
        // Expressions are slow; most lines of output show no progress.
        let has_loss = lower.contains("loss");
        let formats = FORMATS.iter().zip(EXPRESSIONS.iter());
        let mut possible = formats.filter(|(format, _)| (format.is_bar || has_loss) && line.contains(format.needs));
        let read = possible.find_map(|(format, expression)| Some((format, expression.captures(&line)?)));
        let read = match read.as_ref() {
            Some((format, captures)) if format.is_bar => return self.bar(format, captures),
            Some((format, captures)) => positional(format, captures, &lower),
            None => None,
        };
        read.or_else(|| by_names(&lower)).map(|read| Progress { epoch: read.epoch.or(self.epoch), ..read }).or_else(
            || {
                self.read_heading(&lower);
                None
            },
        )
    }

    fn bar(&self, format: &Format, captures: &Captures<'_>) -> Option<Progress> {
        let named = |name: &str| captures.name(name).map_or("", |found| found.as_str());
        let (title, rest) = (named("title"), named("rest"));
        let lower_title = title.to_ascii_lowercase();
        if is_other_work(&lower_title) || RATES_OF_DATA.iter().any(|rate| rest.contains(rate)) {
            return None;
        }
        let lower_rest = rest.to_ascii_lowercase();
        let (in_title, in_rest) = (find_loss(&lower_title), find_loss(&lower_rest));
        let columns = self.loss_columns(title);
        let epoch = [&*EPOCH, &*EPOCH_COLUMN]
            .iter()
            .find_map(|expression| whole(expression.captures(&lower_title)?.name("step")?.as_str()));
        Some(Progress {
            format: if rest.contains("v_num") { "Lightning" } else { format.name },
            is_bar: true,
            is_training: in_rest.is_some()
                || in_title.is_some()
                || columns.is_some()
                || is_training_title(&lower_title),
            title: without_numbers(&lower_title),
            step: Some(thousands(named("step"))?),
            total: thousands(named("total")),
            epoch: epoch.or(self.epoch),
            loss: in_rest.or(in_title).flatten().or(columns).or_else(|| named("loss").parse().ok()),
            learning_rate: find_number(&lower_rest, LEARNING_RATE_NAMES),
        })
    }

    /// Sum of the losses in the columns before a bar.
    fn loss_columns(&self, title: &str) -> Option<f64> {
        let cells: Vec<&str> = title.trim_end_matches(':').split_ascii_whitespace().collect();
        if self.columns.is_empty() || cells.len() != self.columns.len() {
            return None;
        }
        let losses = self.columns.iter().zip(cells).filter(|(name, _)| name.ends_with("loss"));
        losses.map(|(_, cell)| cell.parse::<f64>().ok()).sum()
    }

    fn read_columns(&mut self, line: &str) {
        if line.contains("_loss") && line.to_ascii_lowercase().trim_start().starts_with("epoch") {
            let names = DECORATION.replace_all(line, "").to_ascii_lowercase();
            self.columns = names.split_ascii_whitespace().take(32).map(str::to_owned).collect();
        }
    }

    /// Reads the epoch of a heading: a short line with nothing but its number.
    fn read_heading(&mut self, lower: &str) {
        let heading = lower.trim().trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
        if heading.starts_with("epoch")
            && heading.len() <= 24
            && let Some(found) = EPOCH.captures(heading)
        {
            self.epoch = found.name("step").and_then(|found| whole(found.as_str()));
        }
    }
}

/// Reads a line whose number stands at a fixed place; it must have a loss.
fn positional(format: &Format, captures: &Captures<'_>, lower: &str) -> Option<Progress> {
    let named = |name: &str| captures.name(name).and_then(|found| whole(found.as_str()));
    let at = captures.name("step").or(captures.name("rest"))?.start();
    if is_held_out(&lower[..at]) {
        return None;
    }
    let rest = captures.name("rest").map_or("", |found| &lower[found.range()]);
    let loss = match captures.name("loss") {
        Some(found) => found.as_str().parse().ok(),
        None => find_loss(rest)?,
    };
    Some(Progress {
        format: format.name,
        title: format.name.to_owned(),
        step: named("step"),
        total: named("total"),
        epoch: named("epoch"),
        is_training: true,
        loss,
        learning_rate: find_number(rest, LEARNING_RATE_NAMES),
        ..Progress::default()
    })
}

/// Reads a line with a loss and the name of its number: `step 20 loss 0.5`, `iter: 20 … total_loss: 0.5`, `{'loss': 0.5, …}`.
fn by_names(lower: &str) -> Option<Progress> {
    let loss = find_loss(lower)?;
    let best = STEP.captures_iter(lower).filter_map(|found| {
        let name = found.name("name")?;
        let rank = step_rank(name.as_str())?;
        let step = whole(found.name("step")?.as_str())?;
        let total = found.name("total").and_then(|total| whole(total.as_str()));
        Some((rank, name, step, total))
    });
    let best = best.min_by_key(|(rank, ..)| *rank);
    let epoch = EPOCH.captures(lower);
    let epoch_number = epoch.as_ref().and_then(|found| whole(found.name("step")?.as_str()));
    let learning_rate = find_number(lower, LEARNING_RATE_NAMES);
    let read = Progress { is_training: true, loss, learning_rate, ..Progress::default() };
    if let Some((_, name, step, total)) = best {
        return (!is_held_out(&lower[..name.start()])).then(|| Progress {
            format: "lines with a step and a loss",
            title: name.as_str().to_owned(),
            step: Some(step),
            total,
            // A global step does not restart with the epoch.
            epoch: epoch_number.filter(|_| !matches!(name.as_str(), "global_step" | "global step" | "num_updates")),
            ..read
        });
    }
    let dictionary =
        lower.find('{').is_some_and(|at| lower[at..].trim_start_matches(['{', '\'', '"']).starts_with("loss"));
    if dictionary {
        return Some(Progress {
            format: "the log lines of Hugging Face's Trainer, each taken for a step",
            title: "dictionary".into(),
            ..read
        });
    }
    let at = epoch.as_ref().and_then(|found| Some(found.get(0)?.start())).or(lower.find("loss"))?;
    // Several lines of an epoch show how far it is.
    let step = epoch_number.filter(|_| !PERCENTAGE.is_match(lower));
    let total = step.and(epoch.as_ref()).and_then(|found| whole(found.name("total")?.as_str()));
    let (format, title) = match step {
        Some(_) => ("lines with an epoch, each taken for a step", "epoch".into()),
        None => (LOSSES, without_numbers(lower)),
    };
    (!is_held_out(&lower[..at])).then_some(Progress { format, title, step, total, ..read })
}

/// Words of a text.
fn words(lower: &str) -> impl Iterator<Item = &str> {
    lower.split(|letter: char| !letter.is_ascii_alphabetic()).filter(|word| !word.is_empty())
}

/// Returns whether the title of a bar, in lower case, names a training.
pub fn is_training_title(title: &str) -> bool {
    words(title).any(|word| TRAINING.iter().any(|start| word.starts_with(start)))
}

/// Returns whether the title of a bar names other work than training.
fn is_other_work(title: &str) -> bool {
    let title = title.replace("dataloader", "").replace("loader", "");
    words(&title).any(|word| OTHER_WORK.split('|').any(|start| word.starts_with(start)))
}

/// Returns whether the text before a number names data that is held out.
pub fn is_held_out(before: &str) -> bool {
    const HELD_OUT: &str = "val|valid|validation|validate|validating|eval|evaluation|evaluating|test|testing";
    words(before).any(|word| HELD_OUT.split('|').any(|known| known == word))
}

/// First characters of a text, without its numbers.
pub fn without_numbers(text: &str) -> String {
    let mut plain = String::new();
    let mut letters = text.chars().take(4 * TITLE_CHARACTERS_MAX).peekable();
    while let Some(letter) = letters.next() {
        if !letter.is_ascii_digit() {
            plain.push(letter);
            continue;
        }
        // Also an exponent, whose sign comes and goes.
        while letters.next_if(|next| next.is_ascii_digit() || ".,e-+".contains(*next)).is_some() {}
    }
    let plain = plain.trim_matches(|letter: char| letter.is_whitespace() || letter == ':');
    plain.chars().take(TITLE_CHARACTERS_MAX).collect()
}

/// Number with a suffix of thousands, such as `1.20k`.
fn thousands(text: &str) -> Option<u64> {
    let (digits, factor) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 1e3),
        b'M' => (&text[..text.len() - 1], 1e6),
        b'G' => (&text[..text.len() - 1], 1e9),
        _ => (text, 1.0),
    };
    digits
        .parse::<f64>()
        .ok()
        .map(|number| (number * factor).round())
        .filter(|number| *number < 1e15)
        .map(|it| it as u64)
}

/// Whole number, also with separators or zeros behind a point.
fn whole(text: &str) -> Option<u64> {
    let number: f64 = text.replace(',', "").parse().ok()?;
    (number.fract() == 0.0 && (0.0..1e15).contains(&number)).then_some(number as u64)
}

/// Rank of a name as that of a training's loss, 0 for the best; `None` for other numbers.
pub fn loss_rank(name: &str) -> Option<usize> {
    let name = name.to_ascii_lowercase().replace(['/', '.', ' ', '-'], "_");
    let known = LOSS_NAMES.split('|').position(|known| known == name);
    let other = || name.contains("loss") && !name.contains("scale") && !name.contains("loss_mask");
    known.or_else(|| other().then_some(OTHER_LOSS)).filter(|_| !is_held_out(&name))
}

/// Rank of a name as that of a step, 0 for the best.
pub fn step_rank(name: &str) -> Option<usize> {
    STEP_NAMES.split('|').position(|known| known == name)
}

/// Returns whether a name is that of an epoch.
pub fn is_epoch(name: &str) -> bool {
    matches!(name, "epoch" | "epochs")
}

/// Loss of a training in a text, finite or not; `Some(None)` where it is one of several parts.
fn find_loss(lower: &str) -> Option<Option<f64>> {
    let mut found: Vec<(usize, f64)> = Vec::new();
    let mut from = 0;
    while let Some(at) = lower[from..].find("loss").map(|at| from + at) {
        from = at + "loss".len();
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_/.-".contains(letter);
        let before = &lower[..at];
        let head = before.trim_end_matches(is_name);
        let tail = lower[from..].trim_start_matches(is_name);
        let end = lower.len() - tail.len();
        let mut name = lower[head.len()..end].to_owned();
        // `lm loss`, `train loss`, `loss train`.
        let word = head
            .strip_suffix(' ')
            .map(|head| &head[head.trim_end_matches(|it: char| it.is_ascii_alphabetic()).len()..]);
        if let Some(word) = word.filter(|word| is_part_of_name(word)) {
            name = format!("{word} {name}");
        }
        let (name, tail) = match tail.strip_prefix(' ').and_then(|tail| tail.split_once([':', '='])) {
            Some((word, tail)) if is_part_of_name(word) => (format!("{name} {word}"), tail),
            _ => (name, tail),
        };
        if let (Some(rank), Some(value)) = (loss_rank(&name), value_at(tail)) {
            found.push((rank, value));
        }
        if found.len() >= 16 {
            break;
        }
    }
    let best = found.iter().map(|(rank, _)| *rank).min()?;
    let mut of_best = found.iter().filter(|(rank, _)| *rank == best).map(|(_, value)| *value);
    let first = of_best.next()?;
    // Parts of a loss are no loss.
    Some(Some(first).filter(|_| best < OTHER_LOSS || of_best.next().is_none()))
}

/// Returns whether a word before or after `loss` is part of its name.
fn is_part_of_name(word: &str) -> bool {
    "train|training|total|lm|avg|average|mean|val|valid|validation|eval|test".split('|').any(|known| known == word)
}

/// Number by one of its names.
fn find_number(lower: &str, names: &[&str]) -> Option<f64> {
    names.iter().find_map(|name| {
        lower.match_indices(name).find_map(|(at, _)| {
            let bounded =
                |letter: Option<char>| letter.is_none_or(|letter| !letter.is_ascii_alphanumeric() && letter != '_');
            let after = &lower[at + name.len()..];
            let value = || value_at(after).filter(|value| value.is_finite());
            (bounded(lower[..at].chars().next_back()) && bounded(after.chars().next())).then(value)?
        })
    })
}

/// Value at the beginning of a text, behind separators; finite or not.
fn value_at(text: &str) -> Option<f64> {
    let text = text.trim_start_matches(['\'', '"', ')', ']']).trim_start();
    let text = text.strip_prefix([':', '=', '|']).unwrap_or(text).trim_start();
    let text = text.trim_start_matches(['\'', '"', '(', '[']).trim_start();
    let length =
        text.find(|letter: char| !(letter.is_ascii_digit() || "+-.einfa".contains(letter))).unwrap_or(text.len());
    let number = text[..length].trim_end_matches(['.', 'e', '-', '+']);
    number.parse().ok()
}
