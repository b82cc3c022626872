//! Runs simulations on all processors, with progress.

use std::sync::Mutex;

use rayon::prelude::*;

use perfquilt_model::error::Result;
use perfquilt_model::progress::{self, Step};
use perfquilt_system::process::check_interrupted;

/// Runs `work` as a step of `progress` that counts up to `all`; `work` calls its argument after each item.
pub fn counted<T>(
    name: &str,
    all: usize,
    work: impl FnOnce(&(dyn Fn() + Sync)) -> Result<T>,
) -> Result<T> {
    let total = u64::try_from(all).unwrap_or(u64::MAX);
    let step = progress::begin(name, Some(total));
    let shared: Mutex<(u64, Box<dyn Step>)> = Mutex::new((0, step));
    let result = work(&|| {
        if let Ok(mut shared) = shared.lock() {
            shared.0 += 1;
            if shared.0.is_multiple_of(50) {
                shared.1.update(shared.0, Some(total), "");
            }
        }
    })?;
    if let Ok((_, step)) = shared.into_inner() {
        step.finish("");
    }
    Ok(result)
}

/// Makes the items of all indices below `count` on all processors; returns them in order.
pub fn parallel<T: Send>(count: usize, make: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    let items = (0..count).into_par_iter().map(|index| {
        check_interrupted()?;
        make(index)
    });
    items.collect()
}
