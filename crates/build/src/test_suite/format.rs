//! Reads the results of single tests from a test runner's output.

use std::collections::BTreeMap;

use regex::Regex;

use perfquilt_config::TestFormat;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::server_tests::TestOutcome;

/// The name of the only test of [`TestFormat::ExitStatus`].
pub(super) const WHOLE: &str = "exit-status";
/// Longest name of a test, in bytes; a longer line is no result.
const LONGEST_NAME: usize = 200;

/// The patterns of a format's result lines, each with the groups `name` and `result`, and the outcome that the text
/// of `result` stands for; `None` for a line that is no result.
type LineFormat = (&'static [&'static str], fn(&str) -> Option<TestOutcome>);

/// Returns how results look in `format`; `None` if its lines are not read.
fn line_format(format: TestFormat) -> Option<LineFormat> {
    use TestOutcome::{Failed, Passed, Skipped};
    let format: LineFormat = match format {
        TestFormat::Mtr => (
            // MySQL's has the progress in front.
            &[
                r"^(?:\[ *\d+%\] )?(?<name>[\w./+-]+(?: '[^']*')?) +(?:w\d+ +)?\[ (?<result>[a-z-]+) \]",
            ],
            |result| match result {
                "pass" | "retry-pass" => Some(Passed),
                "fail" | "retry-fail" => Some(Failed),
                "skipped" | "disabled" => Some(Skipped),
                _ => None,
            },
        ),
        TestFormat::PgRegress => (
            &[
                r"^(?:test|    ) (?<name>[\w.-]+) +\.\.\. (?<result>ok|FAILED|failed \(ignored\))",
                r"^(?<result>ok|not ok) \d+ +[-+] (?<name>[\w.-]+)",
            ],
            |result| match result {
                "ok" => Some(Passed),
                "failed (ignored)" => Some(Skipped),
                _ => Some(Failed),
            },
        ),
        TestFormat::Tap => (
            &[
                // Tests that are expected to fail count as skipped.
                r"^(?:ok|not ok)\b *(?<name>\d+[^#]*?|[^#]+?) *# *(?<result>(?i:skip|todo))",
                r"^(?<result>ok|not ok)\b *(?<name>\d+[^#]*|[^#]+)",
            ],
            |result| match result {
                "ok" => Some(Passed),
                "not ok" => Some(Failed),
                _ => Some(Skipped),
            },
        ),
        TestFormat::Prove => (
            &[
                r"^(?<name>\S+) \.{2,} (?:\d+/\S+ )?(?<result>ok|skipped|Failed|Dubious|No subtests|All)\b",
            ],
            |result| match result {
                "ok" => Some(Passed),
                "skipped" => Some(Skipped),
                _ => Some(Failed),
            },
        ),
        TestFormat::Ctest => (
            // An aborted test has `Subprocess aborted` in front of its stars.
            &[
                r"^ *\d+/\d+ Test +#\d+: (?<name>\S+) \.* *(?<result>Passed|[A-Za-z ]*\*\*\*[A-Za-z ]+)",
            ],
            |result| match result.trim() {
                "Passed" => Some(Passed),
                "***Skipped" | "***Not Run" => Some(Skipped),
                _ => Some(Failed),
            },
        ),
        TestFormat::Redis => (
            &[
                r"^\[(?<result>ok|err|exception|timeout|skip|ignore)\]: (?<name>.+?)(?: \(\d+ ms\))?(?: in tests/\S+)?$",
            ],
            |result| match result {
                "ok" => Some(Passed),
                "skip" | "ignore" => Some(Skipped),
                _ => Some(Failed),
            },
        ),
        TestFormat::ExitStatus => return None,
    };
    Some(format)
}

/// Collects the results of one run.
pub(super) struct ResultReader {
    patterns: Vec<Regex>,
    outcome: fn(&str) -> Option<TestOutcome>,
    /// Whether names begin with the test's number.
    is_numbered: bool,
    /// Colours of the terminal.
    colors: Regex,
    results: BTreeMap<String, TestOutcome>,
}

impl ResultReader {
    /// Creates a reader of lines in `format`.
    pub(super) fn new(format: TestFormat) -> Result<Self> {
        let (patterns, outcome): LineFormat = line_format(format).unwrap_or((&[], |_| None));
        let compile = |pattern: &&str| {
            Regex::new(pattern)
                .map_err(|error| Error::internal(format!("a pattern of results is wrong: {error}")))
        };
        Ok(ResultReader {
            patterns: patterns.iter().map(compile).collect::<Result<_>>()?,
            outcome,
            is_numbered: format == TestFormat::Tap,
            colors: compile(&r"\x1b\[[0-9;]*m")?,
            results: BTreeMap::new(),
        })
    }

    /// Reads a line; returns the name of the test whose result it is. A test that runs several times in one run has
    /// the worst of its results: a runner's own repetitions do not hide a failure.
    pub(super) fn line(&mut self, line: &str) -> Option<&str> {
        let line = self.colors.replace_all(line, "");
        let found = self
            .patterns
            .iter()
            .find_map(|pattern| pattern.captures(&line))?;
        let outcome = (self.outcome)(&found["result"])?;
        let mut name = found["name"].trim();
        if self.is_numbered {
            name = description(name);
        }
        if name.is_empty() || name.len() > LONGEST_NAME {
            return None;
        }
        let result = self.results.entry(name.to_owned()).or_insert(outcome);
        *result = outcome.max(*result);
        let entry = self.results.get_key_value(name)?;
        Some(entry.0)
    }

    /// Returns the number of tests with a result.
    pub(super) fn len(&self) -> usize {
        self.results.len()
    }

    /// Returns the results.
    pub(super) fn finish(self) -> BTreeMap<String, TestOutcome> {
        self.results
    }
}

