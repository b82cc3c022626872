//! Signals that ask this program to stop. The handlers set a flag, which the program checks where it can stop
//! cleanly.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::host::KernelFields;
use perfquilt_model::error::{Error, Result};

static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Installs handlers that record SIGINT, SIGTERM and SIGHUP, and one that makes a file that is too large an error. A second
/// signal ends the process at once (the
/// kernel then sends the children their parent-death signal).
pub fn install_signal_handlers() -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
    // A handler makes writing beyond `ulimit -f` an error with a file name; without one, the kernel ends this process. Other
    // programs start with the kernel's default again, which an ignored signal would change.
    signal_hook::flag::register(SIGXFSZ, Arc::default())
        .map_err(|error| Error::system_refused(format!("cannot watch signals: {error}")))?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // `nohup` ignores SIGHUP to survive the terminal.
        if signal == SIGHUP && is_ignored(signal) {
            continue;
        }
        // In this order the flag is still unset at the first signal, so only the second ends this process.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&INTERRUPTED))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&INTERRUPTED)))
            .map_err(|error| Error::system_refused(format!("cannot watch signals: {error}")))?;
    }
    Ok(())
}

/// Returns whether this program was started with `signal` ignored.
fn is_ignored(signal: i32) -> bool {
    let status = KernelFields::read("/proc/self/status");
    let mask = status
        .get("SigIgn")
        .map(|mask| u64::from_str_radix(mask, 16));
    matches!(mask, Some(Ok(mask)) if mask >> (signal - 1) & 1 == 1)
}

/// Returns whether a signal has asked this program to stop.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Lets the first signal end this process at once, as the second one does otherwise: for a process that leaves nothing half
/// done and asks nothing while it computes.
pub fn end_at_first_signal() {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Asks all threads to stop, as a signal would.
pub fn interrupt() {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Returns an error once a signal has asked this program to stop; for loops without a child to wait for.
pub fn check_interrupted() -> Result<()> {
    if interrupted() {
        Err(Error::interrupted())
    } else {
        Ok(())
    }
}

/// Sleeps for `duration`, or until a signal asks this program to stop, which is an error.
pub fn sleep(duration: Duration) -> Result<()> {
    const STEP: Duration = Duration::from_millis(200);
    let until = Instant::now() + duration;
    while Instant::now() < until {
        check_interrupted()?;
        std::thread::sleep(STEP);
    }
    Ok(())
}

/// Returns the error of [`check_interrupted`] after a failure that the same signal may have caused: a queueing system
/// signals all processes of a job at once, and a child may end before this process has its signal. Waits up to one
/// second for it.
pub fn check_interrupted_soon() -> Result<()> {
    const SOON: Duration = Duration::from_secs(1);
    const STEP: Duration = Duration::from_millis(50);
    let since = Instant::now();
    while !interrupted() && since.elapsed() < SOON {
        std::thread::sleep(STEP);
    }
    check_interrupted()
}
