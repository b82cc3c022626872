//! Writing patches and `series` back with minimal changes.

use std::collections::BTreeSet;

use super::diff::header_length;
use super::{SeriesEntry, SeriesFile, compression};

/// Returns the bytes of a patch file's header: everything before its first diff.
pub fn header_bytes(patch: &[u8]) -> &[u8] {
    &patch[..header_length(patch)]
}

/// Builds a patch file from an unchanged header and a diff.
pub fn compose(header: &[u8], diff: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(header.len() + diff.len() + 1);
    bytes.extend_from_slice(header);
    if header.last().is_some_and(|&last| last != b'\n') {
        bytes.push(b'\n');
    }
    bytes.extend_from_slice(diff);
    bytes
}

/// A line to write to `series`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesLine {
    /// The patch's name.
    pub name: String,
    /// Its index in the old file's [`SeriesFile::entries`]; `None` for a new patch.
    pub from: Option<usize>,
    /// Whether to drop its options, which the canonical form does not need.
    pub plain: bool,
}

/// Returns the text of `file` with the patches `wanted` in their order.
///
/// Blank lines and comments stay, including comments about a removed patch. As many patches as possible keep their
/// position. A moved patch goes right after its new predecessor; it takes the comment right above it along if the
/// comment is about this patch alone (the next line is not a patch). Lines keep their options and trailing comments.
pub fn series(file: &SeriesFile, wanted: &[SeriesLine]) -> String {
    let entries = file.entries();
    let sources: Vec<Option<usize>> = wanted.iter().map(|listed| listed.from).collect();
    let stays = longest_increasing_subsequence(&sources);
    let patch_lines: BTreeSet<usize> = entries.iter().map(|entry| entry.line - 1).collect();
    let own_lines: Vec<std::ops::Range<usize>> = entries
        .iter()
        .map(|entry| own_comment(file, entry.line - 1, &patch_lines))
        .collect();
    let staying: BTreeSet<usize> = wanted
        .iter()
        .zip(&stays)
        .filter(|(_, stays)| **stays)
        .filter_map(|(listed, _)| listed.from)
        .collect();
    let moves: BTreeSet<usize> = wanted
        .iter()
        .zip(&stays)
        .filter(|(_, stays)| !**stays)
        .filter_map(|(listed, _)| listed.from)
        .collect();
    // Lines that move or disappear.
    let mut taken = BTreeSet::new();
    for (at, entry) in entries.iter().enumerate() {
        if !staying.contains(&at) {
            taken.insert(entry.line - 1);
        }
        if moves.contains(&at) {
            taken.extend(own_lines[at].clone());
        }
    }
    let block = |listed: &SeriesLine| -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(at) = listed.from {
            lines.extend(own_lines[at].clone().map(|line| file.lines()[line].clone()));
        }
        lines.push(line_of(file, listed));
        lines
    };
    // New lines after each kept line, and before the first patch that stays.
    let mut after: Vec<Vec<String>> = vec![Vec::new(); file.lines().len()];
    let mut replaced: Vec<Option<String>> = vec![None; file.lines().len()];
    let mut leading = Vec::new();
    let mut anchor: Option<usize> = None;
    for (listed, stays) in wanted.iter().zip(&stays) {
        match listed.from.filter(|_| *stays) {
            Some(at) => {
                let line = entries[at].line - 1;
                replaced[line] = Some(line_of(file, listed));
                anchor = Some(line);
            }
            None => match anchor {
                Some(line) => after[line].extend(block(listed)),
                None => leading.extend(block(listed)),
            },
        }
    }
    // The first patch that stays, including its own comment; otherwise the position of the first patch.
    let first = wanted
        .iter()
        .zip(&stays)
        .find_map(|(listed, stays)| listed.from.filter(|_| *stays))
        .map(|at| own_lines[at].start.min(entries[at].line - 1))
        .or_else(|| entries.first().map(|entry| entry.line - 1))
        .unwrap_or(file.lines().len());
    let mut lines = Vec::new();
    for (number, line) in file.lines().iter().enumerate() {
        if number == first {
            lines.append(&mut leading);
        }
        if !taken.contains(&number) {
            lines.push(replaced[number].take().unwrap_or_else(|| line.clone()));
        }
        lines.append(&mut after[number]);
    }
    lines.append(&mut leading);
    file.text_of(&lines)
}

