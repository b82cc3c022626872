//! Long reports through the user's pager, as git does.

use std::time::Duration;

use perfquilt_system::process::{Command, DeathSignal, Sink, is_in_foreground};

/// The pager of users who name none.
const USUAL: &str = "less";

/// The end of a text that a pager shows first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PagerStart {
    /// Its first lines.
    Top,
    /// Its last lines, for reports that end with the answer.
    End,
}

/// Shows `text` in the pager that `PERFQUILT_PAGER` or `PAGER` names, else in `less`; returns false if standard output is
/// no terminal, the text fits it, or there is no such pager.
pub fn page(text: &str, start: PagerStart) -> bool {
    let stdout = std::io::stdout();
    let Ok(size) = rustix::termios::tcgetwinsize(&stdout) else {
        return false;
    };
    // The prompt needs a line.
    if text.lines().count() < usize::from(size.ws_row) || !is_in_foreground() {
        return false;
    }
    let named = ["PERFQUILT_PAGER", "PAGER"].map(std::env::var);
    let pager = named.into_iter().find_map(Result::ok);
    let pager = pager.as_deref().unwrap_or(USUAL).trim();
    if pager.is_empty() || pager == "cat" {
        return false;
    }
    let setting =
        |name: &str, usual: &str| std::env::var(name).unwrap_or_else(|_| usual.to_owned());
    let less = match start {
        PagerStart::Top => "-FRX",
        PagerStart::End => "-FRX +G",
    };
    // The variable may hold arguments, so a shell reads it.
    let child = Command::new("sh")
        .args(["-c", pager])
        .env("LESS", setting("LESS", less))
        .env("LV", setting("LV", "-c"))
        .stdin(text)
        .stdout(Sink::Inherit)
        .stderr(Sink::Inherit)
        // It restores the terminal's settings.
        .death_signal(DeathSignal::Terminate)
        .foreground()
        .spawn();
    let Ok(mut child) = child else {
        return false;
    };
    match child.wait_within(Duration::MAX) {
        // A shell's codes for a program that it cannot start or does not find.
        Ok(Some(status)) => !matches!(status.code(), Some(126 | 127)),
        // A signal asks this program to stop.
        _ => true,
    }
}
