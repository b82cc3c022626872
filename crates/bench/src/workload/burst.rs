//! Runs the same job on several client threads at once and times it from the first start to the last end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use perfquilt_model::error::{Error, Result};
use perfquilt_system::threads::lock;

/// Times of a burst.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BurstTime {
    /// From the start of the first thread to the end of the last one.
    pub(super) wall: Duration,
    /// Processor time of all threads.
    pub(super) client: Duration,
}

/// A job shared by the threads of a burst, and its results.
pub(super) struct Burst<J> {
    begin: Barrier,
    end: Barrier,
    job: Mutex<Option<J>>,
    /// Processor time of the threads, in nanoseconds.
    spent: AtomicU64,
    /// Origin of `first` and `last`.
    epoch: Instant,
    /// Nanoseconds until the first thread started and until the last one finished.
    first: AtomicU64,
    last: AtomicU64,
    over: AtomicBool,
    failed: Mutex<Option<Error>>,
}

impl<J: Clone> Burst<J> {
    /// Creates the state shared by `threads` threads that call [`Burst::serve`].
    pub(super) fn new(threads: usize) -> Self {
        Burst {
            begin: Barrier::new(threads + 1),
            end: Barrier::new(threads + 1),
            job: Mutex::new(None),
            spent: AtomicU64::new(0),
            epoch: Instant::now(),
            first: AtomicU64::new(0),
            last: AtomicU64::new(0),
            over: AtomicBool::new(false),
            failed: Mutex::new(None),
        }
    }

    /// Returns the handle that runs jobs on the threads; dropping it ends them.
    pub(super) fn handle(&self) -> BurstHandle<'_, J> {
        BurstHandle { burst: self }
    }

    /// Runs `work` on every job until the handle is dropped. Each thread of the burst calls this once.
    pub(super) fn serve(&self, mut work: impl FnMut(&J) -> Result<()>) {
        loop {
            self.begin.wait();
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            let job = lock(&self.job).clone();
            let (begun, before) = (self.now(), thread_time());
            // If a thread ended here, the others would wait at the barriers for ever.
            let result = catch_unwind(AssertUnwindSafe(|| job.iter().try_for_each(&mut work)))
                .unwrap_or_else(|_| Err(Error::internal("a thread of the client failed")));
            let (ended, spent) = (self.now(), thread_time().saturating_sub(before));
            self.first.fetch_min(begun, Ordering::Relaxed);
            self.last.fetch_max(ended, Ordering::Relaxed);
            self.spent.fetch_add(nanoseconds(spent), Ordering::Relaxed);
            if let Err(error) = result {
                let mut failed = lock(&self.failed);
                failed.get_or_insert(error);
            }
            self.end.wait();
        }
    }

    fn now(&self) -> u64 {
        nanoseconds(self.epoch.elapsed())
    }
}

/// Runs jobs on the threads of a [`Burst`].
pub(super) struct BurstHandle<'a, J> {
    burst: &'a Burst<J>,
}

impl<J: Clone> BurstHandle<'_, J> {
    /// Runs `job` on all threads.
    pub(super) fn run(&mut self, job: J) -> Result<BurstTime> {
        let burst = self.burst;
        *lock(&burst.job) = Some(job);
        burst.spent.store(0, Ordering::Relaxed);
        burst.first.store(u64::MAX, Ordering::Relaxed);
        burst.last.store(0, Ordering::Relaxed);
        // The barriers order these accesses. The threads measure the time, because this one may be woken long after
        // they have started.
        burst.begin.wait();
        burst.end.wait();
        let mut failed = lock(&burst.failed);
        if let Some(error) = failed.take() {
            return Err(error);
        }
        let last = burst.last.load(Ordering::Relaxed);
        let wall = last.saturating_sub(burst.first.load(Ordering::Relaxed));
        Ok(BurstTime {
            wall: Duration::from_nanos(wall),
            client: Duration::from_nanos(burst.spent.load(Ordering::Relaxed)),
        })
    }
}

impl<J> Drop for BurstHandle<'_, J> {
    fn drop(&mut self) {
        self.burst.over.store(true, Ordering::Relaxed);
        self.burst.begin.wait();
    }
}

/// Returns the processor time of the calling thread.
pub(super) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a burst on threads that call `work` with their numbers.
    fn burst(threads: u32, work: impl Fn(u32) -> Result<()> + Sync) -> Result<BurstTime> {
        let shared = Burst::new(threads as usize);
        std::thread::scope(|scope| {
            for number in 0..threads {
                let (shared, work) = (&shared, &work);
                scope.spawn(move || shared.serve(|(): &()| work(number)));
            }
            shared.handle().run(())
        })
    }

    #[test]
    fn a_burst_lasts_from_the_first_start_to_the_last_end() {
        let times: Mutex<Vec<Instant>> = Mutex::default();
        let result = burst(3, |number| {
            let note = || times.lock().unwrap().push(Instant::now());
            note();
            std::thread::sleep(Duration::from_millis(2) * number);
            note();
            Ok(())
        });
        let times = times.into_inner().unwrap();
        let all = *times.iter().max().unwrap() - *times.iter().min().unwrap();
        assert!(result.unwrap().wall >= all);
    }

    #[test]
    fn a_failing_thread_fails_the_burst() {
        let result = burst(3, |number| match number {
            1 => Err(Error::client_failed("no row 5")),
            _ => Ok(()),
        });
        assert_eq!(result.unwrap_err().message(), "no row 5");
        let result = burst(2, |number| {
            assert!(number != 1, "as a library might");
            Ok(())
        });
        assert!(result.is_err());
    }
}
