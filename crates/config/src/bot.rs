//! `[bot]`: settings of `perfquilt bot serve`.

use std::path::PathBuf;

use serde::Deserialize;

use super::Config;
use super::document::Document;
use super::mail::Mail;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::repository::Repository;

/// `[bot]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bot {
    /// The repository, as `owner/name`. Required for the bot.
    pub repository: String,
    /// The forge that hosts it: `github`, `gitlab` or `forgejo`, which is also for Gitea; by default `github`. `mail` for
    /// `perfquilt bot mail`.
    pub forge: Option<String>,
    /// The git remote to fetch from; by default the repository on its forge.
    pub remote: Option<String>,
    /// A file of git's settings for fetching, relative to the workspace (`credential.helper`, `http.proxy`,
    /// `core.sshCommand`): the bot's git reads no others.
    pub git_config: Option<PathBuf>,
    /// The content of the repository's pull requests.
    pub kind: RepositoryKind,
    /// The preset of runs that name none.
    pub preset: String,
    /// Measure an authorised author's pull request at each push by the author or one of `users` of `[commands]`.
    pub on_push: bool,
    /// Whether code from pull requests runs in a sandbox.
    pub sandbox: SandboxMode,
    /// How code of unauthorised authors runs.
    pub run_untrusted: UntrustedPolicy,
    /// Whose changes to build-steering files need approval.
    pub approval: ApprovalPolicy,
    /// Names of build-steering files, with `*` for any characters and a trailing slash for folders; no paths.
    pub steering: Vec<String>,
    /// Processors on which the bot builds the next job's servers while it measures on the others; none if empty.
    #[serde(rename = "ahead_cpus")]
    pub prebuild_cpus: Vec<usize>,
    /// Seconds between two looks at the pull requests that have jobs, at least 1.
    pub poll_seconds: u32,
    /// MiB of objects, unpacked, that a pull request may bring beyond those of its branch.
    pub fetch_mib: u64,
    /// MiB of a file system for everything of the jobs, which a bot of root's makes and mounts; 0: the
    /// workspace's disk.
    pub area_mib: u64,
    /// Prefix of the result label, as in `perf: faster`; without it, no label is set.
    pub label: Option<String>,
    /// `[bot.mail]`: series that arrive as mails.
    pub mail: Option<Mail>,
}

/// The content of a repository's pull requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RepositoryKind {
    /// `series` and `patches/`.
    Series,
    /// The server's source: every commit is a patch on the commit that the pull request branched off.
    Fork,
}

/// When the bot uses a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxMode {
    /// If one can be created.
    Auto,
    /// Always; if none can be created, nothing runs.
    Required,
    /// Never.
    Off,
}

/// How the bot runs code from unauthorised authors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UntrustedPolicy {
    /// Not at all.
    Never,
    /// In a sandbox, with caches and results of its own.
    Sandboxed,
    /// In a sandbox if there is one, otherwise without, with all rights of the bot.
    Unsandboxed,
}

/// Whose changes to build-steering files need approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalPolicy {
    /// Changes by authors who are not authorised to give commands.
    Untrusted,
    /// Everybody's changes.
    Everybody,
    /// Nobody's changes.
    Nobody,
}

/// Default build-steering files: those that decide what a build or a test executes. Scripts, what makefiles and
/// `configure` read, programs that a build compiles and runs, and inputs that a build evaluates as code: Perl's of
/// PostgreSQL's catalog (`*.dat`), and bison's, which may name a skeleton in m4. The reference shows the file.
const STEERING: &str = include_str!("../../../docs/bot-steering.txt");

impl Default for Bot {
    fn default() -> Self {
        Bot {
            repository: String::new(),
            forge: None,
            remote: None,
            git_config: None,
            kind: RepositoryKind::Series,
            preset: "quick".into(),
            on_push: false,
            sandbox: SandboxMode::Auto,
            run_untrusted: UntrustedPolicy::Sandboxed,
            approval: ApprovalPolicy::Untrusted,
            steering: STEERING.lines().map(str::to_owned).collect(),
            prebuild_cpus: Vec::new(),
            poll_seconds: 180,
            fetch_mib: 512,
            area_mib: 0,
            label: None,
            mail: None,
        }
    }
}

