//! Memory of the machine (`/proc/meminfo`).

/// Total and available memory of the machine, in bytes.
pub fn memory() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    kibibytes(&text, "MemTotal:").zip(kibibytes(&text, "MemAvailable:"))
}

/// Bytes in a line of `/proc` such as `Rss:   1234 kB`; `None` if the key is missing.
pub fn kibibytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    let number: u64 = line[key.len()..].split_ascii_whitespace().next()?.parse().ok()?;
    Some(number * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_convert_to_bytes() {
        let text = "Rss:                1024 kB\nAnonymous:     512 kB\nSwap: x kB\n";
        assert_eq!(kibibytes(text, "Rss:"), Some(1 << 20));
        assert_eq!(kibibytes(text, "Swap:"), None);
        assert_eq!(kibibytes(text, "Pss:"), None);
    }
}
