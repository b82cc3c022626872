//! CMake builds that are guided by a profile.

use std::sync::Arc;

use perfquilt_build::{Builder, Built, Training};
use perfquilt_config::Profile;
use perfquilt_model::Result;
use perfquilt_system::process::Command;

use super::fixture::{Fixture, RECIPE, item};

/// Runs the program that often, and always says to do the same.
#[derive(Debug)]
struct Runs(u32);

impl Training for Runs {
    fn identity(&self) -> Result<String> {
        Ok("runs".to_owned())
    }

    fn train(
        &self,
        server: &Built,
        _label: &str,
        env: &[(String, String)],
        _into: &std::path::Path,
    ) -> Result<()> {
        for _ in 0..self.0 {
            let mut command = Command::new(server.dir.join("bin/app"));
            for (name, value) in env {
                command = command.env(name, value);
            }
            assert!(command.run()?.success());
        }
        Ok(())
    }
}

#[test]
fn everything_is_compiled_again_with_another_profile_of_the_same_training() {
    let fixture = Fixture::new(&format!(
        "{RECIPE}\n[recipe.quick.profile]\nworkloads = [\"x\"]\ntransactions = 1\n"
    ));
    let workloads = fixture.folder.path().join("bench-config/workloads");
    std::fs::create_dir(&workloads).unwrap();
    let workload =
        "description = \"x\"\nkind = \"command\"\n[command]\nrun = [\"true\"]\ntransactions = 1\n";
    std::fs::write(workloads.join("x.toml"), workload).unwrap();
    let build = |runs: u32| {
        let training = |_: &Profile| -> Result<Arc<dyn Training>> { Ok(Arc::new(Runs(runs))) };
        let base = item("base");
        let builder = Builder::guided(&fixture.workspace(), "quick", &base, &training).unwrap();
        builder.build(&base, &fixture).unwrap()
    };
    let first = build(1);
    std::fs::remove_dir_all(fixture.folder.path().join("cache/profiles")).unwrap();
    let second = build(2);
    assert_eq!(second.key, first.key);
    let digest = |built: &Built| built.profile.as_ref().unwrap().digest.clone();
    assert_ne!(digest(&second), digest(&first));
    assert_eq!(second.compiled_units, 3);
}
