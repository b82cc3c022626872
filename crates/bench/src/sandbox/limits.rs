//! Resolves limits and applies those that the kernel enforces per process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use perfquilt_config::SandboxLimits;

/// Returns `limits` with zeros replaced by this machine's defaults.
pub(super) fn resolve(limits: &SandboxLimits) -> SandboxLimits {
    let total = rustix::system::sysinfo();
    let bytes = (total.totalram as u64).saturating_mul(u64::from(total.mem_unit));
    SandboxLimits {
        memory_mib: match limits.memory_mib {
            0 => (bytes >> 21).max(512),
            given => given,
        },
        ..limits.clone()
    }
}

/// MiB of address space that one process may reserve beyond the memory limit: allocators reserve memory they never
/// touch.
const RESERVED_MIB: u64 = 4 << 10;
/// MiB that this program's allocator takes at once.
const ARENA_MIB: u64 = 1 << 10;
/// The real-time priority of servers and clients during measurements.
const PRIORITY: u64 = 1;

/// Allows child programs to request real-time scheduling without further privileges; without effect if this program
/// lacks the privilege itself.
pub(super) fn allow_real_time() {
    let priority = Some(PRIORITY);
    let now = getrlimit(Resource::Rtprio);
    // No limit or a higher one is sufficient.
    if now.current.is_some_and(|current| current < PRIORITY) {
        let new = Rlimit {
            current: priority,
            maximum: now.maximum.map(|maximum| maximum.max(PRIORITY)),
        };
        let _ = setrlimit(Resource::Rtprio, new);
    }
}

/// Limits the memory, the processor time and the core file of this process, which reads what untrusted code wrote.
pub fn limit_this_process(memory_mib: u64, seconds: u64) {
    for (resource, most) in [
        (Resource::Data, mib(memory_mib.saturating_add(ARENA_MIB))),
        (Resource::As, mib(memory_mib.saturating_add(RESERVED_MIB))),
        (Resource::Cpu, seconds),
        (Resource::Core, 0),
    ] {
        lower(resource, most);
    }
}

/// Allows no core files of this process and its children: they would have its secrets, and fill the disk.
pub fn no_core_files() {
    lower(Resource::Core, 0);
}

fn mib(count: u64) -> u64 {
    count.saturating_mul(1 << 20)
}

/// Lowers a limit of this process to `most`, unless it is lower already. A kernel without the limit does not enforce it;
/// the others still apply.
fn lower(resource: Resource, most: u64) {
    let now = getrlimit(resource);
    let lower = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
    let new = Rlimit {
        current: lower(now.current),
        maximum: lower(now.maximum),
    };
    let _ = setrlimit(resource, new);
}

/// Applies the limits that the kernel enforces to this process and its children. Lower existing limits stay.
///
/// The kernel limits the number of processes of a user, and never root's; the total memory of several processes is
/// limited by a control group where there is one, and by [`super::SandboxProcess`].
pub(super) fn apply(limits: &SandboxLimits, real_time: bool) {
    for (resource, most) in [
        (Resource::Data, mib(limits.memory_mib + RESERVED_MIB)),
        (Resource::Nproc, limits.processes),
        (Resource::Fsize, mib(limits.file_mib)),
        (Resource::Nofile, limits.open_files),
        (Resource::Cpu, limits.hours.saturating_mul(3600)),
        (Resource::Core, 0),
        (Resource::Rtprio, u64::from(real_time) * PRIORITY),
    ] {
        lower(resource, most);
    }
}
