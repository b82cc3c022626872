//! Making up a long series for a given tree, shaped like the ones distributions keep: a few files a
//! patch, the same files again and again, files created and deleted, some patches out of date.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Writes `count` patches and their series into the workspace at `root`, to be applied to `files`
/// (path and content, every line of which ends in a newline).
///
/// Most patches change one to five files in one to three places; some files are changed far more
/// often than others. Of the patches, about one in twelve creates a file, one in forty
/// deletes one that an earlier patch created, one in ten was written for a file with some lines more
/// or fewer, and one in five has no `diff --git` lines. Quilt and git apply all of it.
pub fn series(root: &Path, files: &BTreeMap<String, Vec<u8>>, count: usize) {
    let mut generator = Generator {
        files: files
            .iter()
            .map(|(path, content)| {
                let lines = content.split_inclusive(|&b| b == b'\n');
                (path.clone(), lines.map(<[u8]>::to_vec).collect())
            })
            .collect(),
        created: Vec::new(),
        random: Random(88_172_645_463_325_252),
        number: 0,
    };
    for last in (1..generator.files.len()).rev() {
        let other = generator.random.below(last + 1);
        generator.files.swap(last, other);
    }
    let mut names = String::from("# A series made up for tests and benchmarks.\n\n");
    std::fs::create_dir_all(root.join("patches")).unwrap();
    for number in 1..=count {
        generator.number = number;
        let name = format!("{number:05}-change.patch");
        std::fs::write(root.join("patches").join(&name), generator.patch()).unwrap();
        writeln!(names, "{name}").unwrap();
    }
    std::fs::write(root.join("series"), names).unwrap();
}

/// Xorshift: the same series everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

type Lines = Vec<Vec<u8>>;

struct Generator {
    files: Vec<(String, Lines)>,
    /// Files made by earlier patches and not deleted since.
    created: Vec<(String, Lines)>,
    random: Random,
    number: usize,
}

impl Generator {
    fn patch(&mut self) -> Vec<u8> {
        let number = self.number;
        let mut patch = format!(
            "From: A Tester <tester@example.org>\nDate: Mon, 3 Jun 2024 10:00:00 +0200\n\
             Subject: change {number} of many\n\nWhat it is good for, in a sentence or two, so that\n\
             the header has the size that headers have.\n---\n"
        )
        .into_bytes();
        let plain = self.random.below(5) == 0;
        let stale = match self.random.below(10) {
            0 => 1 + self.random.below(12),
            _ => 0,
        };
        let mut touched = Vec::new();
        for _ in 0..=self.random.below(5) {
            // The smaller of three draws: few files take most of the changes.
            let limit = self.files.len();
            let index = (0..3).map(|_| self.random.below(limit)).min().unwrap();
            if !touched.contains(&index) {
                touched.push(index);
                self.change(index, plain, stale, &mut patch);
            }
        }
        if self.random.below(12) == 0 {
            self.create(&mut patch);
        }
        if self.random.below(40) == 0 && !self.created.is_empty() {
            self.delete(&mut patch);
        }
        patch
    }

    fn change(&mut self, index: usize, plain: bool, stale: usize, patch: &mut Vec<u8>) {
        let number = self.number;
        let (path, lines) = &mut self.files[index];
        let places = 1 + self.random.below(3);
        let mut at: Vec<usize> = (0..places)
            .map(|_| 3 + self.random.below(lines.len() - 7))
            .collect();
        at.sort_unstable();
        at.dedup_by(|later, earlier| *later < *earlier + 16);
        // Elsewhere the same lines could stand nearer to where the hunk claims to belong.
        let unique = |at: usize| {
            let wanted = &lines[at - 3..at + 4];
            lines.windows(7).filter(|window| *window == wanted).count() == 1
        };
        let stale = if at.iter().all(|&at| at > 20 && unique(at)) {
            stale
        } else {
            0
        };
        let mut text = String::new();
        if !plain {
            writeln!(text, "diff --git a/{path} b/{path}").unwrap();
        }
        writeln!(text, "--- a/{path}\n+++ b/{path}").unwrap();
        patch.extend_from_slice(text.as_bytes());
        for (added, at) in at.into_iter().enumerate() {
            // Every place before made the file one line longer.
            let (old, new) = (at - 2 - stale, at + added - 2 - stale);
            patch.extend_from_slice(format!("@@ -{old},7 +{new},8 @@\n").as_bytes());
            let at = at + added;
            let mut put = |mark: u8, line: &[u8]| {
                patch.push(mark);
                patch.extend_from_slice(line);
            };
            lines[at - 3..at].iter().for_each(|line| put(b' ', line));
            put(b'-', &lines[at]);
            lines[at] = format!("/* changed by {number}, place {added} */\n").into_bytes();
            put(b'+', &lines[at]);
            lines.insert(
                at + 1,
                format!("/* added by {number}, place {added} */\n").into_bytes(),
            );
            put(b'+', &lines[at + 1]);
            lines[at + 2..at + 5]
                .iter()
                .for_each(|line| put(b' ', line));
        }
    }

    fn create(&mut self, patch: &mut Vec<u8>) {
        let number = self.number;
        let index = self.random.below(self.files.len());
        let folder = self.files[index]
            .0
            .rsplit_once('/')
            .map_or("", |(folder, _)| folder);
        let path = if folder.is_empty() {
            format!("made_by_{number}.c")
        } else {
            format!("{folder}/made_by_{number}.c")
        };
        let count = 30 + self.random.below(90);
        let lines: Lines = (0..count)
            .map(|line| format!("int made_{number}_{line} = {};\n", line * number).into_bytes())
            .collect();
        let head = format!(
            "diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n\
             @@ -0,0 +1,{count} @@\n"
        );
        patch.extend_from_slice(head.as_bytes());
        for line in &lines {
            patch.push(b'+');
            patch.extend_from_slice(line);
        }
        self.created.push((path, lines));
    }

    fn delete(&mut self, patch: &mut Vec<u8>) {
        // Not one that this very patch makes.
        let older = self.created.len() - 1;
        if older == 0 {
            return;
        }
        let (path, lines) = self.created.remove(self.random.below(older));
        let head = format!(
            "diff --git a/{path} b/{path}\ndeleted file mode 100644\n--- a/{path}\n+++ /dev/null\n\
             @@ -1,{} +0,0 @@\n",
            lines.len()
        );
        patch.extend_from_slice(head.as_bytes());
        for line in &lines {
            patch.push(b'-');
            patch.extend_from_slice(line);
        }
    }
}
