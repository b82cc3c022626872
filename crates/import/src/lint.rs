//! Finds all problems of a series in one pass.

mod fix;
mod split;

use std::collections::BTreeMap;

use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::warning::Warning;
use perfquilt_series::series::diff::same_changes;
use perfquilt_series::series::rewritten;
use perfquilt_series::series::{
    FileDiff, Patch, Series, SeriesFile, SeriesLocation, SeriesSurvey, survey, write,
};
use perfquilt_series::stack;
use perfquilt_series::stack::place::{HunkPlaces, Placer};
use perfquilt_series::stack::trial::TrialTree;
use perfquilt_series::stack::{Stack, format};
use perfquilt_series::upstream;
use perfquilt_series::upstream::{Objects, Release};

pub use fix::{FixResult, fix};
pub use split::{SplitFile, SplitResult, split};

/// The result of [`lint`].
#[derive(Debug, Clone, Default)]
pub struct LintReport {
    /// Why the series cannot be used.
    pub errors: Vec<Error>,
    /// What is probably unintended.
    pub warnings: Vec<Warning>,
    /// Whether lint applied the patches. It does not if the series has other errors, or the release is not fetched.
    pub applied: bool,
    /// The name of the release if it is not fetched, so that no patch could be applied to it.
    pub not_fetched: Option<String>,
}

/// Checks `series`, every patch and, if the release is fetched, whether the patches apply.
///
/// # Errors
/// [`Kind::Usage`] when the configuration is wrong, [`Kind::Internal`] when the object store is
/// damaged. Faults of the series are findings, not errors.
pub fn lint(ws: &Workspace) -> Result<LintReport> {
    let survey = match survey(ws, None) {
        Ok(survey) => survey,
        Err(error) if error.kind() == Kind::Series => {
            return Ok(LintReport {
                errors: vec![error],
                ..LintReport::default()
            });
        }
        Err(error) => return Err(error),
    };
    let SeriesSurvey {
        series,
        faults: mut errors,
        unused,
        paths,
    } = survey;
    let sound = errors.is_empty();
    let mut warnings = quirks(series.file(), &paths.series.to_string_lossy());
    warnings.extend(unused.iter().map(|name| {
        Warning::unlisted_patch("the series does not name this file")
            .at(paths.patches.join(name), None)
            .hint("add it to the series, or remove it")
    }));
    errors.extend(series.patches().iter().filter_map(Patch::cut_off_error));
    warnings.extend(series.patches().iter().flat_map(patch_warnings));
    let location = SeriesLocation::of(ws, None)?;
    warnings.extend(text_between(&location, &series)?);
    warnings.extend(same_change(series.patches()));
    let mut applied = false;
    let mut not_fetched = None;
    if series.patches().is_empty() && sound {
        applied = true;
    } else if !imported(ws)? {
        let current = &ws.config.upstream.current;
        not_fetched = Some(ws.config.release_name(current));
    } else if sound {
        applied = true;
        // After other faults, this would only report consequential errors.
        let release = upstream::ensure(ws, None)?;
        match stack::apply(ws, &release, &series) {
            Ok(stack) => {
                warnings.extend(twin_places(ws, &series, &stack)?);
                let forms = canonical_forms(ws, &location, &series, &stack)?;
                for ((patch, step), form) in series.patches().iter().zip(&stack.steps).zip(forms) {
                    let (name, stack::PatchFit { offset, fuzz }) = (&release.name, step.fit);
                    let warning = if fuzz != 0 {
                        Warning::fuzz(format!("applies to {name} only with fuzz {fuzz}"))
                    } else if offset != 0 {
                        let words = format!("applies to {name} with an offset of {offset} lines");
                        Warning::offset(words)
                    } else if form.is_some() {
                        Warning::not_canonical(
                            "not in canonical form (`git diff --full-index --binary -M`)",
                        )
                    } else {
                        continue;
                    };
                    let warning = warning.at(&patch.shown, None);
                    warnings.push(warning.hint("`perfquilt lint --fix` rewrites it"));
                }
            }
            Err(error) if error.kind() == Kind::Series => errors.push(error),
            Err(error) => return Err(error),
        }
    }
    Ok(LintReport {
        errors,
        warnings,
        applied,
        not_fetched,
    })
}

