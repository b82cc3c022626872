//! Descriptions of profile-guided builds.

use std::collections::BTreeSet;

use super::nouns::point_name;
use perfquilt_judge::attribution::Attribution;
use perfquilt_model::counted::counted;
use perfquilt_model::observation::ProfileUse;

/// Describes the profiles that servers were compiled with; `None` without profile-guided builds. `name` escapes a
/// name.
pub(super) fn describe(attribution: &Attribution, name: &dyn Fn(&str) -> String) -> Option<String> {
    let builds = attribution.builds.iter();
    let guided: Vec<_> = builds
        .filter_map(|build| Some((build, build.profile.as_ref()?)))
        .collect();
    let (_, first) = guided.first()?;
    let digests: BTreeSet<&String> = guided.iter().map(|(_, profile)| &profile.digest).collect();
    let which: Vec<String> = guided.iter().map(|(b, _)| point_name(b.point)).collect();
    let which = which.join(", ");
    let own = "profiles of their own, so an effect holds what its profile changed too";
    let mut text = match (guided.len() == attribution.builds.len(), digests.len()) {
        (true, 1) => format!(
            "Profile-guided: all servers were compiled with the profile of {}.",
            name(&first.of)
        ),
        (true, _) => format!("Profile-guided: servers were compiled with {own}."),
        (false, 1) => format!(
            "Profile-guided: {which}, compiled with the profile of {}; the others were not.",
            name(&first.of)
        ),
        (false, _) => {
            format!("Profile-guided: {which}, compiled with {own}; the others were not.")
        }
    };
    let of = |count: fn(&ProfileUse) -> u64, one: &str, several: &str| -> Option<String> {
        let counts = guided
            .iter()
            .map(|(build, profile)| (build, count(profile)));
        let nonzero: Vec<String> = counts
            .filter(|(_, count)| *count > 0)
            .map(|(build, count)| {
                let of = point_name(build.point);
                format!("{} of {of}", counted(count, one, several))
            })
            .collect();
        (!nonzero.is_empty()).then(|| nonzero.join(", "))
    };
    if let Some(functions) = of(|profile| profile.changed, "function", "functions") {
        text.push_str(&format!(
            " It did not fit, and was not used for, {functions}."
        ));
    }
    if let Some(files) = of(|profile| profile.without, "file", "files") {
        text.push_str(&format!(" It had no data on {files}."));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::super::tests::Experiment;
    use super::*;
    use perfquilt_model::observation::PointBuild;
    use perfquilt_model::point::Point;

    fn described(profiles: &[Option<(&str, u64)>]) -> Option<String> {
        let mut experiment = Experiment::new(&[(0.01, 0.0), (0.0, 0.0)]);
        let build = |(point, profile): (usize, &Option<(&str, u64)>)| PointBuild {
            point: Point::Step(point),
            key: point.to_string(),
            configure: 1.0,
            compile: 2.0,
            link: 3.0,
            overhead: 0.0,
            units: 1,
            cached: false,
            code_bytes: None,
            profile: profile.map(|(digest, changed)| ProfileUse {
                digest: digest.into(),
                of: "toy-1".into(),
                changed,
                without: 2 * changed,
            }),
        };
        experiment.supplement.builds = profiles.iter().enumerate().map(build).collect();
        super::describe(&experiment.attribution(), &str::to_owned)
    }

    #[test]
    fn shared_and_own_profiles_and_misfits_are_distinguished() {
        assert_eq!(described(&[None, None]), None);
        let shared = described(&[Some(("a", 0)), Some(("a", 3)), Some(("a", 1))]).unwrap();
        assert!(
            shared.contains("compiled with the profile of toy-1."),
            "{shared}"
        );
        assert!(shared.contains("3 functions of"), "{shared}");
        assert!(shared.contains("1 function of"), "{shared}");
        assert!(shared.contains("It had no data on 6 files of"), "{shared}");
        let own = described(&[Some(("a", 0)), Some(("b", 0))]).unwrap();
        assert!(
            own.contains("profiles of their own") && !own.contains("fit"),
            "{own}"
        );
        let one = described(&[None, Some(("a", 0))]).unwrap();
        assert!(one.contains("the others were not"), "{one}");
        let two = described(&[None, Some(("a", 0)), Some(("b", 0))]).unwrap();
        assert!(
            two.contains("profiles of their own") && two.contains("the others were not"),
            "{two}"
        );
        assert!(!two.contains("the profile of toy-1"), "{two}");
    }
}
