//! Places servers and clients on processors and sets their scheduling.

use std::collections::BTreeMap;

use perfquilt_system::process::{Command, cpu_set, may_set_real_time, process_tree, set_real_time};

/// Processors for servers and environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    cpus: Vec<usize>,
    real_time: bool,
}

impl Placement {
    /// Uses the processors this thread may use, and real-time scheduling if permitted, so that other processes do
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

    /// Describes the scheduling for the record of an experiment.
    pub fn scheduling(&self) -> &'static str {
        if self.real_time {
            "real-time"
        } else {
            "ordinary"
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

    /// Moves all threads of the process `pid` and of its descendants to the processors of measured servers. Processes
    /// that it starts later inherit them. Ignores refusals of the kernel, which reduce precision but not correctness.
    pub fn settle(&self, pid: u32, threads: u32) {
        let set = cpu_set(self.of(threads));
        let tasks = process_tree(pid)
            .into_iter()
            .filter_map(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).ok());
        for task in tasks.flatten().flatten() {
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

/// Returns the processors of each lane on which clients with at most `threads` can be measured side by side. A lane
/// has as many physical cores as threads, with all hardware threads of these cores: two lanes on one core would take
/// turns in its execution units. There is one lane with all processors if there are not cores enough for two.
pub fn lanes(threads: u32) -> Vec<Vec<usize>> {
    let cpus = allowed_cpus();
    divide(&cpus, threads, &|cpu| siblings(cpu))
}

fn divide(cpus: &[usize], threads: u32, siblings: &dyn Fn(usize) -> String) -> Vec<Vec<usize>> {
    let mut cores: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for &cpu in cpus {
        cores.entry(siblings(cpu)).or_default().push(cpu);
    }
    let mut cores: Vec<Vec<usize>> = cores.into_values().collect();
    cores.sort_unstable();
    let each = usize::try_from(threads).unwrap_or(usize::MAX).max(1);
    if cores.len() / 2 < each {
        return vec![cpus.to_vec()];
    }
    let lanes = cores.chunks_exact(each);
    lanes.map(|cores| cores.concat()).collect()
}

/// Returns the hardware threads of the core of `cpu`, as the kernel writes them; the processor alone if the kernel
/// does not report them.
fn siblings(cpu: usize) -> String {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    match std::fs::read_to_string(path) {
        Ok(list) if !list.trim().is_empty() => list.trim().to_owned(),
        _ => cpu.to_string(),
    }
}

/// Restricts the calling thread, and the processes and threads that it starts, to these processors. Ignores a
/// refusal of the kernel.
pub fn pin_this_thread(cpus: &[usize]) {
    if !cpus.is_empty() {
        let _ = rustix::thread::sched_setaffinity(None, &cpu_set(cpus));
    }
}

/// Returns the processors the calling thread may use, in ascending order; empty if the kernel does not report them.
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
    fn lanes_have_whole_cores() {
        let hyper = |cpu: usize| format!("{},{}", cpu % 4, cpu % 4 + 4);
        let eight: Vec<usize> = (0..8).collect();
        assert_eq!(
            divide(&eight, 1, &hyper),
            [[0, 4], [1, 5], [2, 6], [3, 7]].map(Vec::from)
        );
        assert_eq!(
            divide(&eight, 2, &hyper),
            [[0, 4, 1, 5], [2, 6, 3, 7]].map(Vec::from)
        );
        // Three threads need more than half of the machine.
        assert_eq!(divide(&eight, 3, &hyper), [eight]);
        let single = |cpu: usize| cpu.to_string();
        assert_eq!(divide(&[0, 1], 1, &single), [[0], [1]].map(Vec::from));
        assert_eq!(divide(&[3], 1, &single), [vec![3]]);
        assert_eq!(divide(&[], 1, &single), [Vec::<usize>::new()]);
        // Five cores: the fifth stays idle with lanes of two.
        assert_eq!(divide(&[0, 1, 2, 3, 4], 2, &single).len(), 2);
    }

    #[test]
    fn threads_and_what_they_start_stay_on_their_processors() {
        let cpus = allowed_cpus();
        let last = cpus[cpus.len() - 1];
        let seen = std::thread::spawn(move || {
            pin_this_thread(&[last]);
            std::thread::spawn(allowed_cpus).join().unwrap()
        });
        assert_eq!(seen.join().unwrap(), [last]);
        assert_eq!(allowed_cpus(), cpus);
    }
}
