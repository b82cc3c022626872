//! `perfquilt lint`: reports all problems of the series at once.

use clap::Args;
use serde_json::json;

use super::Context;
use super::output::{counted, shown};
use super::plain::plain;
use perfquilt_model::error::{Error, Result};
use perfquilt_patches::lint::{self, Severity};

/// Check the series and its patches; exit with 3 on errors
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt lint
  perfquilt lint --fix                  write patches in canonical form
  perfquilt lint --strict               in a workflow that warnings should fail")]
pub struct Lint {
    /// Treat warnings as errors
    #[arg(long)]
    strict: bool,
    /// Fix the form of patches and series, without changing what any patch does
    #[arg(long)]
    fix: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) when there are errors.
pub fn run(context: &Context, args: &Lint) -> Result<()> {
    let ws = context.workspace()?;
    let fixed = if args.fix {
        lint::fix(&ws, context.output.progress())?
    } else {
        lint::FixResult::default()
    };
    let findings = lint::lint(&ws, context.output.progress())?;
    let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    if context.output.json() {
        let list: Vec<_> = findings
            .iter()
            .map(|finding| {
                json!({
                    "severity": finding.severity.name(),
                    "file": finding.error.place().map(|place| shown(&place.file)),
                    "line": finding.error.place().and_then(|place| place.line),
                    "message": finding.error.message(),
                    "details": finding.error.detail_lines(),
                    "hint": finding.error.hint_text(),
                })
            })
            .collect();
        context.output.print_json(&json!({
            "schema": 1,
            "errors": errors,
            "warnings": warnings,
            "findings": list,
            "fixed": fixed.files,
            "kept": fixed.kept.as_deref().map(shown),
        }))?;
    } else {
        let mut text = String::new();
        for file in &fixed.files {
            text.push_str(&format!("fixed: {}\n", plain(file)));
        }
        if let Some(kept) = &fixed.kept {
            text.push_str(&format!(
                "the original files are kept in {}\n",
                kept.display()
            ));
        }
        for finding in &findings {
            let error = &finding.error;
            text.push_str(&format!(
                "{}: {}\n",
                finding.severity.name(),
                plain(&error.to_string())
            ));
            for line in error.detail_lines() {
                text.push_str(&format!("  {}\n", plain(line)));
            }
            if let Some(hint) = error.hint_text() {
                text.push_str(&format!("  hint: {}\n", plain(hint)));
            }
        }
        if findings.is_empty() {
            text.push_str("no problems found\n");
        }
        context.output.print(&text)?;
    }
    if errors > 0 || (args.strict && warnings > 0) {
        return Err(Error::series(format!(
            "{} and {}",
            counted(errors, "error", "errors"),
            counted(warnings, "warning", "warnings")
        )));
    }
    Ok(())
}
