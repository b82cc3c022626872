//! Where and how urgently processes run: sets of processors, and real-time scheduling, which the safe
//! wrappers of system calls leave out.

use rustix::thread::CpuSet;

/// Has the thread `id` (0: the calling one) scheduled before all that are not real-time, in turns with
/// those that are. Threads it makes later inherit that.
///
/// # Errors
/// That of `sched_setscheduler(2)`: mostly that it is not allowed.
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

/// These processors as the kernel takes them.
pub fn set_of(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    set
}

/// Whether this process may be scheduled in real time.
pub fn may_set_real_time() -> bool {
    // In a thread that ends at once, so that nothing stays real-time.
    std::thread::spawn(|| set_real_time(0).is_ok())
        .join()
        .unwrap_or(false)
}