/// Returns the description of a numbered test, which names it: the number changes when tests are added before it. A test
/// without a description is named by its number.
fn description(numbered: &str) -> &str {
    let rest = numbered.trim_start_matches(|c: char| c.is_ascii_digit());
    let text = rest.trim_start();
    let text = text.strip_prefix('-').map_or(text, str::trim_start);
    if text.is_empty() || rest.len() == text.len() {
        numbered
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TestOutcome::{Failed, Passed, Skipped};

    fn read(format: TestFormat, output: &str) -> Vec<(String, TestOutcome)> {
        let mut reader = ResultReader::new(format).unwrap();
        for line in output.lines() {
            reader.line(line);
        }
        reader.finish().into_iter().collect()
    }

    fn check(format: TestFormat, output: &str, expected: &[(&str, TestOutcome)]) {
        let mut expected: Vec<_> = expected
            .iter()
            .map(|(name, o)| ((*name).to_owned(), *o))
            .collect();
        expected.sort();
        assert_eq!(read(format, output), expected);
    }

    #[test]
    fn mysql_test_run() {
        let output = "\
main.func_json                           w1 [ pass ]     71
main.innodb_icp 'innodb'                 w2 [ pass ]    123
main.show_explain                        w1 [ fail ]
main.show_explain                        w1 [ retry-pass ]   12
main.xa_binlog                              [ skipped ]  requires binlog
main.tmp-disk 'x,y'                      w2 [ disabled ]  MDEV-1
compat/oracle.sequence                   w2 [ pass ]      4
[ 12%] main.alias                        w2 [ fail ]
The servers were restarted 3 times
Failing test(s): main.show_explain
";
        check(
            TestFormat::Mtr,
            output,
            &[
                ("main.func_json", Passed),
                ("main.innodb_icp 'innodb'", Passed),
                // A retry of the runner does not make it pass.
                ("main.show_explain", Failed),
                ("main.xa_binlog", Skipped),
                ("main.tmp-disk 'x,y'", Skipped),
                ("compat/oracle.sequence", Passed),
                ("main.alias", Failed),
            ],
        );
    }

    #[test]
    fn pg_regress_of_both_kinds() {
        let output = "\
test tablespace                   ... ok          301 ms
parallel group (3 tests):  boolean char name
     boolean                      ... ok           45 ms
     char                         ... FAILED       33 ms
     name                         ... failed (ignored)       33 ms
     collate.icu.utf8             ... ok          104 ms
";
        let expected = [
            ("tablespace", Passed),
            ("boolean", Passed),
            ("char", Failed),
            ("name", Skipped),
            ("collate.icu.utf8", Passed),
        ];
        check(TestFormat::PgRegress, output, &expected);
        let output = "\
# parallel group (20 tests):  char varchar
ok 1         - test_setup                                287 ms
ok 2         + boolean                                    83 ms
not ok 3     + char                                       45 ms
1..3
";
        let expected = [
            ("test_setup", Passed),
            ("boolean", Passed),
            ("char", Failed),
        ];
        check(TestFormat::PgRegress, output, &expected);
    }

    #[test]
    fn anything_protocol_and_prove() {
        let output = "\
1..5
ok 1 - starts
not ok 2 - stops
ok 3 - is fast # SKIP no clock
not ok 4 # TODO later
ok 5
ok 6 - 3 rows
ok 7 without a dash
# ok 8 - a remark
";
        let expected = [
            ("starts", Passed),
            ("stops", Failed),
            ("is fast", Skipped),
            ("4", Skipped),
            ("5", Passed),
            ("3 rows", Passed),
            ("without a dash", Passed),
        ];
        check(TestFormat::Tap, output, &expected);
        let output = "\
t/00-startup.t ....... ok
t/binary.t ........... Failed 3/9 subtests
t/sasl.t ............. skipped: no SASL
t/x.t ................ Dubious, test returned 1 (wstat 256, 0x100)
Test Summary Report
t/binary.t         (Wstat: 0 Tests: 9 Failed: 3)
";
        let expected = [
            ("t/00-startup.t", Passed),
            ("t/binary.t", Failed),
            ("t/sasl.t", Skipped),
            ("t/x.t", Failed),
        ];
        check(TestFormat::Prove, output, &expected);
    }

    #[test]
    fn ctest_and_redis() {
        let output = "\
    Start 1: base64
1/4 Test #1: base64 ...........................   Passed    0.01 sec
2/4 Test #2: lf ...............................***Failed    0.33 sec
3/4 Test #3: dynstring ........................***Exception: SegFault  0.10 sec
4/5 Test #4: big ..............................***Skipped   0.00 sec
5/5 Test #5: assertion ........................Subprocess aborted***Exception:   2.23 sec
";
        let expected = [
            ("base64", Passed),
            ("lf", Failed),
            ("dynstring", Failed),
            ("big", Skipped),
            ("assertion", Failed),
        ];
        check(TestFormat::Ctest, output, &expected);
        let output = "\
\x1b[0;32m[ok]\x1b[0m: SET and GET an item (1 ms)
[err]: INCR fails in tests/unit/type/incr.tcl
Expected 'a' to be equal to 'b'
[skip]: large memory
[exception]: Executing test client: wrong.
[1/92 done]: unit/printver (0 seconds)
";
        let expected = [
            ("SET and GET an item", Passed),
            ("INCR fails", Failed),
            ("large memory", Skipped),
            ("Executing test client: wrong.", Failed),
        ];
        check(TestFormat::Redis, output, &expected);
    }

    #[test]
    fn a_name_may_not_be_as_long_as_a_patch_likes() {
        let line = format!("ok 1 - {}", "x".repeat(LONGEST_NAME + 1));
        check(TestFormat::Tap, &line, &[]);
    }
}
