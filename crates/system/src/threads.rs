//! Parallel work on all processors.

/// Applies `work` to each item on as many threads as there are processors and returns the results in order. A
/// thread gets at least `share` items.
pub fn parallel_map<T: Sync, R: Send>(
    items: &[T],
    share: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let share = items.len().div_ceil(processors).max(share);
    let (own, others) = items.split_at(share.min(items.len()));
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = others
            .chunks(share)
            .map(|chunk| scope.spawn(move || chunk.iter().map(work).collect::<Vec<R>>()))
            .collect();
        let mut results: Vec<R> = own.iter().map(work).collect();
        for thread in threads {
            // Propagates a panic of the thread.
            let more = thread.join();
            results.extend(more.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        results
    })
}
