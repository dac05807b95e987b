//! Where a request stands in a distributed trace: W3C Trace Context, as the header `traceparent` carries it in (from a client that
//! traces) and out (to webhooks). Reading and writing the header is all there is to it; exporting spans is the audit room's.

use std::fmt;

/// The header's name.
pub const TRACEPARENT: &str = "traceparent";

/// A request's span in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanContext {
    /// The trace that the request belongs to.
    pub trace_id: u128,
    /// The span of the client that sent it, if that client traces.
    pub parent: Option<u64>,
    /// The request's own span.
    pub span_id: u64,
    /// Whether whoever began the trace wants it recorded.
    pub sampled: bool,
}

impl SpanContext {
    /// Adopts the trace of a `traceparent`; `None` if it is none.
    pub fn adopt(header: &str) -> Option<Self> {
        let mut parts = header.trim().split('-');
        let version = hex(parts.next()?, 2)?;
        let trace_id = hex(parts.next()?, 32).filter(|id| *id != 0)?;
        let parent = hex(parts.next()?, 16).filter(|id| *id != 0)?;
        let flags = hex(parts.next()?, 2)?;
        // What later versions append is to be ignored; version 0 has nothing to append, and 255 is forbidden.
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        Some(SpanContext { trace_id, parent: Some(parent as u64), span_id: new_span_id(), sampled: flags & 1 == 1 })
    }

    /// The beginning of a trace; an Audit-ID that is a UUID names it, so that one leads to the other.
    pub fn begin(audit_id: &str) -> Self {
        let trace_id = uuid::Uuid::try_parse(audit_id).ok().filter(|id| !id.is_nil()).unwrap_or_else(uuid::Uuid::new_v4).as_u128();
        SpanContext { trace_id, parent: None, span_id: new_span_id(), sampled: true }
    }

    /// The trace id as it is written.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace_id)
    }
}

/// The `traceparent` of a request that is made on behalf of this one.
impl fmt::Display for SpanContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

/// An id that nothing else has; never zero.
pub fn new_span_id() -> u64 {
    (uuid::Uuid::new_v4().as_u128() as u64).max(1)
}

/// So many lower-case hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let lower = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    (text.len() == digits && lower).then(|| u128::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_adopted_and_handed_on_with_a_span_of_its_own() {
        let given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let span = SpanContext::adopt(given).expect("valid");
        assert_eq!((span.trace_id().as_str(), span.parent), ("4bf92f3577b34da6a3ce929d0e0e4736", Some(0x00f0_67aa_0ba9_02b7)));
        let handed_on = span.to_string();
        assert!(handed_on.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && handed_on.ends_with("-01"), "{handed_on}");
        assert_ne!(handed_on, given);
    }

    #[test]
    fn what_is_no_traceparent_is_not_believed() {
        for text in [
            "",
            "00",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-é",
        ] {
            assert_eq!(SpanContext::adopt(text), None, "{text}");
        }
        assert!(SpanContext::adopt("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more").is_some());
    }

    #[test]
    fn a_trace_that_begins_here_is_named_by_its_audit_id() {
        let span = SpanContext::begin("0d1fb1f4-70cc-4a2e-ae08-b39b0d5d2bbc");
        assert_eq!(span.trace_id(), "0d1fb1f470cc4a2eae08b39b0d5d2bbc");
        assert_ne!(SpanContext::begin("mine").trace_id, 0);
    }
}
