//! Shortens a comment to the length that a forge accepts.

use perfquilt_model::cut::at_most;

/// Highest rank of essential sections, whose content is nowhere else: table rows are shortened before they are
/// removed.
const ESSENTIAL: u8 = 2;

/// A part of a comment.
pub(super) struct Section {
    /// Order of removal: the highest rank is removed first, ranks up to [`ESSENTIAL`] only after all sections have
    /// their shortest forms, and rank 0 never.
    pub(super) rank: u8,
    /// The text, which begins on a line of its own.
    pub(super) text: String,
    /// Alternative forms of the text, each shorter than the one before.
    pub(super) shorter: Vec<String>,
}

impl Section {
    pub(super) fn new(rank: u8, text: String) -> Self {
        Section {
            rank,
            text,
            shorter: Vec::new(),
        }
    }
}

/// Joins the sections in at most `limit` bytes. To fit, it removes sections that are not essential, then uses shorter
/// forms, then removes other sections, and at last cuts at a line end. A shortened text ends with `shortened`.
pub fn fit(mut sections: Vec<Section>, limit: usize, shortened: &str) -> String {
    if length(&sections) <= limit {
        return join(&sections);
    }
    let room = limit.saturating_sub(shortened.len());
    leave_out(&mut sections, room, ESSENTIAL);
    while length(&sections) > room {
        let longest = sections
            .iter_mut()
            .filter(|section| !section.shorter.is_empty())
            .max_by_key(|section| section.text.len());
        match longest {
            Some(section) => section.text = section.shorter.remove(0),
            None => break,
        }
    }
    leave_out(&mut sections, room, 0);
    let mut text = join(&sections);
    if text.len() > room {
        let end = at_most(&text, room).rfind('\n').map_or(0, |end| end + 1);
        text.truncate(end);
    }
    if shortened.len() <= limit {
        text.push_str(shortened);
    }
    text
}

/// Removes sections of a rank above `kept`, the highest first, until the rest has at most `room` bytes.
fn leave_out(sections: &mut Vec<Section>, room: usize, kept: u8) {
    while length(sections) > room {
        let last = sections
            .iter()
            .enumerate()
            .max_by_key(|(_, section)| section.rank);
        match last {
            Some((place, section)) if section.rank > kept => drop(sections.remove(place)),
            _ => break,
        }
    }
}

fn length(sections: &[Section]) -> usize {
    sections.iter().map(|section| section.text.len()).sum()
}

fn join(sections: &[Section]) -> String {
    sections
        .iter()
        .map(|section| section.text.as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sections() -> Vec<Section> {
        vec![
            Section::new(0, "title\n".into()),
            Section {
                rank: 0,
                text: "long table\n".into(),
                shorter: vec!["table\n".into()],
            },
            Section::new(3, "details\n".into()),
            Section::new(1, "legend\n".into()),
        ]
    }

    #[test]
    fn what_is_worth_least_goes_first() {
        let fitted = |limit| fit(sections(), limit, "…\n");
        assert_eq!(fitted(100), "title\nlong table\ndetails\nlegend\n");
        assert_eq!(fitted(31), "title\nlong table\nlegend\n…\n");
        assert_eq!(fitted(24), "title\ntable\nlegend\n…\n");
        assert_eq!(fitted(18), "title\ntable\n…\n");
        assert_eq!(fitted(12), "title\n…\n");
        assert_eq!(fitted(2), "");
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]
        #[test]
        fn never_longer_than_allowed(limit in 0usize..60) {
            proptest::prop_assert!(fit(sections(), limit, "…\n").len() <= limit);
        }
    }
}
