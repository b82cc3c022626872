//! Descriptions of exit statuses.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Describes an exit status: `exited with 1` or `was ended by signal 11 (SIGSEGV)`.
pub fn describe_exit(status: ExitStatus) -> String {
    describe(status.code(), status.signal())
}

/// Describes an exit code or a signal like [`describe_exit`].
pub(super) fn describe(code: Option<i32>, signal: Option<i32>) -> String {
    match (signal, code) {
        (Some(signal), _) => match name(signal) {
            Some(name) => format!("was ended by signal {signal} ({name})"),
            None => format!("was ended by signal {signal}"),
        },
        (None, Some(code)) => format!("exited with {code}"),
        (None, None) => "ended".to_owned(),
    }
}

fn name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL, perhaps for lack of memory",
        11 => "SIGSEGV",
        15 => "SIGTERM",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_signals_are_described() {
        assert_eq!(describe_exit(ExitStatus::from_raw(3 << 8)), "exited with 3");
        let killed = describe_exit(ExitStatus::from_raw(11));
        assert_eq!(killed, "was ended by signal 11 (SIGSEGV)");
        assert_eq!(describe(None, Some(40)), "was ended by signal 40");
    }
}
