//! Everything that is wrong with a series, found in one go.

use std::collections::BTreeMap;

use crate::error::{Error, Kind, Result};
use crate::progress::Progress;
use crate::series::{Patch, SeriesFile, Survey, survey};
use crate::workspace::Workspace;
use crate::{stack, upstream};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The series cannot be used.
    Error,
    /// It can be used, but something is probably not meant.
    Warning,
}

impl Severity {
    /// `error` or `warning`.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What and where it is, and what to do.
    pub error: Error,
}

/// Checks `series`, every patch, and, when the release is imported, whether they apply.
///
/// # Errors
/// [`Kind::Usage`] when the configuration is wrong, [`Kind::Internal`] when the object store is
/// damaged; faults of the series are findings.
pub fn lint(ws: &Workspace, progress: &dyn Progress) -> Result<Vec<Finding>> {
    let survey = match survey(ws, None) {
        Ok(survey) => survey,
        Err(error) if error.kind() == Kind::Series => {
            return Ok(vec![Finding {
                severity: Severity::Error,
                error,
            }]);
        }
        Err(error) => return Err(error),
    };
    let mut findings = Vec::new();
    let mut find = |severity, error| findings.push(Finding { severity, error });
    let Survey {
        series,
        faults,
        unused,
        paths,
    } = survey;
    let sound = faults.is_empty();
    faults
        .into_iter()
        .for_each(|fault| find(Severity::Error, fault));
    for error in quirks(series.file(), &paths.series.to_string_lossy()) {
        find(Severity::Warning, error);
    }
    for name in unused {
        let file = paths.patches.join(&name);
        let error = Error::series("the series does not name this file")
            .at(file, None)
            .hint("add it to the series, or remove it");
        find(Severity::Warning, error);
    }
    for patch in series.patches() {
        for error in patch_warnings(patch) {
            find(Severity::Warning, error);
        }
    }
    let current = upstream::list(ws)?
        .into_iter()
        .find(|release| release.current && release.imported.is_some() && release.locked.is_some());
    match current {
        // A series with holes would only produce errors that follow from them.
        Some(_) if sound => {
            let release = upstream::ensure(ws, None, progress)?;
            match stack::apply(ws, &release, &series) {
                Ok(stack) => {
                    for (patch, step) in series.patches().iter().zip(&stack.steps) {
                        if step.how.offset != 0 {
                            let error = Error::series(format!(
                                "applies to {} with an offset of {} lines",
                                release.name, step.how.offset
                            ))
                            .at(&patch.shown, None)
                            .hint("refreshing it makes it exact again");
                            find(Severity::Warning, error);
                        }
                    }
                }
                Err(error) if error.kind() == Kind::Series => find(Severity::Error, error),
                Err(error) => return Err(error),
            }
        }
        Some(_) => {}
        None => progress.note(
            "the release is not imported, so it was not tried whether the patches apply; `perfquilt upstream fetch` imports it",
        ),
    }
    findings.sort_by_key(|finding| finding.severity);
    Ok(findings)
}

/// Lines that quilt understands in another way than this program.
fn quirks(file: &SeriesFile, shown: &str) -> Vec<Error> {
    let mut found = Vec::new();
    for (index, line) in file.lines().iter().enumerate() {
        let warn = |what: &str, hint: &str| {
            Error::series(what.to_owned())
                .at(shown, index + 1)
                .hint(hint.to_owned())
        };
        if line.starts_with([' ', '\t']) && line.trim_start().starts_with('#') {
            found.push(warn(
                "quilt takes this comment for a patch called `#`",
                "begin it in the first column",
            ));
        }
        if line.ends_with('\r') {
            found.push(warn(
                "the line ends in CR LF",
                "quilt wants plain line ends",
            ));
            break;
        }
    }
    found
}

fn patch_warnings(patch: &Patch) -> Vec<Error> {
    let mut found = Vec::new();
    let mut warn = |line: Option<usize>, what: String, hint: &str| {
        found.push(
            Error::series(what)
                .at(&patch.shown, line)
                .hint(hint.to_owned()),
        );
    };
    if patch.files.is_empty() {
        warn(
            None,
            "the patch is empty".to_owned(),
            "take it out of the series",
        );
        return found;
    }
    if let Some(first) = patch.stray.first() {
        warn(
            Some(*first),
            "this line is ignored, although it looks like a part of the hunk before".to_owned(),
            "are the counts in the hunk's `@@` line right?",
        );
    }
    if let Some(first) = patch.without_content.first() {
        warn(
            Some(*first),
            "this binary file is not changed: its content is not in the patch".to_owned(),
            "make the patch with `git diff --binary`",
        );
    }
    let header = &patch.header;
    if header.title().is_none() {
        warn(
            Some(1),
            "the patch has no header".to_owned(),
            "begin it with `Subject:` or `Description:` and `From:`, and say what it is good for",
        );
    } else {
        if header.subject.is_none() {
            warn(
                Some(1),
                "the header has no `Subject:` or `Description:`".to_owned(),
                "the first line of text is taken as the title",
            );
        }
        if header.author.is_none() {
            warn(
                Some(1),
                "the header has no `From:` or `Author:`".to_owned(),
                "the commit's author is `unknown` without it",
            );
        }
    }
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for diff in &patch.files {
        if let Some(first) = seen.insert(diff.shown_name(), diff.line) {
            warn(
                Some(diff.line),
                format!(
                    "{} is changed a second time (first on line {first})",
                    diff.shown_name()
                ),
                "refreshing the patch joins both",
            );
        }
    }
    found
}
