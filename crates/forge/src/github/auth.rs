//! Credentials for GitHub: a token or a GitHub App.

use std::path::Path;

use crate::Secret;
use crate::credentials::{Credentials, Variable, first_set};
use perfquilt_model::error::{Error, Result};

/// The login under which a workflow's own token writes.
const WORKFLOW: &str = "github-actions[bot]";

/// Reads the credentials from the environment through `variable`: `PERFQUILT_APP_ID` with
/// `PERFQUILT_APP_KEY` (the key) or `PERFQUILT_APP_KEY_FILE`, else `GITHUB_TOKEN` or `GH_TOKEN`.
pub(super) fn credentials(variable: Variable<'_>) -> Result<Credentials> {
    let set = |name: &str| first_set(variable, &[name]);
    if let Some(id) = set("PERFQUILT_APP_ID") {
        let key = match (set("PERFQUILT_APP_KEY"), set("PERFQUILT_APP_KEY_FILE")) {
            (Some(key), _) => key,
            (None, Some(file)) => read(Path::new(&file))?,
            (None, None) => {
                return Err(Error::credentials(
                    "PERFQUILT_APP_ID is set, but the App's key is not",
                )
                .hint("set PERFQUILT_APP_KEY_FILE to its .pem file"));
            }
        };
        let id = id.trim().to_owned();
        // Client ids of older Apps have a point: `Iv1.8a61f9b3a7aba766`.
        if !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.') {
            return Err(Error::credentials(
                "PERFQUILT_APP_ID is not the id of a GitHub App",
            ));
        }
        return Ok(Credentials::App {
            id,
            key: Secret::new(&key),
        });
    }
    let missing = "set GITHUB_TOKEN, or PERFQUILT_APP_ID and PERFQUILT_APP_KEY_FILE; `--dry-run` needs neither";
    let mut found = Credentials::token(variable, "GitHub", &["GITHUB_TOKEN", "GH_TOKEN"], missing)?;
    if let Credentials::Token { login, .. } = &mut found
        && login.is_none()
    {
        *login = set("GITHUB_ACTIONS").map(|_| WORKFLOW.to_owned());
    }
    Ok(found)
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| {
        Error::credentials(format!(
            "cannot read the App's key {}: {error}",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Credentials> {
        let find = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        credentials(&find)
    }

    #[test]
    fn precedence_of_variables() {
        let taken = of(&[("GITHUB_TOKEN", "t"), ("GITHUB_ACTIONS", "true")]).unwrap();
        assert!(
            matches!(taken, Credentials::Token { login: Some(login), .. } if login == WORKFLOW)
        );
        let taken = of(&[("GITHUB_TOKEN", " "), ("GH_TOKEN", "t")]).unwrap();
        assert!(matches!(taken, Credentials::Token { login: None, .. }));
        let taken = of(&[
            ("PERFQUILT_APP_ID", "12"),
            ("PERFQUILT_APP_KEY", "k"),
            ("GITHUB_TOKEN", "t"),
        ]);
        assert!(matches!(taken.unwrap(), Credentials::App { .. }));
        for id in ["Iv1.8a61f9b3a7aba766", "Iv23liabcdefghijklmn"] {
            of(&[("PERFQUILT_APP_ID", id), ("PERFQUILT_APP_KEY", "k")]).unwrap();
        }
    }

    #[test]
    fn missing_or_invalid_credentials_are_reported() {
        assert!(
            of(&[])
                .unwrap_err()
                .hint_text()
                .unwrap()
                .contains("GITHUB_TOKEN")
        );
        assert!(
            of(&[("PERFQUILT_APP_ID", "12")])
                .unwrap_err()
                .to_string()
                .contains("key")
        );
        let error = of(&[("GITHUB_TOKEN", "two words")]).unwrap_err();
        assert!(!error.to_string().contains("two words"));
    }
}
