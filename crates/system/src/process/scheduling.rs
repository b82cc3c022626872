//! Processor affinity and real-time scheduling, which the safe wrappers of system calls leave out.

use rustix::thread::CpuSet;

/// Gives the thread `id` (0: the calling one) round-robin real-time scheduling. Threads that it creates later
/// inherit it.
///
/// # Errors
/// The error of `sched_setscheduler(2)`, usually a missing permission.
#[allow(unsafe_code)]
pub fn set_real_time(id: i32) -> std::io::Result<()> {
    // SAFETY: `sched_param` is plain data for which zeroes are valid.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = 1;
    // SAFETY: the pointer is valid during the call, which only reads it.
    let outcome = unsafe { libc::sched_setscheduler(id, libc::SCHED_RR, &raw const parameters) };
    if outcome == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Converts processor numbers to the kernel's set.
pub fn cpu_set(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    set
}

/// Returns whether this process may use real-time scheduling.
pub fn may_set_real_time() -> bool {
    // Tried in a temporary thread, so that nothing stays real-time.
    std::thread::spawn(|| set_real_time(0).is_ok())
        .join()
        .unwrap_or(false)
}
