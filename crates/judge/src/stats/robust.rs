//! Robust estimates of location.

/// Returns the median; `None` without values. Reorders `values`.
pub fn median(values: &mut [f64]) -> Option<f64> {
    let n = values.len();
    if n == 0 {
        return None;
    }
    let (below, &mut middle, _) = values.select_nth_unstable_by(n / 2, f64::total_cmp);
    if n % 2 == 1 {
        return Some(middle);
    }
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some(lower.midpoint(middle))
}

/// Returns the mean without the smallest and the largest `share` (below one half) of the values; `None`
/// without values. Reorders `values`.
///
/// At a share of 0.2 up to a fifth of the values may be arbitrarily wrong on one side, and for
/// normal data the result is 94 % as efficient as the plain mean (the median: 64 %). Tukey and
/// McLaughlin, *Less vulnerable confidence and significance procedures for location based on a
/// single sample*, Sankhyā A 25 (1963).
pub fn trimmed_mean(values: &mut [f64], share: f64) -> Option<f64> {
    let n = values.len();
    if n == 0 {
        return None;
    }
    let cut = ((n as f64 * share) as usize).min((n - 1) / 2);
    if cut > 0 {
        values.select_nth_unstable_by(cut, f64::total_cmp);
        values[cut..].select_nth_unstable_by(n - 2 * cut - 1, f64::total_cmp);
    }
    let middle = &values[cut..n - cut];
    Some(middle.iter().sum::<f64>() / middle.len() as f64)
}

/// Adds a row to sums, column by column.
pub(super) fn add_row(sums: &mut [f64], row: &[f64]) {
    for (sum, value) in sums.iter_mut().zip(row) {
        *sum += value;
    }
}

/// Returns the mean of rows of the same length.
pub(crate) fn mean_row<'a>(rows: impl Iterator<Item = &'a Vec<f64>>) -> Vec<f64> {
    let mut sums: Vec<f64> = Vec::new();
    let mut count = 0.0;
    for row in rows {
        sums.resize(row.len(), 0.0);
        add_row(&mut sums, row);
        count += 1.0;
    }
    sums.iter().map(|sum| sum / count).collect()
}

/// Returns the deviations of a row's values from their mean.
pub(crate) fn deviations(row: &[f64]) -> Vec<f64> {
    let mean = row.iter().sum::<f64>() / row.len().max(1) as f64;
    row.iter().map(|value| value - mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_even_and_odd() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), Some(2.5));
    }

    #[test]
    fn trimming_puts_the_ends_aside() {
        let mut values = [1e9, 1.0, 2.0, 3.0, -1e9];
        assert_eq!(trimmed_mean(&mut values, 0.2), Some(2.0));
        assert_eq!(trimmed_mean(&mut values, 0.0), Some(1.2));
        assert_eq!(trimmed_mean(&mut [5.0], 0.49), Some(5.0));
        assert_eq!(trimmed_mean(&mut [1.0, 3.0], 0.49), Some(2.0));
        assert_eq!(trimmed_mean(&mut [], 0.2), None);
    }
}
