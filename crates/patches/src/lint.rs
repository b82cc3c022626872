//! Everything that is wrong with a series, found in one go.

mod fix;

use std::collections::BTreeMap;

use crate::series::{Location, Patch, Series, SeriesFile, Survey, survey, write};
use crate::stack;
use crate::stack::{Stack, format};
use crate::upstream;
use crate::upstream::Objects;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress::Progress;

pub use fix::{Fixed, fix};

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
    let location = Location::of(ws, None)?;
    for error in same_content(&location, &series)? {
        find(Severity::Warning, error);
    }
    if !imported(ws)? {
        progress.note(
            "the release is not imported, so it was not tried whether the patches apply; `perfquilt upstream fetch` imports it",
        );
    } else if sound {
        // A series with holes would only produce errors that follow from them.
        let release = upstream::ensure(ws, None, progress)?;
        match stack::apply(ws, &release, &series) {
            Ok(stack) => {
                let forms = canonical_forms(ws, &location, &series, &stack)?;
                for ((patch, step), form) in series.patches().iter().zip(&stack.steps).zip(forms) {
                    let what = if step.how.fuzz != 0 {
                        format!(
                            "applies to {} only with fuzz {}",
                            release.name, step.how.fuzz
                        )
                    } else if step.how.offset != 0 {
                        format!(
                            "applies to {} with an offset of {} lines",
                            release.name, step.how.offset
                        )
                    } else if form.is_some() {
                        "not in canonical form (`git diff --full-index --binary -M`)".to_owned()
                    } else {
                        continue;
                    };
                    let error = Error::series(what)
                        .at(&patch.shown, None)
                        .hint("`perfquilt lint --fix` writes it anew");
                    find(Severity::Warning, error);
                }
            }
            Err(error) if error.kind() == Kind::Series => find(Severity::Error, error),
            Err(error) => return Err(error),
        }
    }
    findings.sort_by_key(|finding| finding.severity);
    Ok(findings)
}

/// Whether the current release is at hand without the network.
fn imported(ws: &Workspace) -> Result<bool> {
    let found = upstream::list(ws)?;
    Ok(found
        .iter()
        .any(|release| release.current && release.at_hand()))
}

/// Each patch in canonical form; `None` for those that are, and for empty ones.
fn canonical_forms(
    ws: &Workspace,
    location: &Location,
    series: &Series,
    stack: &Stack,
) -> Result<Vec<Option<Vec<u8>>>> {
    let store = Objects::open(&ws.object_store())?;
    let mut before = stack.release.tree.as_str();
    let mut forms = Vec::new();
    for ((entry, patch), step) in series
        .file()
        .entries()
        .iter()
        .zip(series.patches())
        .zip(&stack.steps)
    {
        let diff = format::diff(&store, before, &step.tree)?;
        before = &step.tree;
        let bytes = location.bytes(entry)?;
        let header = write::header_bytes(&bytes);
        // How a binary file is compressed depends on who wrote it.
        let binary = patch.files.iter().any(|file| file.binary.is_some());
        let exact = step.how == stack::How::default();
        let same = without_functions(&bytes[header.len()..]) == without_functions(&diff)
            || (binary && exact);
        forms.push((!same && !diff.is_empty()).then(|| write::compose(header, &diff)));
    }
    Ok(forms)
}

/// A diff without the names of functions behind each `@@`: what git writes there depends on the
/// attributes of the tree it was called in, and says nothing.
fn without_functions(diff: &[u8]) -> Vec<&[u8]> {
    let lines = diff.split_inclusive(|&b| b == b'\n');
    let cut = |line: &'_ [u8]| {
        let end = line.windows(3).skip(3).position(|window| window == b" @@");
        line.starts_with(b"@@ -").then_some(end).flatten()
    };
    lines
        .map(|line| cut(line).map_or(line, |end| &line[..end + 3]))
        .collect()
}

/// Patches whose diffs are the same, byte for byte.
fn same_content(location: &Location, series: &Series) -> Result<Vec<Error>> {
    let mut found = Vec::new();
    let mut seen: BTreeMap<Vec<u8>, &str> = BTreeMap::new();
    let named = series.file().entries().iter();
    let entries: BTreeMap<&str, _> = named.map(|entry| (entry.name.as_str(), entry)).collect();
    for patch in series
        .patches()
        .iter()
        .filter(|patch| !patch.files.is_empty())
    {
        let Some(entry) = entries.get(patch.name.as_str()) else {
            continue;
        };
        let bytes = location.bytes(entry)?;
        let body = bytes[write::header_bytes(&bytes).len()..].to_vec();
        match seen.get(&body) {
            Some(first) => found.push(
                Error::series(format!("the same diff as {first}"))
                    .at(&patch.shown, None)
                    .hint("take one of them out of the series"),
            ),
            None => {
                seen.insert(body, &patch.name);
            }
        }
    }
    Ok(found)
}

/// A comment that quilt would take for a patch, as it should be.
fn unindented(line: &str) -> Option<&str> {
    let plain = line.trim_start_matches([' ', '\t']);
    (plain.len() < line.len() && plain.starts_with('#')).then_some(plain)
}

/// Lines that quilt understands in another way than this program.
fn quirks(file: &SeriesFile, shown: &str) -> Vec<Error> {
    let mut found = Vec::new();
    // Once is enough.
    let mut crlf = false;
    for (index, line) in file.lines().iter().enumerate() {
        let warn = |what: &str, hint: &str| {
            Error::series(what.to_owned())
                .at(shown, index + 1)
                .hint(hint.to_owned())
        };
        if unindented(line).is_some() {
            found.push(warn(
                "quilt takes this comment for a patch called `#`",
                "begin it in the first column",
            ));
        }
        let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty());
        if words.next().is_some_and(|name| !name.starts_with('#')) && words.next() == Some("-p1") {
            found.push(warn(
                "`-p1` is what holds without it",
                "quilt takes it out at the next refresh; `perfquilt lint --fix` does so too",
            ));
        }
        if line.ends_with('\r') && !crlf {
            crlf = true;
            found.push(warn(
                "the line ends in CR LF",
                "quilt wants plain line ends",
            ));
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
                "`perfquilt lint --fix` joins both",
            );
        }
    }
    found
}
