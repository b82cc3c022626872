//! A process with its descendants, for servers that serve each connection in a process of its own.

use std::time::Duration;

use super::{processor_time, stat_field};

/// Returns the ids of the process `pid` and of its living descendants, itself first. A descendant whose parent has
/// ended counts no more, and neither does any on a kernel without lists of children (`CONFIG_PROC_CHILDREN`).
pub fn process_tree(pid: u32) -> Vec<u32> {
    let mut members = vec![pid];
    let mut next = 0;
    while let Some(&member) = members.get(next) {
        next += 1;
        members.extend(children(member));
    }
    members
}

/// Returns the ids of the children of the process `pid`.
pub fn children(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    // Every thread has a list of the children that it started.
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    for thread in threads.into_iter().flatten().flatten() {
        let children = std::fs::read_to_string(thread.path().join("children"));
        let children = children.unwrap_or_default();
        found.extend(
            children
                .split_ascii_whitespace()
                .filter_map(|id| id.parse::<u32>().ok()),
        );
    }
    found
}

/// Returns the ids of all processes.
pub(super) fn all_processes() -> impl Iterator<Item = u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| process.file_name().to_str()?.parse().ok())
}

/// Returns the processor time of the process `pid` and of its descendants, ended ones included if their parents waited
/// for them; `None` when there is no such process. The kernel reports that of ended ones in ticks of about 10 ms.
pub fn process_tree_time(pid: u32) -> Option<Duration> {
    let members = process_tree(pid);
    // Before the clocks: a child that ends in between then counts for too little rather than twice.
    let ended: Duration = members.iter().map(|&member| ended_children(member)).sum();
    let own = processor_time(pid)?;
    let others = members[1..].iter().filter_map(|&pid| processor_time(pid));
    Some(ended + own + others.sum::<Duration>())
}

/// Returns the processor time of the children that `pid` waited for, and of theirs.
fn ended_children(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let field = |number| stat_field(&stat, number).unwrap_or(0);
    let ticks = field(16) + field(17);
    let each = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_secs_f64(ticks as f64 / each as f64)
}

#[cfg(test)]
mod tests {

    use super::super::Command;
    use super::*;
    use perfquilt_testkit::eventually;

    #[test]
    fn children_of_other_sessions_belong_to_the_family() {
        let script = "setsid sleep 60 & sh -c 'sleep 60; :' & wait";
        let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        // The shell, a sleep in a session of its own, and a shell with a sleep.
        assert!(eventually(|| process_tree(child.id()).len() == 4));
        let members = process_tree(child.id());
        assert_eq!(members[0], child.id());
        drop(child);
        // A process that left the group goes on.
        let sleep = |pid: &u32| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
        };
        for pid in members.iter().filter(|pid| sleep(pid)) {
            let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }

    #[test]
    fn the_time_of_children_counts_while_they_run_and_afterwards() {
        let busy = "i=0; while [ $i -lt 60000 ]; do i=$((i + 1)); done";
        let script = format!("sh -c '{busy}; read -r line <&3'; read -r line <&3");
        let fifo = tempfile::tempdir().unwrap();
        let path = fifo.path().join("go");
        let script = format!("mkfifo {0}; exec 3<>{0}; {script}", path.display());
        let child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
        let time = || process_tree_time(child.id()).unwrap();
        assert!(eventually(|| time() > Duration::from_millis(30)));
        // It waits for a line now; then it ends, and the kernel adds its time to its parent's.
        let mut before = time();
        assert!(eventually(|| {
            let last = std::mem::replace(&mut before, time());
            std::thread::sleep(Duration::from_millis(50));
            last == before
        }));
        std::fs::write(&path, "\n").unwrap();
        assert!(eventually(|| process_tree(child.id()).len() == 1));
        let tick = Duration::from_millis(25);
        assert!(time() + tick > before, "{:?} {before:?}", time());
        assert_eq!(process_tree_time(u32::MAX), None);
    }
}
