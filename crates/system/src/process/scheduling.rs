//! Processor affinity, real-time scheduling and processor time, which the safe wrappers of system calls leave out.

use std::time::Duration;

use rustix::thread::CpuSet;

/// Gives the thread `id` (0: the calling one) round-robin real-time scheduling. Threads that it creates later
/// inherit it.
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

/// Returns the processor time that the process `pid` has used, all of its threads together; `None` when there is no
/// such process.
#[allow(unsafe_code)]
pub fn processor_time(pid: u32) -> Option<Duration> {
    let pid = i32::try_from(pid).ok()?;
    let mut clock = 0;
    // SAFETY: the pointer is valid during the call, which only writes a clock's number to it.
    if unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } != 0 {
        return None;
    }
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is valid during the call, which only writes a time to it.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanoseconds = u32::try_from(time.tv_nsec).ok()?;
    Some(Duration::new(seconds, nanoseconds))
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn threads_that_ended_count_as_processor_time() {
        let own = || processor_time(std::process::id()).unwrap();
        let before = own();
        let burn = || {
            let started = Instant::now();
            while started.elapsed() < Duration::from_millis(1) {
                std::hint::spin_loop();
            }
        };
        for _ in 0..50 {
            std::thread::spawn(burn).join().unwrap();
        }
        // On a busy machine a thread may be waiting for most of its millisecond.
        assert!(own() - before > Duration::from_millis(5));
    }
}
