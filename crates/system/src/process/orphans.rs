//! Processes that leave the process that started them: daemons, workers of a dead server, what a client starts in the
//! background. They are this program's orphans, which the kernel gives to it ([`adopt_orphans`]), and an environment
//! variable tells to which start they belong.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::{Mutex, Once, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal,
    set_child_subreaper, waitid,
};

use super::process_tree::{all_processes, children};
use super::{process_tree, stat_field};
use crate::host::KernelFields;
use crate::threads::lock;

/// The environment variable that marks a start. All descendants inherit it.
pub(super) const MARK: &str = "PERFQUILT_START";
/// How long killed processes may take to end.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Time between two looks at whether they have ended.
const END_PAUSE: Duration = Duration::from_millis(2);

/// A process that went on without the one that started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrphanProcess {
    /// Its id.
    pub pid: u32,
    /// Its name, at most 15 bytes.
    pub name: String,
    group: u32,
    /// When it began, in ticks since the machine's start: with the id, this identifies a process.
    begin: u64,
    state: char,
}

impl fmt::Display for OrphanProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` (process {})", self.name.escape_default(), self.pid)
    }
}

impl OrphanProcess {
    /// Reads `/proc/PID/stat`; `None` when there is no such process.
    pub fn read(pid: u32) -> Option<Self> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        let (start, rest) = stat.rsplit_once(')')?;
        Some(OrphanProcess {
            pid,
            name: start.split_once('(')?.1.to_owned(),
            group: u32::try_from(stat_field(&stat, 5)?).ok()?,
            begin: stat_field(&stat, 22)?,
            state: rest.trim_start().chars().next()?,
        })
    }

    /// Returns whether it is stopped, by a signal or a debugger. What this program's own tools trace (`vgdb` stops a
    /// server for each command) is at work, not stopped.
    pub fn is_stopped(&self) -> bool {
        match self.state {
            'T' => true,
            't' => self.is_traced_by_others(std::process::id()),
            _ => false,
        }
    }

    /// Returns whether a process that is not among the descendants of `own` traces it.
    fn is_traced_by_others(&self, own: u32) -> bool {
        let before = tracer(self.pid);
        before.is_some_and(|pid| !has_ancestor(pid, own))
            // A tracer may end between the two looks.
            && tracer(self.pid) == before
    }

    fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }

    /// Kills exactly this process, not another one that has got its id.
    fn kill(&self) {
        let Some(pid) = Pid::from_raw(self.pid.cast_signed()) else {
            return;
        };
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
            return;
        };
        if OrphanProcess::read(self.pid).is_some_and(|now| now.begin == self.begin) {
            // An error means that it is gone already.
            let _ = pidfd_send_signal(&handle, Signal::KILL);
        }
    }

    /// Reaps it if it is an adopted orphan that has ended; returns whether it is gone.
    fn reap(&self) -> bool {
        match reap(self.pid) {
            Ok(reaped) => reaped,
            // It is another process's child, which may have become this one's since.
            Err(_) => OrphanProcess::read(self.pid).is_none_or(|now| now.begin != self.begin),
        }
    }
}

/// Returns the names of the living processes of a group, without its first process.
pub(super) fn others_of_group(group: u32) -> Vec<String> {
    let others = all_processes().filter(|&pid| pid != group);
    others
        .filter_map(OrphanProcess::read)
        .filter(|process| process.group == group && process.is_alive())
        .map(|process| process.name.escape_default().to_string())
        .collect()
}

/// Returns the process that traces `pid`.
fn tracer(pid: u32) -> Option<u32> {
    other_process("TracerPid", pid)
}

/// Returns whether `pid` is `ancestor` or a descendant of it. A list of descendants would not do: the kernel may leave out
/// children while others end.
fn has_ancestor(pid: u32, ancestor: u32) -> bool {
    std::iter::successors(Some(pid), |&pid| other_process("PPid", pid)).any(|pid| pid == ancestor)
}

/// Returns the process that the field `name` of `/proc/PID/status` names.
fn other_process(name: &str, pid: u32) -> Option<u32> {
    let status = KernelFields::read(format!("/proc/{pid}/status"));
    let other = status.get(name)?.parse().ok();
    other.filter(|&other| other != 0)
}

/// Reaps the child `pid` if it has ended; returns whether it has.
fn reap(pid: u32) -> rustix::io::Result<bool> {
    let pid = Pid::from_raw(pid.cast_signed()).ok_or(rustix::io::Errno::CHILD)?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    waitid(WaitId::Pid(pid), options).map(|status| status.is_some())
}

/// Makes descendants whose parents have ended this program's children. Without that they would be those of the machine's
/// first process, and could not be found.
pub(super) fn adopt_orphans() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // A refusal leaves them where they were before.
        let _ = set_child_subreaper(Some(getpid()));
    });
}

/// The children that this program has started and not reaped.
static STARTED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
/// Held for reading while a child is started, until it is among [`STARTED`].
static STARTING: RwLock<()> = RwLock::new(());

/// Starts a child with `start` and notes it.
pub(super) fn start_child(
    start: impl FnOnce() -> std::io::Result<std::process::Child>,
) -> std::io::Result<std::process::Child> {
    let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    let child = start()?;
    let mut started = lock(&STARTED);
    started.insert(child.id());
    Ok(child)
}

/// Notes that this program has reaped the child `pid`.
pub(super) fn forget_child(pid: u32) {
    let mut started = lock(&STARTED);
    started.remove(&pid);
}

/// Returns the living children of this program that it has not started: adopted orphans. Reaps those that have ended, so
/// that they do not pile up. While another thread starts a child, that may be among them; it has no mark of a start yet.
fn orphans() -> Vec<u32> {
    let quiet = STARTING.try_write();
    let mut found = children(std::process::id());
    let started = lock(&STARTED);
    found.retain(|pid| !started.contains(pid));
    drop(started);
    if quiet.is_ok() {
        found.retain(|pid| !matches!(reap(*pid), Ok(true)));
    }
    found
}

/// The processes that a marked child started, besides itself.
#[derive(Debug, Clone)]
pub(super) struct OrphanTracker {
    /// The value of [`MARK`].
    pub(super) mark: String,
    /// The members of the first process's descendants seen so far, for programs that overwrite their environment (to change
    /// the title that `ps` shows).
    seen: BTreeSet<(u32, u64)>,
}

impl OrphanTracker {
    pub(super) fn new(mark: String) -> Self {
        OrphanTracker {
            mark,
            seen: BTreeSet::new(),
        }
    }

    /// Remembers the living descendants of the first process.
    pub(super) fn note(&mut self, first: u32) {
        let members = process_tree(first).into_iter().skip(1);
        let members = members.filter_map(OrphanProcess::read);
        self.seen
            .extend(members.map(|member| (member.pid, member.begin)));
    }

    /// Returns the living processes of the start that are neither the first one nor its descendants.
    pub(super) fn strays(&self, first: u32) -> Vec<OrphanProcess> {
        let members: BTreeSet<u32> = process_tree(first).into_iter().collect();
        self.all(first, &members)
    }

    /// Returns all living processes of the start but the first one.
    pub(super) fn others(&self, first: u32) -> Vec<OrphanProcess> {
        self.all(first, &BTreeSet::from([first]))
    }

    fn all(&self, first: u32, without: &BTreeSet<u32>) -> Vec<OrphanProcess> {
        orphans()
            .into_iter()
            .flat_map(process_tree)
            .filter(|pid| !without.contains(pid))
            .filter_map(OrphanProcess::read)
            .filter(OrphanProcess::is_alive)
            .filter(|process| {
                process.group == first
                    || self.seen.contains(&(process.pid, process.begin))
                    || is_marked(process.pid, |mark| mark == self.mark)
            })
            .collect()
    }

    /// Kills all processes of the start, after the first one has ended, until none is left.
    pub(super) fn end(&self, first: u32) {
        let until = Instant::now() + END_LIMIT;
        let mut killed: Vec<OrphanProcess> = Vec::new();
        // One that is killed may just have started another one.
        loop {
            let others = self.others(first);
            others.iter().for_each(OrphanProcess::kill);
            killed.extend(others);
            killed.retain(|process| !process.reap());
            if killed.is_empty() || Instant::now() > until {
                return;
            }
            std::thread::sleep(END_PAUSE);
        }
    }
}

/// Returns whether the value of [`MARK`] in the environment of `pid`, if there is one, is `wanted`.
fn is_marked(pid: u32, wanted: impl Fn(&str) -> bool) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| {
        let value = variable
            .strip_prefix(MARK.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"="));
        value.is_some_and(|value| std::str::from_utf8(value).is_ok_and(&wanted))
    })
}

/// Kills the processes that a dead run of this program left behind: those whose start was marked with a path inside
/// `folder`.
pub fn end_processes_of(folder: &Path) {
    let Some(folder) = folder.to_str() else {
        return;
    };
    let inside = |mark: &str| {
        let rest = mark.strip_prefix(folder);
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    all_processes()
        .filter(|&pid| is_marked(pid, inside))
        .filter_map(OrphanProcess::read)
        .for_each(|left| left.kill());
}

#[cfg(test)]
mod tests {
    use super::super::{Command, was_stopped};
    use super::*;
    use perfquilt_testkit::wait_for;

    /// Returns a shell that starts a daemon as `how` says, which writes its id to the file `id`, and then does `then`.
    fn daemon(folder: &Path, how: &str, then: &str) -> Command {
        let script = format!(
            "{how} sh -c 'echo $$ > id.part; mv id.part id; exec sleep 30' > /dev/null 2>&1 &
             until test -e id; do sleep 0.01; done; {then}"
        );
        let mark = folder.join("start").display().to_string();
        Command::new("sh")
            .args(["-c", &script])
            .directory(folder)
            .mark(mark)
    }

    fn id(folder: &Path) -> u32 {
        let text = std::fs::read_to_string(folder.join("id")).unwrap();
        text.trim().parse().unwrap()
    }

    fn is_gone(pid: u32) -> bool {
        OrphanProcess::read(pid).is_none_or(|of| !of.is_alive())
    }

    #[test]
    fn a_daemon_is_found_and_ended_when_its_starter_ends() {
        for how in ["", "setsid", "setsid env -i PATH=\"$PATH\""] {
            let folder = tempfile::tempdir().unwrap();
            let mut child = daemon(folder.path(), how, "sleep 0.2").spawn().unwrap();
            wait_for(|| folder.path().join("id").exists().then_some(()));
            child.note_descendants();
            let status = wait_for(|| child.try_wait().unwrap());
            assert!(status.success());
            let left = child.orphans();
            assert!(left.iter().any(|of| of.name == "sleep"), "{how}: {left:?}");
            assert!(is_gone(id(folder.path())), "{how}");
        }
    }

    #[test]
    fn a_daemon_beside_a_living_starter_is_a_stray_and_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = daemon(folder.path(), "setsid setsid -f", "sleep 30")
            .spawn()
            .unwrap();
        wait_for(|| folder.path().join("id").exists().then_some(()));
        let strays = wait_for(|| Some(child.strays()).filter(|strays| !strays.is_empty()));
        assert!(strays.iter().all(|of| of.pid != child.id()), "{strays:?}");
        child.kill().unwrap();
        assert!(child.orphans().is_empty(), "it was killed by us");
        assert!(is_gone(id(folder.path())));
    }

    #[test]
    fn orphans_that_end_by_themselves_do_not_pile_up() {
        let folder = tempfile::tempdir().unwrap();
        let script =
            "(sh -c 'echo $$ >> ids' &) ; until test -s ids; do sleep 0.01; done; sleep 0.1";
        let command = Command::new("sh")
            .args(["-c", script])
            .directory(folder.path())
            .mark(folder.path().display().to_string());
        for _ in 0..2 {
            assert!(command.run().unwrap().success());
        }
        let ids = std::fs::read_to_string(folder.path().join("ids")).unwrap();
        for pid in ids.lines().map(|id| id.parse().unwrap()) {
            wait_for(|| {
                // Other tests start children meanwhile, and then nothing is reaped.
                orphans();
                OrphanProcess::read(pid).is_none().then_some(())
            });
        }
    }

    #[test]
    fn a_stop_is_seen_while_it_lasts_and_once_afterwards() {
        let mut child = Command::new("sleep").arg("30").spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        let is_stopped = || OrphanProcess::read(child.id()).unwrap().is_stopped();
        assert!(!is_stopped() && !was_stopped(child.id()));
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
        wait_for(|| is_stopped().then_some(()));
        assert!(was_stopped(child.id()));
        rustix::process::kill_process(pid, Signal::CONT).unwrap();
        wait_for(|| was_stopped(child.id()).then_some(()));
        assert!(!is_stopped() && !was_stopped(child.id()));
        child.kill().unwrap();
    }

    #[test]
    fn what_own_tools_trace_is_not_stopped() {
        let script = "import ctypes, os, time\n\
                      traced = os.fork()\n\
                      traced and ctypes.CDLL(None).ptrace(16, traced, 0, 0)\n\
                      time.sleep(30)";
        let mut tracer = Command::new("python3")
            .args(["-c", script])
            .spawn()
            .unwrap();
        let traced = wait_for(|| {
            let traced = *children(tracer.id()).first()?;
            OrphanProcess::read(traced).filter(|traced| traced.state == 't')
        });
        assert!(!traced.is_stopped());
        // As a program sees it that did not start the tracer.
        assert!(traced.is_traced_by_others(traced.pid));
        tracer.kill().unwrap();
    }

    #[test]
    fn the_output_of_a_stopped_process_says_so() {
        // Shorter than a look of any watching thread, but long enough to begin: a continuation takes back a stop that has not.
        let stop = "P=$$; (sleep 0.1; kill -STOP $P; until grep -q '^State:.T' /proc/$P/status; do :; done; \
                    kill -CONT $P) & sleep 0.3";
        for (script, stopped) in [("sleep 0.3", false), (stop, true)] {
            let output = Command::new("sh").args(["-c", script]).run().unwrap();
            assert!(output.success());
            assert_eq!(output.was_stopped, stopped, "{script}");
        }
    }

    #[test]
    fn what_a_dead_run_left_is_ended_by_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = daemon(folder.path(), "setsid", "sleep 30").spawn().unwrap();
        wait_for(|| folder.path().join("id").exists().then_some(()));
        end_processes_of(Path::new("/nonexistent"));
        assert!(!is_gone(id(folder.path())));
        end_processes_of(&folder.path().join("start"));
        assert!(!is_gone(id(folder.path())), "the mark is no path inside it");
        end_processes_of(folder.path());
        wait_for(|| is_gone(id(folder.path())).then_some(()));
        let _ = child.kill();
    }
}
