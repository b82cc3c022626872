//! HTTP/1.1 over connections that stay open.

use super::{Malformed, Progress, Protocol, ProtocolKind, ReplyOutcome, ReplyReader};
use crate::workload::requests::request::Request;
use crate::workload::requests::settings::RequestSettings;
use crate::workload::requests::template::{Piece, Values};

/// The protocol `http`.
pub(super) const KIND: ProtocolKind = ProtocolKind {
    name: "http",
    prepares: false,
    pipelines: true,
    protocol: |_| Box::new(Http),
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

    fn reader(&self) -> Box<dyn ReplyReader> {
        Box::<Reader>::default()
    }
}

/// Reads responses: the head, then the body as it arrives.
#[derive(Debug, Default)]
struct Reader {
    /// The response whose head was read.
    response: Option<Response>,
}

/// A response whose body is being read.
#[derive(Debug)]
struct Response {
    body: Body,
    outcome: ReplyOutcome,
}

/// The rest of a body.
#[derive(Debug, Clone, Copy)]
enum Body {
    /// So many bytes.
    Length(usize),
    /// Chunks up to an empty one.
    Chunks,
}

impl ReplyReader for Reader {
    fn read(&mut self, request: &Request, input: &[u8]) -> Result<Progress, Malformed> {
        let (head, mut response) = match self.response.take() {
            Some(response) => (0, response),
            None => match head(request, input)? {
                Some(head) => head,
                None => return Ok(Progress::incomplete(0)),
            },
        };
        let (length, is_over) = match &mut response.body {
            Body::Length(left) => {
                let length = (*left).min(input.len() - head);
                *left -= length;
                (length, *left == 0)
            }
            Body::Chunks => chunks(&input[head..])?,
        };
        let length = head + length;
        if is_over {
            return Ok(Progress::complete(length, response.outcome));
        }
        self.response = Some(response);
        Ok(Progress::incomplete(length))
    }
}

/// Reads the head of a response, and returns its length; `None` if it is not complete yet.
fn head(request: &Request, input: &[u8]) -> Result<Option<(usize, Response)>, Malformed> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(input) {
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
        200..=299 => ReplyOutcome::Result,
        300..=399 => ReplyOutcome::Nothing("a redirection"),
        404 => ReplyOutcome::Nothing("status 404"),
        _ => {
            let reason = response.reason.unwrap_or_default();
            let outcome = ReplyOutcome::Error(format!("{status} {reason}").into_bytes());
            // Its body may end with the connection, and no request follows it.
            let body = Body::Length(0);
            return Ok(Some((length, Response { body, outcome })));
        }
    };
    let body = if has_no_body(request, status) {
        Body::Length(0)
    } else {
        body(response.headers)?
    };
    let connection = value(response.headers, "connection");
    if connection.is_some_and(|value| value.eq_ignore_ascii_case(b"close")) {
        return Err(Malformed(
            "the server closes the connection after this response (nginx: raise `keepalive_requests`)"
                .to_owned(),
        ));
    }
    Ok(Some((length, Response { body, outcome })))
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

/// Returns how long a body is.
fn body(headers: &[httparse::Header<'_>]) -> Result<Body, Malformed> {
    if let Some(encoding) = value(headers, "transfer-encoding") {
        if !encoding.eq_ignore_ascii_case(b"chunked") {
            return Err(Malformed::instead_of("a chunked response", encoding));
        }
        return Ok(Body::Chunks);
    }
    let length = value(headers, "content-length")
        .ok_or_else(|| Malformed("a response without a length".to_owned()))?;
    let length: Option<usize> = std::str::from_utf8(length)
        .ok()
        .and_then(|text| text.parse().ok());
    // No response is as long as half of all addresses, and a server that says so would be waited for in vain.
    length
        .filter(|&length| length < usize::MAX / 2)
        .map(Body::Length)
        .ok_or_else(|| Malformed("a length that is not a number".to_owned()))
}

/// Returns the length of the complete chunks at the begin of `input`, and whether the last one ends the body.
fn chunks(input: &[u8]) -> Result<(usize, bool), Malformed> {
    let mut at = 0usize;
    loop {
        let rest = &input[at..];
        let (line, size) = match httparse::parse_chunk_size(rest) {
            Ok(httparse::Status::Complete(found)) => found,
            Ok(httparse::Status::Partial) => return Ok((at, false)),
            Err(_) => return Err(Malformed::instead_of("the size of a chunk", rest)),
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let end = at.saturating_add(line).saturating_add(size);
        let Some(end_mark) = input.get(end..end.saturating_add(2)) else {
            return Ok((at, false));
        };
        // Nobody who answers a benchmark sends trailers.
        if end_mark != b"\r\n" {
            return Err(Malformed::instead_of("CR LF after a chunk", end_mark));
        }
        at = end + 2;
        if size == 0 {
            return Ok((at, true));
        }
    }
}

fn shown(input: &[u8]) -> String {
    input[..input.len().min(40)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{self, assert_whole, parts, plan};
    use super::*;

    fn reply(request: &str, input: &[u8]) -> Result<Option<(usize, ReplyOutcome)>, Malformed> {
        testing::reply(&Http, &plan("http", request).requests[0], input)
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
                ReplyOutcome::Result,
            ),
            (
                "'HEAD /'",
                format!("{ok}Content-Length: 3\r\n\r\n"),
                ReplyOutcome::Result,
            ),
            (
                "'GET /'",
                "HTTP/1.1 204 No\r\n\r\n".to_owned(),
                ReplyOutcome::Result,
            ),
            (
                "'GET /'",
                "HTTP/1.1 304 Not Modified\r\n\r\n".to_owned(),
                ReplyOutcome::Nothing("a redirection"),
            ),
            (
                "'GET /'",
                "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
                ReplyOutcome::Nothing("status 404"),
            ),
            (
                "'GET /'",
                "HTTP/1.1 500 Oops\r\nconnection: close\r\n\r\n".to_owned(),
                ReplyOutcome::Error(b"500 Oops"[..].into()),
            ),
            (
                "'GET /'",
                format!(
                    "{ok}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n10;x=y\r\n0123456789abcdef\r\n0\r\n\r\n"
                ),
                ReplyOutcome::Result,
            ),
        ] {
            assert_whole(|bytes| reply(request, bytes), (&input, ok), outcome);
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
                let _ = reply("'GET /'", input);
            }
        }
    }
}
