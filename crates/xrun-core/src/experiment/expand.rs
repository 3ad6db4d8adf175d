//! Expansion of environment variables in paths.

/// Replaces `${NAME}` by the variable's value, and `${NAME:-default}` by the value or, if it is unset or empty, by the
/// default, as a POSIX shell does. Values are not expanded again. A `$` without `{` is literal.
///
/// # Errors
/// A variable without a default is unset, a `}` is missing, or a name is invalid; the message is human-readable.
pub fn expand(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        result.push_str(&rest[..start]);
        let Some(length) = rest[start + 2..].find('}') else {
            return Err(format!("{text:?} has a \"${{\" without a \"}}\""));
        };
        let inside = &rest[start + 2..start + 2 + length];
        result.push_str(&value(text, inside, variable)?);
        rest = &rest[start + 2 + length + 1..];
    }
    result.push_str(rest);
    Ok(result)
}

fn value(text: &str, inside: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts_well || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(format!("{text:?}: {name:?} is not a name of an environment variable"));
    }
    if default.is_some_and(|default| default.contains("${")) {
        return Err(format!("{text:?} has a variable inside the default of another, which is not supported"));
    }
    match (variable(name), default) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.into()),
        (None, None) => Err(format!(
            "{text:?} needs the environment variable {name}, which is not set; set it to the directory that contains the \
                         rest of the path"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(name: &str) -> Option<String> {
        match name {
            "DATA" => Some("/big disk".into()),
            "EMPTY" => Some(String::new()),
            "TRICK" => Some("${DATA}".into()),
            _ => None,
        }
    }

    #[test]
    fn variables_and_defaults_are_expanded() {
        for (text, expected) in [
            ("plain/path", "plain/path"),
            ("${DATA}/cards", "/big disk/cards"),
            ("a/${DATA}${DATA}", "a//big disk/big disk"),
            ("${NONE:-../data}/cards", "../data/cards"),
            ("${DATA:-../data}/cards", "/big disk/cards"),
            ("${EMPTY:-x}", "x"),
            ("${EMPTY}", ""),
            ("${NONE:-}", ""),
            ("$DATA and $", "$DATA and $"),
            ("è/${DATA}/è", "è//big disk/è"),
            ("${TRICK}", "${DATA}"),
        ] {
            assert_eq!(expand(text, &variables).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn invalid_placeholders_are_errors() {
        let wrong = ["${NONE}/cards", "${DATA", "${}", "${1A}", "${A B}", "${A:-${B}}"];
        let messages = wrong.map(|text| expand(text, &variables).unwrap_err());
        insta::assert_snapshot!(messages.join("\n"), @r###"
        "${NONE}/cards" needs the environment variable NONE, which is not set; set it to the directory that contains the rest of the path
        "${DATA" has a "${" without a "}"
        "${}": "" is not a name of an environment variable
        "${1A}": "1A" is not a name of an environment variable
        "${A B}": "A B" is not a name of an environment variable
        "${A:-${B}}" has a variable inside the default of another, which is not supported
        "###);
    }
}
