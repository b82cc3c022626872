//! `perfquilt import`: imports patches from elsewhere into the series.

use clap::Args;
use serde_json::json;

use super::Context;
use super::output::cut;
use super::plain::plain_lines;
use perfquilt_import::{ImportRequest, Imported, import};
use perfquilt_model::counted::counted;
use perfquilt_model::error::Result;

/// Arguments of `perfquilt import`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt import ../fork mariadb-10.11.18..my-branch  commits, merges included
  perfquilt import series.mbx                           mails, as from `b4 am`
  perfquilt import ../package/debian/patches            another series
  perfquilt import ../srv.spec                          the patches of an RPM spec
  perfquilt import ../patches                           a folder of patches, or
                                                        one folder per release

perfquilt writes nothing unless the patches apply to the release and, where the
source has the resulting files, reproduce them.")]
pub struct Arguments {
    /// Git repository, mailbox, folder of patches, tree with a series, or RPM .spec
    source: String,
    /// Range of commits to import, from the release's to the fork's
    #[arg(value_name = "BASE..TIP")]
    range: Option<String>,
    /// Release that the patches are for (default: the current one)
    #[arg(long, value_name = "VERSION")]
    release: Option<String>,
    /// Leading folders to strip from the paths of patches, as in `patch -p`
    #[arg(short = 'p', long = "strip", value_name = "N")]
    strip: Option<usize>,
    /// Show what would be written, and write nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
}

/// Runs the subcommand.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let ws = context.workspace()?;
    let request = ImportRequest {
        source: arguments.source.clone(),
        range: arguments.range.clone(),
        release: arguments.release.clone(),
        strip: arguments.strip,
        dry_run: arguments.dry_run,
    };
    let imported = import(&ws, &request)?;
    let json = json!({ "schema": 1, "dry_run": arguments.dry_run, "imported": imported });
    let mut text: String = imported.iter().map(release).collect();
    text.push_str(if arguments.dry_run {
        "nothing was written (--dry-run)\n"
    } else {
        "next: perfquilt status\n"
    });
    context.output.result(&json, || plain_lines(&text))
}

/// Returns the text about one release's series.
fn release(imported: &Imported) -> String {
    let mut text = format!(
        "{}: {} from {}, in {}\n",
        imported.release,
        counted(imported.patches.len(), "patch", "patches"),
        imported.source,
        imported.series.display()
    );
    let digits = imported.patches.len().to_string().len();
    for (index, patch) in imported.patches.iter().enumerate() {
        let line = format!("{:>digits$}  {}", index + 1, patch.name);
        text.push_str(&cut(&line, 80));
        text.push('\n');
        for resolution in &patch.resolutions {
            text.push_str(&format!("{:digits$}  {resolution}\n", ""));
        }
    }
    for note in &imported.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text.push_str(&format!("checked: {}\n", imported.checked));
    text
}
