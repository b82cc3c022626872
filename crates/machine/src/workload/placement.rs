//! Which processors servers and clients run on, and how urgently.

use perfquilt_system::process::{Command, may_set_real_time, set_of, set_real_time};

/// Processors for servers and clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    cpus: Vec<usize>,
    real_time: bool,
}

impl Placement {
    /// Uses the processors this process may use, and real-time scheduling where that is allowed: a
    /// slice then is not interrupted by whatever else the machine does.
    pub fn of_this_machine() -> Self {
        Placement {
            cpus: allowed_cpus(),
            real_time: may_set_real_time(),
        }
    }

    /// The processors of the measured servers and of a client with `threads`.
    ///
    /// With one thread, server and client take turns anyway; on the same processor neither has to be
    /// woken up from idleness on another, which in a virtual machine takes longer than a point query
    /// and varies more than anything that is measured. Several threads get all processors: they are
    /// there to work at the same time.
    pub fn of(&self, threads: u32) -> &[usize] {
        if threads > 1 { &self.cpus } else { self.last() }
    }

    fn last(&self) -> &[usize] {
        &self.cpus[self.cpus.len().saturating_sub(1)..]
    }

    /// In words, for the record of an experiment.
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

    /// `command`, to be run on `cpus` and as urgently as the servers.
    pub(super) fn client(&self, command: Command, threads: u32) -> Command {
        let command = command.real_time(self.real_time);
        let cpus = self.of(threads);
        if cpus.is_empty() {
            command
        } else {
            command.cpus(cpus)
        }
    }

    /// Moves the calling thread of this program to where clients are, as urgent as the servers.
    pub(super) fn settle_this_thread(&self, threads: u32) {
        let id = rustix::thread::gettid();
        if !self.cpus.is_empty() {
            let _ = rustix::thread::sched_setaffinity(Some(id), &set_of(self.of(threads)));
        }
        if self.real_time {
            let _ = set_real_time(id.as_raw_nonzero().get());
        }
    }

    /// Moves the running process `pid`, all its threads, to where servers are measured. What the
    /// kernel refuses stays as it is: that costs precision, not correctness.
    pub fn settle(&self, pid: u32, threads: u32) {
        let set = set_of(self.of(threads));
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

/// The processors this process may use, ascending; empty when the kernel does not tell.
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
