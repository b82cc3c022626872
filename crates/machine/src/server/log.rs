//! What to show of a server's log when it failed.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// How much of a log's end is looked at: a crash report with its stack fits easily.
const TAIL_BYTES: u64 = 64 * 1024;

/// Lines that say why a server ended, in the words of the servers and tools at hand.
const TELLING: [&str; 10] = [
    "[ERROR]",
    "got signal",
    "Assertion",
    "assertion",
    "Fatal",
    "FATAL",
    "valgrind:",
    "Process terminating",
    "Address already in use",
    "# ", // Redis writes its warnings and errors with this level mark.
];

/// The log's end as text; empty when there is no log.
pub(super) fn end_of(log: &Path) -> String {
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

/// At most `count` lines of `text`: the first telling ones, then the last ones, in their order.
pub(super) fn telling_lines(text: &str, count: usize) -> Vec<String> {
    let lines: Vec<&str> = text.lines().filter(|line| !is_filler(line)).collect();
    let telling = |line: &str| TELLING.iter().any(|mark| line.contains(mark));
    let mut chosen: Vec<usize> = (0..lines.len())
        .filter(|&i| telling(lines[i]))
        .take(count / 2)
        .collect();
    let rest = count - chosen.len();
    chosen.extend(lines.len().saturating_sub(rest)..lines.len());
    chosen.sort_unstable();
    chosen.dedup();
    chosen.into_iter().map(|i| lines[i].to_owned()).collect()
}

/// Empty lines and the summary that valgrind ends every log with.
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

/// Whether the log shows that a crash report is being written: the process may live a little longer.
pub(super) fn shows_crash(text: &str) -> bool {
    [
        "got signal",
        "crashed by signal",
        "Process terminating with",
    ]
    .iter()
    .any(|mark| text.contains(mark))
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
        let lines = telling_lines(&text, 6);
        assert_eq!(lines.len(), 6);
        assert_eq!(lines[0], "[ERROR] no space");
        assert_eq!(lines[5], "frame 99");
    }

    #[test]
    fn short_logs_are_shown_whole_and_once() {
        assert_eq!(
            telling_lines("a\n\n[ERROR] b\nc\n", 10),
            ["a", "[ERROR] b", "c"]
        );
        assert!(telling_lines("", 10).is_empty());
    }

    #[test]
    fn what_valgrind_sums_up_is_left_out() {
        let text = "==7== Process terminating with default action of signal 7\n==7==\n\
                    ==7== I   refs:      0\n==7== LLd miss rate: 0.0%\n";
        assert_eq!(
            telling_lines(text, 5),
            ["==7== Process terminating with default action of signal 7"]
        );
    }

    #[test]
    fn a_missing_log_is_an_empty_one() {
        assert_eq!(end_of(Path::new("/nonexistent/log")), "");
    }
}
