//! A folder as a forge: comments are files, for a review without a service.

use std::path::PathBuf;

use super::{CommentUpdate, Forge, PostResult, Publication, PullRequest, Repository, Target};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress::Progress;

/// A folder with the comments of a repository's pull requests.
pub struct Folder {
    /// The repository.
    pub repository: Repository,
    /// The folder.
    pub path: PathBuf,
}

impl Forge for Folder {
    fn repository(&self) -> &Repository {
        &self.repository
    }

    fn max_comment_bytes(&self) -> usize {
        1 << 20
    }

    fn find(&self, target: &Target) -> Result<PullRequest> {
        let (Some(number), Some(head)) = (target.number, target.head.clone()) else {
            return Err(Error::arguments("a folder needs a number and a commit"));
        };
        Ok(PullRequest {
            number,
            head,
            base: String::new(),
            branch: String::new(),
            open: true,
        })
    }

    fn publish(
        &self,
        publication: &Publication<'_>,
        _progress: &dyn Progress,
    ) -> Result<PostResult> {
        let number = publication.pull_request.number;
        let posting = publication.posting;
        // One file a comment id, so that posting again replaces the comment.
        let file = self.path.join(format!("{number}-{}.md", posting.id));
        let action = if file.exists() { "updated" } else { "created" };
        let comment = publication.comment;
        std::fs::write(&file, &comment.body).map_err(|e| Error::io("write", &file, &e))?;
        Ok(PostResult {
            number,
            head: publication.head.to_owned(),
            title: comment.title.clone(),
            status: comment.status.to_string(),
            conclusion: posting.conclusion(comment.status).name(),
            comment: CommentUpdate {
                url: file.display().to_string(),
                action,
                removed: 0,
            },
            check_run: None,
            label: None,
        })
    }

    fn react(&self, _comment: u64, _reaction: &str) -> Result<()> {
        Ok(())
    }
}
