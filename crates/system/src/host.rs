//! The machine's name.

/// Returns the host name of this machine.
pub fn host_name() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    // It becomes part of file names.
    name.replace('/', "-")
}
