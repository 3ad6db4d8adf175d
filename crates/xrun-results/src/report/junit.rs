//! JUnit XML of `xrun leaks`, which CI servers display by name.

use super::verdict::LeakCheck;

/// JUnit document with one test case per pair.
pub fn junit(pairs: &[LeakCheck]) -> String {
    let failures = pairs.iter().filter(|pair| !pair.wrong.is_empty()).count();
    let skipped = pairs.iter().filter(|pair| pair.left_out.is_some()).count();
    let seconds: f64 = pairs.iter().map(|pair| pair.seconds).sum();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"xrun leaks\" tests=\"{}\" failures=\"{failures}\" \
         errors=\"0\" skipped=\"{skipped}\" time=\"{seconds:.3}\">\n",
        pairs.len()
    );
    for pair in pairs {
        let (name, seconds) = (escaped(&pair.name), pair.seconds);
        text.push_str(&format!("    <testcase classname=\"leaks\" name=\"{name}\" time=\"{seconds:.3}\""));
        let inner = match (&pair.left_out, pair.wrong.as_slice()) {
            (Some(why), _) => Some(format!("<skipped message=\"{}\"/>", escaped(why))),
            (None, []) => None,
            (None, wrong) => Some(format!("<failure message=\"{}\"/>", escaped(&wrong.join("; ")))),
        };
        match inner {
            Some(inner) => text.push_str(&format!(">\n      {inner}\n    </testcase>\n")),
            None => text.push_str("/>\n"),
        }
    }
    text + "  </testsuite>\n</testsuites>\n"
}

/// Escapes text for an XML attribute; characters that XML forbids are dropped.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\n' | '\t' => safe.push(' '),
            '\u{fffe}' | '\u{ffff}' => {}
            control if control.is_control() => {}
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_leak_is_a_test_case_with_escaped_text() {
        let pairs = [LeakCheck::skipped("pool", "needs a \"device\""), LeakCheck::failed("a<b", "x & \u{1b}y".into())];
        let text = junit(&pairs);
        assert!(roxmltree::Document::parse(&text).is_ok(), "{text}");
        insta::assert_snapshot!(text);
    }
}
