//! gzip for large answers: level 1, only when the client asks for it and the body is known to exceed 128 KiB, as a real server does. Watch
//! streams are not compressed here.

use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::BoxError;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::Response;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, HeaderValue, VARY};
use http_body::{Body, Frame, SizeHint};

/// Bodies up to this size are sent as they are.
pub const THRESHOLD: u64 = 128 * 1024;

/// Compressed bytes are handed on in pieces of about this size.
const PIECE: usize = 32 * 1024;

/// Whether the client named gzip. As on a real server, `gzip;q=1` and `*` do not count.
pub fn accepts_gzip(request: &HeaderMap) -> bool {
    let header = request.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    header.split(',').any(|token| token.trim() == "gzip")
}

/// Compresses a response if the client asked for it and its body is large enough; otherwise passes it through.
pub fn compress<B: Body<Data = Bytes>>(request: &HeaderMap, response: Response<B>) -> Response<Gzip<B>> {
    let wanted =
        response.body().size_hint().lower() > THRESHOLD && accepts_gzip(request) && !response.headers().contains_key(CONTENT_ENCODING);
    let (mut parts, body) = response.into_parts();
    if wanted {
        parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        parts.headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
        parts.headers.remove(CONTENT_LENGTH);
    }
    Response::from_parts(parts, Gzip { body, encoder: wanted.then(new_encoder) })
}

/// One whole gzip member.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = new_encoder();
    // A vector takes everything that is written to it.
    drop(encoder.write_all(bytes));
    encoder.finish().unwrap_or_default()
}

fn new_encoder() -> GzEncoder<Vec<u8>> {
    GzEncoder::new(Vec::new(), Compression::new(1))
}

/// A body that is compressed on its way out, or passed through.
#[derive(Debug)]
pub struct Gzip<B> {
    body: B,
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl<B> Body for Gzip<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        loop {
            let frame = ready!(Pin::new(&mut this.body).poll_frame(context)).transpose().map_err(Into::into)?;
            let Some(encoder) = &mut this.encoder else { return Poll::Ready(frame.map(Ok)) };
            match frame.map(Frame::into_data) {
                Some(Ok(data)) => {
                    encoder.write_all(&data)?;
                    if encoder.get_ref().len() >= PIECE {
                        let piece = std::mem::take(encoder.get_mut());
                        return Poll::Ready(Some(Ok(Frame::data(piece.into()))));
                    }
                }
                // Trailers: none of ours has them, and they cannot precede what is still in the encoder.
                Some(Err(_)) => {}
                None => {
                    let Some(encoder) = this.encoder.take() else { return Poll::Ready(None) };
                    return Poll::Ready(Some(Ok(Frame::data(encoder.finish()?.into()))));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.encoder.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.encoder.is_some() { SizeHint::default() } else { self.body.size_hint() }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::MultiGzDecoder;
    use http_body_util::{BodyExt, Full, StreamBody};

    use super::*;

    fn asks_for(encoding: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(encoding))])
    }

    fn body_of(size: usize) -> Response<Full<Bytes>> {
        let bytes: Vec<u8> = (0..size).map(|at| (at * at / 7) as u8).collect();
        Response::new(Full::new(Bytes::from(bytes)))
    }

    fn unzip(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        MultiGzDecoder::new(bytes).read_to_end(&mut out).unwrap();
        out
    }

    #[tokio::test]
    async fn a_large_body_is_compressed_for_a_client_that_asks() {
        let plain = body_of(200_000).into_body().collect().await.unwrap().to_bytes();
        let response = compress(&asks_for("deflate, gzip"), body_of(200_000));
        assert_eq!(response.headers()[CONTENT_ENCODING], "gzip");
        assert_eq!(response.headers()[VARY], "Accept-Encoding");
        assert_eq!(response.body().size_hint().exact(), None);
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        assert!(bytes.len() < plain.len());
        assert_eq!(unzip(&bytes), plain);
        assert_eq!(unzip(&gzip(&plain)), plain);
    }

    #[tokio::test]
    async fn other_bodies_pass_through() {
        for (encoding, size) in [("gzip", 128 * 1024), ("br", 200_000), ("gzip;q=1.0", 200_000), ("*", 200_000)] {
            let response = compress(&asks_for(encoding), body_of(size));
            assert!(!response.headers().contains_key(CONTENT_ENCODING), "{encoding}");
            assert_eq!(response.body().size_hint().exact(), Some(size as u64));
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), size);
        }
    }

    #[tokio::test]
    async fn a_body_in_many_pieces_comes_out_in_pieces() {
        let pieces =
            (0u32..2000).map(|at| Ok::<_, std::io::Error>(Frame::data(Bytes::from(vec![(at % 251) as u8; 1 + at as usize % 700]))));
        let plain: Vec<u8> = (0u32..2000).flat_map(|at| vec![(at % 251) as u8; 1 + at as usize % 700]).collect();
        let mut body = Gzip { body: StreamBody::new(futures::stream::iter(pieces)), encoder: Some(new_encoder()) };
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            bytes.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
        assert_eq!(unzip(&bytes), plain);
        assert!(body.is_end_stream() || body.frame().await.is_none());
    }
}
