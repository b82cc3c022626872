//! `perfquilt init`: creates a workspace.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::Context;
use super::output::shown;
use perfquilt_config::init::{TEMPLATES, init, template};
use perfquilt_model::error::Result;
use perfquilt_system::process::quoted;

/// Arguments of `perfquilt init`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt init my-series && cd my-series
  perfquilt upstream fetch && perfquilt status
  perfquilt init --server valkey my-series

For a server that is not listed, start from the nearest one: CONTRIBUTING.md, \"Add a server\".")]
pub struct Arguments {
    /// Folder of the workspace (default: this one, or that of -C)
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Server that the patches are for
    #[arg(long, value_name = "SERVER", default_value = TEMPLATES[0].server, value_parser = servers())]
    server: String,
}

fn servers() -> PossibleValuesParser {
    PossibleValuesParser::new(TEMPLATES.iter().map(|template| template.server))
}

/// Runs `perfquilt init`.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let base = context
        .global
        .directory
        .as_deref()
        .unwrap_or(Path::new("."));
    let dir = arguments
        .dir
        .as_ref()
        .map_or_else(|| base.to_owned(), |dir| base.join(dir));
    let written = init(&dir, template(&arguments.server)?)?;
    let json = serde_json::json!({ "schema": 1, "directory": shown(&dir), "files": written });
    let mut text = format!("{} files in {}\n\n", written.len(), dir.display());
    if dir != Path::new(".") {
        text += &format!("  cd {}\n", quoted(&shown(&dir)));
    }
    text += "  perfquilt doctor         missing requirements\n  \
             perfquilt edit           a git branch for your patches, one commit each\n";
    context.output.result(&json, || text)
}
