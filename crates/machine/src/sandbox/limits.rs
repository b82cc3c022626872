//! Limits: those the kernel keeps for each process, and what is looked at from outside.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use perfquilt_config::Limits;

/// `limits` with this machine's numbers in the place of zeros.
pub(super) fn settled(limits: &Limits) -> Limits {
    let total = rustix::system::sysinfo();
    let bytes = (total.totalram as u64).saturating_mul(u64::from(total.mem_unit));
    Limits {
        memory_mib: match limits.memory_mib {
            0 => (bytes >> 21).max(512),
            given => given,
        },
        ..limits.clone()
    }
}

/// MiB that a process may reserve beyond what all together may use: allocators reserve what they never touch.
const RESERVED_MIB: u64 = 4 << 10;
/// The real-time priority that servers and clients are measured with.
const PRIORITY: u64 = 1;
/// First of all processes to end when the machine has no memory left.
const FIRST_TO_END: &str = "1000";

/// Lets programs that this one starts ask for real-time scheduling without further rights; nothing happens when
/// this program has none to give.
pub(super) fn allow_real_time() {
    let priority = Some(PRIORITY);
    let now = getrlimit(Resource::Rtprio);
    // No limit, or a higher one, is as good.
    if now.current.is_some_and(|current| current < PRIORITY) {
        let new = Rlimit {
            current: priority,
            maximum: now.maximum.map(|maximum| maximum.max(PRIORITY)),
        };
        let _ = setrlimit(Resource::Rtprio, new);
    }
}

/// Takes on what the kernel keeps: for this process and all it starts. Limits that are lower already stay.
///
/// The kernel counts neither root's processes nor the memory of several together; [`super::Inside`] does.
pub(super) fn take_on(limits: &Limits, real_time: bool) {
    let mib = |count: u64| count.saturating_mul(1 << 20);
    for (resource, most) in [
        (Resource::Data, mib(limits.memory_mib + RESERVED_MIB)),
        (Resource::Nproc, limits.processes),
        (Resource::Fsize, mib(limits.file_mib)),
        (Resource::Nofile, limits.open_files),
        (Resource::Cpu, limits.hours.saturating_mul(3600)),
        (Resource::Core, 0),
        (Resource::Rtprio, u64::from(real_time) * PRIORITY),
    ] {
        let now = getrlimit(resource);
        let lower = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
        let new = Rlimit {
            current: lower(now.current),
            maximum: lower(now.maximum),
        };
        // A kernel that knows no such limit keeps none; the others hold.
        let _ = setrlimit(resource, new);
    }
    let _ = std::fs::write("/proc/self/oom_score_adj", FIRST_TO_END);
}
