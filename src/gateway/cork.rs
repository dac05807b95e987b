//! Writes of one turn go out together. HTTP/2 flushes behind every DATA frame, which over TLS is a record and a system call for each
//! small answer or watch event. A corked connection keeps what it is given until the connection's task has done all it could and
//! everybody else who was ready to run has had a turn, and then sends it at once: nothing waits for a timer, and a busy connection
//! writes a few large records instead of many small ones.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much is kept before it must go out: some full TLS records.
const MOST: usize = 64 << 10;

/// How much room a connection keeps when it has nothing to send.
const KEPT: usize = 4 << 10;

/// A stream whose writes wait for the end of the turn.
pub struct Corked<S>(Arc<Mutex<Inner<S>>>);

/// What drives a connection over a corked stream.
pub struct Cork<S>(Arc<Mutex<Inner<S>>>);

struct Inner<S> {
    stream: S,
    buffer: Vec<u8>,
    sent: usize,
    /// Whether the stream itself has nothing left to send: TLS takes bytes before the socket does.
    flushed: bool,
}

/// Corks a stream.
pub fn cork<S>(stream: S) -> (Corked<S>, Cork<S>) {
    let inner = Arc::new(Mutex::new(Inner { stream, buffer: Vec::new(), sent: 0, flushed: true }));
    (Corked(inner.clone()), Cork(inner))
}

impl<S: AsyncRead + AsyncWrite + Unpin> Cork<S> {
    /// Drives the connection that has the corked stream: what it wrote goes out after the turn that follows. A stream that has
    /// something to send wakes its connection, which the runtime lets run next; if it sent at once, each stream would have its own
    /// record and system call. So it queues up once more, behind the streams that are ready too.
    pub async fn drive<E: From<io::Error>>(self, connection: impl Future<Output = Result<(), E>>) -> Result<(), E> {
        let mut connection = pin!(connection);
        let mut queued = false;
        poll_fn(|cx| {
            let done = connection.as_mut().poll(cx);
            let mut inner = self.0.lock();
            queued = !queued && !inner.buffer.is_empty() && done.is_pending();
            if queued {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let sent = inner.poll_send(cx);
            match (done, sent) {
                (Poll::Ready(done), _) => Poll::Ready(done),
                (Poll::Pending, Poll::Ready(Err(error))) => Poll::Ready(Err(error.into())),
                (Poll::Pending, _) => Poll::Pending,
            }
        })
        .await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Inner<S> {
    /// Sends everything that is kept.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.buffer.len() {
            let wrote = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.buffer[self.sent..]))?;
            if wrote == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += wrote;
            self.flushed = false;
        }
        if !self.buffer.is_empty() {
            self.sent = 0;
            self.buffer.clear();
            self.buffer.shrink_to(KEPT);
        }
        if !self.flushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Makes sure that something more can be kept.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.buffer.len() < MOST { Poll::Ready(Ok(())) } else { self.poll_send(cx) }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Corked<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Corked<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, pieces: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut inner = self.0.lock();
        ready!(inner.poll_room(cx))?;
        let before = inner.buffer.len();
        for piece in pieces {
            let room = MOST.saturating_sub(inner.buffer.len());
            inner.buffer.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        Poll::Ready(Ok(inner.buffer.len() - before))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Not now: the end of the turn is near.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.0.lock();
        ready!(inner.poll_send(cx))?;
        Pin::new(&mut inner.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn what_a_turn_wrote_goes_out_at_its_end_in_one_piece() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let (mut stream, cork) = cork(near);
        let served = cork.drive(async move {
            for word in ["one ", "two ", "three"] {
                stream.write_all(word.as_bytes()).await?;
                stream.flush().await?;
            }
            // A connection that goes on: everything so far must reach the other side without it.
            std::future::pending::<()>().await;
            Ok::<_, io::Error>(())
        });
        let mut heard = [0; 64];
        let read = tokio::select! {
            read = far.read(&mut heard) => read.expect("reads"),
            _ = served => panic!("the connection does not end"),
        };
        assert_eq!(&heard[..read], b"one two three");
    }

    #[tokio::test]
    async fn a_stream_that_holds_bytes_back_is_flushed_until_it_has_none() {
        let (near, mut far) = tokio::io::duplex(10);
        // Takes everything at once and sends it in small pieces, as TLS does over a full socket.
        let (mut stream, cork) = cork(tokio::io::BufStream::with_capacity(1000, 1000, near));
        let served = cork.drive(async move {
            stream.write_all(&[7; 900]).await?;
            std::future::pending::<()>().await;
            Ok::<_, io::Error>(())
        });
        let mut heard = [0; 900];
        tokio::select! {
            read = far.read_exact(&mut heard) => drop(read.expect("reads all")),
            _ = served => panic!("the connection does not end"),
        }
    }

    #[tokio::test]
    async fn more_than_is_kept_is_not_lost_and_a_slow_reader_holds_the_writer_back() {
        let (near, mut far) = tokio::io::duplex(1000);
        let (mut stream, cork) = cork(near);
        let sent: Vec<u8> = (0..300_000u32).map(|i| i as u8).collect();
        let expected = sent.clone();
        let served = cork.drive(async move {
            stream.write_all(&sent).await?;
            stream.shutdown().await
        });
        let mut heard = Vec::new();
        let (done, read) = tokio::join!(served, far.read_to_end(&mut heard));
        done.expect("serves");
        read.expect("reads");
        assert!(heard == expected);
    }
}
