//! HTTP/1.1 over connections that stay open.

use super::{Malformed, Outcome, Protocol, ProtocolKind, Reply};
use crate::workload::requests::request::Request;
use crate::workload::requests::settings::RequestSettings;
use crate::workload::requests::template::{Piece, Values};

/// The protocol `http`.
pub(super) const KIND: ProtocolKind = ProtocolKind {
    name: "http",
    protocol: |options| {
        if options.prepared {
            return Err(("prepared", "`http` has no prepared statements".to_owned()));
        }
        Ok(Box::new(Http))
    },
};

/// The most header lines of a response.
const MAX_HEADERS: usize = 64;
/// The longest head of a response.
const MAX_HEAD: usize = 1 << 16;

/// HTTP/1.1.
#[derive(Debug)]
struct Http;

impl Protocol for Http {
    /// The request line and headers, and the body.
    fn parts(&self, request: &RequestSettings) -> Result<Vec<String>, String> {
        let words: Vec<&str> = request.send.split(' ').collect();
        let (method, target) = match words[..] {
            [method, target] => (method, target),
            _ => return Err("a request is a method and a path: `GET /index.html`".to_owned()),
        };
        let is_method = !method.is_empty() && method.bytes().all(|b| b.is_ascii_uppercase());
        if !is_method || !(target.starts_with(['/', '{']) || target == "*") {
            return Err("a request is a method and a path: `GET /index.html`".to_owned());
        }
        let mut head = format!("{method} {target} HTTP/1.1\r\n");
        let names: Vec<String> = request.headers.iter().map(|line| name(line)).collect();
        if let Some(line) = request
            .headers
            .iter()
            .find(|line| line.contains(['\r', '\n']) || name(line).is_empty())
        {
            return Err(format!(
                "`{}` is not a header: `Name: value`",
                line.escape_debug()
            ));
        }
        if names.iter().any(|name| name == "content-length") {
            return Err("perfquilt adds `Content-Length` itself".to_owned());
        }
        if !names.iter().any(|name| name == "host") {
            head.push_str("Host: localhost\r\n");
        }
        for line in &request.headers {
            head.push_str(line);
            head.push_str("\r\n");
        }
        Ok([Some(head), request.body.clone()]
            .into_iter()
            .flatten()
            .collect())
    }

    fn encode(&self, request: &Request, values: &Values, out: &mut Vec<u8>) {
        let (head, body) = match &request.parts[..] {
            [head, body] => (head, Some(body)),
            [head, ..] => (head, None),
            [] => return,
        };
        head.write(values, out);
        if let Some(body) = body {
            let length = format!("Content-Length: {}\r\n", body.length(values));
            out.extend_from_slice(length.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        if let Some(body) = body {
            body.write(values, out);
        }
    }

    fn reply<'a>(
        &self,
        request: &Request,
        input: &'a [u8],
    ) -> Result<Option<Reply<'a>>, Malformed> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let head = match response.parse(input) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if input.len() > MAX_HEAD => {
                return Err(Malformed::instead_of("a shorter head", input));
            }
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(error) => return Err(Malformed(format!("{error} in `{}`", shown(input)))),
        };
        let status = response.code.unwrap_or(0);
        if status < 200 {
            return Err(Malformed(format!("status {status} instead of a final one")));
        }
        let outcome = match status {
            200..=299 => Outcome::Result,
            300..=399 => Outcome::Nothing("a redirection"),
            404 => Outcome::Nothing("status 404"),
            _ => {
                // Its body may end with the connection, and no request follows it.
                let reason = response.reason.unwrap_or_default();
                return Ok(Some(Reply {
                    length: head,
                    outcome: Outcome::Error(format!("{status} {reason}").into_bytes().into()),
                }));
            }
        };
        let rest = &input[head..];
        let body = if has_no_body(request, status) {
            0
        } else {
            match body(response.headers, rest)? {
                Some(length) => length,
                None => return Ok(None),
            }
        };
        let header = |name: &str| value(response.headers, name);
        if header("connection").is_some_and(|value| value.eq_ignore_ascii_case(b"close")) {
            return Err(Malformed(
                "the server closes the connection behind this response (nginx: raise `keepalive_requests`)"
                    .to_owned(),
            ));
        }
        Ok(Some(Reply {
            length: head + body,
            outcome,
        }))
    }
}

/// Returns a header line's name in lower case, empty if it has none.
fn name(line: &str) -> String {
    let name = line.split_once(':').map_or("", |(name, _)| name);
    let is_token = name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if is_token {
        name.to_ascii_lowercase()
    } else {
        String::new()
    }
}

fn value<'h>(headers: &[httparse::Header<'h>], name: &str) -> Option<&'h [u8]> {
    let mut headers = headers.iter();
    headers
        .find(|header| header.name.eq_ignore_ascii_case(name))
        .map(|header| header.value)
}

/// Returns whether a response ends with its head (RFC 9112, section 6.3).
fn has_no_body(request: &Request, status: u16) -> bool {
    let head = request.parts.first().and_then(|head| head.pieces().first());
    let is_head = matches!(head, Some(Piece::Text(text)) if text.starts_with("HEAD "));
    is_head || matches!(status, 204 | 304)
}

