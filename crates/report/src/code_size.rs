//! Describes how much machine code each patch adds.

use super::nouns::Nouns;
use super::number;
use perfquilt_judge::attribution::Attribution;
use perfquilt_model::point::Point;

/// Describes the size of the base's code and what each patch adds to it; `None` where sizes are unknown.
pub(super) fn describe(attribution: &Attribution) -> Option<String> {
    let size_at = |point: Point| {
        let build = attribution
            .builds
            .iter()
            .find(|build| build.point == point)?;
        build.code_bytes
    };
    let noun = Nouns::of(attribution).one;
    let release = number::grouped(size_at(Point::BASE)? as f64);
    let patches: Vec<String> = attribution
        .patches
        .iter()
        .filter_map(|patch| {
            let before = if attribution.is_of_servers() {
                Point::BASE
            } else {
                Point::Step(patch.index - 1)
            };
            let before = size_at(before)?;
            let after = size_at(Point::Step(patch.index))?;
            let sign = if after < before { "−" } else { "+" };
            let change = number::grouped(after.abs_diff(before) as f64);
            Some(format!("{noun} {} {sign}{change}", patch.index))
        })
        .collect();
    let changes = if patches.is_empty() {
        String::new()
    } else {
        format!("; {}", patches.join(", "))
    };
    Some(format!("Machine code: {release} bytes{changes}."))
}

#[cfg(test)]
mod tests {
    use super::super::tests::Experiment;
    use super::*;
    use perfquilt_model::observation::PointBuild;

    fn described(sizes: &[Option<u64>]) -> Option<String> {
        let mut experiment = Experiment::new(&vec![(0.01, 0.0); sizes.len()]);
        let build = |(point, &code_bytes): (usize, &Option<u64>)| PointBuild {
            point: Point::Step(point),
            key: point.to_string(),
            configure: 1.0,
            compile: 2.0,
            link: 3.0,
            overhead: 0.0,
            units: 1,
            cached: false,
            code_bytes,
            profile: None,
        };
        experiment.supplement.builds = sizes.iter().enumerate().map(build).collect();
        describe(&experiment.attribution())
    }

    #[test]
    fn every_patch_is_compared_with_the_point_before_it() {
        assert_eq!(
            described(&[Some(11_263_440), Some(11_264_464), Some(11_264_400)]).unwrap(),
            "Machine code: 11,263,440 bytes; patch 1 +1,024, patch 2 −64."
        );
    }

    #[test]
    fn unknown_sizes_are_left_out() {
        assert_eq!(described(&[]), None);
        assert_eq!(described(&[None, Some(5)]), None);
        assert_eq!(
            described(&[Some(2000), None, Some(5)]).unwrap(),
            "Machine code: 2,000 bytes."
        );
    }
}
