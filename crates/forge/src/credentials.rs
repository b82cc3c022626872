//! Credentials for a forge.

use super::Secret;
use perfquilt_model::error::{Error, Result};

/// The credentials that perfquilt authenticates with.
#[derive(Debug, Clone)]
pub enum Credentials {
    /// A token of a user, or of a workflow.
    Token {
        /// The token.
        token: Secret,
        /// The login that comments are posted under, for a token that cannot query it.
        login: Option<String>,
    },
    /// An App, as forges call a program with an account of its own.
    App {
        /// Its id or client id.
        id: String,
        /// Its private key.
        key: Secret,
    },
}

/// Reads a variable of the environment.
pub(super) type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Returns the value of the first of `names` that is not empty.
pub(super) fn first_set(variable: Variable<'_>, names: &[&str]) -> Option<String> {
    let set = |name: &&str| variable(name).filter(|value| !value.trim().is_empty());
    names.iter().find_map(set)
}

impl Credentials {
    /// Reads a token from the first of the variables `names` that is set, and its login from `PERFQUILT_LOGIN`. There is
    /// deliberately no option for a token: every user of a machine can read command lines. `missing` is the hint where
    /// there is none.
    pub(super) fn token(
        variable: Variable<'_>,
        forge: &str,
        names: &[&str],
        missing: &str,
    ) -> Result<Credentials> {
        let token = first_set(variable, names).ok_or_else(|| {
            Error::credentials(format!("there is no token for {forge}")).hint(missing)
        })?;
        if !token.trim().bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Error::credentials(format!(
                "the token in {} contains invalid characters",
                names[0]
            )));
        }
        Ok(Credentials::Token {
            token: Secret::new(&token),
            login: first_set(variable, &["PERFQUILT_LOGIN"]),
        })
    }
}
