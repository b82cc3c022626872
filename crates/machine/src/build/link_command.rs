//! Turns the command that linked a program into one that links it again, elsewhere.

use std::path::{Path, PathBuf};

/// How a linker is told to shuffle: mold takes all sections that may move.
const MOLD: &[&str] = &["-Wl,--shuffle-sections={seed}"];
/// lld shuffles what it is told to, kind by kind.
const LLD: &[&str] = &[
    "-Wl,--shuffle-sections=.text*={seed}",
    "-Wl,--shuffle-sections=.rodata*={seed}",
    "-Wl,--shuffle-sections=.data*={seed}",
    "-Wl,--shuffle-sections=.bss*={seed}",
];

/// What to keep of a build, and how to link it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Again {
    /// The words of the command; `{output}` is to be filled in. To be run in the folder that has
    /// `files`.
    pub words: Vec<String>,
    /// Further words that shuffle its sections; `{seed}` is to be filled in. None where the linker
    /// cannot.
    pub shuffle: Vec<String>,
    /// Files to keep: the name in that folder, and where the file is now.
    pub files: Vec<(String, PathBuf)>,
}

/// From the shell command that makes `target`, run in the folder `build` below the working folder
/// `work`. Says why not where that cannot be done.
pub(super) fn again(
    command: &str,
    target: &str,
    build: &Path,
    work: &Path,
) -> Result<Again, String> {
    let words = split(command)?;
    let link = words
        .split(|word| word == "&&")
        .find(|words| words.windows(2).any(|pair| pair == ["-o", target]))
        .ok_or("the build's last command for it is not one that links it")?;
    let shuffle = if link.iter().any(|word| word == "-fuse-ld=mold") {
        MOLD
    } else if link.iter().any(|word| word == "-fuse-ld=lld") {
        LLD
    } else {
        &[]
    };
    let mut kept = Kept {
        build,
        work,
        compiles: link.iter().any(|word| word.starts_with("-flto")),
        files: Vec::new(),
    };
    let mut again = Vec::new();
    for (index, word) in link.iter().enumerate() {
        if index > 0 && link[index - 1] == "-o" {
            again.push("{output}".to_owned());
        } else if let Some(word) = kept.word(word)? {
            again.push(word);
        }
    }
    Ok(Again {
        words: again,
        shuffle: shuffle.iter().map(|&word| word.to_owned()).collect(),
        files: kept.files,
    })
}

struct Kept<'a> {
    build: &'a Path,
    work: &'a Path,
    /// Whether code is made while linking, so that the linker needs what compilers need.
    compiles: bool,
    files: Vec<(String, PathBuf)>,
}

impl Kept<'_> {
    /// A word of the new command; `None` where it is of no use there.
    fn word(&mut self, word: &str) -> Result<Option<String>, String> {
        let of_profile = ["-fprofile-use", "-fprofile-prefix-path"]
            .iter()
            .any(|option| word.starts_with(option));
        if word.contains("-prefix-map=") || (of_profile && !self.compiles) {
            return Ok(None);
        }
        if word.starts_with('@') {
            return Err(format!("its linker reads arguments from a file, {word}"));
        }
        let mut new = String::new();
        if let Some(name) = self.keep(word)? {
            new = name;
        } else {
            // `-Wl,--version-script=FILE` and the like.
            for part in word.split_inclusive([',', '=']) {
                let bare = part.trim_end_matches([',', '=']);
                match self.keep(bare)? {
                    Some(name) => new.push_str(&part.replacen(bare, &name, 1)),
                    None => new.push_str(part),
                }
            }
        }
        let folder = new.strip_prefix("-L").map(|folder| self.build.join(folder));
        let inside = new.contains(&*self.work.to_string_lossy())
            || folder.is_some_and(|folder| folder.starts_with(self.work));
        if inside {
            return Err(format!("`{word}` names a folder of the build"));
        }
        Ok(Some(new))
    }

    /// The name under which a file of the build is kept; `None` for anything else.
    fn keep(&mut self, word: &str) -> Result<Option<String>, String> {
        let path = self.build.join(word);
        if !word.contains(['/', '.']) || !path.starts_with(self.work) || !path.is_file() {
            return Ok(None);
        }
        if let Some((name, _)) = self.files.iter().find(|(_, other)| *other == path) {
            return Ok(Some(name.clone()));
        }
        if is_thin_archive(&path) {
            return Err(format!("{word} is an archive without content of its own"));
        }
        let base = path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{}-{base}", self.files.len());
        self.files.push((name.clone(), path));
        Ok(Some(name))
    }
}

