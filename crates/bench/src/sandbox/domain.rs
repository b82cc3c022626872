//! A Landlock domain for each program that perfquilt starts inside: it signals and traces none of the others, and writes only
//! where servers and builds do. So no code of a job stops what measures it, or writes results in its place.

use std::path::Path;
use std::sync::OnceLock;

use landlock::{
    ABI, AccessFs, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
    path_beneath_rules,
};

use super::HOME;
use perfquilt_model::error::{Error, Result};

/// Those for programs that signal no others, and for those that do.
static RULES: OnceLock<[RulesetCreated; 2]> = OnceLock::new();

/// Makes the rules of [`enter`], which allow writing below `cache` and in the memory of the sandbox. They are those that this
/// kernel has.
pub(super) fn prepare(cache: &Path) -> Result<()> {
    let tmp = Path::new("/tmp");
    // The rules hold for everything below, also for state and outcome of a workspace there.
    let memory = if cache.starts_with(tmp) {
        Path::new(HOME)
    } else {
        tmp
    };
    let writable = [cache, memory, Path::new("/dev")];
    let rules = |signals| rules(&writable, signals);
    let rules = rules(false)
        .and_then(|without| Ok([without, rules(true)?]))
        .map_err(|error| Error::internal(format!("cannot make rules of Landlock: {error}")))?;
    let _ = RULES.set(rules);
    Ok(())
}

/// Puts this process into a domain of its own; makes only async-signal-safe calls.
pub(super) fn enter(signals: bool) -> std::io::Result<()> {
    let Some(rules) = RULES.get() else {
        return Ok(());
    };
    let entered = rules[usize::from(signals)].try_clone()?.restrict_self();
    entered
        .map(drop)
        .map_err(|_| std::io::Error::from_raw_os_error(libc::EPERM))
}

fn rules(writable: &[&Path], signals: bool) -> std::result::Result<RulesetCreated, RulesetError> {
    let writes = AccessFs::from_write(ABI::V3);
    let rules = Ruleset::default().handle_access(writes)?;
    let rules = if signals {
        rules
    } else {
        rules.scope(Scope::Signal)?
    };
    rules
        .create()?
        .add_rules(path_beneath_rules(writable, writes))
}
