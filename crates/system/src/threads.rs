//! Work on many things by all processors.

/// What `work` makes of each item, in order, on as many threads as there are processors; `share` items at least are
/// worth a thread of their own.
pub fn in_threads<T: Sync, R: Send>(
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
            // A panic goes on where it would have without threads.
            let more = thread.join();
            results.extend(more.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        results
    })
}