/// Returns the text of `file` with further patches after some entries, whose options they take.
pub fn with_lines_after(file: &SeriesFile, new: &[(&SeriesEntry, Vec<String>)]) -> String {
    let mut after: Vec<Vec<String>> = vec![Vec::new(); file.lines().len()];
    for (entry, names) in new {
        let [_, options, _] = line_parts(file, entry);
        let options = options.trim_end();
        let lines = names.iter().map(|name| format!("{name}{options}"));
        after[entry.line - 1].extend(lines);
    }
    let lines = file.lines().iter().zip(after);
    let lines: Vec<String> = lines
        .flat_map(|(line, after)| std::iter::once(line.clone()).chain(after))
        .collect();
    file.text_of(&lines)
}

/// Returns the line of a patch, unchanged where possible.
fn line_of(file: &SeriesFile, listed: &SeriesLine) -> String {
    let Some(entry) = listed.from.and_then(|at| file.entries().get(at)) else {
        return listed.name.clone();
    };
    let [indent, options, remark] = line_parts(file, entry);
    let options_go = listed.plain && !matches!(options.trim(), "" | "-p1" | "-p 1");
    if entry.name == listed.name && !options_go {
        return file.lines()[entry.line - 1].clone();
    }
    let rest = match remark {
        _ if !options_go => format!("{options}{remark}"),
        "" => String::new(),
        remark => format!(" {remark}"),
    };
    format!("{indent}{}{rest}", listed.name)
}

/// Returns the indentation, the options and the trailing comment of an entry's line. A comment begins at a word that
/// starts with `#`.
fn line_parts<'f>(file: &'f SeriesFile, entry: &SeriesEntry) -> [&'f str; 3] {
    let line = &file.lines()[entry.line - 1];
    let start = line.len() - line.trim_start_matches(['\r', ' ', '\t']).len();
    let rest = &line[start + entry.name.len()..];
    let at = rest
        .match_indices('#')
        .map(|(at, _)| at)
        .find(|&at| rest[..at].ends_with([' ', '\t']));
    let (options, remark) = rest.split_at(at.unwrap_or(rest.len()));
    [&line[..start], options, remark]
}

/// Returns the comment lines right above an entry if they are about this entry alone.
fn own_comment(
    file: &SeriesFile,
    line: usize,
    patch_lines: &BTreeSet<usize>,
) -> std::ops::Range<usize> {
    if patch_lines.contains(&(line + 1)) {
        return line..line;
    }
    let comment = |line: &usize| file.lines()[*line].trim_start().starts_with('#');
    let start = (0..line).rev().take_while(comment).last().unwrap_or(line);
    start..line
}

/// Marks the members of the longest increasing subsequence; `None` is never a member.
fn longest_increasing_subsequence(values: &[Option<usize>]) -> Vec<bool> {
    // For each length, the position where the best subsequence ends; for each position, its predecessor.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = vec![None; values.len()];
    for (at, value) in values.iter().enumerate() {
        let Some(value) = value else { continue };
        let length = ends.partition_point(|&end| values[end].is_some_and(|other| other < *value));
        before[at] = length.checked_sub(1).map(|shorter| ends[shorter]);
        if length == ends.len() {
            ends.push(at);
        } else {
            ends[length] = at;
        }
    }
    let mut member = vec![false; values.len()];
    let mut next = ends.last().copied();
    while let Some(at) = next {
        member[at] = true;
        next = before[at];
    }
    member
}

/// Splits a path before the extension of its file; a name that begins with its only dot has none.
pub fn split_extension(path: &str) -> (&str, &str) {
    let file = path.rfind('/').map_or(0, |slash| slash + 1);
    let dot = path[file..].rfind('.').filter(|dot| *dot > 0);
    path.split_at(dot.map_or(path.len(), |dot| file + dot))
}

