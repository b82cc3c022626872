//! Names that several things must not share.

use std::collections::{BTreeMap, BTreeSet};

/// Gives each of `names` the text that stands for it elsewhere: different names get different texts. A name whose text
/// another one has gets a number, from 2 on; names that are their own text keep it.
///
/// `numbered` adds a number to a text.
pub fn distinct<'n>(
    names: impl IntoIterator<Item = (&'n str, String)>,
    numbered: impl Fn(&str, usize) -> String,
) -> BTreeMap<&'n str, String> {
    let names: BTreeMap<&str, String> = names.into_iter().collect();
    let own = names.iter().filter(|(name, text)| *name == text);
    let mut taken: BTreeSet<String> = own.map(|(name, _)| (*name).to_owned()).collect();
    let mut unique = BTreeMap::new();
    for (name, text) in names {
        let mut chosen = text.clone();
        let mut number = 2;
        while name != chosen && !taken.insert(chosen.clone()) {
            chosen = numbered(&text, number);
            number += 1;
        }
        unique.insert(name, chosen);
    }
    unique
}

/// Adds a number to a name for people: `bench (2)`.
pub fn numbered(name: &str, number: usize) -> String {
    format!("{name} ({number})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_names_have_different_texts() {
        let names = ["a b", "a_b", "a/b", "a_b_(2)", "c"];
        let cleaned = names.map(|name| (name, name.replace([' ', '/'], "_")));
        let unique = distinct(cleaned, numbered);
        assert_eq!(unique["a_b"], "a_b");
        assert_eq!(unique["c"], "c");
        assert_eq!(unique["a b"], "a_b (2)");
        assert_eq!(unique["a/b"], "a_b (3)");
        let texts: BTreeSet<&String> = unique.values().collect();
        assert_eq!(texts.len(), names.len(), "{unique:?}");
    }
}
