//! Places servers and clients on processors and sets their scheduling.

use perfquilt_system::process::{Command, cpu_set, may_set_real_time, set_real_time};

/// Processors for servers and environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    cpus: Vec<usize>,
    real_time: bool,
}

impl Placement {
    /// Uses the processors this process may use, and real-time scheduling if permitted, so that other processes do
    /// not interrupt slices.
    pub fn of_this_machine() -> Self {
        Placement {
            cpus: allowed_cpus(),
            real_time: may_set_real_time(),
        }
    }

    /// Returns the processors of the measured servers and of a client with `threads`.
    ///
    /// With one thread, server and client alternate anyway. On the same processor neither has to be woken up on
    /// another idle one, which in a virtual machine takes longer than a point query and varies more than the
    /// measured values. Several threads get all processors, because they work in parallel.
    pub fn of(&self, threads: u32) -> &[usize] {
        if threads > 1 { &self.cpus } else { self.last() }
    }

    fn last(&self) -> &[usize] {
        &self.cpus[self.cpus.len().saturating_sub(1)..]
    }

    /// Describes the placement for the record of an experiment.
    pub fn describe(&self) -> String {
        let scheduling = if self.real_time {
            "real-time"
        } else {
            "ordinary"
        };
        match self.cpus.last() {
            Some(cpu) => format!("processor {cpu}, {scheduling} scheduling"),
            None => format!("{scheduling} scheduling"),
        }
    }

    /// Makes `command` run on the processors of a client with `threads`, with the scheduling of the servers.
    pub(super) fn client(&self, command: Command, threads: u32) -> Command {
        let command = command.real_time(self.real_time);
        let cpus = self.of(threads);
        if cpus.is_empty() {
            command
        } else {
            command.cpus(cpus)
        }
    }

    /// Moves the calling thread to the processors of environment, with the scheduling of the servers.
    pub(super) fn settle_this_thread(&self, threads: u32) {
        let id = rustix::thread::gettid();
        if !self.cpus.is_empty() {
            let _ = rustix::thread::sched_setaffinity(Some(id), &cpu_set(self.of(threads)));
        }
        if self.real_time {
            let _ = set_real_time(id.as_raw_nonzero().get());
        }
    }

    /// Moves all threads of the process `pid` to the processors of measured servers. Ignores refusals of the kernel,
    /// which reduce precision but not correctness.
    pub fn settle(&self, pid: u32, threads: u32) {
        let set = cpu_set(self.of(threads));
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let Some(id) = task.file_name().to_str().and_then(|id| id.parse().ok()) else {
                continue;
            };
            if !self.cpus.is_empty() {
                let _ = rustix::thread::sched_setaffinity(rustix::process::Pid::from_raw(id), &set);
            }
            if self.real_time {
                let _ = set_real_time(id);
            }
        }
    }
}

/// Returns the processors this process may use, in ascending order; empty if the kernel does not report them.
pub fn allowed_cpus() -> Vec<usize> {
    rustix::thread::sched_getaffinity(None)
        .map(|set| {
            (0..rustix::thread::CpuSet::MAX_CPU)
                .filter(|&cpu| set.is_set(cpu))
                .collect()
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(cpus: &[usize]) -> Placement {
        Placement {
            cpus: cpus.to_vec(),
            real_time: false,
        }
    }

    #[test]
    fn one_thread_shares_the_last_processor_and_several_have_all() {
        let four = placement(&[0, 1, 4, 5]);
        assert_eq!(four.of(1), [5]);
        assert_eq!(four.of(4), [0, 1, 4, 5]);
        assert!(placement(&[]).of(1).is_empty());
    }

    #[test]
    fn this_machine_has_a_processor() {
        assert!(!allowed_cpus().is_empty());
    }
}