/// Returns the first free one of the names STEM, STEM-2, STEM-3 …, each with `ending`.
pub fn first_free(stem: &str, ending: &str, mut is_free: impl FnMut(&str) -> bool) -> String {
    let names = (1_usize..).map(|number| match number {
        1 => format!("{stem}{ending}"),
        more => format!("{stem}-{more}{ending}"),
    });
    let mut free = names.filter(|name| is_free(name));
    free.next().unwrap_or_default()
}

/// Returns a name for a new patch called `title` that is not in `taken`. It follows the style of the existing names:
/// the next free number, the folder and the extension.
pub fn name_for(title: &str, entries: &[SeriesEntry], taken: &BTreeSet<String>) -> String {
    let last = entries.last().map_or("", |entry| entry.name.as_str());
    let (folder, last) = last
        .rsplit_once('/')
        .map_or(("", last), |(folder, name)| (folder, name));
    let plain = last.strip_suffix(compression(last)).unwrap_or(last);
    let ending = [".diff", ".dpatch"]
        .into_iter()
        .find(|end| plain.ends_with(end))
        .unwrap_or(".patch");
    let numbers: Vec<(usize, usize, char)> = entries
        .iter()
        .filter_map(|entry| number(entry.name.rsplit('/').next().unwrap_or_default()))
        .collect();
    // A few names without a number do not make the series unnumbered.
    let prefix = if numbers.len() * 2 > entries.len() {
        let next = numbers
            .iter()
            .map(|(value, ..)| value + 1)
            .max()
            .unwrap_or(1);
        let (_, width, mark) = numbers[numbers.len() - 1];
        format!("{next:0width$}{mark}")
    } else if entries.is_empty() {
        "0001-".to_owned()
    } else {
        String::new()
    };
    let folder = if folder.is_empty() {
        String::new()
    } else {
        format!("{folder}/")
    };
    let stem = format!("{folder}{prefix}{}", slug(title));
    first_free(&stem, ending, |name| !taken.contains(name))
}

/// Parses the leading number of a name. Returns its value, its width and the separator after it.
fn number(name: &str) -> Option<(usize, usize, char)> {
    let width = name.bytes().take_while(u8::is_ascii_digit).count();
    let mark = name[width..]
        .chars()
        .next()
        .filter(|c| matches!(c, '-' | '_'))?;
    let value = name
        .get(..width)?
        .parse()
        .ok()
        .filter(|value| *value < 1_000_000)?;
    Some((value, width, mark))
}