/// Whether the current release is available without network access.
fn imported(ws: &Workspace) -> Result<bool> {
    let found = upstream::list(ws)?;
    Ok(found
        .iter()
        .any(|release| release.current && release.is_available()))
}

/// Returns the current release, which must be imported: only then it shows what `what` does.
fn imported_release(ws: &Workspace, what: &str) -> Result<Release> {
    if !imported(ws)? {
        return Err(Error::release_missing(format!(
            "the release is not imported, so lint cannot check what {what} do"
        ))
        .hint("`perfquilt upstream fetch` imports it"));
    }
    upstream::ensure(ws, None)
}

/// Reports hunks that apply at another line than their own although the file has their lines several times.
fn twin_places(ws: &Workspace, series: &Series, stack: &Stack) -> Result<Vec<Warning>> {
    let store = Objects::open(&ws.object_store())?;
    let mut found = Vec::new();
    let mut before = stack.release.tree.as_str();
    for (patch, step) in series.patches().iter().zip(&stack.steps) {
        if step.fit.offset != 0 || step.fit.fuzz != 0 {
            let mut tree = TrialTree::new(&store, before)?;
            found.extend(twins_in(&mut tree, patch, ws.config.series.fuzz)?);
        }
        before = &step.tree;
    }
    Ok(found)
}

/// Reports the hunks of `patch` that apply to `tree` at another line than their own although the file has their lines
/// several times.
pub(crate) fn twins_in(
    tree: &mut TrialTree<'_>,
    patch: &Patch,
    fuzz: usize,
) -> Result<Vec<Warning>> {
    let fuzz = patch.flags.fuzz.unwrap_or(fuzz);
    let mut found = Vec::new();
    for diff in &patch.files {
        let mut names = [&diff.old, &diff.new, &diff.index].into_iter().flatten();
        if let Some(name) = names.next()
            && let Some(file) = tree.file(name)?
        {
            found.extend(twins_of(patch, diff, &file.content, fuzz));
        }
    }
    Ok(found)
}

fn twins_of(patch: &Patch, diff: &FileDiff, content: &[u8], fuzz: usize) -> Vec<Warning> {
    let mut placer = Placer::new(content).ignore_blanks(patch.flags.ignore_whitespace);
    let all = HunkPlaces::new(content);
    let mut found = Vec::new();
    for (index, hunk) in diff.hunks.iter().enumerate() {
        let Some(position) = placer.apply(hunk, fuzz) else {
            break;
        };
        let there = all.of(hunk, position.fuzz);
        if position.line == hunk.old_start || there.len() < 2 {
            continue;
        }
        let shown: Vec<String> = there.iter().take(5).map(ToString::to_string).collect();
        let more = if there.len() > 5 { ", …" } else { "" };
        let what = format!(
            "hunk {} applies to line {} of {}, an offset of {} lines, and the file has its lines {} times: at {}{more}",
            index + 1,
            position.line,
            diff.shown_name(),
            position.line as i64 - hunk.old_start as i64,
            there.len(),
            shown.join(", ")
        );
        let hint =
            "check that this is the right place; `perfquilt lint --fix` then writes its line";
        let warning = Warning::several_places(what);
        found.push(warning.at(&patch.shown, hunk.line).hint(hint));
    }
    found
}

/// Returns the canonical form of each patch; `None` for patches that are canonical or empty.
fn canonical_forms(
    ws: &Workspace,
    location: &SeriesLocation,
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
        // The compression of a binary file depends on the program that wrote it.
        let binary = patch.files.iter().any(|file| file.binary.is_some());
        let exact = step.fit == stack::PatchFit::default();
        let new = rewritten(&[&bytes], header, &diff);
        let body = &new[header.len()..];
        let same = without_functions(&bytes[header.len()..]) == without_functions(body)
            || (binary && exact);
        forms.push((!same && !diff.is_empty()).then_some(new));
    }
    Ok(forms)
}

/// Splits a diff into lines without the function names after `@@`, which depend on the attributes of the tree in which
/// git ran and carry no information.
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

/// Reports text between diffs, which no program reads, and diffs in the words of a header.
fn text_between(location: &SeriesLocation, series: &Series) -> Result<Vec<Warning>> {
    let mut found = Vec::new();
    for patch in series.patches() {
        let mut entries = series.file().entries().iter();
        if patch.has_text_between()
            && let Some(entry) = entries.find(|entry| entry.name == patch.name)
        {
            found.extend(patch.text_between(&location.bytes(entry)?));
        }
    }
    Ok(found)
}

