//! Comments on pull requests.

use std::fmt;

/// The pull request and its commits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// Its number.
    pub number: Option<u64>,
    /// The commit that was measured.
    pub head: String,
    /// The commit it is compared with.
    pub base: String,
    /// The pull request's last commit, where it is another one than `head` by now.
    pub moved_on: Option<String>,
    /// The page of the job that measured.
    pub run: Option<String>,
    /// The page or file with the whole report.
    pub report: Option<String>,
}

/// A comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// The verdict in one line of plain text.
    pub title: String,
    /// The comment as GitHub-flavoured Markdown.
    pub body: String,
    /// What it comes to.
    pub standing: Standing,
}

/// What a pull request's measurement comes to. Where several hold, the first does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// The series does not apply, or something could not be built or measured.
    Failed,
    /// A patch, or the whole series, is slower, or a patch no longer helps after a rebase.
    Regression,
    /// There is more to be measured, or nothing was yet.
    Unfinished,
    /// The series is faster.
    Faster,
    /// The series has no effect.
    NoEffect,
    /// What the series does cannot be told.
    Unclear,
}

impl Standing {
    /// All of them.
    pub const ALL: [Standing; 6] = [
        Standing::Failed,
        Standing::Regression,
        Standing::Unfinished,
        Standing::Faster,
        Standing::NoEffect,
        Standing::Unclear,
    ];
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Standing::Failed => "failed",
            Standing::Regression => "regression",
            Standing::Unfinished => "unfinished",
            Standing::Faster => "faster",
            Standing::NoEffect => "no effect",
            Standing::Unclear => "unclear",
        })
    }
}
