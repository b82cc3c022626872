//! Properties of every experiment.

use proptest::prelude::*;

use super::*;

/// Costs of a complete experiment: blocks × points.
fn experiments() -> impl Strategy<Value = Vec<Vec<f64>>> {
    (2usize..5, 2usize..6).prop_flat_map(|(blocks, points)| {
        proptest::collection::vec(proptest::collection::vec(0.5f64..2.0, points), blocks)
    })
}

fn observations_of(rows: &[Vec<f64>]) -> Vec<Observation> {
    let rows: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
    blocks("w", Meter::Time, &rows)
}

proptest! {
    #[test]
    fn effects_in_order_add_up_to_the_total(rows in experiments()) {
        let header = header(rows[0].len() - 1);
        let result = attribute(&header, &observations_of(&rows), &margin).unwrap();
        let sum: f64 = (1..rows[0].len()).map(|k| in_order(&result, k).estimate.ln_1p()).sum();
        prop_assert!((sum - result.total[0].estimate.ln_1p()).abs() < 1e-12);
    }

    #[test]
    fn the_order_of_observations_does_not_matter(
        (rows, shuffled) in experiments().prop_flat_map(|rows| {
            let observations = observations_of(&rows);
            (Just(rows), Just(observations).prop_shuffle())
        })
    ) {
        let header = header(rows[0].len() - 1);
        let plain = attribute(&header, &observations_of(&rows), &margin).unwrap();
        prop_assert_eq!(plain, attribute(&header, &shuffled, &margin).unwrap());
    }

    #[test]
    fn the_numbering_of_blocks_does_not_matter(rows in experiments()) {
        let header = header(rows[0].len() - 1);
        let mut reversed = rows.clone();
        reversed.reverse();
        let one = attribute(&header, &observations_of(&rows), &margin).unwrap();
        let other = attribute(&header, &observations_of(&reversed), &margin).unwrap();
        prop_assert_eq!((one.patches.len(), other.patches.len()), (rows[0].len() - 1, rows[0].len() - 1));
        for (a, b) in one.patches.iter().zip(&other.patches) {
            let (a, b) = (&a.effects[0], &b.effects[0]);
            prop_assert!((a.estimate - b.estimate).abs() < 1e-12);
            prop_assert!((a.low.unwrap() - b.low.unwrap()).abs() < 1e-9);
        }
    }

    #[test]
    fn swapping_two_points_turns_the_effect_round(rows in experiments()) {
        let swapped: Vec<Vec<f64>> = rows.iter().map(|row| vec![row[1], row[0]]).collect();
        let straight: Vec<Vec<f64>> = rows.iter().map(|row| row[..2].to_vec()).collect();
        let one = attribute(&header(1), &observations_of(&straight), &margin).unwrap();
        let other = attribute(&header(1), &observations_of(&swapped), &margin).unwrap();
        let (one, other) = (in_order(&one, 1), in_order(&other, 1));
        prop_assert!((one.estimate.ln_1p() + other.estimate.ln_1p()).abs() < 1e-12);
        prop_assert_eq!(one.is_shown(), other.is_shown());
        prop_assert!(!one.is_shown() || one.verdict != other.verdict);
        let (raw, back) = (one.p_value.unwrap_or(1.0), other.p_value.unwrap_or(1.0));
        prop_assert!((raw - back).abs() < 1e-6, "{} {}", raw, back);
    }
}
