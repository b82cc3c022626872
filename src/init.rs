//! A new workspace: the configuration for MariaDB that this repository itself uses, and an empty series.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::workspace::CONFIG_FILE;

/// Path in the workspace and content.
type File = (&'static str, &'static str);

macro_rules! bundled {
    ($path:literal) => {
        ($path, include_str!(concat!("../", $path)))
    };
}

/// `tests/init.rs` holds this list against the repository's own `bench-config/`.
const FILES: &[File] = &[
    bundled!("bench-config/cmake/precompile.cmake"),
    bundled!("bench-config/handler/reads.sql"),
    bundled!("bench-config/packages.txt"),
    bundled!("bench-config/perfquilt.toml"),
    bundled!("bench-config/server.cnf"),
    bundled!("bench-config/sysbench/oltp_utf8mb4.lua"),
    bundled!("bench-config/sysbench/statement.lua"),
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
    (
        "series",
        "# The patches in order, one a line, in quilt's format.\n",
    ),
    (".gitignore", ".perfquilt/\n"),
];

/// Makes a workspace in `dir`, which is created when missing. Files that are there already are never
/// changed. Returns the files written, relative to `dir`.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) when `dir` is a workspace already;
/// [`Kind::Internal`](crate::error::Kind::Internal) when a file cannot be written.
pub fn init(dir: &Path) -> Result<Vec<PathBuf>> {
    if dir.join(CONFIG_FILE).exists() {
        return Err(
            Error::usage(format!("{} is a workspace already", dir.display()))
                .hint("`perfquilt status` shows it"),
        );
    }
    let mut written = Vec::new();
    for (name, content) in FILES {
        let path = dir.join(name);
        if path.exists() {
            continue;
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, &e))?;
        }
        fs::write(&path, content).map_err(|e| Error::io("write", &path, &e))?;
        written.push(PathBuf::from(name));
    }
    let patches = dir.join("patches");
    fs::create_dir_all(&patches).map_err(|e| Error::io("create", &patches, &e))?;
    let link = patches.join("series");
    // `git quiltimport`, gbp and StGit look for the series beside the patches.
    if link.symlink_metadata().is_err() {
        std::os::unix::fs::symlink("../series", &link).map_err(|e| Error::io("link", &link, &e))?;
        written.push(PathBuf::from("patches/series"));
    }
    Ok(written)
}
