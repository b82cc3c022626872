//! `[bot]`: what `perfquilt bot serve` does.

use serde::Deserialize;

/// `[bot]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bot {
    /// The repository whose pull requests it serves, as `owner/name`.
    pub repository: String,
    /// Where their commits are fetched from; without, the repository on github.com.
    pub remote: Option<String>,
    /// What its pull requests change.
    pub kind: Kind,
    /// The preset of a run that names none.
    pub preset: String,
    /// Measure whatever somebody who may give commands pushes, without being asked.
    pub on_push: bool,
    /// Whether code of pull requests is run in a sandbox.
    pub sandbox: UseSandbox,
    /// Whether code of authors who may not give commands is run, when somebody who may asks for it.
    pub run_untrusted: Untrusted,
    /// Whose changes of files that steer builds must be approved.
    pub approval: Approval,
    /// Which files steer builds: names, with `*` for any characters; with a slash at the end, everything in
    /// folders of that name.
    pub steering: Vec<String>,
    /// Processors on which servers of the next job are built while one is measured on the others; without,
    /// nothing is built meanwhile.
    pub ahead_cpus: Vec<usize>,
    /// Set the label `PREFIX: STANDING`.
    pub label: Option<String>,
}

/// What the pull requests of a repository change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `series` and `patches/`.
    Series,
    /// The server itself: every commit is a patch on the commit they branched off.
    Fork,
}

/// When a sandbox is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UseSandbox {
    /// Wherever one can be made.
    Auto,
    /// Always; where none can be made, nothing is run.
    Required,
    /// Never.
    Off,
}

/// Whether code of strangers is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Untrusted {
    /// Not at all.
    Never,
    /// In a sandbox, with caches and results of its own.
    Sandboxed,
    /// Where there is no sandbox, without: with all rights of the bot.
    Unsandboxed,
}

/// Whose changes of files that steer builds must be approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    /// Those of authors who may not give commands.
    Strangers,
    /// Everybody's.
    Everybody,
    /// Nobody's.
    Nobody,
}

/// Files that decide what a build or a test executes.
const STEERING: [&str; 34] = [
    "CMakeLists.txt",
    "*.cmake",
    "*.cmake.in",
    "CMakePresets.json",
    "configure",
    "configure.*",
    "config.guess",
    "config.sub",
    "*.m4",
    "*.ac",
    "*.am",
    "Makefile*",
    "makefile*",
    "GNUmakefile*",
    "*.mk",
    "meson.build",
    "meson_options.txt",
    "BUILD*",
    "BUILD/",
    "*.ninja",
    "*.sh",
    "*.pl",
    "*.py",
    "*.lua",
    "gen_*",
    "comp_err.c",
    "comp_sql.c",
    "*.gyp",
    "debian/",
    ".github/",
    ".gitlab-ci.yml",
    ".gitmodules",
    ".gitattributes",
    "Jenkinsfile",
];

impl Default for Bot {
    fn default() -> Self {
        Bot {
            repository: String::new(),
            remote: None,
            kind: Kind::Series,
            preset: "quick".into(),
            on_push: false,
            sandbox: UseSandbox::Auto,
            run_untrusted: Untrusted::Sandboxed,
            approval: Approval::Strangers,
            steering: STEERING.map(str::to_owned).into(),
            ahead_cpus: Vec::new(),
            label: None,
        }
    }
}

impl Bot {
    /// Whether the file at `path` steers builds.
    pub fn steers(&self, path: &str) -> bool {
        let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
        self.steering
            .iter()
            .any(|pattern| match pattern.strip_suffix('/') {
                Some(folder) => folders.split('/').any(|part| matches(folder, part)),
                None => matches(pattern, name),
            })
    }
}

/// Whether `name` is written as `pattern` says, where `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_steer_builds() {
        let bot = Bot::default();
        for path in [
            "CMakeLists.txt",
            "sql/CMakeLists.txt",
            "cmake/os/Linux.cmake",
            "configure",
            "BUILD/compile-pentium",
            "storage/innobase/Makefile.am",
            "debian/rules",
            "debian/patches/x.diff",
            ".github/workflows/ci.yml",
            "scripts/mysql_install_db.sh",
            "sql/gen_lex_hash.cc",
            "scripts/comp_sql.c",
        ] {
            assert!(bot.steers(path), "{path}");
        }
        for path in [
            "sql/sql_select.cc",
            "sql/debian.cc",
            "include/configure_it.h",
            "mysql-test/main/x.test",
            "",
        ] {
            assert!(!bot.steers(path), "{path}");
        }
        let own = Bot {
            steering: vec!["a*b*c".into(), "x/".into(), "*".into()],
            ..Bot::default()
        };
        assert!(own.steers("anything"));
        assert!(matches("a*b*c", "aXbYbc") && matches("a*b*c", "abc"));
        assert!(!matches("a*b*c", "acb") && !matches("a*a", "a"));
    }
}
