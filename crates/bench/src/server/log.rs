//! Extracts the informative lines of a failed server's log.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes read from the end of a log: enough for a crash report with its stack.
const TAIL_BYTES: u64 = 64 * 1024;

/// Marks of lines that explain why a server ended, for the known servers and tools.
const RELEVANT_MARKS: [&str; 12] = [
    "[ERROR]",
    "got signal",
    "Assertion",
    "assertion",
    "Fatal",
    "FATAL",
    "PANIC",
    "was terminated by signal",
    "valgrind:",
    "Process terminating",
    "Address already in use",
    "# ", // Redis writes its warnings and errors with this level mark.
];

/// Returns the end of the log as text; empty if there is no log.
pub(super) fn tail(log: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = std::fs::File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// Returns at most `count` lines of `text` in their order: up to half of them the first relevant ones, the rest the
/// last ones.
pub(super) fn relevant_lines(text: &str, count: usize) -> Vec<String> {
    let lines: Vec<&str> = text.lines().filter(|line| !is_filler(line)).collect();
    let is_relevant = |line: &str| RELEVANT_MARKS.iter().any(|mark| line.contains(mark));
    let mut chosen: Vec<usize> = (0..lines.len())
        .filter(|&i| is_relevant(lines[i]))
        .take(count / 2)
        .collect();
    let rest = count - chosen.len();
    chosen.extend(lines.len().saturating_sub(rest)..lines.len());
    chosen.sort_unstable();
    chosen.dedup();
    chosen.into_iter().map(|i| lines[i].to_owned()).collect()
}

/// Whether a line is empty or part of the summary at the end of valgrind's logs.
fn is_filler(line: &str) -> bool {
    let text = line
        .trim_start_matches(|c: char| c == '=' || c.is_ascii_digit())
        .trim();
    let of_valgrind = line.starts_with("==");
    text.is_empty()
        || (of_valgrind
            && ["refs:", "misses:", "miss rate:", "Collected", "Events"]
                .iter()
                .any(|word| text.contains(word)))
}

/// Whether the log contains the beginning of a crash report, so that the process may live a little longer.
pub(super) fn shows_crash(text: &str) -> bool {
    [
        "got signal",
        "crashed by signal",
        "was terminated by signal",
        "Process terminating with",
    ]
    .iter()
    .any(|mark| text.contains(mark))
}

/// Whether a line says that the server may open too few files for its connections, in the words of C libraries or, at its
/// start, of Redis.
pub(super) fn says_too_few_files(line: &str) -> bool {
    let line = line.to_lowercase();
    [
        "too many open files",
        "no file descriptors available",
        "ulimit -n",
    ]
    .iter()
    .any(|words| line.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_shown_even_when_much_follows_it() {
        let mut text = "starting\n[ERROR] no space\n".to_owned();
        for i in 0..100 {
            text += &format!("frame {i}\n");
        }
        let lines = relevant_lines(&text, 6);
        assert_eq!(lines.len(), 6);
        assert_eq!(lines[0], "[ERROR] no space");
        assert_eq!(lines[5], "frame 99");
    }

    #[test]
    fn short_logs_are_shown_whole_and_once() {
        assert_eq!(
            relevant_lines("a\n\n[ERROR] b\nc\n", 10),
            ["a", "[ERROR] b", "c"]
        );
        assert!(relevant_lines("", 10).is_empty());
    }

    #[test]
    fn the_summary_of_valgrind_is_omitted() {
        let text = "==7== Process terminating with default action of signal 7\n==7==\n\
                    ==7== I   refs:      0\n==7== LLd miss rate: 0.0%\n";
        assert_eq!(
            relevant_lines(text, 5),
            ["==7== Process terminating with default action of signal 7"]
        );
    }

    #[test]
    fn servers_say_that_they_may_open_too_few_files() {
        for line in [
            "[Warning] Error in accept: Too many open files",
            "accept4(): No file descriptors available",
            "# Current maximum open files is 100. If you need higher maxclients increase 'ulimit -n'.",
        ] {
            assert!(says_too_few_files(line), "{line}");
        }
        assert!(!says_too_few_files("open_files_limit is 32000"));
    }

    #[test]
    fn a_missing_log_is_an_empty_one() {
        assert_eq!(tail(Path::new("/nonexistent/log")), "");
    }
}
