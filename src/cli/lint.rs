//! `perfquilt lint`: reports all problems of the series at once.

use clap::Args;
use serde_json::json;

use super::Context;
use super::output::shown;
use super::plain::plain;
use perfquilt_import::lint::{self, LintReport};
use perfquilt_model::counted::counted;
use perfquilt_model::error::{Error, Result};

/// Check the series and its patches; exit with 3 on errors
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt lint
  perfquilt lint --fix                  write patches in canonical form
  perfquilt lint --split                write one file per commit of a mailbox
  perfquilt lint --strict               fail on warnings, as in a workflow")]
pub struct Lint {
    /// Fail on warnings, and when the patches could not be applied
    #[arg(long)]
    strict: bool,
    /// Fix the form of patches and series, without changing what any patch does
    #[arg(long)]
    fix: bool,
    /// Split patch files that hold several commits, such as mailboxes, into one file a commit
    #[arg(long)]
    split: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) when there are errors; with `--strict`, also when there are
/// warnings, or when the patches could not be applied.
pub fn run(context: &Context, args: &Lint) -> Result<()> {
    let ws = context.workspace()?;
    let split = if args.split {
        lint::split(&ws)?
    } else {
        lint::SplitResult::default()
    };
    let fixed = if args.fix {
        lint::fix(&ws)?
    } else {
        lint::FixResult::default()
    };
    let LintReport {
        errors,
        warnings,
        applied,
        not_fetched,
    } = lint::lint(&ws)?;
    let findings: Vec<(&str, &Error)> = errors
        .iter()
        .map(|error| ("error", error))
        .chain(warnings.iter().map(|warning| ("warning", &**warning)))
        .collect();
    let (errors, warnings) = (errors.len(), warnings.len());
    let list = findings.iter().map(|(severity, found)| {
        json!({
            "severity": severity,
            "code": found.code(),
            "file": found.location().map(|place| shown(&place.file)),
            "line": found.location().and_then(|place| place.line),
            "message": found.message(),
            "details": found.detail_lines(),
            "hint": found.hint_text(),
        })
    });
    let json = json!({
        "schema": 1,
        "errors": errors,
        "warnings": warnings,
        "findings": list.collect::<Vec<_>>(),
        "applied": applied,
        "fixed": fixed.files,
        "kept": fixed.kept.as_deref().or(split.kept.as_deref()).map(shown),
        "split": split.files.iter().map(|split| json!({
            "file": split.file,
            "new": split.new,
        })).collect::<Vec<_>>(),
    });
    let text = || {
        let mut text = String::new();
        for split in &split.files {
            let new = split.new.iter().map(|file| plain(file));
            text.push_str(&format!(
                "split: {} keeps its first commit; new: {}\n",
                plain(&split.file),
                new.collect::<Vec<_>>().join(", ")
            ));
        }
        for file in &fixed.files {
            text.push_str(&format!("fixed: {}\n", plain(file)));
        }
        for kept in split.kept.iter().chain(&fixed.kept) {
            let kept = kept.display();
            text.push_str(&format!("the original files are kept in {kept}\n"));
        }
        for (severity, found) in &findings {
            let (words, code) = (plain(&found.to_string()), found.code());
            text.push_str(&format!("{severity}: {words} [{code}]\n"));
            for line in found.detail_lines() {
                text.push_str(&format!("  {}\n", plain(line)));
            }
            if let Some(hint) = found.hint_text() {
                text.push_str(&format!("  hint: {}\n", plain(hint)));
            }
        }
        let (found_none, they) = match findings.as_slice() {
            [] => ("no problems found", " in the files; whether they"),
            _ => ("", "whether the patches"),
        };
        text += found_none;
        match not_fetched.as_deref().map(unchecked) {
            Some(why) => text += &format!("{they} apply {}\n  hint: {FETCH}\n", plain(&why)),
            None if found_none.is_empty() => {}
            None => text.push('\n'),
        }
        text
    };
    context.output.result(&json, text)?;
    if errors > 0 || (args.strict && warnings > 0) {
        return Err(Error::lint(format!(
            "{} and {}",
            counted(errors, "error", "errors"),
            counted(warnings, "warning", "warnings")
        )));
    }
    match not_fetched {
        Some(release) if args.strict => {
            let fault = format!("whether the patches apply {}", unchecked(&release));
            Err(Error::lint(fault).hint(FETCH))
        }
        _ => Ok(()),
    }
}

/// The hint when the patches could not be applied.
const FETCH: &str = "`perfquilt upstream fetch` fetches it";

/// Returns why lint did not apply the patches, as the end of a sentence.
fn unchecked(release: &str) -> String {
    format!("was not checked: {release} is not fetched")
}
