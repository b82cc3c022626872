//! A workspace whose upstream is a few C files, and a source tree that holds its points in memory.

use std::collections::BTreeMap;
use std::path::Path;

use perfquilt_build::{BuildItem, Builder, Built, Changes, SourceTree};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::Result;
use perfquilt_model::point::Point;

pub const RECIPE: &str = r#"
[recipe.quick]
system = "cmake"
cmake_args = ["-DCMAKE_BUILD_TYPE=Release"]
targets = ["app"]
binary = "bin/app"
linker = "auto"
[recipe.quick.install]
"bin/app" = "{build}/app"
"share/words" = "{src}/words"
"#;

/// Files of one point by path.
pub type Files = BTreeMap<&'static str, String>;

/// A workspace below a temporary folder, its cache there too.
pub struct Fixture {
    pub folder: tempfile::TempDir,
    pub trees: BTreeMap<String, Files>,
}

impl Fixture {
    pub fn new(recipes: &str) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("bench-config");
        std::fs::create_dir_all(&config).unwrap();
        let head = "[upstream]\nname = \"app\"\ncurrent = \"1\"\n[server]\nadapter = \"mariadb\"\n[preset]\n";
        std::fs::write(config.join("perfquilt.toml"), format!("{head}{recipes}")).unwrap();
        let mut trees = BTreeMap::new();
        trees.insert("base".to_owned(), base());
        Fixture { folder, trees }
    }

    /// A point that differs from the base in these files; an empty text removes the file.
    pub fn point(&mut self, tree: &str, changes: &[(&'static str, &str)]) {
        let mut files = base();
        for (path, text) in changes {
            if text.is_empty() {
                files.remove(path);
            } else {
                files.insert(path, (*text).to_owned());
            }
        }
        self.trees.insert(tree.to_owned(), files);
    }

    pub fn workspace(&self) -> Workspace {
        let cache = self.folder.path().join("cache");
        Workspace::open_with_cache(self.folder.path(), cache).unwrap()
    }

    pub fn builder(&self) -> Builder {
        Builder::new(&self.workspace(), "quick", "app-1").unwrap()
    }

    pub fn build(&self, tree: &str) -> Result<Built> {
        self.builder().build(&item(tree), self)
    }

    /// Names in the cache of results.
    pub fn results(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.folder.path().join("cache/builds")) else {
            return Vec::new();
        };
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    pub fn log(&self, tree: &str) -> String {
        std::fs::read_to_string(self.builder().log_path(&item(tree))).unwrap()
    }
}

/// Writes only what differs, as the real one does.
impl SourceTree for Fixture {
    fn changes(&self, tree: &str, dir: &Path) -> Result<Option<Changes>> {
        let files = &self.trees[tree];
        let known = self.trees.values().flat_map(|files| files.keys());
        let differs = |path: &&&str| {
            let found = std::fs::read_to_string(dir.join(path)).ok();
            found.as_deref() != files.get(**path).map(AsRef::as_ref)
        };
        let changes = known.filter(differs);
        Ok(Some(
            changes
                .map(|path| (path.to_string(), files.contains_key(path)))
                .collect(),
        ))
    }

    fn move_to(&self, tree: &str, dir: &Path) -> Result<()> {
        let files = &self.trees[tree];
        let known = self.trees.values().flat_map(|files| files.keys());
        for path in known.filter(|path| !files.contains_key(*path)) {
            let _ = std::fs::remove_file(dir.join(path));
        }
        for (path, text) in files {
            let path = dir.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            if !std::fs::read_to_string(&path).is_ok_and(|found| found == *text) {
                std::fs::write(&path, text).unwrap();
            }
        }
        Ok(())
    }
}

pub fn item(tree: &str) -> BuildItem {
    let base = tree == "base";
    BuildItem {
        label: if base {
            "app-1".to_owned()
        } else {
            format!("app-1 + {tree}.patch")
        },
        point: Point::Step(usize::from(!base)),
        patch: (!base).then(|| format!("{tree}.patch")),
        touches: if base {
            vec![]
        } else {
            vec!["lib/two.c".to_owned()]
        },
        tree: tree.to_owned(),
        base: "base".to_owned(),
        release: "app-1".to_owned(),
    }
}

pub fn base() -> Files {
    let mut files = Files::new();
    files.insert(
        "CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.16)\nproject(app C)\n\
         add_library(two STATIC lib/two.c lib/three.c)\n\
         add_executable(app main.c)\ntarget_link_libraries(app two)\n\
         add_executable(unwanted unwanted.c)\n"
            .to_owned(),
    );
    files.insert("lib/two.c", "int two(void) { return 2; }\n".to_owned());
    files.insert("lib/three.c", "int three(void) { return 3; }\n".to_owned());
    files.insert(
        "lib/numbers.h",
        "int two(void);\nint three(void);\n".to_owned(),
    );
    files.insert(
        "main.c",
        "#include <stdio.h>\n#include \"lib/numbers.h\"\n\
         int main(void) { printf(\"%d %s\\n\", two() * three(), __FILE__); return 0; }\n"
            .to_owned(),
    );
    files.insert(
        "unwanted.c",
        "#error not a target of the recipe\n".to_owned(),
    );
    files.insert("words", "hello\n".to_owned());
    files
}
