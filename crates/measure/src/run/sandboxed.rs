//! Runs a command of perfquilt again inside a sandbox, for patches that nobody has reviewed.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use perfquilt_config::workspace::Workspace;
use perfquilt_machine::sandbox::{self, ProcessEnd, Sandbox};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress::Progress;
use perfquilt_patches::series::SeriesLocation;
use perfquilt_patches::upstream;
use perfquilt_system::process::Sink;

/// Fetches `release` (the current one if `None`), and runs this program with the arguments `words` in a sandbox without
/// network, in which the caches and the workspace's state can be written. Returns its exit code.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when no sandbox can be created or the release is unknown;
/// [`Kind::Bench`](perfquilt_model::error::Kind::Bench) when a limit ended the sandbox;
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the program in it was killed.
pub fn run_in_sandbox(
    ws: &Workspace,
    release: Option<&str>,
    words: &[OsString],
    progress: &dyn Progress,
) -> Result<u8> {
    sandbox::check_support().map_err(|why| {
        Error::usage(format!("there is no sandbox: {why}"))
            .hint("`perfquilt doctor` lists what is missing")
    })?;
    upstream::ensure(ws, release, progress)?;
    let mut sandbox = allow_series(Sandbox::new(&ws.config.sandbox), ws, release)?;
    for folder in [&ws.state(), ws.cache()] {
        std::fs::create_dir_all(folder).map_err(|e| Error::io("make", folder, &e))?;
        sandbox = sandbox.write(folder);
    }
    let cache = ws.cache().parent().unwrap_or(ws.root());
    sandbox = sandbox.env("XDG_CACHE_HOME", cache);
    let here = std::env::current_dir().map_err(|e| Error::io("find", Path::new("."), &e))?;
    let tool = std::env::current_exe()
        .map_err(|error| Error::internal(format!("cannot find this program: {error}")))?;
    let mut inside = sandbox.start(&tool, words, &here, (Sink::Inherit, Sink::Inherit))?;
    let status = match sandbox::supervise(&mut inside, &|| false)? {
        ProcessEnd::Exited(status) | ProcessEnd::Interrupted(status) => status,
        ProcessEnd::LimitExceeded(what) => {
            return Err(Error::bench(format!("the sandbox was ended: {what}"))
                .hint("[sandbox] of the configuration sets its limits"));
        }
        ProcessEnd::Cancelled => return Err(Error::interrupted()),
    };
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.ok_or_else(|| match status.signal() {
        Some(signal) => Error::internal(format!("the sandbox was ended by signal {signal}")),
        None => Error::internal("the sandbox ended unexpectedly"),
    })
}

/// Makes the series of `release` readable in the sandbox, with the files and variables that locate it: those of the
/// configuration and of quilt.
fn allow_series(sandbox: Sandbox, ws: &Workspace, release: Option<&str>) -> Result<Sandbox> {
    let series = SeriesLocation::of(ws, release)?;
    let mut sandbox = sandbox
        .read(&ws.bench_config())
        .read(&series.file)
        .read(&series.folder);
    for name in ["QUILT_PC", "QUILT_PATCHES", "QUILT_SERIES"] {
        if let Some(value) = std::env::var_os(name) {
            sandbox = sandbox.env(name, value);
        }
    }
    let given = std::env::var_os("QUILT_PC").filter(|value| !value.is_empty());
    let noted = ws.root().join(given.unwrap_or_else(|| ".pc".into()));
    Ok(sandbox
        .read(&noted.join(".quilt_patches"))
        .read(&noted.join(".quilt_series")))
}
