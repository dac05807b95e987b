//! `usher audit import`: the audit log of another cluster, so that everything that asks the archive works on it too. Files may be
//! compressed with gzip, and in UTF-16; they are read line by line and sent in pieces, so that their size does not matter.

use std::io::{BufRead, BufReader, Cursor, IsTerminal, Read};
use std::path::PathBuf;

use clap::Args;
use flate2::read::MultiGzDecoder;
use serde_json::Value;
use tokio::sync::mpsc;

use super::utf16::{Utf16, is_big};
use super::{Ask, sentence};
use crate::audit::{Event, Stage, import};
use crate::cli::output::{Format, bytes, note};

/// How much is sent at once.
const PIECE: usize = 1 << 20;
/// The longest line, and the largest document that is not in lines.
const LONGEST: u64 = 512 << 20;
/// How many bad lines are told in full.
const TOLD: usize = 10;

pub(super) const EXAMPLES: &str = "Examples:
  usher audit import /var/log/kubernetes/audit.log      the log of a kube-apiserver
  usher audit import audit-2026-11-16.log.gz            compressed
  aws logs filter-log-events … | usher audit import -   what a cloud makes of it, from stdin";

/// Read the audit log of another cluster into the archive.
///
/// Takes the JSON lines of kube-apiserver, what CloudWatch (EKS), Azure Monitor (AKS) and Cloud Logging (GKE) make of them, and
/// whole documents with lists of those; plain or compressed with gzip, in UTF-8 or UTF-16.
#[derive(Debug, Args)]
pub struct Import {
    /// The file; - is standard input
    file: PathBuf,
    #[command(flatten)]
    ask: Ask,
}

impl Import {
    pub(super) async fn run(self) -> Result<(), String> {
        let client = self.ask.reach.client().await?;
        let bad = |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", self.file.display());
        let input: Box<dyn Read + Send> = match self.file.as_os_str() == "-" {
            true => Box::new(std::io::stdin()),
            false => Box::new(std::fs::File::open(&self.file).map_err(|e| bad(&e))?),
        };
        let source = Source::new(input).map_err(|e| bad(&e))?;
        let mut sent = Sent::default();
        let progress = std::io::stderr().is_terminal();
        let mut known = None;
        // While the server takes a piece the next one is read.
        let (pieces, mut ready) = mpsc::channel::<Piece>(1);
        let reading = std::thread::spawn(move || source.read(&pieces));
        while let Some(Piece { lines, first, read }) = ready.recv().await {
            if known.is_none() {
                known = Some(is_kept(&client, &first).await.unwrap_or(false));
            }
            sent.piece(&client, lines).await.map_err(|why| match sent.imported {
                0 => why,
                imported => format!("{why}; {} of {} were imported before", counted(imported, "event"), self.file.display()),
            })?;
            if progress {
                note(&format!("\r{} events, {} read", sent.imported, bytes(read)));
            }
        }
        let (source, broken) = reading.join().map_err(|_| bad(&"reading it ended early"))?;
        // What was read before the file broke off is kept.
        let broken = broken.map(|error| bad(&error));
        if progress {
            note("\r\u{1b}[K");
        }
        let refused = source.refused + sent.refused;
        let say = |what: &str| note(&format!("usher: {}: {what}\n", self.file.display()));
        source.errors.iter().for_each(|error| say(&crate::cli::output::harmless(error)));
        if refused > source.errors.len() as u64 {
            say(&format!("and {} more", refused - source.errors.len() as u64));
        }
        if known == Some(true) {
            say("the archive had its first event already: what was imported before is there twice now");
        }
        let nothing = sent.imported == 0 && refused > 0;
        let none = format!("there are no audit events in {}", self.file.display());
        if self.ask.output != Format::Human {
            let answer = serde_json::json!({"imported": sent.imported, "refused": refused, "lost": sent.lost, "errors": source.errors});
            self.ask.output.write(&answer)?;
            return match broken {
                Some(error) => Err(error),
                None if nothing => Err(none),
                None => Ok(()),
            };
        }
        if nothing && broken.is_none() {
            return Err(none);
        }
        let mut text = format!("imported {}", counted(sent.imported, "event"));
        if refused > 0 {
            text.push_str(&format!(
                ", {refused} in the file {} no audit {}",
                if refused == 1 { "is" } else { "are" },
                if refused == 1 { "event" } else { "events" }
            ));
        }
        if sent.lost > 0 {
            text.push_str(&format!(", {} could not be kept", sent.lost));
        }
        crate::cli::output::line(&text)?;
        broken.map_or(Ok(()), Err)
    }
}

