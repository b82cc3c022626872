//! The kinds of forges.

use super::client::{Authenticate, Client};
use super::credentials::{Variable, first_set};
use super::forge::Forge;
use super::protocol::Protocol;
use super::target::Target;
use super::{Credentials, Repository, RetryPolicy};
use perfquilt_model::error::{Error, Result};

/// A forge: how its jobs are recognised, and how one connects to it.
pub struct ForgeKind {
    /// Its name in the configuration and on the command line.
    pub name: &'static str,
    /// Its name in texts.
    pub title: &'static str,
    /// Variables that its jobs set.
    pub(super) job_variables: &'static [&'static str],
    /// Variables with the address of the API.
    pub(super) api_variables: &'static [&'static str],
    /// The address of the public API, if there is one.
    pub(super) public_api: Option<&'static str>,
    /// The variable with the token.
    pub(super) token_variable: &'static str,
    pub(super) credentials: fn(Variable<'_>) -> Result<Credentials>,
    pub(super) target: fn(Variable<'_>, bool) -> Result<Target>,
    pub(super) protocol: &'static Protocol,
    pub(super) authenticate: Authenticate,
    /// Whether a repository may be in a group inside another one.
    pub(super) has_groups: bool,
    pub(super) connect: fn(Client) -> Box<dyn Forge>,
}

impl std::fmt::Debug for ForgeKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl ForgeKind {
    /// Reads the credentials from the environment.
    pub fn credentials(&self, variable: Variable<'_>) -> Result<Credentials> {
        (self.credentials)(variable)
    }

    /// Reads the pull request from the environment of a job; outside of one, the target is empty. `is_named` tells that
    /// the user names the pull request, so that no file is read for it.
    pub fn target(&self, variable: Variable<'_>, is_named: bool) -> Result<Target> {
        (self.target)(variable, is_named)
    }

    /// Returns the address of the API: the one `given`, that of the environment, or the public one.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when it is unknown, or may have a password or a token, which
    /// logs would show.
    pub fn api_address(&self, given: Option<&str>, variable: Variable<'_>) -> Result<String> {
        let set = || first_set(variable, self.api_variables);
        let given = given.map(str::to_owned).or_else(set);
        let address = given
            .or(self.public_api.map(str::to_owned))
            .ok_or_else(|| {
                Error::arguments("the address of the forge's API is unknown").hint(format!(
                    "give `--api-url`, or set {}",
                    self.api_variables[0]
                ))
            })?;
        if address.contains(['@', '?', '#']) {
            let fault = "the address of the API has a user name, a password or a query";
            return Err(Error::arguments(fault).hint(format!(
                "logs would show it: give the address alone, and the token in {}",
                self.token_variable
            )));
        }
        Ok(address)
    }

    /// Connects to `repository` at the API `given`, else that of the environment, with the environment's credentials. Sends
    /// nothing yet.
    ///
    /// # Errors
    /// Those of [`api_address`](Self::api_address), and missing credentials.
    pub fn open(
        &self,
        repository: Repository,
        given: Option<&str>,
        variable: Variable<'_>,
    ) -> Result<Box<dyn Forge>> {
        let api = self.api_address(given, variable)?;
        let credentials = self.credentials(variable)?;
        self.connect(repository, &api, credentials, RetryPolicy::default())
    }

    /// Connects to `repository` at the API `api`. Sends nothing yet.
    pub fn connect(
        &self,
        repository: Repository,
        api: &str,
        credentials: Credentials,
        policy: RetryPolicy,
    ) -> Result<Box<dyn Forge>> {
        if !self.has_groups && repository.owner.contains('/') {
            let fault = format!("`{repository}` is not a repository");
            return Err(Error::arguments(fault).hint("a repository is OWNER/NAME"));
        }
        let (protocol, authenticate) = (self.protocol, self.authenticate);
        let client = Client::new(protocol, authenticate, repository, api, credentials, policy)?;
        Ok((self.connect)(client))
    }
}
