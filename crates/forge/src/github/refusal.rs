//! Why GitHub refused a request.

use crate::refusal::{Problem, Refusal, RefusedResponse};

/// Words of a message about a limit, in lower case. The second is what GitHub called secondary limits before; the third
/// stands in the errors of a request that creates too much too quickly.
const LIMIT_WORDS: [&str; 3] = ["rate limit", "abuse detection", "submitted too quickly"];

/// Returns the cause of a refusal
/// (<https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api#exceeding-the-rate-limit>,
/// <https://docs.github.com/en/rest/using-the-rest-api/troubleshooting-the-rest-api>).
pub(super) fn refusal(response: &RefusedResponse<'_>) -> Refusal {
    let problem: Option<Problem> = serde_json::from_str(response.body).ok();
    let documentation = problem
        .as_ref()
        .map(|problem| problem.documentation_url.to_lowercase())
        .unwrap_or_default();
    // A page of GitHub's front servers has no fields.
    let said = problem.map_or_else(|| response.body.to_owned(), |problem| problem.text());
    let said = said.to_lowercase();
    let says_limited = LIMIT_WORDS.iter().any(|words| said.contains(words));
    match response.status {
        429 => Refusal::Limited,
        403 if documentation.contains("rate-limit") => Refusal::Limited,
        403 if documentation.contains("locking-conversations") => Refusal::Locked,
        403 if said.contains("suspended") => Refusal::Suspended,
        403 if said.contains("ip allow list") || documentation.contains("allowed-ip-addresses") => {
            Refusal::AddressNotAllowed
        }
        403 if said.contains("forbids access via a") => Refusal::TokenForbidden,
        451 => Refusal::Blocked,
        403 if said.contains("blocked") && !says_limited => Refusal::Blocked,
        403 if said.contains("archived") => Refusal::Archived,
        403 if response.demands_sso || documentation.contains("saml") || said.contains("saml") => {
            Refusal::SingleSignOn
        }
        403 if response.has_retry_after || response.remaining == Some(0) || says_limited => {
            Refusal::Limited
        }
        422 if said.contains(LIMIT_WORDS[2]) => Refusal::Limited,
        _ => Refusal::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, message: &str, documentation: &str) -> Refusal {
        let body = serde_json::json!({ "message": message, "documentation_url": documentation })
            .to_string();
        refusal(&RefusedResponse {
            status,
            body: &body,
            ..RefusedResponse::default()
        })
    }

    #[test]
    fn every_documented_form_of_a_limit_is_one() {
        const REST: &str = "https://docs.github.com/rest";
        for (status, message, documentation) in [
            (403, "You have exceeded a secondary rate limit.", REST),
            (
                403,
                "You have triggered an abuse detection mechanism and have been temporarily blocked from content creation.",
                "",
            ),
            (
                403,
                "Please wait.",
                "https://docs.github.com/free-pro-team@latest/rest/overview/resources-in-the-rest-api#secondary-rate-limits",
            ),
            (
                403,
                "Please wait.",
                "https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api#about-secondary-rate-limits",
            ),
            (
                403,
                "Please wait.",
                "https://developer.github.com/v3/#abuse-rate-limits",
            ),
            (
                403,
                "API rate limit exceeded for user ID 1.",
                "https://developer.github.com/v3/#rate-limiting",
            ),
            (429, "", ""),
        ] {
            assert_eq!(
                of(status, message, documentation),
                Refusal::Limited,
                "{message}"
            );
        }
        const NOTHING: &str = "";
        for (message, cause) in [
            (
                "Repository was archived so is read-only.",
                Refusal::Archived,
            ),
            (
                "Resource protected by organization SAML enforcement.",
                Refusal::SingleSignOn,
            ),
            ("Sorry. Your account was suspended.", Refusal::Suspended),
            ("This installation has been suspended", Refusal::Suspended),
            (
                "Although you appear to have the correct authorization credentials, the `acme` organization has an IP \
                 allow list enabled, and your IP address is not permitted to access this resource.",
                Refusal::AddressNotAllowed,
            ),
            (
                "`acme` forbids access via a personal access token (classic).",
                Refusal::TokenForbidden,
            ),
            ("Repository access blocked", Refusal::Blocked),
            ("User is blocked", Refusal::Blocked),
            ("Resource not accessible by integration", Refusal::Other),
        ] {
            assert_eq!(of(403, message, NOTHING), cause, "{message}");
        }
        let plain = |status, body| {
            refusal(&RefusedResponse {
                status,
                body,
                ..RefusedResponse::default()
            })
        };
        let page = "<html><p>You have exceeded a secondary rate limit.</p></html>";
        assert_eq!(plain(403, page), Refusal::Limited);
        let quick = r#"{"message": "Validation Failed", "errors": [{"message": "was submitted too quickly"}]}"#;
        assert_eq!(plain(422, quick), Refusal::Limited);
        let headers = |has_retry_after, remaining| {
            refusal(&RefusedResponse {
                status: 403,
                has_retry_after,
                remaining,
                ..RefusedResponse::default()
            })
        };
        assert_eq!(headers(true, None), Refusal::Limited);
        assert_eq!(headers(false, Some(0)), Refusal::Limited);
        assert_eq!(headers(false, Some(1)), Refusal::Other);
    }

    #[test]
    fn words_of_a_message_lock_nothing() {
        let lock = "https://docs.github.com/articles/locking-conversations/";
        assert_eq!(of(403, "Unable to create comment.", lock), Refusal::Locked);
        assert_eq!(of(404, "Not Found", lock), Refusal::Other);
        let blocked = "Repository access blocked; the branch is locked";
        assert_eq!(
            of(403, blocked, "https://docs.github.com/rest"),
            Refusal::Blocked
        );
        // A conversation stays locked however many requests are left.
        let body = format!(r#"{{"message": "x", "documentation_url": "{lock}"}}"#);
        let used_up = RefusedResponse {
            status: 403,
            body: &body,
            remaining: Some(0),
            ..RefusedResponse::default()
        };
        assert_eq!(refusal(&used_up), Refusal::Locked);
    }

    #[test]
    fn single_sign_on_and_permissions_are_no_limits() {
        let saml = "https://docs.github.com/articles/authenticating-to-a-github-organization-with-saml-single-sign-on/";
        assert_eq!(of(403, "Resource protected", saml), Refusal::SingleSignOn);
        let demanded = RefusedResponse {
            status: 403,
            body: "{}",
            demands_sso: true,
            ..RefusedResponse::default()
        };
        assert_eq!(refusal(&demanded), Refusal::SingleSignOn);
        let rest = "https://docs.github.com/rest/issues/comments#create-an-issue-comment";
        for (status, message) in [
            (403, "Resource not accessible by integration"),
            (404, "Not Found"),
            (410, "This issue was deleted"),
            (422, "Validation Failed"),
        ] {
            assert_eq!(of(status, message, rest), Refusal::Other, "{message}");
        }
        assert_eq!(of(451, "Unavailable", rest), Refusal::Blocked);
    }
}
