//! Counts a compiler's warnings about the profile it uses.

use std::collections::BTreeSet;
use std::ops::AddAssign;

/// How badly a profile fits the sources compiled with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProfileWarnings {
    /// Functions that do not match the profile.
    pub changed: u64,
    /// Files without profile data.
    pub without: u64,
}

impl AddAssign for ProfileWarnings {
    fn add_assign(&mut self, other: Self) {
        self.changed += other.changed;
        self.without += other.without;
    }
}

impl ProfileWarnings {
    /// Counts the warnings in a compiler's `output`.
    ///
    /// Gcc warns about a function once for each kind of counter. A function that only moved within its file
    /// ("source locations … have changed") still fits. Clang's warnings are those for counts of its intermediate
    /// code.
    pub(super) fn count(output: &[String]) -> Self {
        let changed: BTreeSet<(&str, &str)> = output
            .iter()
            .filter_map(
                |line| match line.split_once(" does not match its profile data") {
                    // Keyed by position and name: instances of a template share the position.
                    Some((warning, _)) => {
                        warning.split_once(": warning").map(|(position, text)| {
                            let name = text.rsplit_once("function ").map_or(text, |(_, name)| name);
                            (position, name)
                        })
                    }
                    None => line.split_once("(hash mismatch)"),
                },
            )
            .collect();
        let missing = [
            "profile count data file not found [-Wmissing-profile]",
            "no profile data available for function",
        ];
        let is_missing = |line: &&String| missing.iter().any(|words| line.contains(words));
        ProfileWarnings {
            changed: changed.len() as u64,
            without: output.iter().filter(is_missing).count() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_and_file_is_counted_once() {
        let output = [
            "a.c:3:5: warning: profile for function 'f' not found in profile data [-Wmissing-profile]",
            "a.c:9:1: warning: the control flow of function 'g' does not match its profile data (counter 'arcs') [-Wcoverage-mismatch]",
            "a.c:9:1: warning: number of counters in profile data for function 'g' does not match its profile data (counter 'topn', expected 2 and have 3) [-Wcoverage-mismatch]",
            "a.c:9:1: warning: the control flow of function 'g<int>' does not match its profile data (counter 'arcs') [-Wcoverage-mismatch]",
            "a.c:20:1: warning: source locations for function 'h' have changed, the profile data may be out of date [-Wcoverage-mismatch]",
            "warning: c.c: function control flow change detected (hash mismatch) main Hash = 27 [-Wbackend-plugin]",
            "b.c:1:1: warning: 'b.gcda' profile count data file not found [-Wmissing-profile]",
            "b.c:1:1: warning: unused variable",
        ];
        let expected = ProfileWarnings {
            changed: 3,
            without: 1,
        };
        assert_eq!(ProfileWarnings::count(&output.map(str::to_owned)), expected);
    }
}
