//! A peer that takes nothing. What is written to it waits in its connection, and so does everything that belongs to the connection: a
//! stalled watch is never asked whether the ring has left it behind. A socket that could not be written to for a minute is given up.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long a peer may take nothing of what waits for it.
pub const LONGEST: Duration = Duration::from_secs(60);

/// A stream whose writes fail when the peer takes nothing for too long.
pub struct Stalling<S> {
    stream: S,
    /// Runs since a write had to wait.
    waits: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalling<S> {
    /// Watches over a stream.
    pub fn new(stream: S) -> Self {
        Stalling { stream, waits: None }
    }

    fn judge<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let waits = self.waits.get_or_insert_with(|| Box::pin(tokio::time::sleep(LONGEST)));
        match waits.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes nothing"))),
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up_after_a_minute() {
        let (ours, _theirs) = tokio::io::duplex(16);
        let mut ours = Stalling::new(ours);
        let begin = Instant::now();
        let error = ours.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!((error.kind(), begin.elapsed().as_secs()), (io::ErrorKind::TimedOut, LONGEST.as_secs()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_a_little_now_and_then_is_waited_for() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut ours = Stalling::new(ours);
        let reader = tokio::spawn(async move {
            let mut piece = [0; 16];
            let mut read = 0;
            while read < 256 {
                sleep(LONGEST / 2).await;
                read += theirs.read(&mut piece).await.unwrap();
            }
        });
        ours.write_all(&[0; 256]).await.unwrap();
        reader.await.unwrap();
    }
}
