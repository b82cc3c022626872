//! `perfquilt explain`: what the code of an error or a warning means.

use clap::Args;

use super::Context;
use perfquilt_model::code::{ALL, Code};
use perfquilt_model::error::{Error, Kind, Result};

/// Arguments of `perfquilt explain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt explain PQ0315
  perfquilt explain")]
pub struct Arguments {
    /// Code from the last words of an error or a warning; without one, all are listed
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
        let end = match code.kind.map(Kind::exit_code) {
            Some(exit) => format!("Exit code {exit}, unless the command's purpose decides it."),
            None => "A warning: no command ends with it.".to_owned(),
        };
        let meaning = meaning(&code, "\n");
        format!("{code}: {}\n\n{meaning}\n\n{end}\n", code.title)
    })
}

/// Returns the lines of what a code means, with `end` between them.
fn meaning(code: &Code, end: &str) -> String {
    let lines = code.meaning.lines().map(str::trim);
    lines.collect::<Vec<_>>().join(end)
}

fn json(code: &Code) -> serde_json::Value {
    serde_json::json!({
        "code": code,
        "exit_code": code.kind.map(Kind::exit_code),
        "title": code.title,
        "meaning": meaning(code, " "),
    })
}
