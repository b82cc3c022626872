//! Threads that end with what started them, and what they share.

use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Runs `work` for each of `items` on a thread of its own, and returns the results in their order. A panic of a thread goes on
/// here.
pub fn each<I: Send, T: Send>(
    items: impl IntoIterator<Item = I>,
    work: impl Fn(I) -> T + Sync,
) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let items = items.into_iter();
        let threads: Vec<_> = items.map(|item| scope.spawn(move || work(item))).collect();
        let done = threads.into_iter().map(|thread| thread.join());
        done.map(|result| result.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

/// Locks `mutex`, also after a panic of a thread that held it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let length = |text: &str| {
            std::thread::sleep(std::time::Duration::from_millis(5 - text.len() as u64));
            text.len()
        };
        assert_eq!(each(["a", "bcd", "ef"], length), [1, 3, 2]);
    }

    #[test]
    fn a_mutex_is_locked_after_a_panic() {
        let mutex = Mutex::new(1);
        let held = std::panic::catch_unwind(|| {
            let _held = lock(&mutex);
            panic!("with the lock");
        });
        assert!(held.is_err());
        assert_eq!(*lock(&mutex), 1);
    }
}
