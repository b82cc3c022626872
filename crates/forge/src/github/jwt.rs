//! The JSON Web Token that proves possession of a GitHub App's private key (RFC 7519, RS256).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;

use crate::Secret;
use perfquilt_model::error::{Error, Result};

/// How far the token's issue time lies in the past, in seconds.
const BACKDATED_SECONDS: i64 = 60;
/// How long the token is valid, in seconds; GitHub accepts at most ten minutes after the issue time.
const LIFETIME_SECONDS: i64 = 9 * 60;

/// Returns the token of the App with this id (or client id) at `now`, in seconds since 1970 on GitHub's clock.
pub(super) fn sign(app: &str, key: &Secret, now: i64) -> Result<Secret> {
    let pair = key_pair(key)?;
    let part = |json: serde_json::Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let head = part(serde_json::json!({ "alg": "RS256", "typ": "JWT" }));
    let claims = part(
        serde_json::json!({ "iss": app, "iat": now - BACKDATED_SECONDS, "exp": now + LIFETIME_SECONDS }),
    );
    let text = format!("{head}.{claims}");
    let mut signature = vec![0; pair.public().modulus_len()];
    pair.sign(
        &RSA_PKCS1_SHA256,
        &SystemRandom::new(),
        text.as_bytes(),
        &mut signature,
    )
    .map_err(|_| Error::internal("cannot sign with the App's key"))?;
    Ok(Secret::new(&format!(
        "{text}.{}",
        URL_SAFE_NO_PAD.encode(signature)
    )))
}

fn key_pair(key: &Secret) -> Result<RsaKeyPair> {
    let wrong = |why: &str| {
        Error::credentials(format!("the App's private key cannot be used: {why}"))
            .hint("download it as a .pem file from the App's page at GitHub, under `Private keys`")
    };
    let der = PrivateKeyDer::from_pem_slice(key.expose().as_bytes())
        .map_err(|_| wrong("it is not a private key in PEM format"))?;
    let pair = match &der {
        PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
        PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
        _ => return Err(wrong("it is not an RSA key")),
    };
    // ring's error messages contain nothing of the key.
    pair.map_err(|error| wrong(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};

    /// Generated for this test: `openssl genrsa -traditional 2048`.
    const KEY: &str = include_str!("../../../../tests/fixtures/github/app-key.pem");

    #[test]
    fn the_signature_holds() {
        let token = sign("4711", &Secret::new(KEY), 1_700_000_000).unwrap();
        let parts: Vec<&str> = token.expose().split('.').collect();
        let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
        let claims: serde_json::Value = serde_json::from_slice(&decoded(parts[1])).unwrap();
        assert_eq!(claims["iss"], "4711");
        assert!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap() <= 600);
        let pair = key_pair(&Secret::new(KEY)).unwrap();
        let public = pair.public().as_ref().to_vec();
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, public)
            .verify(
                format!("{}.{}", parts[0], parts[1]).as_bytes(),
                &decoded(parts[2]),
            )
            .unwrap();
    }

    #[test]
    fn other_keys_are_refused_without_being_shown() {
        let cut = KEY.replacen("MII", "MIJ", 1);
        for bad in [
            "",
            "ghp_token",
            cut.as_str(),
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----",
        ] {
            let error = sign("1", &Secret::new(bad), 0).unwrap_err();
            assert!(error.hint_text().is_some());
            assert!(
                bad.is_empty() || !error.to_string().contains(bad),
                "{error}"
            );
        }
    }
}
