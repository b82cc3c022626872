//! Builds and tests the points of a moved series before it is written.

use super::StoredTrees;
use super::server_tests::{judged, test_items};
use super::training::builder_on;
use perfquilt_build::BuildItem;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Kind, Result};
use perfquilt_model::point::Point;
use perfquilt_model::rebase::{BuildResult, TestResult};
use perfquilt_rebase::{RebasedSeries, named_paths};
use perfquilt_series::series::path::shown;

/// Builds the new release, then each patch that goes in on top of the ones before it, and stores in the report how that
/// went; with `test`, runs the server's own tests at each point that builds. A patch that does not compile does not stop
/// the later ones.
pub fn build_rebased(
    ws: &Workspace,
    rebased: &mut RebasedSeries,
    recipe: &str,
    test: bool,
) -> Result<()> {
    let release = rebased.to.name.clone();
    let base = BuildItem {
        label: release.clone(),
        point: Point::BASE,
        patch: None,
        touches: Vec::new(),
        tree: rebased.to.tree.clone(),
        base: rebased.to.tree.clone(),
        release: release.clone(),
    };
    let builder = builder_on(ws, recipe, &base)?;
    let source = StoredTrees::new(ws);
    let mut program = builder.build(&base, &source)?.identity;
    let mut built = Vec::new();
    let series = rebased.series.patches().iter().zip(&rebased.steps);
    for ((patch, step), report) in series.zip(&mut rebased.report.patches) {
        if !report.status.applies() {
            continue;
        }
        let item = BuildItem {
            label: format!("{release} up to {}", patch.name),
            point: Point::Step(report.index),
            patch: Some(patch.name.clone()),
            touches: named_paths(patch).iter().map(|path| shown(path)).collect(),
            tree: step.new.after.clone(),
            base: base.tree.clone(),
            release: release.clone(),
        };
        report.build = Some(match builder.build(&item, &source) {
            Ok(server) => {
                report.same_program = server.identity == program;
                program = server.identity;
                built.push(item);
                BuildResult::Ok
            }
            Err(error) if matches!(error.kind(), Kind::Interrupted | Kind::Usage) => {
                return Err(error);
            }
            Err(error) => BuildResult::Failed(error.to_string()),
        });
    }
    if !test {
        return Ok(());
    }
    let tested = test_items(&builder, base, built, &source)?;
    for tested in judged(tested) {
        let index = tested.point.step();
        let patches = &mut rebased.report.patches;
        let report = patches.iter_mut().find(|patch| Some(patch.index) == index);
        match (report, tested.tests) {
            (Some(report), Ok(tests)) => report.tests = Some(TestResult::Ran(tests)),
            (Some(report), Err(error)) => {
                report.tests = Some(TestResult::Failed(error.to_string()));
            }
            (None, tests) => rebased.report.tests = Some(tests?),
        }
    }
    Ok(())
}
