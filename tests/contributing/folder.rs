//! A folder as a forge: comments are files, for a review without a service.

use std::path::PathBuf;

use super::{CreatedComment, Forge, ForgeComment, PullRequest, Repository, Target};
use perfquilt_model::error::{Error, Result};

/// A folder with the comments of a repository's pull requests.
pub struct Folder {
    /// The repository.
    pub repository: Repository,
    /// The folder.
    pub path: PathBuf,
}

impl Folder {
    fn file(&self, number: u64, id: u64) -> PathBuf {
        self.path.join(format!("{number}-{id}.md"))
    }

    fn write(&self, number: u64, id: u64, body: &str) -> Result<()> {
        let file = self.file(number, id);
        std::fs::write(&file, body).map_err(|e| Error::io("write", &file, &e))
    }
}

impl Forge for Folder {
    fn repository(&self) -> &Repository {
        &self.repository
    }

    fn git_url(&self) -> String {
        self.path.display().to_string()
    }

    fn max_comment_bytes(&self) -> usize {
        1 << 20
    }

    fn login(&self) -> Result<String> {
        Ok("me".to_owned())
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
            reference: String::new(),
            open: true,
        })
    }

    fn comments(&self, number: u64) -> Result<Vec<ForgeComment>> {
        let all = (1..).map(|id| self.comment(number, id));
        all.map_while(Result::transpose).collect()
    }

    fn comment(&self, number: u64, id: u64) -> Result<Option<ForgeComment>> {
        let file = self.file(number, id);
        let found = std::fs::read_to_string(&file).ok();
        Ok(found.map(|body| ForgeComment {
            id,
            author: Some("me".to_owned()),
            body,
            url: file.display().to_string(),
        }))
    }

    fn create_comment(&self, number: u64, body: &str, _attempt: u32) -> Result<CreatedComment> {
        let id = self.comments(number)?.len() as u64 + 1;
        self.write(number, id, body)?;
        let written = self.comment(number, id)?;
        written
            .map(CreatedComment::Done)
            .ok_or_else(|| Error::forge_refused("the file is gone"))
    }

    fn update_comment(&self, number: u64, id: u64, body: &str) -> Result<bool> {
        self.write(number, id, body)?;
        Ok(true)
    }

    fn delete_comment(&self, number: u64, id: u64) -> Result<bool> {
        Ok(std::fs::remove_file(self.file(number, id)).is_ok())
    }

    fn react(&self, _number: u64, _comment: u64, _reaction: &str) -> Result<()> {
        Ok(())
    }
}
