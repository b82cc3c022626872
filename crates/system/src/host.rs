//! The machine's name, and what its kernel shows.

use std::path::Path;

/// Returns the host name of this machine.
pub fn host_name() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    // It becomes part of file names.
    name.replace('/', "-")
}

/// A file of the kernel with lines `NAME: VALUE`, as `/proc/meminfo`.
#[derive(Debug, Default)]
pub struct KernelFields(String);

impl KernelFields {
    /// Reads a file; one that cannot be read has no fields.
    pub fn read(path: impl AsRef<Path>) -> Self {
        KernelFields(std::fs::read_to_string(path).unwrap_or_default())
    }

    /// Returns the value of the first field with a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut fields = self.0.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = fields.find(|(found, _)| found.trim_end() == name)?;
        Some(value.trim())
    }

    /// Returns the number that the value of a field begins with, which counts KiB if the field is an amount of memory.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.split_whitespace().next()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_the_whole_name() {
        let status = "Name:\tx\nVmHWM:\t  12 kB\nnonvoluntary_ctxt_switches:\t17\n";
        let fields = KernelFields(status.to_owned());
        assert_eq!(fields.number("nonvoluntary_ctxt_switches"), Some(17));
        assert_eq!(fields.number("VmHWM"), Some(12));
        assert_eq!(fields.number("voluntary_ctxt_switches"), None);
    }
}