/// Reports patches that make the change of an earlier one, whatever their headers and forms.
pub(crate) fn same_change(patches: &[Patch]) -> Vec<Warning> {
    let is_same = |one: &&Patch, other: &Patch| {
        let names = |patch: &Patch| -> Vec<Vec<u8>> {
            patch
                .files
                .iter()
                .flat_map(FileDiff::names)
                .cloned()
                .collect()
        };
        !one.files.is_empty()
            && names(one) == names(other)
            && same_changes(one.files.clone(), other.files.clone())
    };
    let found = patches.iter().enumerate().filter_map(|(index, patch)| {
        let first = patches[..index]
            .iter()
            .find(|first| is_same(first, patch))?;
        let warning = Warning::same_change(format!("the same diff as {}", first.name));
        let warning = warning.at(&patch.shown, None);
        Some(warning.hint("remove one of them from the series"))
    });
    found.collect()
}

/// Returns an indented comment without its indentation; quilt would take the indented one for a patch.
fn unindented(line: &str) -> Option<&str> {
    let plain = line.trim_start_matches([' ', '\t']);
    (plain.len() < line.len() && plain.starts_with('#')).then_some(plain)
}

/// Reports lines that quilt interprets differently than perfquilt.
fn quirks(file: &SeriesFile, shown: &str) -> Vec<Warning> {
    let mut found = Vec::new();
    // Reported only once.
    let mut crlf = false;
    for (index, line) in file.lines().iter().enumerate() {
        let mut add = |warning: Warning| found.push(warning.at(shown, index + 1));
        if unindented(line).is_some() {
            let what = "quilt takes this comment for a patch called `#`";
            add(Warning::indented_comment(what).hint("start it in the first column"));
        }
        let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty());
        if words.next().is_some_and(|name| !name.starts_with('#')) && words.next() == Some("-p1") {
            add(Warning::default_strip("`-p1` is the default")
                .hint("quilt removes it at the next refresh; so does `perfquilt lint --fix`"));
        }
        if line.ends_with('\r') && !crlf {
            crlf = true;
            add(Warning::line_ends("the line ends in CR LF").hint("quilt expects plain line ends"));
        }
    }
    found
}

fn patch_warnings(patch: &Patch) -> Vec<Warning> {
    if patch.files.is_empty() {
        let empty = Warning::no_diff("the patch is empty").at(&patch.shown, None);
        return vec![empty.hint("remove it from the series")];
    }
    let mut found = Vec::new();
    found.extend(patch.indented_diff());
    let ignored = patch.rest.stray.first();
    found.extend(ignored.map(|&line| patch.ignored(line).into()));
    let cut = patch.rest.cut_off.map(|cut| cut.line);
    let names = patch
        .rest
        .without_hunks
        .first()
        .filter(|&&line| cut.is_none_or(|cut| cut > line + 1));
    found.extend(names.map(|&line| patch.no_hunk(line).into()));
    found.extend(patch.lacks());
    let header = &patch.header;
    let mut add = |line: usize, warning: Warning| found.push(warning.at(&patch.shown, line));
    if header.title().is_none() {
        let hint =
            "start it with `Subject:` or `Description:` and `From:`, and describe its purpose";
        add(1, Warning::no_header("the patch has no header").hint(hint));
    } else {
        if header.subject.is_none() {
            let what = "the header has no `Subject:` or `Description:`";
            let hint = "the first line of text is taken as the title";
            add(1, Warning::no_subject(what).hint(hint));
        }
        if header.author.is_none() {
            let what = "the header has no `From:` or `Author:`";
            let hint = "the commit's author is `unknown` without it";
            add(1, Warning::no_author(what).hint(hint));
        }
    }
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for diff in &patch.files {
        let name = diff.shown_name();
        if let Some(first) = seen.insert(name.clone(), diff.line) {
            let what = format!("{name} is changed a second time (first on line {first})");
            let warning = Warning::changed_twice(what);
            add(diff.line, warning.hint("`perfquilt lint --fix` joins both"));
        }
    }
    found
}
