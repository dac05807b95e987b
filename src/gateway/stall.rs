//! A peer that takes nothing. What is written to it waits in its connection, and so does everything that belongs to the connection: a
//! stalled watch is never asked whether the ring has left it behind. A socket that could not be written to for a minute is given up.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long a peer may take nothing of what waits for it.
pub const LONGEST: Duration = Duration::from_secs(60);

/// How many peers of this process were given up. Counted here because a connection belongs to nobody who could count.
pub static GIVEN_UP: AtomicU64 = AtomicU64::new(0);

/// A stream whose writes fail when the peer takes nothing for too long.
pub struct Stalling<S> {
    stream: S,
    longest: Duration,
    /// Runs since a write had to wait.
    waits: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalling<S> {
    /// Watches over a stream.
    pub fn new(stream: S) -> Self {
        Stalling { stream, longest: LONGEST, waits: None }
    }

    fn judge<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let longest = self.longest;
        let waits = self.waits.get_or_insert_with(|| Box::pin(tokio::time::sleep(longest)));
        match waits.as_mut().poll(cx) {
            Poll::Ready(()) => {
                GIVEN_UP.fetch_add(1, Ordering::Relaxed);
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes nothing")))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judge(cx, written)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, pieces: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Nothing is kept here that a flush could send; only a write tells whether the peer takes something.
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_given_up() {
        let (ours, _theirs) = tokio::io::duplex(16);
        let mut ours = Stalling { stream: ours, longest: Duration::from_millis(1), waits: None };
        let error = ours.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(GIVEN_UP.load(Ordering::Relaxed) >= 1);
    }

    #[tokio::test]
    async fn time_begins_anew_with_everything_that_the_peer_takes() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut ours = Stalling::new(ours);
        ours.write_all(&[0; 16]).await.unwrap();
        assert!(ours.write_all(&[0; 16]).now_or_never().is_none());
        assert!(ours.waits.is_some());
        theirs.read_exact(&mut [0; 16]).await.unwrap();
        ours.write_all(&[0; 16]).await.unwrap();
        assert!(ours.waits.is_none());
    }
}
