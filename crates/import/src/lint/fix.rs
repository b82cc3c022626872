//! Fixes that do not change the effect of any patch.

use std::path::PathBuf;

use super::{canonical_forms, imported_release, unindented};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_rebase::edit::publish::{self, FileChange};
use perfquilt_series::series::write::{self, SeriesLine};
use perfquilt_series::series::{Patch, Series, SeriesFile, SeriesLocation};
use perfquilt_series::stack;

/// The result of [`fix`].
#[derive(Debug, Clone, Default)]
pub struct FixResult {
    /// Displayed paths of the written files.
    pub files: Vec<String>,
    /// Folder that keeps the old files.
    pub kept: Option<PathBuf>,
}

/// Converts patches to canonical form (which also fixes offsets) and rewrites lines of `series` that quilt interprets
/// differently. Nothing is written unless every tree stays the same.
pub fn fix(ws: &Workspace) -> Result<FixResult> {
    let lock = publish::lock(ws)?;
    let location = SeriesLocation::of(ws, None)?;
    let series = Series::load(ws)?;
    let release = imported_release(ws, "the patches")?;
    let before = stack::apply(ws, &release, &series)?;
    let forms = canonical_forms(ws, &location, &series, &before)?;
    let mut bodies = Vec::new();
    let mut wanted = Vec::new();
    for (index, (entry, form)) in series.file().entries().iter().zip(forms).enumerate() {
        wanted.push(SeriesLine {
            name: entry.name.clone(),
            from: Some(index),
            plain: form.is_some(),
        });
        bodies.push(form);
    }
    let text = plain_lines(&write::series(series.file(), &wanted));
    let file = SeriesFile::read(text.as_bytes(), &location.shown)?;
    let mut patches = Vec::new();
    let mut changes = Vec::new();
    let mut fixed = FixResult::default();
    for ((old, body), entry) in series.patches().iter().zip(&bodies).zip(file.entries()) {
        let shown = location.shown_patch(&entry.name);
        let bytes = match body {
            Some(bytes) => bytes.clone(),
            None => location.bytes(entry)?,
        };
        let new = Patch::parse(entry, &shown, &bytes)?;
        if new.name != old.name {
            return Err(Error::other_effect("the order of the patches would change"));
        }
        patches.push(new);
        if body.is_some() {
            changes.push(FileChange {
                path: location.folder.join(&entry.name),
                content: Some(perfquilt_series::series::compress(&entry.name, &bytes)?),
            });
            fixed.files.push(shown);
        }
    }
    if text != series.file().to_text() {
        changes.push(FileChange {
            path: location.file.clone(),
            content: Some(text.into_bytes()),
        });
        fixed.files.push(location.shown.clone());
    }
    if changes.is_empty() {
        return Ok(fixed);
    }
    let after = stack::apply(ws, &release, &Series::assemble(file, patches))?;
    for (old, new) in before.steps.iter().zip(&after.steps) {
        if old.tree != new.tree {
            return Err(Error::other_effect(format!(
                "{} would have a different effect in canonical form; nothing was written",
                old.name
            )));
        }
    }
    fixed.kept = publish::publish(ws, &lock, &changes, &[])?;
    Ok(fixed)
}

/// Normalises the lines of `series` for quilt: plain line ends, comments in the first column, no `-p1`.
fn plain_lines(text: &str) -> String {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let (line, end) = match line.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (line, ""),
        };
        let line = line.strip_suffix('\r').unwrap_or(line);
        let line = unindented(line).unwrap_or(line);
        let words = line.trim_start_matches([' ', '\t']);
        let (name, options) = words.split_once([' ', '\t']).unwrap_or((words, ""));
        let options = options.trim_start_matches([' ', '\t']);
        let rest = options
            .strip_prefix("-p1")
            .filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
            // A later option of the same kind may change its meaning if this one is removed.
            .filter(|rest| !rest.contains("-p") && !rest.contains("--strip"));
        match rest.map(|rest| rest.trim_matches([' ', '\t'])) {
            Some("") if !name.starts_with('#') => out.push_str(name),
            Some(rest) if !name.starts_with('#') => {
                out.push_str(name);
                out.push(' ');
                out.push_str(rest);
            }
            _ => out.push_str(line),
        }
        out.push_str(end);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::plain_lines;

    #[test]
    fn only_quirks_of_series_are_removed() {
        assert_eq!(
            plain_lines(
                "# a -p1\r\n  # b\nx -p1\ny -p0 # z\n\n w#1\t-p1  # why, why\nv -p1 -R # z\nu -p10\nlast\r"
            ),
            "# a -p1\n# b\nx\ny -p0 # z\n\nw#1 # why, why\nv -R # z\nu -p10\nlast"
        );
    }
}
