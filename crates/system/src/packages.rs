//! Debian's packages of the programs that perfquilt starts.

/// The packages for every workspace, one a line; `ci/install-deps` reads the same file, which describes its form.
pub const LIST: &str = include_str!("../../../ci/packages.txt");

/// Returns the command that installs `packages`.
pub fn install_command(packages: &[&str]) -> String {
    let sudo = if rustix::process::geteuid().is_root() {
        ""
    } else {
        "sudo "
    };
    format!(
        "{sudo}apt-get install -y --no-install-recommends {}",
        packages.join(" ")
    )
}

/// Returns a hint with the command that installs `program`; `None` if no package of the list has it, or without apt.
pub fn install_hint(program: &str) -> Option<String> {
    which::which_global("apt-get").ok()?;
    let command = install_command(&[package_of(program)?]);
    Some(format!(
        "`{command}` installs it; `perfquilt doctor` lists everything that is missing"
    ))
}

/// Returns the package of the list that has `program`.
fn package_of(program: &str) -> Option<&'static str> {
    let found_by = format!("program:{program}");
    let mut lines = LIST.lines().filter(|line| !line.starts_with('#'));
    lines.find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let package = words.next()?;
        (words.nth(1)? == found_by).then_some(package)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_its_package() {
        assert_eq!(package_of("ninja"), Some("ninja-build"));
        assert_eq!(package_of("bwrap"), Some("bubblewrap"));
        assert_eq!(package_of("no-such-program"), None);
        assert_eq!(package_of("redis-server"), None);
    }
}