/// Joins the letters and digits of a title with dashes, like the file names of `git format-patch`.
fn slug(title: &str) -> String {
    let mut slug = String::new();
    for c in title.chars() {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
        if slug.len() >= 52 {
            break;
        }
    }
    let slug = slug.trim_matches(['-', '.']);
    if slug.is_empty() {
        "change".to_owned()
    } else {
        slug.replace("..", ".")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str, file: &SeriesFile) -> Vec<SeriesLine> {
        text.split(' ')
            .filter(|name| !name.is_empty())
            .map(|name| SeriesLine {
                name: name.to_owned(),
                from: file.entries().iter().position(|entry| entry.name == name),
                plain: false,
            })
            .collect()
    }

    fn rewritten(text: &str, wanted: &str) -> String {
        let (file, faults) = SeriesFile::parse(text.as_bytes(), "series");
        assert!(faults.is_empty());
        let new = series(&file, &listed(wanted, &file));
        let (again, _) = SeriesFile::parse(new.as_bytes(), "series");
        let names: Vec<&str> = again.entries().iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names.join(" "), wanted, "{new}");
        new
    }

    #[test]
    fn unchanged_is_unchanged() {
        for text in ["", "\n\n", "# only\n", "a\nb -p0 # c\n\n  d\r\n# end", "a"] {
            let (file, _) = SeriesFile::parse(text.as_bytes(), "series");
            let names: Vec<&str> = file.entries().iter().map(|e| e.name.as_str()).collect();
            assert_eq!(rewritten(text, &names.join(" ")), text);
        }
    }

    #[test]
    fn comments_and_blank_lines_survive() {
        let text = "# head\n\n# strings\na -p0 # why a\nb\n\n# joins\nc\n\n# tail\n";
        assert_eq!(
            rewritten(text, "a c"),
            "# head\n\n# strings\na -p0 # why a\n\n# joins\nc\n\n# tail\n"
        );
        assert_eq!(
            rewritten(text, ""),
            "# head\n\n# strings\n\n# joins\n\n# tail\n"
        );
        // The comment above `c` is its own; the one above `a` heads two patches.
        assert_eq!(
            rewritten(text, "c a b"),
            "# head\n\n# strings\n# joins\nc\na -p0 # why a\nb\n\n\n# tail\n"
        );
        assert_eq!(
            rewritten(text, "b a c"),
            "# head\n\n# strings\nb\na -p0 # why a\n\n# joins\nc\n\n# tail\n"
        );
        assert_eq!(
            rewritten(text, "a new b c last"),
            "# head\n\n# strings\na -p0 # why a\nnew\nb\n\n# joins\nc\nlast\n\n# tail\n"
        );
        assert_eq!(rewritten("# none yet\n", "x"), "# none yet\nx\n");
        assert_eq!(rewritten("", "x y"), "x\ny\n");
        assert_eq!(rewritten("a\nb", "b a"), "b\na");
    }

    #[test]
    fn options_and_names_change_only_when_asked() {
        let (file, _) = SeriesFile::parse(b"\ta -p0 # why\nb -R\nc -p1 # x\n", "series");
        let all = |plain| -> Vec<SeriesLine> {
            (0..3)
                .map(|at| SeriesLine {
                    name: format!(
                        "{}{}",
                        file.entries()[at].name,
                        if at == 0 { "2" } else { "" }
                    ),
                    from: Some(at),
                    plain,
                })
                .collect()
        };
        assert_eq!(series(&file, &all(true)), "\ta2 # why\nb\nc -p1 # x\n");
        assert_eq!(
            series(&file, &all(false)),
            "\ta2 -p0 # why\nb -R\nc -p1 # x\n"
        );
    }

    #[test]
    fn names_follow_the_style() {
        let named = |series: &str, title: &str| {
            let (file, _) = SeriesFile::parse(series.as_bytes(), "series");
            let taken = file.entries().iter().map(|e| e.name.clone()).collect();
            name_for(title, file.entries(), &taken)
        };
        assert_eq!(named("", "Make it: faster!"), "0001-make-it-faster.patch");
        assert_eq!(named("0001-a.patch\n0007-b.patch\n", "x"), "0008-x.patch");
        assert_eq!(named("01_a.diff\n02_b.diff\n", "x y"), "03_x-y.diff");
        assert_eq!(named("fix.patch\nsub/more.patch\n", "fix"), "sub/fix.patch");
        assert_eq!(named("fix.patch\n", "fix"), "fix-2.patch");
        assert_eq!(named("a.patch.gz\n", "../../etc/x"), "etc-x.patch");
        assert_eq!(named("a.diff.bz2\n", "x"), "x.diff");
        assert_eq!(named("a.patch\n", "äöü"), "change.patch");
        assert_eq!(named("a.patch\n", ""), "change.patch");
    }

    #[test]
    fn headers_are_kept() {
        let patch = b"Subject: x\r\n\xff\n--\n\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n";
        let header = header_bytes(patch);
        assert_eq!(header, b"Subject: x\r\n\xff\n--\n\n");
        assert_eq!(compose(header, b"diff\n"), [header, b"diff\n"].concat());
        assert_eq!(compose(b"x", b"diff\n"), b"x\ndiff\n");
        assert_eq!(compose(b"", b"diff\n"), b"diff\n");
        assert_eq!(header_bytes(b"words\n"), b"words\n");
    }
}
