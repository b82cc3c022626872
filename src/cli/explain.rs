//! `perfquilt explain`: what an error's code means.

use std::fmt::Write as _;

use clap::Args;

use super::Context;
use perfquilt_model::code::{ALL, Code};
use perfquilt_model::error::{Error, Result};

/// Arguments of `perfquilt explain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt explain PQ0315
  perfquilt explain")]
pub struct Arguments {
    /// Code from an error's last words; without one, all are listed
    code: Option<String>,
}

/// Prints what a code means, or the list of all codes.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let Some(wanted) = &arguments.code else {
        let all: Vec<_> = ALL.iter().map(json).collect();
        return context.output.result(&all, || {
            let rows = ALL.iter().map(|code| format!("{code}  {}\n", code.title));
            rows.collect()
        });
    };
    let code = Code::find(wanted).ok_or_else(|| {
        Error::unknown_name(format!("there is no code `{wanted}`"))
            .hint("`perfquilt explain` lists all codes")
    })?;
    context.output.result(&json(&code), || {
        let mut text = format!("{code}: {}\n\n", code.title);
        for line in code.meaning.lines() {
            let _ = writeln!(text, "{}", line.trim());
        }
        let _ = writeln!(
            text,
            "\nExit code {}, unless the command's purpose decides it.",
            code.kind.exit_code()
        );
        text
    })
}

fn json(code: &Code) -> serde_json::Value {
    serde_json::json!({
        "code": code,
        "exit_code": code.kind.exit_code(),
        "title": code.title,
        "meaning": code.meaning.lines().map(str::trim).collect::<Vec<_>>().join(" "),
    })
}
