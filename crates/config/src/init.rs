//! Creation of workspaces: the configurations that this repository and its examples use, and an empty series.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::CONFIG_FILE;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::files::write_file;

/// A bundled file: path in the workspace and content.
type BundledFile = (&'static str, &'static str);

macro_rules! bundled {
    ($path:literal) => {
        ($path, include_str!(concat!("../../../", $path)))
    };
    // Files of an example, whose workspace is the folder `$root`.
    ($root:literal: $($path:literal)*) => {
        &[$(($path, include_str!(concat!("../../../", $root, "/", $path)))),*]
    };
}

/// A server that workspaces can be created for.
#[derive(Debug, Clone, Copy)]
pub struct Template {
    /// The name on the command line.
    pub server: &'static str,
    files: &'static [BundledFile],
}

/// The servers. `tests/init.rs` compares their files with the configurations of this repository and its examples.
pub const TEMPLATES: &[Template] = &[
    Template {
        server: "mariadb",
        files: MARIADB,
    },
    Template {
        server: "memcached",
        files: bundled!("examples/memcached":
            "bench-config/packages.txt"
            "bench-config/workloads/get.toml"
            "bench-config/workloads/set.toml"
            "bench-config/upstream.lock"
            "bench-config/perfquilt.toml"
        ),
    },
    Template {
        server: "mysql",
        files: bundled!("examples/mysql":
            "bench-config/cmake/precompile.cmake"
            "bench-config/packages.txt"
            "bench-config/server.cnf"
            "bench-config/workloads/oltp_point_select.toml"
            "bench-config/workloads/oltp_read_only.toml"
            "bench-config/upstream.lock"
            "bench-config/perfquilt.toml"
        ),
    },
    Template {
        server: "nginx",
        files: bundled!("examples/nginx":
            "bench-config/nginx.conf"
            "bench-config/packages.txt"
            "bench-config/workloads/browser.toml"
            "bench-config/workloads/static.toml"
            "bench-config/www/index.html"
            "bench-config/upstream.lock"
            "bench-config/perfquilt.toml"
        ),
    },
    Template {
        server: "postgresql",
        files: bundled!("examples/postgresql":
            "bench-config/packages.txt"
            "bench-config/pgbench/tpcb.sql"
            "bench-config/pgbench/tpcc/delivery.sql"
            "bench-config/pgbench/tpcc/new_order.sql"
            "bench-config/pgbench/tpcc/order_status.sql"
            "bench-config/pgbench/tpcc/payment.sql"
            "bench-config/pgbench/tpcc/stock_level.sql"
            "bench-config/postgresql.conf"
            "bench-config/workloads/deform.toml"
            "bench-config/workloads/json.toml"
            "bench-config/workloads/like.toml"
            "bench-config/workloads/point_select.toml"
            "bench-config/workloads/scan.toml"
            "bench-config/workloads/tpcb.toml"
            "bench-config/workloads/tpcc_like.toml"
            "bench-config/upstream.lock"
            "bench-config/perfquilt.toml"
        ),
    },
    Template {
        server: "redis",
        files: bundled!("examples/redis":
            "bench-config/hash-seed.c"
            "bench-config/packages.txt"
            "bench-config/redis.conf"
            "bench-config/workloads/get.toml"
            "bench-config/workloads/lrange.toml"
            "bench-config/workloads/mset.toml"
            "bench-config/workloads/set.toml"
            "bench-config/upstream.lock"
            "bench-config/perfquilt.toml"
        ),
    },
    Template {
        server: "valkey",
        files: bundled!("examples/valkey":
            "bench-config/hash-seed.c"
            "bench-config/packages.txt"
            "bench-config/valkey.conf"
            "bench-config/workloads/get.toml"
            "bench-config/workloads/lrange.toml"
            "bench-config/workloads/mset.toml"
            "bench-config/workloads/set.toml"
            "bench-config/workloads/zrange.toml"
            "bench-config/upstream.lock"
            "bench-config/perfquilt.toml"
        ),
    },
];

/// Files that are the same for every server.
const COMMON: &[BundledFile] = &[
    (
        "series",
        "# The patches in order, one a line, in quilt's format.\n",
    ),
    (".gitignore", ".perfquilt/\n"),
];

