//! Making up a long series for a given tree.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Writes `count` patches and their series into the workspace at `root`; every patch changes three
/// lines in each of one to three of `files` (path and content), on top of the patches before.
pub fn series(root: &Path, files: &BTreeMap<String, Vec<u8>>, count: usize) {
    let mut state: Vec<(&str, Vec<Vec<u8>>)> = files
        .iter()
        .map(|(path, content)| {
            let lines = content.split_inclusive(|&b| b == b'\n');
            (path.as_str(), lines.map(<[u8]>::to_vec).collect())
        })
        .collect();
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |below: usize| {
        // Xorshift: the same series everywhere.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % below as u64).unwrap()
    };
    let mut names = String::new();
    std::fs::create_dir_all(root.join("patches")).unwrap();
    for number in 1..=count {
        let name = format!("{number:04}-change.patch");
        let mut patch = format!(
            "From: A Tester <tester@example.org>\nDate: Mon, 3 Jun 2024 10:00:00 +0200\nSubject: change {number}\n\n"
        )
        .into_bytes();
        let mut touched = Vec::new();
        for _ in 0..=next(3) {
            let index = next(state.len());
            if touched.contains(&index) {
                continue;
            }
            touched.push(index);
            let (path, lines) = &mut state[index];
            let at = 3 + next(lines.len() - 7);
            let mut text = String::new();
            writeln!(
                text,
                "diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}"
            )
            .unwrap();
            writeln!(text, "@@ -{},7 +{},8 @@", at - 2, at - 2).unwrap();
            patch.extend_from_slice(text.as_bytes());
            let mut put = |mark: u8, line: &[u8]| {
                patch.push(mark);
                patch.extend_from_slice(line);
            };
            lines[at - 3..at].iter().for_each(|line| put(b' ', line));
            put(b'-', &lines[at]);
            lines[at] = format!("/* changed by {number} */\n").into_bytes();
            put(b'+', &lines[at]);
            lines.insert(at + 1, format!("/* added by {number} */\n").into_bytes());
            put(b'+', &lines[at + 1]);
            lines[at + 2..at + 5]
                .iter()
                .for_each(|line| put(b' ', line));
        }
        std::fs::write(root.join("patches").join(&name), patch).unwrap();
        writeln!(names, "{name}").unwrap();
    }
    std::fs::write(root.join("series"), names).unwrap();
}
