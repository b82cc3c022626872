//! Processes that listen on a port or a Unix socket.

use std::collections::BTreeSet;
use std::path::Path;

/// The kernel's number of the state `LISTEN` in `/proc/net/tcp`.
const LISTEN: &str = "0A";
/// The flag of a listening socket in `/proc/net/unix`.
const ACCEPTS: u32 = 1 << 16;

/// Returns whether one of the processes `pids` listens on `port`, as far as the kernel tells: true if it shows no
/// listener, or not which sockets the processes have.
pub(super) fn may_belong_to(port: u16, pids: &[u32]) -> bool {
    let listeners = of_port(port);
    listeners.is_empty() || have_any(pids, &listeners).unwrap_or(true)
}

/// Returns which of the processes `pids` listen at a Unix socket or a port, as far as the kernel shows it.
pub(super) fn listening(socket: &Path, port: Option<u16>, pids: &[u32]) -> Vec<u32> {
    let mut listeners = of_path(&read("unix"), socket);
    listeners.extend(port.into_iter().flat_map(of_port));
    let has = |pid: &u32| have_any(&[*pid], &listeners).unwrap_or(false);
    pids.iter().copied().filter(has).collect()
}

fn read(name: &str) -> String {
    let text = std::fs::read(format!("/proc/net/{name}")).unwrap_or_default();
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the inodes of the sockets that listen on `port`. The kernel may leave out a socket of its table while others
/// come and go, so no socket is only believed when several readings show none.
fn of_port(port: u16) -> BTreeSet<String> {
    let readings = (0..3).map(|_| inodes(&(read("tcp") + &read("tcp6")), port));
    let mut found = readings.skip_while(BTreeSet::is_empty);
    found.next().unwrap_or_default()
}

/// Returns whether one of the processes `pids` has one of the sockets `inodes`; `None` if the kernel shows no file of any.
fn have_any(pids: &[u32], inodes: &BTreeSet<String>) -> Option<bool> {
    let mut shown = None;
    for pid in pids {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd"));
        for file in files.into_iter().flatten().flatten() {
            shown = Some(false);
            let target = std::fs::read_link(file.path()).unwrap_or_default();
            let target = target.to_string_lossy();
            let inode = target
                .strip_prefix("socket:[")
                .and_then(|rest| rest.strip_suffix(']'));
            if inode.is_some_and(|inode| inodes.contains(inode)) {
                return Some(true);
            }
        }
    }
    shown
}

/// Returns the inodes of the sockets that listen at `path`, from the text of `/proc/net/unix` (proc(5)).
fn of_path(text: &str, path: &Path) -> BTreeSet<String> {
    let listener = |line: &str| {
        let (_, rest) = line.split_once(": ")?;
        let mut words = rest.splitn(7, ' ').filter(|word| !word.is_empty());
        let flags = u32::from_str_radix(words.nth(2)?, 16).ok()?;
        let rest = rest.strip_suffix(path.to_str()?)?.strip_suffix(' ')?;
        let (_, inode) = rest.rsplit_once(' ')?;
        (flags & ACCEPTS != 0).then(|| inode.to_owned())
    };
    text.lines().filter_map(listener).collect()
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
    use std::time::{Duration, Instant};

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
    fn only_listeners_of_the_path_count() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                    0000000000000000: 00000002 00000000 00010000 0001 01 14021 /run/a b/s.sock\n\
                    0000000000000000: 00000003 00000000 00000000 0001 03    17 /run/a b/s.sock\n\
                    0000000000000000: 00000002 00000000 00010000 0001 01    18 /x/run/a b/s.sock\n\
                    0000000000000000: 00000003 00000000 00000000 0001 03 19\n";
        let found = of_path(text, Path::new("/run/a b/s.sock"));
        assert_eq!(found, ["14021".to_owned()].into());
        assert!(of_path("", Path::new("/x")).is_empty());
    }

    #[test]
    fn a_listener_at_the_socket_or_the_port_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let own = [std::process::id()];
        let socket = folder.path().join("s.sock");
        let none: [u32; 0] = [];
        assert_eq!(listening(&socket, None, &own), none);
        let at_socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(listening(&socket, None, &[u32::MAX, own[0]]), own);
        drop(at_socket);
        assert_eq!(listening(&socket, None, &own), none);
        let at_port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = at_port.local_addr().unwrap().port();
        assert_eq!(listening(&socket, Some(port), &own), own);
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
        // A child of another test may still have the socket, until it executes its program.
        let end = Instant::now() + Duration::from_secs(10);
        while !of_port(port).is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(may_belong_to(port, &[own]));
    }
}