/// The files for MariaDB. The configuration comes last, as for all servers, because it marks a folder as a workspace:
/// after an interruption, the same command continues.
const MARIADB: &[BundledFile] = &[
    bundled!("bench-config/cmake/precompile.cmake"),
    bundled!("bench-config/handler/reads.sql"),
    bundled!("bench-config/mysql-test.sh"),
    bundled!("bench-config/packages.txt"),
    bundled!("bench-config/server.cnf"),
    bundled!("bench-config/sysbench/oltp_utf8mb4.lua"),
    bundled!("bench-config/sysbench/statement.lua"),
    bundled!("bench-config/sysbench/tpcc_like.lua"),
    bundled!("bench-config/workloads/handler_binary_aria.toml"),
    bundled!("bench-config/workloads/handler_binary_aria_64.toml"),
    bundled!("bench-config/workloads/handler_binary_innodb.toml"),
    bundled!("bench-config/workloads/handler_binary_innodb_64.toml"),
    bundled!("bench-config/workloads/handler_binary_myisam.toml"),
    bundled!("bench-config/workloads/handler_binary_myisam_64.toml"),
    bundled!("bench-config/workloads/handler_prepare_aria.toml"),
    bundled!("bench-config/workloads/handler_prepare_aria_64.toml"),
    bundled!("bench-config/workloads/handler_prepare_innodb.toml"),
    bundled!("bench-config/workloads/handler_prepare_innodb_64.toml"),
    bundled!("bench-config/workloads/handler_prepare_myisam.toml"),
    bundled!("bench-config/workloads/handler_prepare_myisam_64.toml"),
    bundled!("bench-config/workloads/handler_slap_aria.toml"),
    bundled!("bench-config/workloads/handler_slap_aria_64.toml"),
    bundled!("bench-config/workloads/handler_slap_innodb.toml"),
    bundled!("bench-config/workloads/handler_slap_innodb_64.toml"),
    bundled!("bench-config/workloads/handler_slap_myisam.toml"),
    bundled!("bench-config/workloads/handler_slap_myisam_64.toml"),
    bundled!("bench-config/workloads/handler_text_aria.toml"),
    bundled!("bench-config/workloads/handler_text_aria_64.toml"),
    bundled!("bench-config/workloads/handler_text_innodb.toml"),
    bundled!("bench-config/workloads/handler_text_innodb_64.toml"),
    bundled!("bench-config/workloads/handler_text_myisam.toml"),
    bundled!("bench-config/workloads/handler_text_myisam_64.toml"),
    bundled!("bench-config/workloads/hash_distinct.toml"),
    bundled!("bench-config/workloads/hash_distinct_latin1.toml"),
    bundled!("bench-config/workloads/join_setup.toml"),
    bundled!("bench-config/workloads/oltp_point_select.toml"),
    bundled!("bench-config/workloads/oltp_read_only.toml"),
    bundled!("bench-config/workloads/oltp_read_only_4.toml"),
    bundled!("bench-config/workloads/oltp_read_write.toml"),
    bundled!("bench-config/workloads/oltp_update_index.toml"),
    bundled!("bench-config/workloads/oltp_update_non_index.toml"),
    bundled!("bench-config/workloads/oltp_write_only.toml"),
    bundled!("bench-config/workloads/requests_point_select.toml"),
    bundled!("bench-config/workloads/requests_point_select_prepared.toml"),
    bundled!("bench-config/workloads/row_guards.toml"),
    bundled!("bench-config/workloads/row_guards_read.toml"),
    bundled!("bench-config/workloads/select_random_points.toml"),
    bundled!("bench-config/workloads/select_random_ranges.toml"),
    bundled!("bench-config/workloads/sql_bench_alter_table.toml"),
    bundled!("bench-config/workloads/sql_bench_atis.toml"),
    bundled!("bench-config/workloads/sql_bench_big_tables.toml"),
    bundled!("bench-config/workloads/sql_bench_connect.toml"),
    bundled!("bench-config/workloads/sql_bench_create.toml"),
    bundled!("bench-config/workloads/sql_bench_insert.toml"),
    bundled!("bench-config/workloads/sql_bench_select.toml"),
    bundled!("bench-config/workloads/sql_bench_transactions.toml"),
    bundled!("bench-config/workloads/sql_bench_wisconsin.toml"),
    bundled!("bench-config/workloads/string_append.toml"),
    bundled!("bench-config/workloads/string_append_concat.toml"),
    bundled!("bench-config/workloads/string_append_quote.toml"),
    bundled!("bench-config/workloads/tpcc_like.toml"),
    bundled!("bench-config/upstream.lock"),
    bundled!("bench-config/perfquilt.toml"),
];

/// Starts of the lines about the patches of this repository and its examples, which a new workspace does not have: series of
/// single releases, and the patches that a workload is meant for.
const OF_PATCHES: [&str; 2] = ["patches = ", "exercises = "];

/// The presets that are only for the series of an example.
const PRESETS_OF_EXAMPLES: [&str; 2] = ["[preset.replay]", "[preset.replay-handler]"];

