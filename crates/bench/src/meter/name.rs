//! Normalises names of functions across builds.

/// Returns a function's name without the suffixes that compilers and callgrind append, so that the same function
/// has the same name in two builds: ` [clone .isra.0]`, `.constprop.1`, `'2`.
pub fn plain_name(name: &str) -> String {
    let name = name.split(" [clone ").next().unwrap_or(name);
    let name = match name.rsplit_once('\'') {
        Some((head, tail)) if !tail.is_empty() && tail.bytes().all(|b| b.is_ascii_digit()) => head,
        _ => name,
    };
    let mut name = name;
    for mark in [".isra.", ".constprop.", ".part.", ".cold", ".lto_priv."] {
        if let Some(at) = name.find(mark) {
            name = &name[..at];
        }
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_of_a_function_have_its_name() {
        for (given, expected) in [
            ("f(int) [clone .constprop.0] [clone .cold]", "f(int)"),
            ("f.isra.0", "f"),
            ("f.part.3.cold", "f"),
            ("f(char)'2", "f(char)"),
            ("operator'a", "operator'a"),
            ("0x0000000000001040", "0x0000000000001040"),
        ] {
            assert_eq!(plain_name(given), expected);
        }
    }
}