fn is_thin_archive(path: &Path) -> bool {
    use std::io::Read;
    let mut start = [0; 8];
    std::fs::File::open(path)
        .and_then(|mut file| file.read_exact(&mut start))
        .is_ok()
        && start == *b"!<thin>\n"
}

/// The words of a shell command that needs no shell but for `&&`.
fn split(command: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        let shell = |c: char| Err(format!("the command that links it needs a shell (`{c}`)"));
        match (quote, c) {
            (None, ' ' | '\t' | '\n') => words.extend(word.take()),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), _) if c == open => quote = None,
            (None, '\\') => word.get_or_insert_default().extend(chars.next()),
            (Some('"'), '\\') => {
                let next = chars.next().unwrap_or_default();
                if !matches!(next, '"' | '\\' | '$' | '`') {
                    word.get_or_insert_default().push('\\');
                }
                word.get_or_insert_default().push(next);
            }
            (None | Some('"'), '$' | '`') => return shell(c),
            (None, ';' | '|' | '<' | '>' | '(' | ')' | '*' | '?') => return shell(c),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A build tree with these files.
    fn tree(files: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let build = folder.path().join("build");
        for file in files {
            let path = build.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "content").unwrap();
        }
        (folder, build)
    }

    #[test]
    fn what_cmake_writes() {
        let (folder, build) = tree(&["a/main.o", "lib/libx.a", "lib/libx2.a", "a/list.map"]);
        let work = folder.path();
        let command = format!(
            ": && /usr/bin/c++ -ffile-prefix-map={0}/src/= -O2 -fuse-ld=mold -Wl,-z,relro \
             -Wl,--version-script={0}/build/a/list.map -DX=\\\"y\\\" a/main.o -o a/d lib/libx.a \
             '/usr/lib/libz.so' lib/libx2.a lib/libx.a -lm && cd {0}/build && cmake -E true",
            work.display()
        );
        let found = again(&command, "a/d", &build, work).unwrap();
        let expected = "/usr/bin/c++ -O2 -fuse-ld=mold -Wl,-z,relro \
             -Wl,--version-script=0-list.map -DX=\"y\" 1-main.o -o {output} 2-libx.a \
             /usr/lib/libz.so 3-libx2.a 2-libx.a -lm";
        assert_eq!(found.words.join(" "), expected);
        assert_eq!(found.shuffle, ["-Wl,--shuffle-sections={seed}"]);
        assert_eq!(found.files[2].1, build.join("lib/libx.a"));
        assert_eq!(found.files.len(), 4);
    }

    #[test]
    fn what_cannot_be_linked_again_is_said() {
        let (folder, build) = tree(&["main.o", "thin.a"]);
        std::fs::write(build.join("thin.a"), "!<thin>\nx").unwrap();
        let work = folder.path();
        let why = |command: &str| again(command, "d", &build, work).unwrap_err();
        assert!(why("cc -fuse-ld=mold main.o -o other").contains("last command"));
        assert!(why("cc -fuse-ld=mold @d.rsp -o d").contains("@d.rsp"));
        assert!(why("cc -fuse-ld=lld thin.a -o d").contains("thin.a"));
        assert!(why("cc -fuse-ld=lld -Llib -lx main.o -o d").contains("-Llib"));
        assert!(why("cc $FLAGS main.o -o d").contains("shell"));
        let inside = format!(
            "cc -fuse-ld=mold -Wl,-rpath,{} main.o -o d",
            build.display()
        );
        assert!(why(&inside).contains("rpath"));
    }

    #[test]
    fn a_profile_is_for_compilers_alone() {
        let (folder, build) = tree(&["main.o"]);
        let work = folder.path();
        let profiled = format!(
            "cc -fprofile-use=/p -fprofile-prefix-path={} main.o -o d",
            build.display()
        );
        let found = again(&profiled, "d", &build, work).unwrap();
        assert_eq!(found.words.join(" "), "cc 0-main.o -o {output}");
        let compiling = profiled.replace("cc ", "cc -flto=2 ");
        let why = again(&compiling, "d", &build, work).unwrap_err();
        assert!(why.contains("-fprofile-prefix-path"), "{why}");
    }

    #[test]
    fn quotes() {
        assert_eq!(
            split(r#"a 'b c' "d \" e" f\ g "" h"#).unwrap(),
            ["a", "b c", "d \" e", "f g", "", "h"]
        );
    }
}