/// Returns a configuration without what is about the patches of this repository and its examples.
fn without_patches(content: &str) -> String {
    let is_of_example = |paragraph: &str| {
        let mut lines = paragraph.lines();
        lines.any(|line| PRESETS_OF_EXAMPLES.contains(&line))
    };
    let is_about_patches = |line: &&str| OF_PATCHES.iter().any(|start| line.starts_with(start));
    let paragraphs = content.split("\n\n").filter(|of| !is_of_example(of));
    let kept = paragraphs.collect::<Vec<_>>().join("\n\n");
    kept.split_inclusive('\n')
        .filter(|line| !is_about_patches(line))
        .collect()
}

/// Returns the template for a server.
pub fn template(server: &str) -> Result<&'static Template> {
    let template = TEMPLATES.iter().find(|template| template.server == server);
    template.ok_or_else(|| {
        let names: Vec<String> = TEMPLATES
            .iter()
            .map(|template| template.server.to_owned())
            .collect();
        Error::unknown("template for the server", server, names.iter())
    })
}

/// Creates a workspace for a server in `dir`, and `dir` itself if it is missing. Existing files are never changed. Returns the
/// written files, relative to `dir`.
pub fn init(dir: &Path, template: &Template) -> Result<Vec<PathBuf>> {
    if dir.join(CONFIG_FILE).exists() {
        return Err(
            Error::usage(format!("{} is already a workspace", dir.display()))
                .hint("`perfquilt status` shows it"),
        );
    }
    let mut written = Vec::new();
    let patches = dir.join("patches");
    fs::create_dir_all(&patches).map_err(|e| not_created(dir, &patches, &e))?;
    let link = patches.join("series");
    // `git quiltimport`, gbp and StGit look for the series beside the patches.
    if link.symlink_metadata().is_err() {
        std::os::unix::fs::symlink("../series", &link).map_err(|e| Error::io("link", &link, &e))?;
        written.push(PathBuf::from("patches/series"));
    }
    for (name, content) in COMMON.iter().chain(template.files) {
        let path = dir.join(name);
        if path.exists() {
            continue;
        }
        let content: String = if name.ends_with(".toml") {
            without_patches(content)
        } else {
            (*content).to_owned()
        };
        write_file(&path, content.as_bytes())
            .map_err(|error| obstacle(dir, &path).unwrap_or(error))?;
        written.push(PathBuf::from(name));
    }
    Ok(written)
}

/// Returns the error for a workspace in `dir` whose folder `path` cannot be created.
fn not_created(dir: &Path, path: &Path, error: &std::io::Error) -> Error {
    if let Some(error) = obstacle(dir, path) {
        return error;
    }
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            Error::usage(format!(
                "cannot create a workspace in {}: {error}",
                dir.display()
            ))
            .hint("name a folder that can be created: `perfquilt init DIR`")
        }
        _ => Error::io("create", path, error),
    }
}

/// Returns the error for a file in the place of a folder that leads to `path`; `None` if there is none.
fn obstacle(dir: &Path, path: &Path) -> Option<Error> {
    let mut folders = path.ancestors();
    let file = folders.find(|folder| folder.exists() && !folder.is_dir())?;
    let error = Error::usage(format!(
        "cannot create a workspace in {}: {} is not a folder",
        dir.display(),
        file.display()
    ));
    Some(if dir.starts_with(file) {
        error.hint("name another folder: `perfquilt init DIR`")
    } else {
        error.hint("rename or remove that file, then run the same command again")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::error::Kind;

    #[test]
    fn an_interrupted_init_continues() {
        let folder = tempfile::tempdir().unwrap();
        let redis = template("redis").unwrap();
        let obstacle = folder.path().join("bench-config/workloads");
        fs::create_dir(folder.path().join("bench-config")).unwrap();
        fs::write(&obstacle, "").unwrap();
        let error = init(folder.path(), redis).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(error.message().ends_with("workloads is not a folder"));
        assert!(!folder.path().join(CONFIG_FILE).exists());
        fs::remove_file(&obstacle).unwrap();
        init(folder.path(), redis).unwrap();
        let mut files = COMMON.iter().chain(redis.files);
        assert!(files.all(|(name, _)| folder.path().join(name).is_file()));
        assert!(init(folder.path(), redis).is_err());
    }

    #[test]
    fn every_template_ends_with_the_file_that_marks_a_workspace() {
        for template in TEMPLATES {
            let last = template.files.last().map(|(name, _)| *name);
            assert_eq!(last, Some(CONFIG_FILE), "{}", template.server);
        }
    }
}
