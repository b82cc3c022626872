//! The documents, and the commands in them.

use std::path::Path;

/// The project's folder.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The lines of a document's blocks of commands, with their numbers.
pub fn commands(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (number, line) in text.lines().enumerate() {
        match line.trim() {
            "```sh" => inside = true,
            "```" => inside = false,
            line if inside && !line.is_empty() => found.push((number + 1, line.to_owned())),
            _ => {}
        }
    }
    found
}

/// `line` without its remark.
pub fn without_remark(line: &str) -> &str {
    let line = line.split("  #").next().unwrap();
    line.split(" # ").next().unwrap().trim()
}
