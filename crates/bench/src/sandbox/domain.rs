//! A Landlock domain for each program that perfquilt starts inside: it signals and traces none of the others, and writes only
//! where it has to, a server only to the folder of its start, a build to its tree. So no code of a job stops what measures it,
//! writes results in its place, or changes a finished server, prepared data, or another server that runs.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use landlock::{
    ABI, AccessFs, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
    path_beneath_rules,
};

use super::HOME;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::process::Exceptions;

/// The devices that a program without the right to write elsewhere may write to: `/dev/shm` has the folders of others.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty"];

/// The folders that every program may write to which has none of its own, such as a client.
static COMMON: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Allows programs without folders of their own to write to that of servers' starts in `cache`, and to the memory of the sandbox.
pub(super) fn prepare(cache: &Path) -> Result<()> {
    let tmp = Path::new("/tmp");
    // The rules hold for everything below, also for state and outcome of a workspace there.
    let memory = if cache.starts_with(tmp) {
        Path::new(HOME)
    } else {
        tmp
    };
    let starts = cache.join("run");
    std::fs::create_dir_all(&starts).map_err(|e| Error::io("create", &starts, &e))?;
    let _ = COMMON.set(vec![starts, memory.into(), "/dev".into()]);
    Ok(())
}

/// Returns a domain with these exceptions, with the rules that this kernel has.
pub(super) fn rules(exceptions: &Exceptions) -> std::result::Result<RulesetCreated, RulesetError> {
    let writes = AccessFs::from_write(ABI::V3);
    let rules = Ruleset::default().handle_access(writes)?;
    let rules = if exceptions.signals {
        rules
    } else {
        rules.scope(Scope::Signal)?
    };
    let folders = if exceptions.folders.is_empty() {
        COMMON.get().cloned().unwrap_or_default()
    } else {
        let own = exceptions.folders.iter().cloned();
        own.chain(DEVICES.map(PathBuf::from)).collect()
    };
    let rules = rules.create()?;
    rules.add_rules(path_beneath_rules(&folders, writes))
}
