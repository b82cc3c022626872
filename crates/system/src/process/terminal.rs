//! The process group that reads the terminal.

use std::os::fd::BorrowedFd;

use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// Makes `group` the foreground group of the terminal at standard output, if there is one. It may be called between fork
/// and exec.
#[allow(unsafe_code)]
pub(super) fn give_to(group: Pid) {
    // SAFETY: descriptor 1 is open in every program that Rust's runtime started.
    let output = unsafe { BorrowedFd::borrow_raw(1) };
    // SAFETY: the dispositions set are constants and no handlers. The kernel stops a background group that changes the
    // foreground group, unless it ignores this signal.
    let before = unsafe { libc::signal(libc::SIGTTOU, libc::SIG_IGN) };
    let _ = tcsetpgrp(output, group);
    // SAFETY: as above; this is what the first call returned.
    unsafe { libc::signal(libc::SIGTTOU, before) };
}

/// Returns whether this program is in the foreground of the terminal at standard output.
pub fn is_in_foreground() -> bool {
    tcgetpgrp(std::io::stdout()).is_ok_and(|group| group == getpgrp())
}