fn counted(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// Whether the archive has an event already, which is named by its Audit-ID and its stage.
async fn is_kept(client: &kube::Client, (audit_id, stage): &(String, Stage)) -> Result<bool, String> {
    if audit_id.is_empty() {
        return Ok(false);
    }
    let query = format!("audit-id={}&stage={stage:?}&limit=1&trace=false", super::encode(audit_id));
    let answer = super::document(client, &format!("/usher/v1/requests?{query}")).await?;
    Ok(answer["items"].as_array().is_some_and(|items| !items.is_empty()))
}

/// What the server made of it.
#[derive(Default)]
struct Sent {
    imported: u64,
    refused: u64,
    lost: u64,
}

impl Sent {
    async fn piece(&mut self, client: &kube::Client, piece: Vec<u8>) -> Result<(), String> {
        let request = http::Request::post("/usher/v1/requests").header(http::header::CONTENT_TYPE, "application/x-ndjson");
        let request = request.body(piece).map_err(|e| e.to_string())?;
        let answer: Value = client.request(request).await.map_err(sentence)?;
        let number = |key: &str| answer[key].as_u64().unwrap_or(0);
        self.imported += number("imported");
        self.refused += number("refused");
        self.lost += number("lost");
        Ok(())
    }
}

/// Some events as they are sent, the first of them, and how much of the log has been read by then.
struct Piece {
    lines: Vec<u8>,
    first: (String, Stage),
    read: u64,
}

/// A log on its way in.
struct Source {
    input: Box<dyn BufRead + Send>,
    /// Whether anything but empty lines was read.
    begun: bool,
    lines: u64,
    read: u64,
    refused: u64,
    errors: Vec<String>,
}

impl Source {
    /// Looks whether it is compressed, and how it is encoded.
    fn new(input: Box<dyn Read + Send>) -> std::io::Result<Source> {
        fn buffered(input: impl Read + Send + 'static) -> Box<dyn BufRead + Send> {
            Box::new(BufReader::with_capacity(256 << 10, input))
        }
        let mut input = buffered(input);
        if input.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
            input = buffered(MultiGzDecoder::new(input));
        }
        // What is broken from the beginning is told when it is read.
        if let Some(big) = input.fill_buf().ok().and_then(is_big) {
            input = buffered(Utf16::new(input, big));
        }
        Ok(Source { input, begun: false, lines: 0, read: 0, refused: 0, errors: Vec::new() })
    }

    /// Hands out everything in pieces, unless nobody takes them any more; answers with what broke it off, if something did.
    fn read(mut self, pieces: &mpsc::Sender<Piece>) -> (Source, Option<std::io::Error>) {
        let (mut lines, mut first) = (Vec::new(), None);
        let broken = loop {
            let events = match self.next() {
                Ok(Some(events)) => events,
                Ok(None) => break None,
                Err(error) => break Some(error),
            };
            for event in events {
                // Of the arrival of a request a server keeps nothing of its own.
                if first.as_ref().is_none_or(|(_, stage)| *stage == Stage::RequestReceived && event.stage != *stage) {
                    first = Some((event.audit_id.clone(), event.stage));
                }
                // Writing to memory does not fail.
                let _ = serde_json::to_writer(&mut lines, &event);
                lines.push(b'\n');
            }
            if lines.len() >= PIECE
                && let Some(first) = first.take()
                && pieces.blocking_send(Piece { lines: std::mem::take(&mut lines), first, read: self.read }).is_err()
            {
                break None;
            }
        };
        if let Some(first) = first {
            let _ = pieces.blocking_send(Piece { lines, first, read: self.read });
        }
        (self, broken)
    }

    /// The events of the next line; `None` at the end. A line that is none is counted, and the first few are told.
    fn next(&mut self) -> std::io::Result<Option<Vec<Event>>> {
        let mut line = Vec::new();
        let read = self.input.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(None);
        }
        self.lines += 1;
        self.read += read as u64;
        let text = String::from_utf8_lossy(&line);
        let mut found = import::line(&text);
        let is_first = !self.begun && !text.trim().is_empty();
        self.begun |= is_first;
        // A document that was written for people begins with a line that is no JSON by itself.
        if is_first && found.events.is_empty() && import::goes_on(&text) {
            let (mut whole, line) = (line.clone(), line.len());
            let broken = self.input.by_ref().take(LONGEST).read_to_end(&mut whole).err();
            let document = import::line(&String::from_utf8_lossy(&whole));
            match document.events.is_empty() && whole.len() > line {
                // Nor is it one with all that follows: it is a line that broke off.
                true => {
                    let rest = std::mem::replace(&mut self.input, Box::new(std::io::empty()));
                    self.input = Box::new(Cursor::new(whole.split_off(line)).chain(rest));
                }
                false => {
                    self.read += (whole.len() - line) as u64;
                    found = document;
                }
            }
            if let Some(error) = broken {
                return Err(error);
            }
        }
        self.refused += found.refused.len() as u64;
        let room = TOLD.saturating_sub(self.errors.len());
        self.errors.extend(found.refused.iter().take(room).map(|why| format!("line {}: {why}", self.lines)));
        Ok(Some(found.events))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const LINE: &str = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","auditID":"a","verb":"get","user":{"username":"jane"}}"#;

    fn read(bytes: Vec<u8>) -> (usize, u64, Vec<String>) {
        let mut source = Source::new(Box::new(std::io::Cursor::new(bytes))).unwrap();
        let mut events = 0;
        while let Some(found) = source.next().unwrap() {
            events += found.len();
        }
        (events, source.refused, source.errors)
    }

    #[test]
    fn lines_are_read_plain_and_compressed_and_bad_ones_are_counted() {
        let text = format!("{LINE}\n\nnonsense\n{LINE}");
        let (events, refused, errors) = read(text.clone().into_bytes());
        assert_eq!((events, refused), (2, 1));
        assert!(errors[0].starts_with("line 3: not JSON"), "{errors:?}");
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        assert_eq!(read(encoder.finish().unwrap()).0, 2);
    }

    #[test]
    fn a_document_written_for_people_is_read_whole() {
        let value: Value = serde_json::from_str(LINE).unwrap();
        let list = serde_json::to_string_pretty(&serde_json::json!([value, value])).unwrap();
        assert_eq!(read(list.into_bytes()).0, 2);
        let envelope = serde_json::to_string_pretty(&serde_json::json!({"events": [{"message": LINE}]})).unwrap();
        assert_eq!(read(envelope.into_bytes()).0, 1);
        let list = serde_json::to_string_pretty(&serde_json::json!([value, {"a": 1}, value])).unwrap();
        let (events, refused, errors) = read(list.into_bytes());
        assert_eq!((events, refused), (2, 1));
        assert_eq!(errors, ["line 1: [1]: neither an audit event nor an envelope of one"]);
        // However it is broken into lines.
        let split = format!("\n{{\"kind\": \"EventList\",\n \"items\": [{LINE},\n{LINE}]}}");
        assert_eq!(read(split.into_bytes()).0, 2);
        // A first line that breaks off is no document.
        let (events, refused, errors) = read(format!("{}\n{LINE}\n{LINE}\n", &LINE[..40]).into_bytes());
        assert_eq!((events, refused), (2, 1));
        assert!(errors[0].starts_with("line 1: not JSON"), "{errors:?}");
    }

    #[test]
    fn text_of_other_systems_is_read() {
        let text = format!("{LINE}\r\n{LINE}\r\n");
        assert_eq!(read(format!("\u{feff}{text}").into_bytes()).0, 2);
        let wide: Vec<u8> = format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(read(wide.clone()).0, 2);
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&wide).unwrap();
        assert_eq!(read(encoder.finish().unwrap()).0, 2);
    }
}
