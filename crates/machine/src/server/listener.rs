//! Who listens on a port.

use std::collections::BTreeSet;

/// The kernel's number of the state `LISTEN` in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// Returns whether one of the processes `pids` listens on `port`, as far as the kernel tells: true if it shows no
/// listener, or not which sockets the processes have.
pub(super) fn may_belong_to(port: u16, pids: &[u32]) -> bool {
    let read = |name| std::fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
    let listeners = inodes(&(read("tcp") + &read("tcp6")), port);
    if listeners.is_empty() {
        return true;
    }
    let mut shown = false;
    for pid in pids {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd"));
        for file in files.into_iter().flatten().flatten() {
            shown = true;
            let target = std::fs::read_link(file.path()).unwrap_or_default();
            let target = target.to_string_lossy();
            let inode = target
                .strip_prefix("socket:[")
                .and_then(|rest| rest.strip_suffix(']'));
            if inode.is_some_and(|inode| listeners.contains(inode)) {
                return true;
            }
        }
    }
    !shown
}

/// Returns the inodes of the sockets that listen on `port`, from the text of `/proc/net/tcp` (proc(5)).
fn inodes(text: &str, port: u16) -> BTreeSet<String> {
    let listener = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (address, state, inode) = (words.get(1)?, words.get(3)?, words.get(9)?);
        let found = u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok()?;
        (found == port && *state == LISTEN).then(|| (*inode).to_owned())
    };
    text.lines().filter_map(listener).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listeners_of_the_port_count() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                    0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 17 1 0\n\
                    1: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 18 1 0\n\
                    2: 0100007F:1F90 0100007F:B3A2 01 00000000:00000000 00:00000000 00000000     0        0 19 1 0\n\
                    3: 00000000000000000000000001000000:1F90 0:0 0A 0:0 00:0 0 0 0 20 1 0\n";
        let found = inodes(text, 0x1f90);
        assert_eq!(found, ["17", "20"].map(str::to_owned).into());
        assert!(inodes("", 80).is_empty());
    }

    #[test]
    fn another_programs_port_is_not_ours() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = std::process::id();
        assert!(may_belong_to(port, &[own]));
        let mut other = perfquilt_system::process::Command::new("sleep")
            .arg("30")
            .spawn()
            .unwrap();
        assert!(!may_belong_to(port, &[other.id()]));
        other.kill().unwrap();
        drop(listener);
        assert!(may_belong_to(port, &[own]));
    }
}
