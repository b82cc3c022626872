//! Explains a change that a bisection found: its files, its functions, and the next commands.

use std::collections::BTreeMap;

use super::request::BisectRequest;
use crate::experiment::Server;
use perfquilt_bench::profile::{self, CostSource, ProfileRequest, ProfiledServer};
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::attribution;
use perfquilt_judge::bisect::FileStat;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::FunctionChange;
use perfquilt_model::profile::CostTable;
use perfquilt_system::git::Git;

/// Runs of each server: the variation between starts must be known to recognise changes.
const RUNS: u32 = 3;

/// Returns the files that differ between two trees.
pub(super) fn files(ws: &Workspace, before: &str, after: &str) -> Result<Vec<FileStat>> {
    let git = Git::bare(&ws.object_store());
    let stat = git.ok(&["diff", "--numstat", "--no-renames", "-z", before, after])?;
    Ok(stat.split_terminator('\0').filter_map(file_stat).collect())
}

/// Returns the functions whose own instructions differ, on the workload of `request`, between the servers
/// without and with the change that ends at state `to`.
pub(super) fn functions(
    ws: &Workspace,
    request: &BisectRequest,
    release: &str,
    to: usize,
    [before, after]: [&Server; 2],
) -> Result<Vec<FunctionChange>> {
    let recipe = ws.config.recipe(&request.preset.recipe)?;
    let binary = recipe.binary.as_ref().ok_or_else(|| {
        Error::recipe(format!(
            "the recipe {} names no `binary` to look into",
            request.preset.recipe
        ))
    })?;
    let servers = [("without the change", before), ("with the change", after)];
    let workload = request
        .preset
        .workload(&ws.config, &request.question.workload)?;
    let pair = profile::measure(
        ws,
        &ProfileRequest {
            workload: &workload,
            source: CostSource::Callgrind,
            transactions: None,
            runs: RUNS,
        },
        servers.map(|(label, server)| ProfiledServer {
            label,
            dir: &server.dir,
            data: (release, &before.dir),
            binary,
            release,
        }),
        None,
    )?;
    let own = |tables: &[CostTable]| -> Vec<BTreeMap<String, f64>> {
        let costs = |table: &CostTable| {
            let functions = table.functions.iter();
            functions
                .map(|(name, costs)| (name.clone(), costs.own))
                .collect()
        };
        tables.iter().map(costs).collect()
    };
    let (before, after) = (own(&pair.before), own(&pair.after));
    Ok(attribution::compared(
        to,
        &request.question.workload,
        &(0..).zip(&before).collect(),
        &(0..).zip(&after).collect(),
    ))
}

/// Parses one entry of `git diff --numstat -z`.
fn file_stat(entry: &str) -> Option<FileStat> {
    let mut parts = entry.splitn(3, '\t');
    let (added, removed, path) = (parts.next()?, parts.next()?, parts.next()?);
    Some(FileStat {
        path: path.to_owned(),
        lines: added.parse().ok().zip(removed.parse().ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_numstat_is_read() {
        let text = file_stat("3\t1\tsql/item.cc").unwrap();
        assert_eq!(
            (text.path.as_str(), text.lines),
            ("sql/item.cc", Some((3, 1)))
        );
        assert_eq!(file_stat("-\t-\ta\tb.bin").unwrap().path, "a\tb.bin");
        assert_eq!(file_stat("-\t-\tlogo.png").unwrap().lines, None);
        assert!(file_stat("nonsense").is_none());
    }
}