impl Bot {
    pub(super) fn check(&self, config: &Config, document: &Document) -> Result<()> {
        if *self != Bot::default() {
            let at = |error: Error| document.locate(&["bot"], error);
            self.repository.parse::<Repository>().map_err(at)?;
            config.preset(&self.preset).map_err(at)?;
        }
        if let Some(mail) = &self.mail {
            mail.check(document)?;
        }
        if self.poll_seconds == 0 {
            let fault = "`poll_seconds` must be at least 1";
            return Err(document.error(&["bot", "poll_seconds"], fault));
        }
        for (index, pattern) in self.steering.iter().enumerate() {
            let name = pattern.strip_suffix('/').unwrap_or(pattern);
            if name.is_empty() || name.contains('/') {
                let fault = format!("`{pattern}` in `steering` is not a name");
                let error = document.error(&["bot", "steering", &index.to_string()], fault);
                return Err(error.hint(
                    "a name means files of that name in every folder, `NAME/` everything in folders of that name",
                ));
            }
        }
        Ok(())
    }

    /// Whether the file at `path` is a build-steering file.
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

/// Whether `name` matches `pattern`, in which `*` stands for any characters.
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
            // MariaDB and MySQL.
            "VERSION.in",
            "cmake/cpack_source_ignore_files",
            "extra/comp_err.c",
            "mysql-test/lib/My/Config.pm",
            "mysql-test/mysql-test-run.pl",
            "scripts/mariadb-plugin",
            "sql/sql_yacc.yy",
            "storage/rocksdb/rocksdb/build_tools/build_detect_platform",
            "storage/tokudb/PerconaFT/buildheader/make_tdb.cc",
            "strings/uca-dump.c",
            "support-files/ccfilter",
            "utilities/comp_err.cc",
            // autotools, which memcached and jemalloc use.
            "aclocal.m4",
            "compile",
            "config.h.in",
            "deps/jemalloc/build-aux/config.guess",
            "deps/jemalloc/build-aux/install-sh",
            "deps/jemalloc/include/jemalloc/jemalloc.sh",
            "depcomp",
            "install-sh",
            "ltmain.sh",
            "missing",
            "src/.deps/server.Po",
            "t/binary.t",
            "t/lib/MemcachedTest.pm",
            "test-driver",
            "version.m4",
            "ylwrap",
            // nginx.
            "auto/cc/gcc",
            "auto/init",
            "auto/lib/openssl/make",
            "auto/options",
            "contrib/unicode2nginx/unicode-to-nginx.pl",
            "misc/GNUmakefile",
            "src/http/modules/perl/Makefile.PL",
            "src/http/modules/perl/nginx.pm",
            // PostgreSQL.
            "config/prep_buildtree",
            "contrib/bloom/t/001_wal.pl",
            "meson.build",
            "src/Makefile.global.in",
            "src/backend/catalog/Catalog.pm",
            "src/backend/catalog/genbki.pl",
            "src/backend/parser/gram.y",
            "src/include/catalog/pg_proc.dat",
            "src/makefiles/pgxs.mk",
            "src/include/catalog/duplicate_oids",
            "src/template/linux",
            "src/timezone/zic.c",
            "src/tools/PerfectHash.pm",
            "src/tools/testwrap",
            // Redis and Valkey.
            "deps/Makefile",
            "deps/lua/src/Makefile",
            "runtest",
            "runtest-cluster",
            "src/.make-settings",
            "src/mkreleasehdr.sh",
            "src/server.d",
            "tests/unit/type/list.tcl",
            "utils/generate-command-code.py",
        ] {
            assert!(bot.steers(path), "{path}");
        }
        for path in [
            "sql/sql_select.cc",
            "sql/debian.cc",
            "include/configure_it.h",
            "mysql-test/main/x.test",
            "auto.c",
            "include/missing.h",
            "mysys/my_compile.c",
            "proto_text.c",
            "sql/bootstrap.cc",
            "src/backend/bootstrap/bootstrap.c",
            "src/backend/optimizer/path/costsize.c",
            "src/config.c",
            "src/core/nginx.c",
            "src/t_zset.c",
            "storage/innobase/buf/buf0buf.cc",
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