/// Returns the length of the body at the begin of `input`; `None` if it is not complete yet.
fn body(headers: &[httparse::Header<'_>], input: &[u8]) -> Result<Option<usize>, Malformed> {
    if let Some(encoding) = value(headers, "transfer-encoding") {
        if !encoding.eq_ignore_ascii_case(b"chunked") {
            return Err(Malformed::instead_of("a chunked response", encoding));
        }
        return chunks(input);
    }
    let length = value(headers, "content-length")
        .ok_or_else(|| Malformed("a response without a length".to_owned()))?;
    let length: Option<usize> = std::str::from_utf8(length)
        .ok()
        .and_then(|text| text.parse().ok());
    match length {
        // Lengths that no memory holds.
        Some(length) if length < usize::MAX / 2 => Ok((input.len() >= length).then_some(length)),
        _ => Err(Malformed("a length that is no number".to_owned())),
    }
}

/// Returns the length of a chunked body at the begin of `input`; `None` if it is not complete yet.
fn chunks(input: &[u8]) -> Result<Option<usize>, Malformed> {
    let mut at = 0usize;
    loop {
        let Some(rest) = input.get(at..) else {
            return Ok(None);
        };
        let (line, size) = match httparse::parse_chunk_size(rest) {
            Ok(httparse::Status::Complete(found)) => found,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(Malformed::instead_of("the size of a chunk", rest)),
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let end = at.saturating_add(line).saturating_add(size);
        let Some(end_mark) = input.get(end..end.saturating_add(2)) else {
            return Ok(None);
        };
        // Nobody who answers a benchmark sends trailers.
        if end_mark != b"\r\n" {
            return Err(Malformed::instead_of("CR LF behind a chunk", end_mark));
        }
        at = end + 2;
        if size == 0 {
            return Ok(Some(at));
        }
    }
}

fn shown(input: &[u8]) -> String {
    input[..input.len().min(40)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{parts, plan};
    use super::*;

    fn reply<'a>(request: &str, input: &'a [u8]) -> Result<Option<Reply<'a>>, Malformed> {
        Http.reply(&plan("http", request).requests[0], input)
    }

    #[test]
    fn requests_have_a_host_and_the_length_of_their_body() {
        let encoded = |request| {
            let mut out = Vec::new();
            Http.encode(
                &plan("http", request).requests[0],
                &Values::default(),
                &mut out,
            );
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            encoded("'GET /a'"),
            "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n"
        );
        assert_eq!(
            encoded("{ send = 'POST /a', headers = ['host: b', 'X-Y: z'], body = 'é' }"),
            "POST /a HTTP/1.1\r\nhost: b\r\nX-Y: z\r\nContent-Length: 2\r\n\r\né"
        );
        for request in [
            "'GET'",
            "'GET  /a'",
            "'get /a'",
            "'GET a'",
            "'GET /a HTTP/1.1'",
            "{ send = 'GET /a', headers = ['x'] }",
            "{ send = 'GET /a', headers = [\"x: y\\r\\nz: 1\"] }",
            "{ send = 'GET /a', headers = ['Content-Length: 1'] }",
        ] {
            parts("http", request).unwrap_err();
        }
    }

    #[test]
    fn responses_end_where_they_end() {
        let ok = "HTTP/1.1 200 OK\r\n";
        for (request, input, outcome) in [
            (
                "'GET /'",
                format!("{ok}Content-Length: 3\r\n\r\nabc"),
                Outcome::Result,
            ),
            (
                "'HEAD /'",
                format!("{ok}Content-Length: 3\r\n\r\n"),
                Outcome::Result,
            ),
            (
                "'GET /'",
                "HTTP/1.1 204 No\r\n\r\n".to_owned(),
                Outcome::Result,
            ),
            (
                "'GET /'",
                "HTTP/1.1 304 Not Modified\r\n\r\n".to_owned(),
                Outcome::Nothing("a redirection"),
            ),
            (
                "'GET /'",
                "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
                Outcome::Nothing("status 404"),
            ),
            (
                "'GET /'",
                "HTTP/1.1 500 Oops\r\nconnection: close\r\n\r\n".to_owned(),
                Outcome::Error(b"500 Oops"[..].into()),
            ),
            (
                "'GET /'",
                format!(
                    "{ok}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n10;x=y\r\n0123456789abcdef\r\n0\r\n\r\n"
                ),
                Outcome::Result,
            ),
        ] {
            let followed = format!("{input}{ok}");
            let length = input.len();
            assert_eq!(
                reply(request, followed.as_bytes()),
                Ok(Some(Reply { length, outcome })),
                "{input}"
            );
            for end in 0..length {
                assert_eq!(
                    reply(request, &input.as_bytes()[..end]),
                    Ok(None),
                    "{input} {end}"
                );
            }
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        for input in [
            "x",
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\nuntil it closes",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n",
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
        ] {
            assert!(reply("'GET /'", input.as_bytes()).is_err(), "{input}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(tail in "[\\r\\n0-9a-fA-F:; Ct-]{0,80}") {
            let input = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{tail}");
            for input in [input.as_bytes(), tail.as_bytes()] {
                if let Ok(Some(reply)) = reply("'GET /'", input) {
                    prop_assert!(reply.length <= input.len());
                }
            }
        }
    }
}
